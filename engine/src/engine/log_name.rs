//! What a log may be called, what the checkpoints call it, and which shard it belongs to.
//!
//! Owns the rules of names: a name is a directory's, so it must neither lead elsewhere nor look like a file or directory
//! that the engine itself keeps there. Pure functions. Tested below.

use crate::data_dir::{DELETED_SUFFIX, RETIRED_STEM_BYTES_MAX};
use crate::log::checkpoint::TopicPartition;

/// The partition number in the checkpoints of a log whose name has none.
const NO_PARTITION: i32 = i32::MAX;
/// Ends of names that the engine keeps for itself.
const RESERVED_SUFFIXES: [&str; 4] = [DELETED_SUFFIX, "-checkpoint", ".properties", ".tmp"];

/// Why a log cannot be called so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogNameError {
    /// There is no name.
    #[error("a log needs a name of at least one character")]
    Empty,
    /// It is too long.
    #[error("a log's name may have {RETIRED_STEM_BYTES_MAX} bytes")]
    TooLong,
    /// It has other characters than a file name may have anywhere.
    #[error("a log's name consists of letters, digits, '.', '_' and '-' (ASCII), not of {0:?}")]
    Character(char),
    /// It begins with a dot.
    #[error("a log's name does not begin with a dot")]
    LeadingDot,
    /// The engine's own files are called so.
    #[error("names that end in {0:?} are reserved")]
    Reserved(&'static str),
}

/// Whether a log may be called `name`.
///
/// # Errors
///
/// The first rule that it breaks.
pub(super) fn check(name: &str) -> Result<(), LogNameError> {
    if name.is_empty() {
        return Err(LogNameError::Empty);
    }
    if name.len() > RETIRED_STEM_BYTES_MAX {
        return Err(LogNameError::TooLong);
    }
    let foreign = |c: &char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    if let Some(character) = name.chars().find(foreign) {
        return Err(LogNameError::Character(character));
    }
    if name.starts_with('.') {
        return Err(LogNameError::LeadingDot);
    }
    let no_partition: &'static str = "-2147483647";
    let reserved = RESERVED_SUFFIXES.into_iter().chain([no_partition]);
    match reserved.into_iter().find(|suffix| name.ends_with(suffix)) {
        Some(suffix) => Err(LogNameError::Reserved(suffix)),
        None => Ok(()),
    }
}

/// What the checkpoint files call the log: `orders-3` is partition 3 of `orders`, as Kafka has it; a name without
/// a number has a partition that no broker has.
pub(super) fn checkpoint_key(name: &str) -> TopicPartition {
    let numbered = name.rsplit_once('-').and_then(|(topic, number)| {
        let partition: i32 = number.parse().ok()?;
        // `a-01` and `a-+1` are other logs than `a-1`.
        (!topic.is_empty() && partition.to_string() == number).then_some((topic, partition))
    });
    let (topic, partition) = numbered.unwrap_or((name, NO_PARTITION));
    TopicPartition {
        topic: topic.to_owned(),
        partition,
    }
}

/// The shard of the log among `shards`, the same in every run.
pub(super) fn shard_of(name: &str, shards: usize) -> usize {
    let shards = u64::try_from(shards).expect("few shards");
    usize::try_from(crate::types::fnv1a(name.as_bytes()) % shards).expect("below the number of shards")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_or_are_the_engines_own_are_refused() {
        for (name, error) in [
            ("", LogNameError::Empty),
            (".", LogNameError::LeadingDot),
            ("..", LogNameError::LeadingDot),
            (".lock", LogNameError::LeadingDot),
            ("../a", LogNameError::Character('/')),
            ("a/b", LogNameError::Character('/')),
            ("a\0", LogNameError::Character('\0')),
            ("a b", LogNameError::Character(' ')),
            ("größe", LogNameError::Character('ö')),
            ("a.1-delete", LogNameError::Reserved("-delete")),
            (
                "log-start-offset-checkpoint",
                LogNameError::Reserved("-checkpoint"),
            ),
            ("meta.properties", LogNameError::Reserved(".properties")),
            ("a.tmp", LogNameError::Reserved(".tmp")),
            ("a-2147483647", LogNameError::Reserved("-2147483647")),
        ] {
            assert_eq!(check(name), Err(error), "{name:?}");
        }
        assert_eq!(check(&"a".repeat(201)), Err(LogNameError::TooLong));
        for name in ["a", "orders-0", "A.b_c-d", &"a".repeat(200)] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn the_checkpoints_call_a_log_as_kafka_does_and_no_two_logs_the_same() {
        let key = |topic: &str, partition| TopicPartition {
            topic: topic.to_owned(),
            partition,
        };
        assert_eq!(checkpoint_key("orders-3"), key("orders", 3));
        assert_eq!(checkpoint_key("a-b-12"), key("a-b", 12));
        for other in ["orders", "orders-03", "orders-", "-3", "orders-99999999999"] {
            assert_eq!(checkpoint_key(other), key(other, NO_PARTITION), "{other}");
        }
    }
}
