//! From a topic's overrides, over the broker's settings, to the engine's settings of a log.

use std::collections::BTreeMap;

use ringlog_engine::config::{CompactionConfig, FlushPolicy, LogConfig, TimestampType};

use super::keys::{Key, KeyScope, ResourceKind, find_key};
use super::server_config::{ServerConfig, ratio_ppm};

/// Overrides of one resource by key name: values that [`super::validate`] or [`alter()`](super::alter()) accepted.
pub type ConfigMap = BTreeMap<String, String>;

/// The value a topic's key has, from the topic or down its fallbacks.
pub(super) fn topic_value(broker: &ServerConfig, topic: &ConfigMap, key: &Key) -> String {
    if let Some(value) = topic.get(key.name) {
        return value.clone();
    }
    let fallbacks = match key.scope {
        KeyScope::Topic(fallbacks) => fallbacks,
        KeyScope::Both | KeyScope::Broker => return broker.value(key.name).unwrap_or_default().to_owned(),
    };
    let found = fallbacks
        .iter()
        .find_map(|fallback| Some((broker.value(fallback.name)?, fallback.scale)));
    let (value, scale) = found.expect("the last fallback of a topic key has a default");
    scaled(value, scale)
}

/// `value` in the topic key's unit; negative numbers mean "no limit" in every unit.
pub(super) fn scaled(value: &str, scale: i64) -> String {
    match value.parse::<i64>() {
        Ok(number) if scale != 1 && number > 0 => number.saturating_mul(scale).to_string(),
        _ => value.to_owned(),
    }
}

impl ServerConfig {
    /// The settings of a log of a topic with these overrides.
    #[must_use]
    pub fn log_config(&self, topic: &ConfigMap) -> LogConfig {
        let text = |name| {
            let key = find_key(ResourceKind::Topic, name).expect("a key of the table");
            topic_value(self, topic, key)
        };
        let number = |name| text(name).parse::<i64>().expect("accepted as a number");
        let size = |name| u32::try_from(number(name)).expect("the table keeps it from 0 to 2^31");
        let policy = text("cleanup.policy");
        let deletes = policy.split(',').any(|word| word == "delete");
        let compaction = policy
            .split(',')
            .any(|word| word == "compact")
            .then(|| CompactionConfig {
                delete_retention_ms: number("delete.retention.ms"),
                min_dirty_ratio_ppm: ratio_ppm(&text("min.cleanable.dirty.ratio")),
                min_lag_ms: number("min.compaction.lag.ms"),
                max_lag_ms: number("max.compaction.lag.ms"),
            });
        // What must be compacted by then must have left the active segment.
        let segment_ms = compaction
            .as_ref()
            .map_or(i64::MAX, |compaction| compaction.max_lag_ms)
            .min(number("segment.ms"));
        let counts_messages = number("flush.messages") != i64::MAX;
        LogConfig {
            segment_bytes: size("segment.bytes"),
            segment_ms,
            retention_ms: Some(number("retention.ms")).filter(|&ms| deletes && ms >= 0),
            retention_bytes: u64::try_from(number("retention.bytes")).ok().filter(|_| deletes),
            index_interval_bytes: size("index.interval.bytes"),
            max_message_bytes: size("max.message.bytes"),
            flush_policy: match text("flush.policy").as_str() {
                _ if counts_messages => FlushPolicy::Group,
                "os" => FlushPolicy::Os,
                "interval" => FlushPolicy::Interval {
                    flush_ms: number("flush.ms").unsigned_abs(),
                },
                _ => FlushPolicy::Group,
            },
            zero_window_bytes_max: LogConfig::default().zero_window_bytes_max,
            timestamp_type: match text("message.timestamp.type").as_str() {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            timestamp_before_max_ms: number("message.timestamp.before.max.ms"),
            timestamp_after_max_ms: number("message.timestamp.after.max.ms"),
            producer_id_expiration_ms: self.number("producer.id.expiration.ms"),
            compaction,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> ConfigMap {
        pairs
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    fn broker(pairs: &[(&str, &str)]) -> ServerConfig {
        ServerConfig::from_pairs(pairs).expect("acceptable")
    }

    #[test]
    fn nothing_set_gives_the_engines_own_defaults() {
        assert_eq!(broker(&[]).log_config(&ConfigMap::new()), LogConfig::default());
    }

    #[test]
    fn a_topic_overrides_the_broker_and_the_broker_its_default() {
        let broker = broker(&[("log.segment.bytes", "2097152"), ("flush.policy", "os")]);
        assert_eq!(broker.log_config(&ConfigMap::new()).segment_bytes, 2 << 20);
        assert_eq!(broker.log_config(&ConfigMap::new()).flush_policy, FlushPolicy::Os);
        let config = broker.log_config(&map(&[("segment.bytes", "1048576"), ("flush.policy", "group")]));
        assert_eq!(config.segment_bytes, 1 << 20);
        assert_eq!(config.flush_policy, FlushPolicy::Group);
    }

    #[test]
    fn roll_hours_count_in_milliseconds_unless_roll_ms_is_set() {
        assert_eq!(
            broker(&[("log.roll.hours", "2")])
                .log_config(&ConfigMap::new())
                .segment_ms,
            7_200_000
        );
        let both = broker(&[("log.roll.hours", "2"), ("log.roll.ms", "5")]);
        assert_eq!(both.log_config(&ConfigMap::new()).segment_ms, 5);
    }

    #[test]
    fn compaction_is_by_policy_and_takes_kafkas_defaults() {
        let config = |topic: &[(&str, &str)]| broker(&[]).log_config(&map(topic));
        assert_eq!(config(&[("cleanup.policy", "delete")]).compaction, None);
        for policy in ["compact", "compact,delete"] {
            let compaction = config(&[("cleanup.policy", policy)]).compaction;
            assert_eq!(compaction, Some(CompactionConfig::default()));
        }
        let config = config(&[
            ("cleanup.policy", "compact"),
            ("min.cleanable.dirty.ratio", "0.1"),
            ("max.compaction.lag.ms", "5000"),
        ]);
        assert_eq!(config.segment_ms, 5000);
        assert_eq!(config.compaction.expect("compact").min_dirty_ratio_ppm, 100_000);
    }

    #[test]
    fn a_policy_without_delete_keeps_everything() {
        let limits = [("retention.ms", "5"), ("retention.bytes", "5")];
        let retention = |policy| {
            let config = broker(&[]).log_config(&map(&[limits[0], limits[1], ("cleanup.policy", policy)]));
            (config.retention_ms, config.retention_bytes)
        };
        assert_eq!(retention("compact"), (None, None));
        assert_eq!(retention("compact,delete"), (Some(5), Some(5)));
    }

    #[test]
    fn retention_counts_in_ms_or_else_minutes_or_else_hours_and_minus_one_is_no_limit() {
        let ms = |pairs: &[_]| broker(pairs).log_config(&ConfigMap::new()).retention_ms;
        assert_eq!(ms(&[("log.retention.hours", "2")]), Some(7_200_000));
        let minutes = [("log.retention.hours", "2"), ("log.retention.minutes", "3")];
        assert_eq!(ms(&minutes), Some(180_000));
        assert_eq!(ms(&[minutes[0], minutes[1], ("log.retention.ms", "4")]), Some(4));
        assert_eq!(ms(&[minutes[0], ("log.retention.minutes", "-1")]), None);
        let own = map(&[("retention.ms", "-1"), ("retention.bytes", "5")]);
        let config = broker(&[("log.retention.ms", "4"), ("log.retention.bytes", "-1")]).log_config(&own);
        assert_eq!((config.retention_ms, config.retention_bytes), (None, Some(5)));
    }

    #[test]
    fn counting_messages_makes_the_policy_group_and_an_interval_takes_flush_ms() {
        let config = broker(&[]).log_config(&map(&[("flush.policy", "os"), ("flush.messages", "1")]));
        assert_eq!(config.flush_policy, FlushPolicy::Group);
        let config = broker(&[]).log_config(&map(&[("flush.policy", "interval"), ("flush.ms", "20")]));
        assert_eq!(config.flush_policy, FlushPolicy::Interval { flush_ms: 20 });
    }
}
