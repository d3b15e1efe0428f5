//! Kafka's rules for topic names; the name becomes part of a directory's.

/// Leaves room for `-` and the partition number in a file name of 255 bytes.
const LEN_MAX: usize = 249;

/// What is wrong with a topic name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TopicNameError {
    #[error("a topic name must not be empty")]
    Empty,
    #[error("a topic name must not be \".\" or \"..\"")]
    Dots,
    #[error("a topic name may have at most {LEN_MAX} characters")]
    Length,
    #[error("a topic name may have only ASCII letters and digits, '.', '_' and '-'")]
    Character,
}

/// Checks `name`.
pub(crate) fn check(name: &str) -> Result<(), TopicNameError> {
    if name.is_empty() {
        return Err(TopicNameError::Empty);
    }
    if name == "." || name == ".." {
        return Err(TopicNameError::Dots);
    }
    if name.len() > LEN_MAX {
        return Err(TopicNameError::Length);
    }
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.bytes().all(legal) {
        Ok(())
    } else {
        Err(TopicNameError::Character)
    }
}

/// Names that differ only in `.` and `_` would share their metrics' name; Kafka refuses the second.
pub(crate) fn collides(a: &str, b: &str) -> bool {
    a != b && a.len() == b.len() && a.bytes().zip(b.bytes()).all(|(a, b)| fold(a) == fold(b))
}

fn fold(byte: u8) -> u8 {
    if byte == b'.' { b'_' } else { byte }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_the_directory_or_collide_are_refused() {
        assert_eq!(check("a.b_c-D9"), Ok(()));
        assert_eq!(check(""), Err(TopicNameError::Empty));
        assert_eq!(check(".."), Err(TopicNameError::Dots));
        assert_eq!(check("a/b"), Err(TopicNameError::Character));
        assert_eq!(check("\u{e9}"), Err(TopicNameError::Character));
        assert_eq!(check(&"x".repeat(249)), Ok(()));
        assert_eq!(check(&"x".repeat(250)), Err(TopicNameError::Length));
        assert!(collides("a.b", "a_b"));
        assert!(!collides("a.b", "a.b"));
    }
}
