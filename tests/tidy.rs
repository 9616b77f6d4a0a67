//! Holds the structure: who may import whom, as ARCHITECTURE.md says, and how large a file may grow.

#![expect(clippy::unwrap_used, reason = "a test may end with a panic, and says so")]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Lines a source file may have before it is more than one concept; tests at its end count too.
const MAX_LINES: usize = 500;

/// A folder or file below `src/`, and the modules of ours that it may import besides itself.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("bill.rs", &[]),
    ("policy.rs", &[]),
    ("decision.rs", &["policy"]),
    ("clock.rs", &[]),
    ("secret.rs", &[]),
    ("units.rs", &[]),
    ("finding.rs", &[]),
    ("lifecycle.rs", &["units"]),
    ("store/", &["bill", "policy", "decision", "clock", "secret", "units", "finding", "store"]),
    ("sink/", &["bill", "policy", "decision", "clock", "secret", "units", "finding", "sink"]),
    ("relay/", &["bill", "policy", "decision", "clock", "store", "sink", "relay"]),
    ("telemetry/", &["telemetry"]),
];

/// A foreign crate, and the only places below `src/` that may name it.
const CONFINED: &[(&str, &[&str])] = &[
    ("sqlx", &["store/"]),
    ("lapin", &["sink/rabbitmq/"]),
    ("clap", &["cli.rs", "command/", "main.rs"]),
    ("saphyr_parser", &["config/"]),
];

/// What the relay may see of stores and sinks: the traits and their words, never an adapter.
const ADAPTERS: &[&str] = &[
    "store::sql",
    "store::dialect",
    "store::connect",
    "store::memory",
    "store::ledger",
    "store::schema",
    "store::mapping",
    "sink::rabbitmq",
    "sink::file",
];

struct Source {
    path: String,
    text: String,
}

#[test]
fn modules_import_only_what_lies_below_them() {
    let mut faults = Vec::new();
    for source in sources() {
        let Some((_, allowed)) = MAY_IMPORT.iter().find(|(place, _)| source.path.starts_with(place)) else { continue };
        for (number, module) in imports_of_ours(&source.text) {
            if !allowed.contains(&module.as_str()) {
                faults.push(format!("src/{}:{number} imports crate::{module}", source.path));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn foreign_crates_stay_where_they_belong() {
    let mut faults = Vec::new();
    for source in sources() {
        for (name, places) in CONFINED {
            if places.iter().any(|place| source.path.starts_with(place)) {
                continue;
            }
            for (number, line) in code_lines(&source.text) {
                if names_crate(line, name) {
                    faults.push(format!("src/{}:{number} names {name}", source.path));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_relay_sees_only_the_traits() {
    let mut faults = Vec::new();
    for source in sources().into_iter().filter(|source| source.path.starts_with("relay/")) {
        let code = without_tests(&source.text);
        for adapter in ADAPTERS {
            if code.contains(adapter) {
                faults.push(format!("src/{} names {adapter}", source.path));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_file_is_one_concept() {
    let large: Vec<String> = sources()
        .into_iter()
        .filter_map(|source| {
            let lines = source.text.lines().count();
            (lines > MAX_LINES).then(|| format!("src/{}: {lines} lines", source.path))
        })
        .collect();
    assert!(large.is_empty(), "split these: {}", large.join(", "));
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    collect(&root, &root, &mut found);
    assert!(found.len() > 20, "the sources were not found");
    found
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<Source>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for entry in entries {
        if entry.is_dir() {
            collect(root, &entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            let path = entry.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
            found.push(Source { path, text: fs::read_to_string(&entry).unwrap() });
        }
    }
}

/// The code without the unit tests, which may name what they like.
fn without_tests(text: &str) -> &str {
    text.split_once("\n#[cfg(test)]\nmod tests").map_or(text, |(code, _)| code)
}

fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    without_tests(text)
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim_start()))
        .filter(|(_, line)| !line.starts_with("//"))
}

/// `crate::module` wherever it stands, and the first names within `use crate::{…}`.
fn imports_of_ours(text: &str) -> Vec<(usize, String)> {
    let mut modules = Vec::new();
    let mut depth = 0_usize;
    let mut in_group = false;
    for (number, line) in code_lines(text) {
        if in_group {
            if depth == 1 {
                modules.extend(first_name(line).map(|name| (number, name)));
            }
        } else {
            for (place, _) in line.match_indices("crate::") {
                let rest = &line[place + "crate::".len()..];
                match rest.strip_prefix('{') {
                    Some(group) => {
                        in_group = line.starts_with("use ") || line.starts_with("pub use ");
                        modules.extend(group.split(['{', '}']).next().and_then(first_name).map(|name| (number, name)));
                    }
                    None => modules.extend(first_name(rest).map(|name| (number, name))),
                }
            }
        }
        if in_group {
            depth += line.matches('{').count();
            depth = depth.saturating_sub(line.matches('}').count());
            in_group = depth > 0;
        }
    }
    modules
}

fn first_name(text: &str) -> Option<String> {
    let name: String = text.chars().take_while(|character| character.is_alphanumeric() || *character == '_').collect();
    let is_module = name.starts_with(|character: char| character.is_lowercase());
    is_module.then_some(name)
}

fn names_crate(line: &str, name: &str) -> bool {
    line.match_indices(&format!("{name}::")).any(|(place, _)| {
        let before = line[..place].chars().next_back();
        before.is_none_or(|character| !character.is_alphanumeric() && character != '_' && character != ':')
    }) || line.starts_with(&format!("use {name};"))
}
