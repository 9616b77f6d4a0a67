//! The configuration: files that are right, and files that are wrong with the exact messages.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

use std::{collections::BTreeMap, fmt::Write, fs, path::Path, time::Duration};

use outbill::{
    config::{self, Config, Problems, SinkSettings},
    policy::{AttemptLog, Retry},
    units::Span,
};
use proptest::{collection::vec, prelude::*, sample};
use serde_json::Value;

/// Stands for a password in every bad file; no part of it may come out.
const MARKER: &str = "hunter2";

fn env(name: &str) -> Option<String> {
    let variables = [
        ("DB_PASSWORD", "hunter2-from-env"),
        ("RABBIT_PASSWORD", "hunter2-rabbit"),
        ("PORT", "3307"),
        ("WORD", "hunter2word"),
    ];
    variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
}

fn load(yaml: impl AsRef<[u8]>) -> Result<Config, Problems> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outbill.yaml");
    fs::write(&path, yaml).unwrap();
    config::load(&path, &env).map_err(|problems| Problems { file: "outbill.yaml".to_owned(), ..problems })
}

const LEAST: &str = "
store: { url: 'mysql://app:hunter2@127.0.0.1/shop' }
sinks: { rabbit: { type: rabbitmq, url: 'amqp://localhost' } }
routes: [ { match: '*', sink: rabbit, to: { routing_key: q }, done_on: publish } ]
";

#[test]
fn the_least_configuration_has_all_defaults() {
    let config = load(LEAST).unwrap();
    assert_eq!(config.shutdown_timeout, Span(Duration::from_secs(25)));
    assert!(config.instance.ends_with(&format!(":{}", std::process::id())), "{}", config.instance);
    let [route] = config.routes.as_slice() else { panic!("not one route") };
    assert_eq!((route.name.as_str(), route.sink.as_str()), ("*", "rabbit"));
    assert_eq!((route.retry, route.attempt_log), (Retry::default(), AttemptLog::Failures));
    assert!(config.warnings.is_empty());
}

#[test]
fn defaults_lie_under_every_route_and_retry_is_merged_key_by_key() {
    let yaml = "
store: { url: 'sqlite:///tmp/shop.db' }
sinks: { out: { type: file, path: '-' }, idle: { type: file, path: idle.jsonl } }
defaults: { sink: out, done_on: publish, attempt_log: off, retry: { base: 1s, max_attempts: 5 } }
routes:
  - { match: a.*, retry: { max_attempts: 9, cap: 1m } }
  - { match: b.*, attempt_log: all, name: bees }
";
    let config = load(yaml).unwrap();
    let [a, b] = config.routes.as_slice() else { panic!("not two routes") };
    let base = Duration::from_secs(1);
    let expected = Retry { base, max_attempts: 9, cap: Duration::from_mins(1), ..Retry::default() };
    assert_eq!((a.retry, a.attempt_log), (expected, AttemptLog::Off));
    assert_eq!((b.retry.max_attempts, b.attempt_log, b.name.as_str()), (5, AttemptLog::All, "bees"));
    let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings, ["3:42: sinks.idle: no route uses this sink"]);
}

#[test]
fn variables_fill_texts_and_whole_numbers_and_never_change_the_structure() {
    let yaml = "
store: { host: db, port: '${PORT}', user: 'a${WORD}', password: '${DB_PASSWORD}', database: 'x: {y}$${z}' }
sinks: { rabbit: { type: rabbitmq, host: mq, in_flight: '${PORT}' } }
routes: [ { match: '*', sink: rabbit, to: { routing_key: q }, done_on: publish } ]
";
    let config = load(yaml).unwrap();
    assert_eq!((config.store.port, config.store.user.as_deref()), (Some(3307), Some("ahunter2word")));
    assert_eq!(config.store.password.as_ref().unwrap().expose(), "hunter2-from-env");
    assert_eq!(config.store.database.as_deref(), Some("x: {y}${z}"));
    let Some(SinkSettings::Rabbitmq(rabbit)) = config.sinks.get("rabbit") else { panic!("no rabbit") };
    assert_eq!(rabbit.in_flight, 3307);
}

#[test]
fn anchors_a_byte_order_mark_windows_line_ends_and_empty_mappings_are_fine() {
    let windows = format!("\u{feff}{}", LEAST.replace('\n', "\r\n"));
    load(windows).unwrap();
    load(format!("{LEAST}\ndefaults:\nlog:\n")).unwrap();
    let anchored = LEAST
        .replace("to: { routing_key: q }", "to: &to { routing_key: q }")
        .replace("'*'", "a")
        .replace("done_on: publish }", "done_on: publish }, { match: b, sink: rabbit, to: *to, done_on: publish }");
    let config = load(anchored).unwrap();
    assert_eq!(config.routes[0].destination, config.routes[1].destination);
}

#[test]
fn an_alias_bomb_deep_nesting_and_a_huge_file_are_refused() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let below = format!("*a{}, ", level - 1).repeat(10);
        writeln!(bomb, "a{level}: &a{level} [{below}]").unwrap();
    }
    assert!(load(bomb).unwrap_err().to_string().contains("aliases"));
    assert!(load("- ".repeat(200_000)).unwrap_err().to_string().contains("nested"));
    assert!(load("[".repeat(200_000)).unwrap_err().to_string().contains("outbill.yaml:1:"));
    assert!(load("#".repeat((1 << 20) + 1)).unwrap_err().to_string().contains("larger than 1 MiB"));
    assert!(load([b'a', b':', b' ', 0xff]).unwrap_err().to_string().contains("not UTF-8 (line 1)"));
}

#[test]
fn an_empty_file_says_what_it_needs() {
    for empty in ["", "\n", "# only words\n", "---\n", "~", "\u{feff}"] {
        let message = load(empty).unwrap_err().to_string();
        assert!(message.starts_with("outbill.yaml: the file is empty"), "{empty:?}: {message}");
    }
}

#[test]
fn a_file_that_is_not_there_says_how_to_name_one() {
    let problems = config::load(Path::new("/no/such/outbill.yaml"), &env).unwrap_err();
    let expected = "/no/such/outbill.yaml: cannot be read: No such file or directory (os error 2); name the file with \
                    `-c FILE` or OUTBILL_CONFIG";
    assert_eq!(problems.to_string(), expected);
}

#[test]
fn the_file_is_the_one_on_the_command_line_or_in_the_environment_or_the_usual_one() {
    let none = |_: &str| None;
    let some = |name: &str| (name == "OUTBILL_CONFIG").then(|| "env.yaml".to_owned());
    assert_eq!(config::file(Some("cli.yaml".into()), &some), Path::new("cli.yaml"));
    assert_eq!(config::file(None, &some), Path::new("env.yaml"));
    assert_eq!(config::file(None, &none), Path::new("outbill.yaml"));
}

#[test]
fn no_secret_is_in_the_debug_form_of_a_configuration() {
    let yaml = LEAST.replace("amqp://localhost", "amqp://u:hunter2@localhost");
    let config = load(yaml).unwrap();
    assert!(!format!("{config:?}").contains(MARKER));
}

#[test]
fn every_bad_file_says_all_its_mistakes_and_no_secret() {
    let mut paths: Vec<_> = fs::read_dir("tests/config").unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    assert!(paths.len() >= 25, "only {} bad files", paths.len());
    let mut all = String::new();
    for path in &paths {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.contains(MARKER), "{} has no marker", path.display());
        let name = path.file_name().unwrap().to_str().unwrap();
        let problems = config::load(path, &env).expect_err(name);
        let problems = Problems { file: "outbill.yaml".to_owned(), ..problems };
        writeln!(all, "── {name}\n{problems}\n").unwrap();
        assert!(!format!("{problems:?}").contains(MARKER), "{name}");
    }
    for piece in [MARKER, "hunter", "unter2"] {
        assert!(!all.contains(piece), "{all}");
    }
    insta::assert_snapshot!(all);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever an unquoted password does to the YAML around it, in any of the usual places.
    #[test]
    fn a_password_without_quotes_never_comes_out(
        pieces in vec(sample::select(&["hunter2", ",", ":", ": ", " #", "#", "{", "}", "[", "]", "&", "*", "!", "|", ">", "'",
            "\"", "%", "@", "`", "?", "- ", "$", "${", "}", "\\", "=", "é", "/", "~", "<<", "..."][..]), 1..8),
        place in sample::select(&[
            "store: { host: db, user: app, database: shop, password: $ }",
            "store:\n  host: db\n  password: $\n  user: app\n  database: shop",
            "store: { url: mysql://app:$@db/shop }",
            "store:\n  url: mysql://app:$@db/shop",
            "store: { host: db, user: app, database: shop, password: '$' }",
        ][..]),
    ) {
        let password = format!("hunter2{}", pieces.concat());
        let yaml = format!("{}\n{}", place.replace('$', &password), LEAST.lines().skip(2).collect::<Vec<_>>().join("\n"));
        let said = match load(&yaml) {
            Ok(config) => format!("{config:?}"),
            Err(problems) => format!("{problems}\n{problems:?}"),
        };
        prop_assert!(!said.contains("hunter"), "{}\n{}", yaml, said);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[ -~\n\té]{0,200}") {
        drop(load(text));
    }
}

#[test]
fn the_example_loads_and_shows_every_key() {
    let example = fs::read_to_string("outbill.example.yaml").unwrap();
    let config = load(&example).unwrap();
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);

    let stated = stated(&switched_on(&example));
    let known = known(config::schema(), "");
    let missing: Vec<_> = known.keys().filter(|path| !stated.contains_key(*path)).collect();
    assert!(missing.is_empty(), "not in the example: {missing:?}");
    let is_free = |path: &str| path.contains(".extra.") || path.contains(".to.");
    let foreign: Vec<_> = stated.keys().filter(|path| !known.contains_key(*path) && !is_free(path)).collect();
    let sinks = ["sinks.file".to_owned(), "sinks.rabbitmq".to_owned()];
    assert_eq!(foreign, sinks.iter().collect::<Vec<_>>(), "in the example and not in the schema");
}

#[test]
fn every_default_that_the_example_states_is_the_real_one() {
    let example = fs::read_to_string("outbill.example.yaml").unwrap();
    let stated = stated(&switched_on(&example));
    let mut compared = 0;
    for (path, default) in known(config::schema(), "") {
        let shown = match default {
            Some(Value::String(text)) => text,
            Some(Value::Number(number)) => number.as_f64().unwrap().to_string(),
            _ => continue,
        };
        let line = &stated[&path];
        assert_eq!(line.value, shown, "{path}");
        assert!(line.says_default, "{path} does not say that it is the default");
        compared += 1;
    }
    assert!(compared >= 30, "only {compared} defaults were compared");
}

/// The example with every switched-off key switched on.
fn switched_on(example: &str) -> String {
    let mut text = String::new();
    for line in example.lines() {
        let (blanks, rest) = line.split_at(line.len() - line.trim_start().len());
        let is_key = |rest: &&str| rest.starts_with(|c: char| c.is_ascii_lowercase());
        // A key inside a switched-off mapping keeps its depth behind the #.
        let (inner, key) = match (rest.strip_prefix('#').filter(is_key), rest.strip_prefix("#  ").filter(is_key)) {
            (Some(key), _) => ("", key),
            (None, Some(key)) => ("  ", key),
            (None, None) => ("", rest),
        };
        writeln!(text, "{blanks}{inner}{key}").unwrap();
    }
    text
}

struct Stated {
    value: String,
    says_default: bool,
}

/// Each key of a block-style YAML text with its path, its value as written and whether its comment calls it a default.
/// Sinks are named by their kind; `defaults` and routes are one.
fn stated(yaml: &str) -> BTreeMap<String, Stated> {
    let mut found = BTreeMap::new();
    let mut open: Vec<(usize, String)> = Vec::new();
    for line in yaml.lines() {
        let text = line.trim_start();
        let text = text.strip_prefix("- ").unwrap_or(text);
        let indent = line.len() - text.len();
        if text.starts_with('#') {
            continue;
        }
        let (text, comment) = text.split_once(" #").unwrap_or((text, ""));
        let Some((key, value)) = text.split_once(':') else { continue };
        open.retain(|(depth, _)| *depth < indent);
        open.push((indent, key.to_owned()));
        let path = open.iter().map(|(_, key)| key.as_str()).collect::<Vec<_>>().join(".");
        let path = path.replace("sinks.rabbit", "sinks.rabbitmq").replace("sinks.audit", "sinks.file");
        let path = path.replace("defaults", "routes");
        let value = value.trim();
        let pairs = value.strip_prefix('{').map(|inner| inner.trim_end_matches('}').split(','));
        for key in pairs.into_iter().flatten().filter_map(|pair| pair.split(':').next()) {
            let stated = Stated { value: String::new(), says_default: false };
            found.entry(format!("{path}.{}", key.trim())).or_insert(stated);
        }
        let says_default = comment.trim().starts_with("default");
        found.entry(path).or_insert(Stated { value: value.to_owned(), says_default });
    }
    found
}

/// Every key of the schema with its default, likewise named.
fn known(schema: &Value, path: &str) -> BTreeMap<String, Option<Value>> {
    let mut found = BTreeMap::new();
    for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let path = path.replace("defaults", "routes");
        found.extend(known(inner, &path));
        found.insert(path, inner.get("default").cloned());
    }
    if schema["items"].is_object() {
        found.extend(known(&schema["items"], path));
    }
    for variant in schema["additionalProperties"]["oneOf"].as_array().into_iter().flatten() {
        let kind = variant["properties"]["type"]["const"].as_str().unwrap();
        found.extend(known(variant, &format!("{path}.{kind}")));
    }
    found
}
