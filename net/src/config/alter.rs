//! Changes to the overrides of a topic or broker, as AlterConfigs and IncrementalAlterConfigs ask for them.
//!
//! All or nothing: the result is a new map, or the first reason against it.

use super::error::{ConfigError, Origin};
use super::keys::{Key, KeyKind, KeyScope, ResourceKind, find_key};
use super::server_config::accept;
use super::source::Setting;
use super::suggest::nearest_key;
use super::topic_config::ConfigMap;

/// What to do with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeOp {
    /// Give it this value.
    Set,
    /// Return to what it would be without an override; no error where there is none.
    Delete,
    /// Add the items to a list.
    Append,
    /// Remove the items from a list.
    Subtract,
}

/// One change of IncrementalAlterConfigs.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The key's name.
    pub name: &'a str,
    /// The operation.
    pub op: ChangeOp,
    /// The operand; ignored by `Delete`.
    pub value: Option<&'a str>,
}

/// Checks a whole map of overrides, as CreateTopics and AlterConfigs send them, and normalises it.
///
/// # Errors
///
/// For the first key that is unknown, cannot be changed at run time, or has a bad value.
pub fn validate(resource: ResourceKind, overrides: &ConfigMap) -> Result<ConfigMap, ConfigError> {
    let mut accepted = ConfigMap::new();
    for (name, value) in overrides {
        let (name, value) = check(resource, name, value)?;
        accepted.insert(name.to_owned(), value);
    }
    Ok(accepted)
}

/// `current` with `changes` made in order.
///
/// # Errors
///
/// As [`validate`]; also for a list operation on another type, and a missing operand.
pub fn alter(
    resource: ResourceKind,
    current: &ConfigMap,
    changes: &[Change<'_>],
) -> Result<ConfigMap, ConfigError> {
    let mut altered = current.clone();
    for change in changes {
        let key = changeable(resource, change.name)?;
        if change.op == ChangeOp::Delete {
            altered.remove(key.name);
            continue;
        }
        let operand = change.value.ok_or(ConfigError::NoValue { key })?;
        let value = match change.op {
            ChangeOp::Set | ChangeOp::Delete => operand.to_owned(),
            ChangeOp::Append | ChangeOp::Subtract if !is_list(key) => {
                return Err(ConfigError::NotAList { key });
            }
            ChangeOp::Append => joined(items(&altered, key).chain(split(operand))),
            ChangeOp::Subtract => {
                joined(items(&altered, key).filter(|item| !split(operand).any(|gone| gone == *item)))
            }
        };
        let (name, value) = check(resource, key.name, &value)?;
        altered.insert(name.to_owned(), value);
    }
    Ok(altered)
}

fn is_list(key: &Key) -> bool {
    matches!(key.kind, KeyKind::List | KeyKind::AnyOf(_))
}

/// The items of a list; of one that is not set, as in Kafka, those of its default.
fn items<'a>(current: &'a ConfigMap, key: &Key) -> impl Iterator<Item = &'a str> + use<'a> {
    let default = match key.scope {
        KeyScope::Topic(fallbacks) => fallbacks
            .last()
            .and_then(|fallback| find_key(ResourceKind::Broker, fallback.name)?.default),
        KeyScope::Broker | KeyScope::Both => key.default,
    };
    let value = current.get(key.name).map(String::as_str).or(default);
    value.into_iter().flat_map(split)
}

fn split(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty())
}

fn joined<'a>(items: impl Iterator<Item = &'a str>) -> String {
    let mut unique: Vec<&str> = Vec::new();
    for item in items {
        if !unique.contains(&item) {
            unique.push(item);
        }
    }
    unique.join(",")
}

fn changeable(resource: ResourceKind, name: &str) -> Result<&'static Key, ConfigError> {
    let Some(key) = find_key(resource, name) else {
        return Err(ConfigError::Unknown {
            name: name.to_owned(),
            resource,
            suggestion: nearest_key(resource, name).map(str::to_owned),
            origin: Origin::Request,
        });
    };
    if key.dynamic {
        Ok(key)
    } else {
        Err(ConfigError::ReadOnly { key })
    }
}

fn check(resource: ResourceKind, name: &str, value: &str) -> Result<(&'static str, String), ConfigError> {
    let key = changeable(resource, name)?;
    let (name, value) = (key.name.to_owned(), value.to_owned());
    accept(
        resource,
        Setting {
            name,
            value,
            origin: Origin::Request,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change<'a>(name: &'a str, op: ChangeOp, value: &'a str) -> Change<'a> {
        Change {
            name,
            op,
            value: Some(value),
        }
    }

    fn altered(resource: ResourceKind, changes: &[Change<'_>]) -> Result<ConfigMap, String> {
        let current = ConfigMap::from([("segment.bytes".to_owned(), "2097152".to_owned())]);
        alter(resource, &current, changes).map_err(|error| error.to_string())
    }

    #[test]
    fn set_and_delete_change_one_key_and_keep_the_others() {
        let set = change("flush.policy", ChangeOp::Set, " os ");
        let map = altered(ResourceKind::Topic, &[set]).expect("accepted");
        assert_eq!(map.get("flush.policy").map(String::as_str), Some("os"));
        assert_eq!(map.len(), 2);
        let delete = Change {
            name: "segment.bytes",
            op: ChangeOp::Delete,
            value: None,
        };
        assert!(
            altered(ResourceKind::Topic, &[delete, delete])
                .expect("absent is no error")
                .is_empty()
        );
    }

    #[test]
    fn a_refused_change_names_key_value_and_expectation() {
        let bad = change("segment.bytes", ChangeOp::Set, "12");
        let error = altered(ResourceKind::Topic, &[bad]).expect_err("out of range");
        assert!(
            error.starts_with("segment.bytes=12: expected a number from 1048576 to 2147483647"),
            "{error}"
        );
        let unknown = change("segment.byte", ChangeOp::Delete, "");
        let error = altered(ResourceKind::Topic, &[unknown]).expect_err("unknown");
        assert!(error.contains("did you mean \"segment.bytes\"?"), "{error}");
        let none = Change {
            name: "segment.bytes",
            op: ChangeOp::Set,
            value: None,
        };
        assert_eq!(
            altered(ResourceKind::Topic, &[none]),
            Err("segment.bytes needs a value".to_owned())
        );
    }

    #[test]
    fn what_is_read_at_start_cannot_be_altered() {
        let error = altered(
            ResourceKind::Broker,
            &[change("listeners", ChangeOp::Set, "PLAINTEXT://:1")],
        );
        assert_eq!(
            error,
            Err("listeners can only be set before the broker starts".to_owned())
        );
        let policy = change("flush.policy", ChangeOp::Set, "os");
        assert!(altered(ResourceKind::Broker, &[policy]).is_ok());
    }

    #[test]
    fn list_operations_work_on_lists_only() {
        let append = change("cleanup.policy", ChangeOp::Append, "delete");
        assert!(altered(ResourceKind::Topic, &[append, append]).is_ok());
        let policy = |changes: &[Change<'_>]| {
            altered(ResourceKind::Topic, changes).expect("a list")["cleanup.policy"].clone()
        };
        let compact = change("cleanup.policy", ChangeOp::Append, "compact");
        let keep = change("cleanup.policy", ChangeOp::Subtract, "delete");
        assert_eq!(policy(&[compact]), "delete,compact");
        assert_eq!(policy(&[compact, keep]), "compact");
        let append = change("segment.bytes", ChangeOp::Append, "1");
        assert!(
            altered(ResourceKind::Topic, &[append])
                .expect_err("a number")
                .contains("is not a list")
        );
    }
}
