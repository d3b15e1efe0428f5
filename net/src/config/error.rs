//! What can be wrong with a setting, and where it was found.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::keys::{Key, ResourceKind};

/// Where a setting came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A line of a file, counted from 1.
    File {
        /// The file as it was named.
        path: PathBuf,
        /// Its line.
        line: usize,
    },
    /// A flag of the command line.
    Flag(&'static str),
    /// A client's request, the program itself, or what the broker had stored.
    Request,
}

impl fmt::Display for Origin {
    /// A prefix of the message: `server.properties:3: `, `--set: `, or nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}:{line}: ", path.display()),
            Self::Flag(flag) => write!(f, "{flag}: "),
            Self::Request => Ok(()),
        }
    }
}

/// Why settings were refused. Every message names the key and says what would be accepted.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// There is no such key on that resource.
    #[error("{origin}there is no {} key \"{name}\"{}", resource_name(*resource), hint(name, *resource, suggestion.as_deref()))]
    Unknown {
        /// The name as written.
        name: String,
        /// What it was to be set on.
        resource: ResourceKind,
        /// The nearest known name.
        suggestion: Option<String>,
        /// Where it stood.
        origin: Origin,
    },
    /// The value is not of the key's type or outside its range.
    #[error("{origin}{}={value}: expected {}. {}", key.name, key.kind, key.doc)]
    Invalid {
        /// The key.
        key: &'static Key,
        /// The value as written.
        value: String,
        /// Where it stood.
        origin: Origin,
    },
    /// The value is well formed but contradicts another, or cannot be served.
    #[error("{key}={value}: {problem}")]
    Unusable {
        /// The key's name.
        key: &'static str,
        /// The part of the value in question.
        value: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The key is set twice in one file, perhaps under its two names.
    #[error("{origin}{key} is set a second time; the first is on line {first_line}")]
    Duplicate {
        /// The key's name.
        key: &'static str,
        /// The line of the first.
        first_line: usize,
        /// Where the second stands.
        origin: Origin,
    },
    /// The key is known but only read when the broker starts.
    #[error("{} can only be set before the broker starts", key.name)]
    ReadOnly {
        /// The key.
        key: &'static Key,
    },
    /// APPEND or SUBTRACT on a key that is no list.
    #[error("{} is not a list: nothing can be appended to it or subtracted from it", key.name)]
    NotAList {
        /// The key.
        key: &'static Key,
    },
    /// A change that sets a key carries no value.
    #[error("{} needs a value", key.name)]
    NoValue {
        /// The key.
        key: &'static Key,
    },
    /// The file, or a `key=value`, is not written as it must be.
    #[error("{origin}{problem}")]
    Syntax {
        /// Where.
        origin: Origin,
        /// What is wrong.
        problem: String,
    },
    /// More than one thing is wrong.
    #[error("{} settings are not acceptable:{}", .0.len(), listed(.0))]
    Several(Vec<ConfigError>),
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn listed(problems: &[ConfigError]) -> String {
    problems.iter().map(|problem| format!("\n  {problem}")).collect()
}

fn resource_name(resource: ResourceKind) -> &'static str {
    match resource {
        ResourceKind::Broker => "broker",
        ResourceKind::Topic => "topic",
    }
}

fn hint(name: &str, resource: ResourceKind, suggestion: Option<&str>) -> String {
    match suggestion {
        Some(known) if known == name => match resource {
            ResourceKind::Broker => "; it is set on topics".to_owned(),
            ResourceKind::Topic => "; it is set on the broker".to_owned(),
        },
        Some(known) => format!("; did you mean \"{known}\"?"),
        None => String::new(),
    }
}
