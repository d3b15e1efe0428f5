//! `docs/configuration.md`, written from the table of keys.

use std::fmt::Write as _;

use super::keys::{Key, KeyKind, KeyScope, ResourceKind, all_keys};
use super::server_config::ServerConfig;
use super::topic_config::{ConfigMap, topic_value};

const INTRODUCTION: &str = "\
# Configuration

Keys have Apache Kafka's names and meanings; those of ringlog's own say so. A broker reads them from
`--config FILE`, in Java properties syntax or, where the name ends in `.toml`, in TOML, and from
`--set key=value`; a flag wins over the file. Topic keys are set by `ringlog topic create|alter --set`
or by any Kafka client. An unknown key or a bad value is refused, never ignored.

Keys marked *dynamic* can be altered while the broker runs.

This page is generated from the table in `net/src/config/keys.rs` and checked by a test;
`UPDATE_DOCS=1 cargo test -p ringlog-net configuration_page` writes it anew.
";

/// The whole page.
#[must_use]
pub fn markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    for (title, resource) in [("Broker", ResourceKind::Broker), ("Topic", ResourceKind::Topic)] {
        let _ = write!(
            page,
            "\n## {title}\n\n| key | type | default | accepted | what it does |\n|---|---|---|---|---|\n"
        );
        let mut keys: Vec<_> = all_keys().iter().filter(|key| key.applies_to(resource)).collect();
        keys.sort_by_key(|key| key.name);
        for key in keys {
            row(&mut page, resource, key);
        }
    }
    page
}

fn row(page: &mut String, resource: ResourceKind, key: &Key) {
    let alias = key
        .alias
        .map(|alias| format!(" (or `{alias}`)"))
        .unwrap_or_default();
    let default = match resource {
        ResourceKind::Broker => key
            .default
            .map_or_else(|| "unset".to_owned(), |value| format!("`{value}`")),
        ResourceKind::Topic => format!("`{}`{}", built_in(key), fallbacks(key)),
    };
    let mut notes = String::new();
    if key.dynamic && resource == ResourceKind::Broker {
        notes.push_str(" *Dynamic.*");
    }
    let accepted = match key.kind {
        KeyKind::OneOf(words) | KeyKind::AnyOf(words) => words
            .iter()
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(", "),
        kind => kind.to_string(),
    };
    let _ = writeln!(
        page,
        "| `{}`{alias} | {} | {default} | {accepted} | {}{notes} |",
        key.name,
        key.kind.name(),
        key.doc
    );
}

fn built_in(key: &Key) -> String {
    let broker = ServerConfig::from_pairs(&[("listeners", "PLAINTEXT://127.0.0.1:9092")])
        .expect("defaults are acceptable");
    topic_value(&broker, &ConfigMap::new(), key)
}

fn fallbacks(key: &Key) -> String {
    match key.scope {
        KeyScope::Topic(fallbacks) => {
            let names: Vec<_> = fallbacks
                .iter()
                .map(|fallback| format!("`{}`", fallback.name))
                .collect();
            format!(", or the broker's {}", names.join(", "))
        }
        KeyScope::Both | KeyScope::Broker => ", or the broker's".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{env, fs};

    #[test]
    fn configuration_page_matches_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md");
        if env::var_os("UPDATE_DOCS").is_some() {
            fs::write(path, markdown()).expect("written");
        }
        let page = fs::read_to_string(path).expect("docs/configuration.md");
        assert!(
            page == markdown(),
            "stale: UPDATE_DOCS=1 cargo test -p ringlog-net configuration_page"
        );
    }
}
