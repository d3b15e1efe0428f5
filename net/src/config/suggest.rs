//! The known name nearest to a mistyped one.

use super::keys::{ResourceKind, all_keys};

/// The name that `name` was probably meant to be: the same key on the other resource, else the known one
/// with the fewest edits, if those are no more than a third of its length.
pub(super) fn nearest_key(resource: ResourceKind, name: &str) -> Option<&'static str> {
    let elsewhere = all_keys().iter().find(|key| key.name == name);
    if let Some(key) = elsewhere {
        return Some(key.name);
    }
    // A name longer than any key's double is noise, and the distance costs the product of both lengths.
    if name.len() > 100 {
        return None;
    }
    let names = all_keys().iter().filter(|key| key.applies_to(resource));
    nearest(name, names.flat_map(|key| [Some(key.name), key.alias]).flatten())
}

/// The candidate with the fewest edits, if those are no more than a third of its length.
pub(super) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .map(|known| (edits(&name.to_ascii_lowercase(), known), known))
        .min()
        .filter(|(distance, known)| *distance <= known.len() / 3)
        .map(|(_, known)| known)
}

/// The Levenshtein distance in bytes, by rows.
fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_insertions_deletions_and_replacements() {
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("abc", ""), 3);
    }

    #[test]
    fn a_typing_slip_finds_its_key_and_noise_finds_none() {
        assert_eq!(
            nearest_key(ResourceKind::Broker, "log.segments.byte"),
            Some("log.segment.bytes")
        );
        assert_eq!(nearest_key(ResourceKind::Broker, "lisetners"), Some("listeners"));
        assert_eq!(
            nearest_key(ResourceKind::Topic, "retention.sm"),
            Some("retention.ms")
        );
        assert_eq!(nearest_key(ResourceKind::Broker, "xyzzy"), None);
        assert_eq!(nearest_key(ResourceKind::Broker, &"l".repeat(1 << 20)), None);
    }

    #[test]
    fn a_key_of_the_other_resource_is_recognised() {
        assert_eq!(
            nearest_key(ResourceKind::Topic, "log.segment.bytes"),
            Some("log.segment.bytes")
        );
    }
}
