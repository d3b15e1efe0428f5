//! The text after `--listen`: an address, or what the key `listeners` takes.
//!
//! Knows the shape of an address only; whether it can be listened on is the server's to find out.
//! Tested below and in `tests/cli_serve.rs`.

use std::str::FromStr;

use crate::config::is_endpoint;

/// A parsed `--listen`, as a value of `listeners`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListenArgument(pub(super) String);

impl FromStr for ListenArgument {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number_only = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let listeners = match text {
            _ if text.contains("://") => text.to_owned(),
            _ if number_only => format!("PLAINTEXT://:{text}"),
            _ => format!("PLAINTEXT://{text}"),
        };
        if listeners.split(',').all(|entry| is_endpoint(entry.trim())) {
            Ok(Self(listeners))
        } else {
            Err(
                "expected HOST:PORT, a PORT for every IPv4 address of this machine, or NAME://HOST:PORT separated by \
                 commas; a port is a number up to 65535",
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listeners(text: &str) -> Option<String> {
        text.parse::<ListenArgument>().ok().map(|argument| argument.0)
    }

    #[test]
    fn each_form_is_understood() {
        for (text, expected) in [
            ("127.0.0.1:9092", "PLAINTEXT://127.0.0.1:9092"),
            ("[::1]:9092", "PLAINTEXT://[::1]:9092"),
            (":9092", "PLAINTEXT://:9092"),
            ("9092", "PLAINTEXT://:9092"),
            ("A://a:1, B://:2", "A://a:1, B://:2"),
        ] {
            assert_eq!(listeners(text).as_deref(), Some(expected));
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "host",
            "-1",
            "65536",
            "host:",
            "host:65536",
            "::1:9092:x",
            "a:1,b:2",
            "A://a:1,b",
        ] {
            assert_eq!(listeners(text), None, "{text}");
        }
    }
}
