//! Rules about the repository itself, checked over its files like any other behaviour.
//!
//! Owns the rules no compiler or linter knows: who may mention what, how long a file may be, that
//! each asserted invariant is documented and each documented one asserted, that links lead somewhere,
//! and that the code map of docs/ARCHITECTURE.md has every file. A rule is a function from texts to
//! complaints; each is also shown to complain about a small bad input.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Lines of a file outside its tests.
const LINES_MAX: usize = 600;

/// The root holds these, names that begin with a dot, and what .gitignore names.
const ROOT: [&str; 13] = [
    "Cargo.lock",
    "Cargo.toml",
    "Justfile",
    "LICENSE",
    "README.md",
    "bench",
    "docs",
    "engine",
    "fuzz",
    "net",
    "replication",
    "ringlog-data",
    "target",
];

/// Never looked into: what builds, fuzzing and a broker leave behind.
const NOT_SOURCE: [&str; 6] = [
    "target",
    "ringlog-data",
    "corpus",
    "artifacts",
    "node_modules",
    "seeds",
];

/// Written in two parts, so that this file keeps the rule too.
const FORBIDDEN: [&str; 5] = [
    concat!("todo", "!"),
    concat!("unimplemented", "!"),
    concat!("dbg", "!"),
    concat!("#[", "ignore"),
    concat!("[", "allow("),
];

/// A text file, by its path from the repository's root with `/` between the parts.
struct Source {
    path: String,
    text: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("tests.rs")
    }

    /// The file without the test module at its end.
    fn production(&self) -> &str {
        match self.text.find("\n#[cfg(test)]\nmod tests {") {
            Some(end) => &self.text[..=end],
            None => &self.text,
        }
    }

    fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate lies in the repository")
}

/// The names in a folder, and whether each is a folder itself.
fn entries(folder: &Path) -> Vec<(String, bool)> {
    let list = fs::read_dir(folder).expect("a folder of the repository can be read");
    list.map(|entry| {
        let entry = entry.expect("a folder of the repository can be read");
        let name = entry.file_name().into_string().expect("names are UTF-8");
        (name, entry.path().is_dir())
    })
    .collect()
}

/// All files below the root with this extension, in order of their paths.
fn sources(extension: &str) -> Vec<Source> {
    let mut folders = vec![String::new()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for (name, is_folder) in entries(&root().join(&folder)) {
            let path = format!("{folder}{name}");
            if is_folder && !name.starts_with('.') && !NOT_SOURCE.contains(&name.as_str()) {
                folders.push(format!("{path}/"));
            } else if !is_folder && Path::new(&name).extension().is_some_and(|e| e == extension) {
                found.push(document(&path));
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(
        !found.is_empty(),
        "no .{extension} file below {}",
        root().display()
    );
    found
}

fn document(path: &str) -> Source {
    let text = fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    Source::new(path, &text)
}

fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

fn assert_each(rule: impl Fn(&Source) -> Vec<String>) {
    let complaints: Vec<String> = sources("rs").iter().flat_map(rule).collect();
    assert_none(&complaints);
}

fn opens_with_its_purpose(source: &Source) -> Vec<String> {
    let complaint = format!("{}: begin with //! and what the file owns", source.path);
    (!source.text.starts_with("//! "))
        .then_some(complaint)
        .into_iter()
        .collect()
}

fn is_short(source: &Source) -> Vec<String> {
    let lines = source.production().lines().count();
    let complaint = format!(
        "{}: {lines} lines, {LINES_MAX} at most: which two things does it do?",
        source.path
    );
    (!source.is_test() && lines > LINES_MAX)
        .then_some(complaint)
        .into_iter()
        .collect()
}

fn has_nothing_unfinished(source: &Source) -> Vec<String> {
    complaints_about(source, &FORBIDDEN)
}

fn log_knows_no_runtime(source: &Source) -> Vec<String> {
    let bound = ["engine/src/log/", "engine/src/record/", "engine/src/io/"];
    if bound.iter().any(|folder| source.path.starts_with(folder)) {
        complaints_about(
            source,
            &["crate::rt", "tokio", "io_uring::", "std::thread", "std::time::"],
        )
    } else {
        Vec::new()
    }
}

fn replication_awaits_nothing(source: &Source) -> Vec<String> {
    if source.path.starts_with("replication/src/") {
        complaints_about(source, &[".await", "async fn", "async move", "async {"])
    } else {
        Vec::new()
    }
}

fn complaints_about(source: &Source, words: &[&str]) -> Vec<String> {
    let lines = source.text.lines().enumerate();
    lines
        .flat_map(|(number, line)| {
            let found = words.iter().filter(move |word| line.contains(**word));
            found.map(move |word| format!("{}:{}: no {word} here", source.path, number + 1))
        })
        .collect()
}

fn root_holds_only_what_is_listed(names: &[String]) -> Vec<String> {
    let foreign = names
        .iter()
        .filter(|name| !name.starts_with('.') && !ROOT.contains(&name.as_str()));
    foreign
        .map(|name| format!("{name}: not one of the root's entries"))
        .collect()
}

/// The ids `INV-AREA-N` in a text, each with whether a string literal begins with it, as an assertion's message does.
fn invariants(text: &str) -> Vec<(String, bool)> {
    text.match_indices("INV-")
        .filter_map(|(at, _)| {
            let rest = &text[at + 4..];
            let area = rest.find(|c: char| !c.is_ascii_uppercase())?;
            let number = rest[area..].strip_prefix('-')?;
            let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
            let id = &text[at..at + 4 + area + 1 + digits];
            (area > 0 && digits > 0).then(|| (id.to_owned(), text[..at].ends_with('"')))
        })
        .collect()
}

/// The rows `| INV-... | statement | asserted in | tested in |` agree with the code: each id asserted or
/// mentioned has one row, and the third cell of the row names exactly the files that assert it.
fn invariants_are_documented(document: &Source, code: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut rows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in document.text.lines().filter(|line| line.starts_with("| INV-")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, id, _, asserted, tested, _] = cells[..] else {
            complaints.push(format!("{}: not four cells: {line}", document.path));
            continue;
        };
        if backticked(tested).is_empty() {
            complaints.push(format!("{}: {id} names no test", document.path));
        }
        let files = backticked(asserted).into_iter().map(str::to_owned).collect();
        if rows.insert(id.to_owned(), files).is_some() {
            complaints.push(format!("{}: {id} has two rows", document.path));
        }
    }
    let mut asserted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in code.iter().filter(|source| !source.is_test()) {
        for (id, in_a_message) in invariants(source.production()) {
            if !rows.contains_key(&id) {
                complaints.push(format!("{}: {id} has no row in {}", source.path, document.path));
            }
            if in_a_message {
                asserted.entry(id).or_default().insert(source.path.clone());
            }
        }
    }
    for (id, files) in &rows {
        let found = asserted.remove(id).unwrap_or_default();
        if found.is_empty() {
            complaints.push(format!("{}: {id} is asserted nowhere", document.path));
        } else if *files != found {
            complaints.push(format!(
                "{}: {id} is asserted in {found:?}, not in {files:?}",
                document.path
            ));
        }
    }
    complaints
}

/// What stands between backticks on one line.
fn backticked(text: &str) -> Vec<&str> {
    text.lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect()
}

/// Targets of Markdown links that are files; `exists` is asked for each, by its path from the root.
fn links_resolve(document: &Source, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in document.text.lines().enumerate() {
        for (at, _) in line.match_indices("](") {
            let target = line[at + 2..].split(')').next().unwrap_or_default();
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            if !normalised(document.folder(), file).is_some_and(|path| exists(&path)) {
                complaints.push(format!(
                    "{}:{}: {target} leads nowhere",
                    document.path,
                    number + 1
                ));
            }
        }
    }
    complaints
}

/// `link` as seen from `folder`, as a path from the root; none where it leaves the root.
fn normalised(folder: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Names in backticks that look like paths of this repository are paths of this repository. A part in capitals
/// stands for a name, and what fuzzing leaves behind need not be there.
fn named_paths_exist(document: &Source, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let folders = ["engine/", "replication/", "net/", "bench/", "fuzz/", "docs/"];
    let left_behind = ["fuzz/artifacts", "fuzz/corpus", "fuzz/target"];
    let placeholder = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_uppercase());
    backticked(&document.text)
        .into_iter()
        .filter(|name| folders.iter().any(|folder| name.starts_with(folder)))
        .filter(|name| !left_behind.iter().any(|folder| name.starts_with(folder)))
        .filter(|name| !name.contains(['*', ' ', '<', '{']) && !name.split('/').any(placeholder))
        .filter(|name| !exists(name))
        .map(|name| format!("{}: there is no {name}", document.path))
        .collect()
}

/// Each source file stands in the code map, by its own path or by a folder below `CRATE/src` or `CRATE/tests`.
fn code_map_is_complete(map: &Source, code: &[Source]) -> Vec<String> {
    let named: BTreeSet<&str> = backticked(&map.text).into_iter().collect();
    let mapped = |path: &str| {
        let mut folder = path;
        named.contains(path)
            || std::iter::from_fn(|| {
                folder = folder.rsplit_once('/')?.0;
                Some(format!("{folder}/"))
            })
            .take_while(|folder| !["engine/", "replication/", "net/"].contains(&folder.as_str()))
            .any(|folder| !folder.ends_with("/src/") && named.contains(folder.as_str()))
    };
    let bound = ["engine/", "replication/", "net/src/"];
    code.iter()
        .filter(|source| bound.iter().any(|folder| source.path.starts_with(folder)))
        .filter(|source| !mapped(&source.path))
        .map(|source| format!("{}: not in the code map of {}", source.path, map.path))
        .collect()
}

fn exists(path: &str) -> bool {
    root().join(path).exists()
}

#[test]
fn every_file_opens_with_its_purpose() {
    assert_each(opens_with_its_purpose);
    assert_eq!(opens_with_its_purpose(&Source::new("a.rs", "use b;\n")).len(), 1);
    assert_eq!(
        opens_with_its_purpose(&Source::new("a.rs", "// Owns b.\n")).len(),
        1
    );
}

#[test]
fn no_file_is_too_long_outside_its_tests() {
    assert_each(is_short);
    let long = "x\n".repeat(LINES_MAX);
    let with_tests = format!("{long}#[cfg(test)]\nmod tests {{\n{long}}}\n");
    assert_eq!(is_short(&Source::new("a.rs", &format!("{long}x\n"))).len(), 1);
    assert_eq!(is_short(&Source::new("a.rs", &long)).len(), 0);
    assert_eq!(
        is_short(&Source::new("net/tests/a.rs", &format!("{long}x\n"))).len(),
        0
    );
    assert_eq!(
        Source::new("a.rs", &with_tests).production().lines().count(),
        LINES_MAX
    );
}

#[test]
fn nothing_is_left_unfinished_or_silenced() {
    assert_each(has_nothing_unfinished);
    for word in FORBIDDEN {
        let bad = Source::new("a.rs", &format!("fn a() {{\n    {word}\n}}\n"));
        assert_eq!(has_nothing_unfinished(&bad), [format!("a.rs:2: no {word} here")]);
    }
}

#[test]
fn log_record_and_io_know_no_runtime() {
    assert_each(log_knows_no_runtime);
    let bad = "use crate::rt::ring::Ring;\nuse tokio::time;\n";
    assert_eq!(
        log_knows_no_runtime(&Source::new("engine/src/log/a.rs", bad)).len(),
        2
    );
    assert_eq!(
        log_knows_no_runtime(&Source::new("engine/src/rt/a.rs", bad)).len(),
        0
    );
}

#[test]
fn replication_is_sans_io() {
    assert_each(replication_awaits_nothing);
    let bad = "async fn a() {\n    b().await\n}\n";
    assert_eq!(
        replication_awaits_nothing(&Source::new("replication/src/a.rs", bad)).len(),
        2
    );
    assert_eq!(
        replication_awaits_nothing(&Source::new("net/src/a.rs", bad)).len(),
        0
    );
}

#[test]
fn the_root_holds_only_what_is_listed() {
    let names: Vec<String> = entries(root()).into_iter().map(|(name, _)| name).collect();
    assert_none(&root_holds_only_what_is_listed(&names));
    let names = ["notes.txt", ".gitignore", "engine"].map(str::to_owned);
    assert_eq!(
        root_holds_only_what_is_listed(&names),
        ["notes.txt: not one of the root's entries"]
    );
}

#[test]
fn invariants_stand_in_their_table_and_in_the_code() {
    let table = document("docs/invariants.md");
    assert_none(&invariants_are_documented(&table, &sources("rs")));

    let code = [Source::new(
        "engine/src/a.rs",
        "//! INV-A-1\nassert!(b, \"INV-A-1: b\");\n",
    )];
    let complaints = |rows: &str| invariants_are_documented(&Source::new("t.md", rows), &code);
    let good = "| INV-A-1 | b | `engine/src/a.rs` | `c` |";
    assert_eq!(complaints(good).len(), 0);
    assert_eq!(complaints("").len(), 2, "the mention and the assertion");
    assert_eq!(
        complaints(&format!("{good}\n{good}")),
        ["t.md: INV-A-1 has two rows"]
    );
    assert_eq!(
        complaints(&good.replace("`c`", "")),
        ["t.md: INV-A-1 names no test"]
    );
    assert_eq!(
        complaints(&good.replace("| `c` ", "")).len(),
        3,
        "not a row, so none"
    );
    assert_eq!(complaints(&good.replace("a.rs", "z.rs")).len(), 1);
    let stale = format!("{good}\n{}", good.replace("INV-A-1", "INV-B-12"));
    assert_eq!(complaints(&stale), ["t.md: INV-B-12 is asserted nowhere"]);
}

#[test]
fn links_in_documents_lead_somewhere() {
    let complaints: Vec<String> = sources("md")
        .iter()
        .flat_map(|d| links_resolve(d, exists))
        .collect();
    assert_none(&complaints);
    let page = Source::new(
        "docs/a.md",
        "[b](b.md) [c](../c.md#d) [e](https://e.org) [f](#f) [g](../../g)",
    );
    assert_eq!(
        links_resolve(&page, |path| path == "docs/b.md" || path == "c.md").len(),
        1
    );
    assert_eq!(links_resolve(&page, |_| false).len(), 3);
}

#[test]
fn paths_named_in_documents_exist() {
    let documents = sources("md");
    let complaints: Vec<String> = documents
        .iter()
        .flat_map(|d| named_paths_exist(d, exists))
        .collect();
    assert_none(&complaints);
    let page = Source::new(
        "a.md",
        "`net/src/a.rs` and `b`, `net/src/*.rs`, `fuzz/seeds/TARGET/`",
    );
    assert_eq!(
        named_paths_exist(&page, |_| false),
        ["a.md: there is no net/src/a.rs"]
    );
}

#[test]
fn the_code_map_has_every_file() {
    let map = document("docs/ARCHITECTURE.md");
    assert_none(&code_map_is_complete(&map, &sources("rs")));
    let code = ["net/src/a/b.rs", "net/src/c.rs", "net/tests/d.rs"].map(|path| Source::new(path, ""));
    let complaints = |text: &str| code_map_is_complete(&Source::new("m.md", text), &code);
    assert_eq!(complaints("`net/src/a/` `net/src/c.rs`").len(), 0);
    assert_eq!(
        complaints("`net/src/a/`"),
        ["net/src/c.rs: not in the code map of m.md"]
    );
    assert_eq!(complaints("`net/` `net/src/`").len(), 2, "too coarse");
}

#[test]
fn the_readme_gives_the_two_commands() {
    let readme = document("README.md").text;
    for command in ["cargo run --release -- serve", "cargo test --workspace"] {
        assert!(readme.lines().any(|line| line.trim() == command), "{command}");
    }
}
