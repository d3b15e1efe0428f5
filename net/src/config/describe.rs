//! Every setting of a broker or a topic with its value, its source, and what it would be without it.

use super::keys::{Key, KeyScope, ResourceKind, all_keys};
use super::server_config::ServerConfig;
use super::topic_config::{ConfigMap, scaled};

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// Set on the topic.
    DynamicTopic,
    /// Set on the running broker by a client.
    DynamicBroker,
    /// From the broker's file or command line.
    StaticBroker,
    /// Nobody set it.
    Default,
}

impl ConfigSource {
    /// The code in a DescribeConfigs response (Kafka's `ConfigSource`).
    #[must_use]
    pub fn code(self) -> i8 {
        match self {
            Self::DynamicTopic => 1,
            Self::DynamicBroker => 2,
            Self::StaticBroker => 4,
            Self::Default => 5,
        }
    }
}

/// One of the places a value can come from, strongest first in [`ConfigEntry::synonyms`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigSynonym {
    /// The key there, which may be another than the entry's.
    pub name: &'static str,
    /// The value, in that key's own unit.
    pub value: String,
    /// Which place.
    pub source: ConfigSource,
}

/// One setting as DescribeConfigs answers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    /// The key.
    pub key: &'static Key,
    /// The value in force; `None` where the key is unset and has no default.
    pub value: Option<String>,
    /// Where it comes from.
    pub source: ConfigSource,
    /// Whether it cannot be altered at run time.
    pub read_only: bool,
    /// All values it has or falls back to, strongest first.
    pub synonyms: Vec<ConfigSynonym>,
}

impl ServerConfig {
    /// All broker keys in the order of their names.
    #[must_use]
    pub fn describe(&self) -> Vec<ConfigEntry> {
        let keys = all_keys()
            .iter()
            .filter(|key| key.applies_to(ResourceKind::Broker));
        let mut entries: Vec<_> = keys
            .map(|key| entry(key, self.broker_synonyms(key.name), 1))
            .collect();
        entries.sort_by_key(|entry| entry.key.name);
        entries
    }

    /// All topic keys in the order of their names, for a topic with these overrides.
    #[must_use]
    pub fn describe_topic(&self, topic: &ConfigMap) -> Vec<ConfigEntry> {
        let keys = all_keys()
            .iter()
            .filter(|key| key.applies_to(ResourceKind::Topic));
        let mut entries: Vec<_> = keys.map(|key| self.topic_entry(topic, key)).collect();
        entries.sort_by_key(|entry| entry.key.name);
        entries
    }

    fn topic_entry(&self, topic: &ConfigMap, key: &'static Key) -> ConfigEntry {
        let own = topic.get(key.name).map(|value| ConfigSynonym {
            name: key.name,
            value: value.clone(),
            source: ConfigSource::DynamicTopic,
        });
        // The unit of the value in force is that of the place it comes from.
        let mut synonyms: Vec<_> = own.into_iter().collect();
        let mut scale = 1;
        match key.scope {
            KeyScope::Topic(fallbacks) => {
                for fallback in fallbacks {
                    let found = self.broker_synonyms(fallback.name);
                    if synonyms.is_empty() && !found.is_empty() {
                        scale = fallback.scale;
                    }
                    synonyms.extend(found);
                }
            }
            KeyScope::Both | KeyScope::Broker => synonyms.extend(self.broker_synonyms(key.name)),
        }
        entry(key, synonyms, scale)
    }

    fn broker_synonyms(&self, name: &'static str) -> Vec<ConfigSynonym> {
        let default = all_keys()
            .iter()
            .find(|key| key.name == name)
            .and_then(|key| key.default);
        let places = [
            (
                self.dynamic().get(name).map(String::as_str),
                ConfigSource::DynamicBroker,
            ),
            (
                self.statics().get(name).map(String::as_str),
                ConfigSource::StaticBroker,
            ),
            (default, ConfigSource::Default),
        ];
        let synonym = |(value, source): (Option<&str>, _)| {
            Some(ConfigSynonym {
                name,
                value: value?.to_owned(),
                source,
            })
        };
        places.into_iter().filter_map(synonym).collect()
    }
}

fn entry(key: &'static Key, synonyms: Vec<ConfigSynonym>, scale: i64) -> ConfigEntry {
    let strongest = synonyms.first();
    ConfigEntry {
        key,
        value: strongest.map(|synonym| scaled(&synonym.value, scale)),
        source: strongest.map_or(ConfigSource::Default, |synonym| synonym.source),
        read_only: !key.dynamic,
        synonyms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'a>(entries: &'a [ConfigEntry], name: &str) -> &'a ConfigEntry {
        entries
            .iter()
            .find(|entry| entry.key.name == name)
            .expect("listed")
    }

    fn sources(entry: &ConfigEntry) -> Vec<(&'static str, i8)> {
        entry
            .synonyms
            .iter()
            .map(|synonym| (synonym.name, synonym.source.code()))
            .collect()
    }

    #[test]
    fn a_topic_value_lists_every_place_it_would_fall_back_to() {
        let broker = ServerConfig::from_pairs(&[("log.segment.bytes", "2097152")]).expect("usable");
        let dynamic = ConfigMap::from([("log.segment.bytes".to_owned(), "3145728".to_owned())]);
        let broker = broker.with_dynamic(&dynamic).expect("usable");
        let topic = ConfigMap::from([("segment.bytes".to_owned(), "1048576".to_owned())]);
        let entries = broker.describe_topic(&topic);
        let segment = find(&entries, "segment.bytes");
        assert_eq!(
            (segment.value.as_deref(), segment.source),
            (Some("1048576"), ConfigSource::DynamicTopic)
        );
        let broker_name = "log.segment.bytes";
        assert_eq!(
            sources(segment),
            [
                ("segment.bytes", 1),
                (broker_name, 2),
                (broker_name, 4),
                (broker_name, 5)
            ]
        );
        let entries = broker.describe_topic(&ConfigMap::new());
        let segment = find(&entries, "segment.bytes");
        assert_eq!(
            (segment.value.as_deref(), segment.source),
            (Some("3145728"), ConfigSource::DynamicBroker)
        );
    }

    #[test]
    fn hours_are_described_in_milliseconds() {
        let broker = ServerConfig::from_pairs(&[]).expect("usable");
        let entries = broker.describe_topic(&ConfigMap::new());
        assert_eq!(find(&entries, "segment.ms").value.as_deref(), Some("604800000"));
        assert_eq!(sources(find(&entries, "segment.ms")), [("log.roll.hours", 5)]);
    }

    #[test]
    fn the_broker_lists_every_key_and_says_which_are_fixed() {
        let broker = ServerConfig::from_pairs(&[("num.partitions", "3")]).expect("usable");
        let entries = broker.describe();
        assert!(entries.iter().map(|entry| entry.key.name).is_sorted());
        let partitions = find(&entries, "num.partitions");
        assert_eq!(
            (partitions.source, partitions.read_only),
            (ConfigSource::StaticBroker, true)
        );
        let advertised = find(&entries, "advertised.listeners");
        assert_eq!(
            (advertised.value.as_deref(), advertised.source),
            (None, ConfigSource::Default)
        );
        assert!(!find(&entries, "flush.policy").read_only);
    }
}
