//! What can be set, under Kafka's own names.
//!
//! One table (`keys`) says everything about a key; parsing, validation, DescribeConfigs, the alter
//! requests and `docs/configuration.md` are all read off it, so they cannot disagree. The result is a
//! [`ServerConfig`] with typed fields, and a [`LogConfig`](ringlog_engine::config::LogConfig) for each
//! topic. Knows no wire format and keeps no store: the maps of overrides belong to the caller.

mod alter;
mod describe;
mod error;
mod keys;
mod listener;
mod markdown;
mod properties;
mod reachable;
mod server_config;
mod source;
mod suggest;
mod topic_config;

pub use alter::{Change, ChangeOp, alter, validate};
pub use describe::{ConfigEntry, ConfigSource, ConfigSynonym};
pub use error::{ConfigError, Origin};
pub use keys::{Key, KeyKind, KeyScope, ResourceKind, all_keys, find_key};
pub use listener::Listener;
pub(crate) use listener::is_endpoint;
pub use markdown::markdown;
pub use server_config::{IoBackend, ServerConfig};
pub use topic_config::ConfigMap;
