//! The one table of keys: name, type, default, range, scope, mutability, and a line of documentation.
//!
//! Defaults are Kafka's unless the line says otherwise. A topic key without a value of its own takes the
//! broker's, through its fallbacks in order, so only broker keys carry defaults. Invariants (names unique
//! per scope, defaults acceptable, fallbacks existing and changeable at run time) are tested below.

use std::fmt;

/// Which resource a key is set on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// The broker: its file, its command line, and its dynamic settings.
    Broker,
    /// One topic.
    Topic,
}

/// The type of a key's value, with what it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// A 32-bit number in the inclusive range.
    Int(i64, i64),
    /// A 64-bit number in the inclusive range.
    Long(i64, i64),
    /// `true` or `false`.
    Bool,
    /// Free text, not empty.
    Text,
    /// A comma-separated list, not empty.
    List,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// One or more of these words, separated by commas.
    AnyOf(&'static [&'static str]),
    /// A decimal fraction from 0 to 1.
    Ratio,
}

impl KeyKind {
    /// The type's name in documentation.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Int(..) => "int",
            Self::Long(..) => "long",
            Self::Bool => "boolean",
            Self::Text | Self::OneOf(_) => "string",
            Self::List | Self::AnyOf(_) => "list",
            Self::Ratio => "double",
        }
    }

    /// The type's code in a DescribeConfigs response (Kafka's `ConfigType`).
    #[must_use]
    pub fn code(self) -> i8 {
        match self {
            Self::Bool => 1,
            Self::Text | Self::OneOf(_) => 2,
            Self::Int(..) => 3,
            Self::Long(..) => 5,
            Self::Ratio => 6,
            Self::List | Self::AnyOf(_) => 7,
        }
    }

    /// The value as it is stored, blanks trimmed, or `None` where it is not acceptable.
    pub(super) fn normalise(self, value: &str) -> Option<String> {
        let value = value.trim();
        let accepted = match self {
            Self::Int(low, high) | Self::Long(low, high) => {
                return value
                    .parse::<i64>()
                    .ok()
                    .filter(|n| (low..=high).contains(n))
                    .map(|n| n.to_string());
            }
            Self::Bool => {
                let lower = value.to_ascii_lowercase();
                return matches!(lower.as_str(), "true" | "false").then_some(lower);
            }
            Self::Text => !value.is_empty(),
            Self::List => !value.is_empty() && value.split(',').all(|item| !item.trim().is_empty()),
            Self::OneOf(words) => words.contains(&value),
            Self::AnyOf(words) => {
                let mut chosen: Vec<&str> = Vec::new();
                for word in value.split(',').map(str::trim) {
                    if !words.contains(&word) {
                        return None;
                    }
                    if !chosen.contains(&word) {
                        chosen.push(word);
                    }
                }
                return Some(chosen.join(","));
            }
            Self::Ratio => value
                .parse::<f64>()
                .is_ok_and(|ratio| (0.0..=1.0).contains(&ratio)),
        };
        accepted.then(|| value.to_owned())
    }
}

impl fmt::Display for KeyKind {
    /// What a value must look like, as in "expected ...".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(low, high) | Self::Long(low, high) if low == high => write!(f, "{low}"),
            Self::Long(low, i64::MAX) => write!(f, "a number of {low} or more, below 2^63"),
            Self::Int(low, high) | Self::Long(low, high) => write!(f, "a number from {low} to {high}"),
            Self::Bool => f.write_str("true or false"),
            Self::Text => f.write_str("a text that is not empty"),
            Self::List => f.write_str("a comma-separated list"),
            Self::OneOf([word]) => write!(f, "{word}"),
            Self::OneOf(words) => write!(f, "one of {}", words.join(", ")),
            Self::AnyOf(words) => write!(f, "one or more of {}", words.join(", ")),
            Self::Ratio => f.write_str("a number from 0 to 1"),
        }
    }
}

/// Where a topic key looks when the topic has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The broker key.
    pub name: &'static str,
    /// How many of the topic key's units one of the broker key's is (an hour is 3,600,000 ms).
    pub scale: i64,
}

/// The resources a key can be set on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyScope {
    /// The broker only.
    Broker,
    /// Topics only, falling back to these broker keys in order.
    Topic(&'static [Fallback]),
    /// Both, under one name: the topic's value, else the broker's.
    Both,
}

/// One row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Key {
    /// The name, Kafka's where Kafka has the setting.
    pub name: &'static str,
    /// Another name accepted for it.
    pub alias: Option<&'static str>,
    /// The type and range.
    pub kind: KeyKind,
    /// The value when nothing is set; `None` where another key or the machine decides.
    pub default: Option<&'static str>,
    /// Where it can be set.
    pub scope: KeyScope,
    /// Whether a running broker takes a new value.
    pub dynamic: bool,
    /// What it does, in a sentence or two.
    pub doc: &'static str,
}

impl Key {
    const fn broker(name: &'static str, kind: KeyKind, default: &'static str, doc: &'static str) -> Self {
        let (alias, default, scope) = (None, Some(default), KeyScope::Broker);
        Self {
            name,
            alias,
            kind,
            default,
            scope,
            dynamic: false,
            doc,
        }
    }

    const fn topic(
        name: &'static str,
        kind: KeyKind,
        fallbacks: &'static [Fallback],
        doc: &'static str,
    ) -> Self {
        let (alias, default, scope) = (None, None, KeyScope::Topic(fallbacks));
        Self {
            name,
            alias,
            kind,
            default,
            scope,
            dynamic: true,
            doc,
        }
    }

    const fn both(name: &'static str, kind: KeyKind, default: &'static str, doc: &'static str) -> Self {
        let (alias, default, scope) = (None, Some(default), KeyScope::Both);
        Self {
            name,
            alias,
            kind,
            default,
            scope,
            dynamic: true,
            doc,
        }
    }

    const fn unset(self) -> Self {
        Self {
            default: None,
            ..self
        }
    }

    const fn dynamic(self) -> Self {
        Self {
            dynamic: true,
            ..self
        }
    }

    const fn alias(self, alias: &'static str) -> Self {
        Self {
            alias: Some(alias),
            ..self
        }
    }

    /// Whether the key can be set on `resource`.
    #[must_use]
    pub fn applies_to(&self, resource: ResourceKind) -> bool {
        match self.scope {
            KeyScope::Broker => resource == ResourceKind::Broker,
            KeyScope::Topic(_) => resource == ResourceKind::Topic,
            KeyScope::Both => true,
        }
    }
}

/// Every key, broker keys first, each group in alphabetical order.
#[must_use]
pub fn all_keys() -> &'static [Key] {
    KEYS
}

/// The key of that name or alias on `resource`.
#[must_use]
pub fn find_key(resource: ResourceKind, name: &str) -> Option<&'static Key> {
    KEYS.iter()
        .find(|key| key.applies_to(resource) && (key.name == name || key.alias == Some(name)))
}

const I32_MAX: i64 = i32::MAX as i64;
const MS_PER_HOUR: i64 = 3_600_000;
/// Keeps `hours * MS_PER_HOUR` within an i64.
const HOURS_MAX: i64 = I32_MAX;
const COUNT: KeyKind = KeyKind::Int(1, I32_MAX);
const LONG: KeyKind = KeyKind::Long(0, i64::MAX);
/// Kafka 4 refuses segments below 1 MiB: smaller ones cost more in files than they hold.
const SEGMENT: KeyKind = KeyKind::Int(1 << 20, I32_MAX);
const FLUSH: KeyKind = KeyKind::OneOf(&["group", "os", "interval"]);
const CLEANUP: KeyKind = KeyKind::AnyOf(&["delete", "compact"]);
const TIMESTAMP: KeyKind = KeyKind::OneOf(&["CreateTime", "LogAppendTime"]);
const FOREVER: &str = "9223372036854775807";

const fn from(name: &'static str) -> Fallback {
    Fallback { name, scale: 1 }
}

static KEYS: &[Key] = &[
    Key::broker("advertised.listeners", KeyKind::List, "",
        "NAME://host:port of each listener as clients are to reach it. Unset: the host of `listeners`; where that is a wildcard, this machine's name or first address.").unset(),
    Key::broker("auto.create.topics.enable", KeyKind::Bool, "true",
        "Whether a client that asks for a topic which does not exist creates it."),
    Key::both("compression.type", KeyKind::OneOf(&["producer"]), "producer",
        "The codec batches are stored with: as the producer sent them. Re-compression is not there yet."),
    Key::broker("connections.max.idle.ms", KeyKind::Long(1, i64::MAX), "600000",
        "A connection without a request for this long is closed."),
    Key::broker("default.replication.factor", KeyKind::Int(1, 32767), "1",
        "Replicas of a topic that is created without saying how many."),
    Key::broker("delete.topic.enable", KeyKind::Bool, "true", "Whether topics can be deleted."),
    Key::broker("fetch.max.bytes", KeyKind::Int(1024, I32_MAX), "57671680",
        "The most bytes one fetch answers, whatever the client asks for; the first batch is always sent whole."),
    Key::both("flush.policy", FLUSH, "group",
        "When an acks=all produce is acknowledged. `group`: once it is on stable storage, one sync shared by all that was written. `os`: once written, the kernel syncs when it likes (Kafka's default behaviour). `interval`: once written, synced every flush.ms. ringlog's own key."),
    Key::broker("io.backend", KeyKind::OneOf(&["auto", "ring", "blocking"]), "auto",
        "How files are read and written. `auto`: io_uring, or blocking calls where the kernel forbids it. ringlog's own key."),
    Key::broker("listener.security.protocol.map", KeyKind::List, "PLAINTEXT:PLAINTEXT",
        "NAME:PROTOCOL for each listener name, for which the only protocol so far is PLAINTEXT; other names have no effect."),
    Key::broker("listeners", KeyKind::List, "PLAINTEXT://:9092",
        "NAME://host:port of each address to listen on. An empty host or 0.0.0.0 is every IPv4 address of this machine, [::] those of IPv6 as well; port 0 is any free port."),
    Key::broker("log.cleaner.backoff.ms", LONG, "15000",
        "How long compaction waits where no log needs it, before it looks again."),
    Key::broker("log.cleaner.dedupe.buffer.size", KeyKind::Long(1 << 20, i64::MAX), "134217728",
        "Memory for the keys of one pass of compaction, 24 bytes each; with more keys than that, a log takes several passes."),
    Key::broker("log.cleaner.delete.retention.ms", LONG, "86400000",
        "The broker's delete.retention.ms.").dynamic(),
    Key::broker("log.cleaner.io.buffer.load.factor", KeyKind::Ratio, "0.9",
        "How much of log.cleaner.dedupe.buffer.size is filled; less makes look-ups faster."),
    Key::broker("log.cleaner.max.compaction.lag.ms", KeyKind::Long(1, i64::MAX), FOREVER,
        "The broker's max.compaction.lag.ms.").dynamic(),
    Key::broker("log.cleaner.min.cleanable.ratio", KeyKind::Ratio, "0.5",
        "The broker's min.cleanable.dirty.ratio.").dynamic(),
    Key::broker("log.cleaner.min.compaction.lag.ms", LONG, "0",
        "The broker's min.compaction.lag.ms.").dynamic(),
    Key::broker("log.cleaner.threads", KeyKind::Int(1, 1), "1",
        "Threads that compact logs: there is one."),
    Key::broker("log.cleanup.policy", CLEANUP, "delete",
        "The broker's cleanup.policy.").dynamic(),
    Key::broker("log.dirs", KeyKind::Text, "ringlog-data",
        "The data directory: one, relative to where the broker is started unless absolute.").alias("log.dir"),
    Key::broker("log.flush.interval.messages", KeyKind::Long(1, i64::MAX), FOREVER,
        "The broker's flush.messages.").dynamic(),
    Key::broker("log.flush.interval.ms", KeyKind::Long(1, i64::MAX), "1000",
        "The broker's flush.ms. Kafka has no default.").dynamic(),
    Key::broker("log.index.interval.bytes", KeyKind::Int(0, I32_MAX), "4096",
        "The broker's index.interval.bytes.").dynamic(),
    Key::broker("log.message.timestamp.after.max.ms", LONG, "3600000",
        "The broker's message.timestamp.after.max.ms.").dynamic(),
    Key::broker("log.message.timestamp.before.max.ms", LONG, FOREVER,
        "The broker's message.timestamp.before.max.ms.").dynamic(),
    Key::broker("log.message.timestamp.type", TIMESTAMP, "CreateTime",
        "The broker's message.timestamp.type.").dynamic(),
    Key::broker("log.retention.bytes", KeyKind::Long(-1, i64::MAX), "-1",
        "The broker's retention.bytes.").dynamic(),
    Key::broker("log.retention.check.interval.ms", KeyKind::Long(1, i64::MAX), "300000",
        "How often each log is looked at for segments that retention lets go of."),
    Key::broker("log.retention.hours", KeyKind::Int(-1, HOURS_MAX), "168",
        "The broker's retention.ms in hours, where neither log.retention.ms nor log.retention.minutes is set; -1 keeps data forever.").dynamic(),
    Key::broker("log.retention.minutes", KeyKind::Int(-1, I32_MAX), "",
        "The broker's retention.ms in minutes, where log.retention.ms is unset.").unset().dynamic(),
    Key::broker("log.retention.ms", KeyKind::Long(-1, i64::MAX), "",
        "The broker's retention.ms.").unset().dynamic(),
    Key::broker("log.roll.hours", KeyKind::Int(1, HOURS_MAX), "168",
        "The broker's segment.ms in hours, where log.roll.ms is unset.").dynamic(),
    Key::broker("log.roll.ms", KeyKind::Long(1, i64::MAX), "",
        "The broker's segment.ms.").unset().dynamic(),
    Key::broker("log.segment.bytes", SEGMENT, "1073741824", "The broker's segment.bytes.").dynamic(),
    Key::broker("max.connections", COUNT, "10000",
        "Connections over all listeners; at the limit a new one is closed at once. Kafka has no limit."),
    Key::broker("max.inflight.requests.per.connection", KeyKind::Int(1, 65536), "64",
        "Requests of one connection that may await their answers; at the limit its socket is not read. ringlog's own key."),
    Key::broker("message.max.bytes", KeyKind::Int(0, I32_MAX), "1048588", "The broker's max.message.bytes.").dynamic(),
    Key::both("min.insync.replicas", KeyKind::Int(1, 1), "1",
        "In-sync replicas that must have an acks=all batch. There is one replica so far."),
    Key::broker("node.id", KeyKind::Int(0, I32_MAX), "1", "This broker's number, unique in its cluster.").alias("broker.id"),
    Key::broker("num.partitions", COUNT, "1",
        "Partitions of a topic that is created without saying how many."),
    Key::broker("producer.id.expiration.ms", COUNT, "86400000",
        "An idempotent producer that wrote nothing to a partition for this long is forgotten there."),
    Key::broker("queued.max.request.bytes", KeyKind::Long(1 << 20, i64::MAX), "268435456",
        "Memory for requests, shared by all connections; beyond it sockets are not read. At least socket.request.max.bytes. Kafka has no limit."),
    Key::broker("shards", KeyKind::Int(0, 1024), "0",
        "Threads that own partitions and connections; 0 is one per core, less one that is left to the kernel. ringlog's own key."),
    Key::broker("socket.request.max.bytes", COUNT, "104857600",
        "The largest request; a connection that announces a larger one is closed."),
    Key::topic("cleanup.policy", CLEANUP, &[from("log.cleanup.policy")],
        "What happens to old data: `delete` drops whole segments, `compact` keeps the latest record of each key and refuses records without one; both may be given."),
    Key::topic("delete.retention.ms", LONG, &[from("log.cleaner.delete.retention.ms")],
        "How long a record without a value, which deletes its key, stays after its first compaction."),
    Key::topic("flush.messages", KeyKind::Long(1, i64::MAX), &[from("log.flush.interval.messages")],
        "Any value below the default makes flush.policy `group`, which syncs at least as often as was asked."),
    Key::topic("flush.ms", KeyKind::Long(1, i64::MAX), &[from("log.flush.interval.ms")],
        "Milliseconds between two syncs where flush.policy is `interval`; no effect otherwise."),
    Key::topic("index.interval.bytes", KeyKind::Int(0, I32_MAX), &[from("log.index.interval.bytes")],
        "One index entry per this many bytes of log."),
    Key::topic("max.compaction.lag.ms", KeyKind::Long(1, i64::MAX), &[from("log.cleaner.max.compaction.lag.ms")],
        "A record is compacted after this long, however little of the log is dirty; the active segment is closed in time for that."),
    Key::topic("max.message.bytes", KeyKind::Int(0, I32_MAX), &[from("message.max.bytes")],
        "The largest record batch accepted, as compressed by the producer."),
    Key::topic("message.timestamp.after.max.ms", LONG, &[from("log.message.timestamp.after.max.ms")],
        "How far a producer's timestamp may lie after the broker's clock."),
    Key::topic("message.timestamp.before.max.ms", LONG, &[from("log.message.timestamp.before.max.ms")],
        "How far a producer's timestamp may lie before the broker's clock."),
    Key::topic("message.timestamp.type", TIMESTAMP, &[from("log.message.timestamp.type")],
        "Whose clock stamps a record: the producer's (CreateTime) or the broker's at append (LogAppendTime)."),
    Key::topic("min.cleanable.dirty.ratio", KeyKind::Ratio, &[from("log.cleaner.min.cleanable.ratio")],
        "A log is compacted once more than this part of its closed segments is dirty."),
    Key::topic("min.compaction.lag.ms", LONG, &[from("log.cleaner.min.compaction.lag.ms")],
        "Records younger than this are not compacted."),
    Key::topic("retention.bytes", KeyKind::Long(-1, i64::MAX), &[from("log.retention.bytes")],
        "The oldest segments go while those that remain hold at least so many bytes; -1 is no limit."),
    Key::topic("retention.ms", KeyKind::Long(-1, i64::MAX),
        &[from("log.retention.ms"), Fallback { name: "log.retention.minutes", scale: 60_000 },
            Fallback { name: "log.retention.hours", scale: MS_PER_HOUR }],
        "A segment goes once its latest record is older than this; -1 keeps it forever."),
    Key::topic("segment.bytes", SEGMENT, &[from("log.segment.bytes")],
        "A segment is closed, and the next one begun, before it would pass this many bytes."),
    Key::topic("segment.ms", KeyKind::Long(1, i64::MAX),
        &[from("log.roll.ms"), Fallback { name: "log.roll.hours", scale: MS_PER_HOUR }],
        "A segment whose first record is older than this is closed at the next append."),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_within_each_resource() {
        for resource in [ResourceKind::Broker, ResourceKind::Topic] {
            let mut seen = BTreeSet::new();
            for key in KEYS.iter().filter(|key| key.applies_to(resource)) {
                for name in [Some(key.name), key.alias].into_iter().flatten() {
                    assert!(seen.insert(name), "{name} appears twice");
                }
            }
        }
    }

    #[test]
    fn every_default_is_a_value_its_key_accepts() {
        for key in KEYS {
            if let Some(default) = key.default {
                assert_eq!(
                    key.kind.normalise(default).as_deref(),
                    Some(default),
                    "{}",
                    key.name
                );
            }
        }
    }

    #[test]
    fn fallbacks_exist_can_change_at_run_time_and_end_in_a_default() {
        for key in KEYS {
            let KeyScope::Topic(fallbacks) = key.scope else {
                continue;
            };
            let last = fallbacks.last().expect("a topic key falls back to the broker");
            for fallback in fallbacks {
                let broker = find_key(ResourceKind::Broker, fallback.name).expect("the fallback exists");
                assert!(broker.dynamic, "{} backs {}", broker.name, key.name);
                assert_eq!(broker.default.is_some(), fallback == last, "{}", broker.name);
            }
        }
    }

    #[test]
    fn values_outside_the_range_are_refused_at_both_ends() {
        let port = KeyKind::Int(1, 10);
        assert_eq!(port.normalise("0"), None);
        assert_eq!(port.normalise("11"), None);
        assert_eq!(port.normalise(" 010 "), Some("10".to_owned()));
        assert_eq!(KeyKind::Long(0, i64::MAX).normalise("9223372036854775808"), None);
        assert_eq!(KeyKind::List.normalise("a,,b"), None);
        assert_eq!(KeyKind::Bool.normalise("TRUE"), Some("true".to_owned()));
        for refused in ["-0.1", "1.01", "NaN", "half", ""] {
            assert_eq!(KeyKind::Ratio.normalise(refused), None, "{refused}");
        }
        assert_eq!(KeyKind::Ratio.normalise("0.25"), Some("0.25".to_owned()));
        let both = Some("compact,delete".to_owned());
        assert_eq!(CLEANUP.normalise("compact, delete,compact"), both);
        for refused in ["", "compact,", "compact,drop"] {
            assert_eq!(CLEANUP.normalise(refused), None, "{refused}");
        }
    }
}
