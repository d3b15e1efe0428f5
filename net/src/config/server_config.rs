//! The broker's settings: where they come from, and their typed form.
//!
//! Static settings (file, then flags) are fixed for the life of the process; dynamic ones, which clients
//! alter and the broker stores, lie over them. Both hold canonical names and accepted values only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use ringlog_engine::log::compaction::CleanerConfig;

use super::error::{ConfigError, Origin};
use super::keys::{KeyKind, ResourceKind, find_key};
use super::listener::{Listener, parse_listeners};
use super::reachable;
use super::source::{Setting, parse_assignment, read_file};
use super::suggest::nearest_key;
use super::topic_config::ConfigMap;

/// Which backend serves files (`io.backend`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoBackend {
    /// io_uring, or blocking calls where the kernel forbids it.
    Auto,
    /// io_uring or nothing.
    Ring,
    /// Blocking calls on a thread pool.
    Blocking,
}

/// Everything that can be set about a broker, checked.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// `node.id`, 0 or more.
    pub node_id: i32,
    /// `log.dirs`: the one data directory.
    pub data_dir: PathBuf,
    /// `listeners` and `advertised.listeners`, at least one.
    pub listeners: Vec<Listener>,
    /// `num.partitions`, 1 or more.
    pub num_partitions: i32,
    /// `default.replication.factor`, 1 or more.
    pub default_replication_factor: i16,
    /// `auto.create.topics.enable`.
    pub auto_create_topics: bool,
    /// `delete.topic.enable`.
    pub delete_topics: bool,
    /// `socket.request.max.bytes`: a frame's length prefix may claim no more.
    pub request_bytes_max: usize,
    /// `queued.max.request.bytes`: memory for requests over all connections, at least `request_bytes_max`.
    pub request_memory_bytes: usize,
    /// `max.connections` over all listeners, 1 or more.
    pub connections_max: usize,
    /// `max.inflight.requests.per.connection`, 1 or more.
    pub inflight_requests_max: usize,
    /// `connections.max.idle.ms`.
    pub connection_idle_max: Duration,
    /// `fetch.max.bytes`.
    pub fetch_bytes_max: usize,
    /// `log.retention.check.interval.ms`, 1 ms or more.
    pub retention_check_interval: Duration,
    /// `shards`, already resolved to a number: 1 or more.
    pub shards: usize,
    /// `io.backend`.
    pub io_backend: IoBackend,
    /// `log.cleaner.dedupe.buffer.size`, `log.cleaner.io.buffer.load.factor`.
    pub cleaner: CleanerConfig,
    /// `log.cleaner.backoff.ms`.
    pub cleaner_backoff: Duration,
    statics: ConfigMap,
    dynamics: ConfigMap,
}

impl ServerConfig {
    /// Reads `file`, if any, then applies `flags`: the flag's name for messages, and a `key=value`. A later
    /// flag wins over an earlier one and over the file.
    ///
    /// # Errors
    ///
    /// For every setting that is unknown, out of range or doubled within the file; if there is none, for the
    /// first that contradicts another.
    pub fn load(file: Option<&Path>, flags: &[(&'static str, String)]) -> Result<Self, ConfigError> {
        let mut problems = Vec::new();
        let mut statics = match file {
            Some(path) => collect_file(read_file(path)?, &mut problems),
            None => ConfigMap::new(),
        };
        for (flag, assignment) in flags {
            let setting = parse_assignment(flag, assignment);
            match setting.and_then(|setting| accept(ResourceKind::Broker, setting)) {
                Ok((name, value)) => {
                    statics.insert(name.to_owned(), value);
                }
                Err(problem) => problems.push(problem),
            }
        }
        match problems.len() {
            0 => Self::resolve(statics, ConfigMap::new()),
            1 => Err(problems.swap_remove(0)),
            _ => Err(ConfigError::Several(problems)),
        }
    }

    /// A configuration of these keys and values and otherwise defaults.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    pub fn from_pairs(pairs: &[(&str, &str)]) -> Result<Self, ConfigError> {
        let mut statics = ConfigMap::new();
        for &(name, value) in pairs {
            let setting = Setting {
                name: name.to_owned(),
                value: value.to_owned(),
                origin: Origin::Request,
            };
            let (name, value) = accept(ResourceKind::Broker, setting)?;
            statics.insert(name.to_owned(), value);
        }
        Self::resolve(statics, ConfigMap::new())
    }

    /// The same static settings under other dynamic ones, as [`alter()`](super::alter()) made them or as the broker
    /// had stored them. Fields that cannot change at run time stay as they are.
    ///
    /// # Errors
    ///
    /// When a stored name or value is no longer acceptable.
    pub fn with_dynamic(&self, dynamics: &ConfigMap) -> Result<Self, ConfigError> {
        super::alter::validate(ResourceKind::Broker, dynamics)?;
        Self::resolve(self.statics.clone(), dynamics.clone())
    }

    /// The settings clients have altered.
    #[must_use]
    pub fn dynamic(&self) -> &ConfigMap {
        &self.dynamics
    }

    pub(super) fn statics(&self) -> &ConfigMap {
        &self.statics
    }

    /// A broker key's value: dynamic, else static, else the default.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        lookup(&self.statics, &self.dynamics, name)
    }

    pub(super) fn number(&self, name: &str) -> i64 {
        number(&self.statics, &self.dynamics, name)
    }

    fn resolve(statics: ConfigMap, dynamics: ConfigMap) -> Result<Self, ConfigError> {
        let text = |name| lookup(&statics, &dynamics, name);
        let needed = |name| text(name).expect("the key has a default");
        let number = |name| number(&statics, &dynamics, name);
        let size = |name| usize::try_from(number(name)).expect("sizes and counts are not negative");
        let int = |name| i32::try_from(number(name)).expect("the table keeps an int within 32 bits");

        let data_dir = needed("log.dirs");
        if data_dir.contains(',') {
            let problem = "the data is kept in one directory so far";
            return Err(ConfigError::Unusable {
                key: "log.dirs",
                value: data_dir.to_owned(),
                problem,
            });
        }
        let memory = "queued.max.request.bytes";
        if number(memory) < number("socket.request.max.bytes") {
            let problem = "less than socket.request.max.bytes: the largest request would never fit";
            return Err(ConfigError::Unusable {
                key: memory,
                value: needed(memory).to_owned(),
                problem,
            });
        }
        let shards = match size("shards") {
            0 => default_shards(thread::available_parallelism().map_or(1, usize::from)),
            shards => shards,
        };
        Ok(Self {
            node_id: int("node.id"),
            data_dir: PathBuf::from(data_dir),
            listeners: parse_listeners(
                needed("listeners"),
                text("advertised.listeners"),
                needed("listener.security.protocol.map"),
                reachable::host,
            )?,
            num_partitions: int("num.partitions"),
            default_replication_factor: i16::try_from(int("default.replication.factor"))
                .expect("the table keeps it within 16 bits"),
            auto_create_topics: needed("auto.create.topics.enable") == "true",
            delete_topics: needed("delete.topic.enable") == "true",
            request_bytes_max: size("socket.request.max.bytes"),
            request_memory_bytes: size(memory),
            connections_max: size("max.connections"),
            inflight_requests_max: size("max.inflight.requests.per.connection"),
            connection_idle_max: Duration::from_millis(number("connections.max.idle.ms").unsigned_abs()),
            fetch_bytes_max: size("fetch.max.bytes"),
            retention_check_interval: Duration::from_millis(
                number("log.retention.check.interval.ms").unsigned_abs(),
            ),
            shards,
            io_backend: match needed("io.backend") {
                "ring" => IoBackend::Ring,
                "blocking" => IoBackend::Blocking,
                _ => IoBackend::Auto,
            },
            cleaner: CleanerConfig {
                map_bytes: size("log.cleaner.dedupe.buffer.size"),
                map_load_percent: usize::try_from(
                    ratio_ppm(needed("log.cleaner.io.buffer.load.factor")) / 10_000,
                )
                .expect("a part of a hundred"),
            },
            cleaner_backoff: Duration::from_millis(number("log.cleaner.backoff.ms").unsigned_abs()),
            statics,
            dynamics,
        })
    }
}

/// One shard per core, but for one core: the kernel carries out writes in threads of its own, which need as much of the
/// machine as the shards do, and a request that crosses between shards costs two more wake-ups.
fn default_shards(cores: usize) -> usize {
    cores.saturating_sub(1).max(1)
}

fn lookup<'a>(statics: &'a ConfigMap, dynamics: &'a ConfigMap, name: &str) -> Option<&'a str> {
    let set = dynamics
        .get(name)
        .or_else(|| statics.get(name))
        .map(String::as_str);
    set.or_else(|| {
        find_key(ResourceKind::Broker, name)
            .expect("a key of the table")
            .default
    })
}

fn number(statics: &ConfigMap, dynamics: &ConfigMap, name: &str) -> i64 {
    let value = lookup(statics, dynamics, name).expect("a numeric key has a default");
    value.parse().expect("accepted as a number")
}

/// A fraction that was accepted, in millionths.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the table keeps it from 0 to 1"
)]
pub(super) fn ratio_ppm(value: &str) -> u32 {
    (value.parse::<f64>().expect("accepted as a number") * 1e6).round() as u32
}

/// Looks the key up and checks the value: its canonical name and normalised value.
pub(super) fn accept(
    resource: ResourceKind,
    setting: Setting,
) -> Result<(&'static str, String), ConfigError> {
    let Setting { name, value, origin } = setting;
    let Some(key) = find_key(resource, &name) else {
        let suggestion = nearest_key(resource, &name).map(str::to_owned);
        return Err(ConfigError::Unknown {
            name,
            resource,
            suggestion,
            origin,
        });
    };
    match key.kind.normalise(&value) {
        Some(value) => Ok((key.name, value)),
        // An empty list is how a properties file says "not set", where unset is possible.
        None if value.trim().is_empty() && key.kind == KeyKind::List && key.default.is_none() => {
            Ok((key.name, String::new()))
        }
        None => Err(ConfigError::Invalid { key, value, origin }),
    }
}

/// Takes what is acceptable, and all problems, so that a person mends a file in one go.
fn collect_file(settings: Vec<Setting>, problems: &mut Vec<ConfigError>) -> ConfigMap {
    let mut map = ConfigMap::new();
    let mut lines = BTreeMap::new();
    for setting in settings {
        let origin = setting.origin.clone();
        let (name, value) = match accept(ResourceKind::Broker, setting) {
            Ok(accepted) => accepted,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        let line = match origin {
            Origin::File { line, .. } => line,
            Origin::Flag(_) | Origin::Request => 0,
        };
        if let Some(first_line) = lines.insert(name, line) {
            problems.push(ConfigError::Duplicate {
                key: name,
                first_line,
                origin,
            });
        }
        // The empty value of a key that can be unset.
        if !value.is_empty() {
            map.insert(name.to_owned(), value);
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn one_core_is_left_to_the_kernel_where_there_are_two() {
        assert_eq!([1, 2, 3, 64].map(default_shards), [1, 1, 2, 63]);
    }

    fn load(name: &str, text: &str, flags: &[(&'static str, String)]) -> Result<ServerConfig, String> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(name);
        fs::write(&path, text).expect("written");
        let shown = path.display().to_string();
        ServerConfig::load(Some(&path), flags).map_err(|error| error.to_string().replace(&shown, name))
    }

    #[test]
    fn properties_and_toml_say_the_same() {
        let properties = load(
            "s.properties",
            "broker.id=7\nlog.dir=/d\nlisteners=PLAINTEXT://[::1]:1\n",
            &[],
        );
        let toml = load(
            "s.toml",
            "node.id = 7\nlisteners = [\"PLAINTEXT://[::1]:1\"]\n[log]\ndirs = \"/d\"\n",
            &[],
        );
        for config in [properties.expect("usable"), toml.expect("usable")] {
            assert_eq!(config.node_id, 7);
            assert_eq!(config.data_dir, PathBuf::from("/d"));
            assert_eq!(config.listeners[0].host, "::1");
        }
    }

    #[test]
    fn flags_win_over_the_file_and_later_flags_over_earlier() {
        let flags = [
            ("--set", "num.partitions=5".to_owned()),
            ("--set", "num.partitions=6".to_owned()),
        ];
        assert_eq!(
            load("s.properties", "num.partitions=4", &flags)
                .expect("usable")
                .num_partitions,
            6
        );
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_name_and_its_line() {
        let error = load("s.properties", "\nlog.segment.byte=1\n", &[]).expect_err("unknown");
        let expected = "s.properties:2: there is no broker key \"log.segment.byte\"; did you mean \"log.segment.bytes\"?";
        assert_eq!(error, expected);
        let error = load("s.properties", "segment.bytes=1048576", &[]).expect_err("a topic's");
        assert!(error.ends_with("it is set on topics"), "{error}");
    }

    #[test]
    fn a_bad_value_is_refused_with_what_was_expected() {
        let error = load("s.toml", "num.partitions = 0", &[]).expect_err("out of range");
        assert!(
            error.starts_with("s.toml:1: num.partitions=0: expected a number from 1 to 2147483647. "),
            "{error}"
        );
        let flags = [("--set", "log.cleanup.policy=compress".to_owned())];
        let error = load("s.toml", "", &flags).expect_err("no such policy");
        assert!(
            error
                .starts_with("--set: log.cleanup.policy=compress: expected one or more of delete, compact. "),
            "{error}"
        );
    }

    #[test]
    fn a_key_set_twice_under_either_name_is_refused() {
        let error = load("s.properties", "node.id=1\nbroker.id=2\n", &[]).expect_err("doubled");
        assert_eq!(
            error,
            "s.properties:2: node.id is set a second time; the first is on line 1"
        );
    }

    #[test]
    fn an_empty_advertised_list_is_unset_and_an_empty_listener_list_refused() {
        let config = load(
            "s.properties",
            "listeners=PLAINTEXT://127.0.0.1:1\nadvertised.listeners=\n",
            &[],
        );
        assert_eq!(config.expect("usable").listeners[0].advertised_host, "127.0.0.1");
        assert!(
            load("s.properties", "listeners=\n", &[])
                .expect_err("empty")
                .contains("comma-separated list")
        );
    }

    #[test]
    fn all_that_is_wrong_with_a_file_is_said_at_once() {
        let text = "num.partitions=0\nnode.id=1\nlisteners\nzookeeper.connect=z\n";
        let error = load("s.properties", text, &[]).expect_err("three problems");
        let starts: Vec<_> = error
            .lines()
            .map(|line| line.split(": ").next().unwrap_or_default())
            .collect();
        assert_eq!(
            starts,
            [
                "3 settings are not acceptable:",
                "  s.properties:1",
                "  s.properties:3",
                "  s.properties:4"
            ]
        );
    }

    #[test]
    fn contradictions_name_the_key() {
        let error = ServerConfig::from_pairs(&[("log.dirs", "/a,/b")]).expect_err("two directories");
        assert!(error.to_string().starts_with("log.dirs=/a,/b: "), "{error}");
        let pairs = [("queued.max.request.bytes", "1048576")];
        let error = ServerConfig::from_pairs(&pairs).expect_err("too small");
        assert!(
            error.to_string().contains("less than socket.request.max.bytes"),
            "{error}"
        );
    }
}
