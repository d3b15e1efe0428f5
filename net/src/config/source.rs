//! Reads a configuration file, or a `key=value`, into settings that remember where they stood.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Origin};
use super::properties;

/// A setting as written, not yet looked up.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) origin: Origin,
}

/// No configuration is larger; a device or a log file named by mistake is not read to its end.
const FILE_MAX: u64 = 1 << 20;

/// Reads TOML from a `.toml` file and Java properties from any other.
pub(super) fn read_file(path: &Path) -> Result<Vec<Setting>, ConfigError> {
    let failed = |source| ConfigError::File {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(FILE_MAX + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > FILE_MAX {
        return Err(failed(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "no configuration is over 1 MiB",
        )));
    }
    if path.extension().is_some_and(|extension| extension == "toml") {
        parse_toml(path, &text)
    } else {
        parse_properties(path, &text)
    }
}

/// Splits one `key=value` of the command line.
pub(super) fn parse_assignment(flag: &'static str, text: &str) -> Result<Setting, ConfigError> {
    let origin = Origin::Flag(flag);
    match text.split_once('=') {
        Some((name, value)) => Ok(Setting {
            name: name.trim().to_owned(),
            value: value.trim().to_owned(),
            origin,
        }),
        None => Err(ConfigError::Syntax {
            origin,
            problem: format!("\"{text}\" is not of the form key=value"),
        }),
    }
}

fn parse_properties(path: &Path, text: &str) -> Result<Vec<Setting>, ConfigError> {
    let at = |line| Origin::File {
        path: path.to_owned(),
        line,
    };
    let settings = properties::parse(text).map_err(|line| ConfigError::Syntax {
        origin: at(line),
        problem: "a \\u escape needs four hexadecimal digits of a character".to_owned(),
    })?;
    Ok(settings
        .into_iter()
        .map(|property| Setting {
            name: property.name,
            value: property.value,
            origin: at(property.line),
        })
        .collect())
}

/// Dotted keys are nested tables to TOML, so `log.segment.bytes = 1` and `[log] segment.bytes = 1` are one.
fn parse_toml(path: &Path, text: &str) -> Result<Vec<Setting>, ConfigError> {
    let at = |position: usize| Origin::File {
        path: path.to_owned(),
        line: 1 + text.bytes().take(position).filter(|&b| b == b'\n').count(),
    };
    let root = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
        origin: at(error.span().map_or(0, |span| span.start)),
        problem: error.message().to_owned(),
    })?;
    let mut settings = Vec::new();
    // The parser bounds how deep tables nest, so the stack of this walk is bounded by the file's size.
    let mut open = vec![(String::new(), root.get_ref())];
    while let Some((prefix, table)) = open.pop() {
        for (name, value) in table {
            let name = if prefix.is_empty() {
                name.get_ref().clone().into_owned()
            } else {
                format!("{prefix}.{}", name.get_ref())
            };
            if let DeValue::Table(inner) = value.get_ref() {
                open.push((name, inner));
                continue;
            }
            let origin = at(value.span().start);
            let Some(value) = toml_value(value) else {
                let problem =
                    format!("{name}: a value is a string, a number, a boolean or an array of those");
                return Err(ConfigError::Syntax { origin, problem });
            };
            settings.push(Setting {
                name,
                value: value.into_owned(),
                origin,
            });
        }
    }
    Ok(settings)
}

fn toml_value<'a>(value: &'a Spanned<DeValue<'_>>) -> Option<Cow<'a, str>> {
    match value.get_ref() {
        DeValue::String(text) => Some(Cow::Borrowed(text)),
        DeValue::Boolean(yes) => Some(Cow::Borrowed(if *yes { "true" } else { "false" })),
        DeValue::Integer(number) => {
            let number = i64::from_str_radix(number.as_str(), number.radix()).ok()?;
            Some(Cow::Owned(number.to_string()))
        }
        DeValue::Array(items) => {
            let items: Option<Vec<_>> = items
                .iter()
                .map(|item| match item.get_ref() {
                    DeValue::Array(_) => None,
                    _ => toml_value(item),
                })
                .collect();
            Some(Cow::Owned(items?.join(",")))
        }
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toml_pairs(text: &str) -> Vec<(String, String, usize)> {
        let settings = parse_toml(Path::new("r.toml"), text).expect("well formed");
        let mut pairs: Vec<_> = settings
            .into_iter()
            .map(|s| match s.origin {
                Origin::File { line, .. } => (s.name, s.value, line),
                other => panic!("not a file: {other:?}"),
            })
            .collect();
        pairs.sort();
        pairs
    }

    #[test]
    fn dotted_quoted_and_nested_toml_keys_are_the_same_key() {
        let text = "log.segment.bytes = 1_048_576\n\"num.partitions\" = 0x10\n[log.flush.interval]\nms = 5\n";
        let expected = [
            ("log.flush.interval.ms", "5", 4),
            ("log.segment.bytes", "1048576", 1),
            ("num.partitions", "16", 2),
        ];
        let expected = expected.map(|(name, value, line)| (name.to_owned(), value.to_owned(), line));
        assert_eq!(toml_pairs(text), expected);
    }

    #[test]
    fn toml_arrays_become_lists_and_other_types_are_refused_by_line() {
        let pairs = toml_pairs("listeners = [\n  \"A://:1\",\n  \"B://:2\",\n]\n");
        assert_eq!(pairs[0].1, "A://:1,B://:2");
        let error = parse_toml(Path::new("r.toml"), "\nx = 1.5").expect_err("a float");
        assert!(error.to_string().starts_with("r.toml:2: x: "), "{error}");
    }

    #[test]
    fn broken_toml_names_its_line() {
        let error = parse_toml(Path::new("r.toml"), "a = 1\nb = = 2\n").expect_err("broken");
        assert!(error.to_string().starts_with("r.toml:2: "), "{error}");
    }

    #[test]
    fn an_assignment_without_equals_sign_is_refused() {
        let error = parse_assignment("--set", "num.partitions").expect_err("no value");
        assert_eq!(
            error.to_string(),
            "--set: \"num.partitions\" is not of the form key=value"
        );
        let setting = parse_assignment("--set", "a=b=c").expect("well formed");
        assert_eq!((setting.name.as_str(), setting.value.as_str()), ("a", "b=c"));
    }

    #[test]
    fn a_file_that_never_ends_is_refused() {
        assert!(matches!(
            read_file(Path::new("/dev/zero")),
            Err(ConfigError::File { .. })
        ));
    }
}
