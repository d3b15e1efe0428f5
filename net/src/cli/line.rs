//! One line of output, as text or as JSON: ordered fields, written the same way by every command.
//!
//! Keys and values of records are bytes. Text shows UTF-8 as a quoted string and other bytes escaped;
//! JSON gives a string, or `{"hex": ".."}` where the bytes are not UTF-8, so that nothing is lost.

use std::fmt::Write as _;
use std::io::{self, Write};

use ringlog_engine::record::Record;
use serde::ser::{Serialize, SerializeMap, Serializer};

/// A field's value.
#[derive(Debug)]
pub(super) enum Value {
    Null,
    Int(i64),
    Word(String),
    Bytes(Vec<u8>),
    List(Vec<Line>),
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Self::Int(number.into())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<&str> for Value {
    fn from(word: &str) -> Self {
        Self::Word(word.to_owned())
    }
}

impl From<String> for Value {
    fn from(word: String) -> Self {
        Self::Word(word)
    }
}

impl From<Option<&[u8]>> for Value {
    fn from(bytes: Option<&[u8]>) -> Self {
        bytes.map_or(Self::Null, |bytes| Self::Bytes(bytes.to_vec()))
    }
}

/// Fields in order.
#[derive(Debug, Default)]
pub(super) struct Line {
    fields: Vec<(&'static str, Value)>,
}

impl Line {
    pub(super) fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub(super) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// The fields of a record, with the partition it came from where that is worth saying.
    pub(super) fn record(partition: Option<i32>, record: &Record<'_>) -> Self {
        let line = match partition {
            Some(partition) => Self::new().with("partition", partition),
            None => Self::new(),
        };
        let headers = record.headers.clone().map(|header| {
            Self::new()
                .with("key", Value::Bytes(header.key.to_vec()))
                .with("value", header.value)
        });
        line.with("offset", record.offset.0)
            .with("timestamp", record.timestamp.0)
            .with("key", record.key)
            .with("value", record.value)
            .with("headers", Value::List(headers.collect()))
    }

    /// `name=value` pairs on one line.
    pub(super) fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}", self.text())
    }

    /// One JSON object on one line.
    pub(super) fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.fields {
            let gap = if text.is_empty() { "" } else { " " };
            let _ = match value {
                Value::Null => write!(text, "{gap}{name}=null"),
                Value::Int(number) => write!(text, "{gap}{name}={number}"),
                Value::Word(word) => write!(text, "{gap}{name}={word}"),
                Value::Bytes(bytes) => write!(text, "{gap}{name}={}", quoted(bytes)),
                Value::List(lines) if lines.is_empty() => Ok(()),
                Value::List(lines) => {
                    let lines: Vec<_> = lines.iter().map(Self::text).collect();
                    write!(text, "{gap}{name}=[{}]", lines.join("; "))
                }
            };
        }
        text
    }
}

/// UTF-8 as a quoted string, anything else as an escaped byte string.
fn quoted(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => format!("{text:?}"),
        Err(_) => format!("b\"{}\"", bytes.escape_ascii()),
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_none(),
            Self::Int(number) => serializer.serialize_i64(*number),
            Self::Word(word) => serializer.serialize_str(word),
            Self::List(lines) => lines.serialize(serializer),
            Self::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => serializer.serialize_str(text),
                Err(_) => {
                    let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
                        let _ = write!(hex, "{byte:02x}");
                        hex
                    });
                    let mut map = serializer.serialize_map(Some(1))?;
                    map.serialize_entry("hex", &hex)?;
                    map.end()
                }
            },
        }
    }
}

impl Serialize for Line {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.fields.iter().map(|(name, value)| (*name, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(line: &Line) -> (String, String) {
        let (mut text, mut json) = (Vec::new(), Vec::new());
        line.write_text(&mut text).expect("written");
        line.write_json(&mut json).expect("written");
        (
            String::from_utf8(text).expect("UTF-8"),
            String::from_utf8(json).expect("UTF-8"),
        )
    }

    #[test]
    fn fields_keep_their_order_and_bytes_lose_nothing() {
        let line = Line::new()
            .with("z", 1)
            .with("a", Some(&b"text\n"[..]))
            .with("b", Some(&[0xff, 0x00][..]))
            .with("none", Option::<&[u8]>::None);
        let (text, json) = both(&line);
        assert_eq!(text, "z=1 a=\"text\\n\" b=b\"\\xff\\x00\" none=null\n");
        assert_eq!(
            json,
            "{\"z\":1,\"a\":\"text\\n\",\"b\":{\"hex\":\"ff00\"},\"none\":null}\n"
        );
    }
}
