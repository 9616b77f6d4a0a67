//! Checks a tree against the schema. A small walker of our own, because it names every mistake with its place, suggests the
//! key that was meant, and never shows a secret. It knows exactly the words that [`schema`](super::schema()) makes; a test
//! holds that.

use std::rc::Rc;

use serde_json::Value as Json;

use crate::{
    config::{
        problem::Problem,
        tree::{Entry, Expanded, Node, Place, Value, resolve},
        unavailable,
    },
    units::{SIZE_PATTERN, SPAN_PATTERN, Size, Span},
};

const NEEDS_ONE: &str = "needs at least one entry";

/// Reports whatever in `node` does not fit `schema`, and marks it broken. A number that came whole from the environment
/// becomes one where the schema wants it, and a mapping that was left empty becomes an empty mapping.
pub(super) fn check(node: &mut Node, schema: &Json, problems: &mut Vec<Problem>) {
    if node.broken {
        return;
    }
    if matches!(node.value, Value::Null) {
        if kind(schema) == "object" {
            node.value = Value::Map(Vec::new());
        } else {
            report(node, "has no value", problems);
            return;
        }
    }
    if let Some(variants) = variants(schema) {
        check_tagged(node, &variants, problems);
    } else if let Some(texts) = texts(schema) {
        check_choice(node, &texts, problems);
    } else if let Some(branches) = branches(schema) {
        check_any(node, &branches, problems);
    } else {
        check_kind(node, schema, problems);
    }
}

fn report(node: &mut Node, message: impl Into<String>, problems: &mut Vec<Problem>) {
    problems.push(Problem::at(&node.place, message));
    node.broken = true;
}

fn check_kind(node: &mut Node, schema: &Json, problems: &mut Vec<Problem>) {
    let kind = kind(schema);
    adopt(node, kind);
    match (kind, &mut node.value) {
        ("object", Value::Map(_)) => check_map(node, schema, problems),
        ("array", Value::List(_)) => check_list(node, schema, problems),
        ("string", Value::Text(_)) => check_form(node, schema, problems),
        ("integer", Value::Integer(value)) => {
            #[expect(clippy::cast_precision_loss, reason = "the schema's bounds are far below 2^53")]
            let value = *value as f64;
            check_range(node, value, schema, problems);
        }
        #[expect(clippy::cast_precision_loss, reason = "the schema's bounds are far below 2^53")]
        ("number", Value::Integer(value)) => {
            let value = *value as f64;
            check_range(node, value, schema, problems);
        }
        ("number", Value::Float(value)) if value.is_finite() => {
            let value = *value;
            check_range(node, value, schema, problems);
        }
        ("boolean", Value::Bool(_)) => {}
        _ => report(node, mismatch(node, schema), problems),
    }
}

/// Lets a text that came whole from the environment be the number or boolean that is wanted.
fn adopt(node: &mut Node, kind: &str) {
    let Value::Text(text) = &node.value else { return };
    if node.expanded != Expanded::Whole {
        return;
    }
    let value = resolve(text.trim());
    if kind != "string" && is_of_kind(&value, kind) {
        node.value = value;
    }
}

fn mismatch(node: &Node, schema: &Json) -> String {
    match (form(schema), &node.value) {
        (Some(parse), Value::Integer(_) | Value::Float(_)) => match parse("") {
            Err(advice) => format!("a number without a unit is {advice}"),
            Ok(()) => String::new(),
        },
        (None, Value::Integer(_) | Value::Float(_) | Value::Bool(_)) if kind(schema) == "string" => {
            format!("must be a text, not {}; put it in quotes", node.kind())
        }
        (None, Value::Text(text)) if is_of_kind(&resolve(text), kind(schema)) => {
            format!("must be {} without quotes", words(schema))
        }
        _ => format!("must be {}, not {}", words(schema), node.kind()),
    }
}

fn check_range(node: &mut Node, value: f64, schema: &Json, problems: &mut Vec<Problem>) {
    let minimum = schema.get("minimum").and_then(Json::as_f64);
    let maximum = schema.get("maximum").and_then(Json::as_f64);
    if minimum.is_some_and(|minimum| value < minimum) || maximum.is_some_and(|maximum| value > maximum) {
        let message = match (minimum, maximum) {
            (Some(minimum), Some(maximum)) => format!("must be between {minimum} and {maximum}"),
            (Some(minimum), None) => format!("must be at least {minimum}"),
            (None, Some(maximum)) => format!("must be at most {maximum}"),
            (None, None) => return,
        };
        report(node, message, problems);
    }
}

fn check_form(node: &mut Node, schema: &Json, problems: &mut Vec<Problem>) {
    let (Value::Text(text), Some(parse)) = (&node.value, form(schema)) else { return };
    if let Err(advice) = parse(text) {
        report(node, format!("{} is {advice}", node.shown()), problems);
    }
}

fn check_list(node: &mut Node, schema: &Json, problems: &mut Vec<Problem>) {
    let Value::List(items) = &mut node.value else { return };
    if items.is_empty() && schema.get("minItems").is_some() {
        report(node, NEEDS_ONE, problems);
        return;
    }
    let Some(item_schema) = schema.get("items") else { return };
    for item in items {
        check(item, item_schema, problems);
    }
}

fn check_map(node: &mut Node, schema: &Json, problems: &mut Vec<Problem>) {
    let place = Rc::clone(&node.place);
    let Value::Map(entries) = &mut node.value else { return };
    if entries.is_empty() && schema.get("minProperties").is_some() {
        report(node, NEEDS_ONE, problems);
        return;
    }
    for name in schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str) {
        if !entries.iter().any(|entry| entry.key == name) {
            problems.push(Problem::at(&place, format!("the key `{name}` is missing")));
        }
    }
    let properties = schema.get("properties").and_then(Json::as_object);
    let others = schema.get("additionalProperties").filter(|others| others.is_object());
    let mut secret_line = None;
    for entry in entries {
        if let Some(schema) = properties.and_then(|properties| properties.get(&entry.key)).or(others) {
            if is_secret(schema) && !entry.node.quoted {
                secret_line = Some(entry.node.place.line);
            }
            check(&mut entry.node, schema, problems);
            continue;
        }
        entry.node.broken = true;
        let known = properties.into_iter().flat_map(|properties| properties.keys()).map(String::as_str).collect();
        let is_beside_secret = secret_line == Some(entry.place.line);
        problems.push(unknown_key(entry, &place, is_beside_secret, known));
    }
}

/// Behind an unquoted secret on the same line, what looks like a key may be the piece of it that follows a comma.
fn unknown_key(entry: &Entry, parent: &Place, is_beside_secret: bool, known: Vec<&str>) -> Problem {
    if unavailable::key(&parent.kind_of_path(), &entry.key) {
        return Problem::at(&entry.place, "is not available in this version");
    }
    let alternatives = alternatives(&entry.key, known);
    if is_beside_secret {
        let why = "not shown, it may be a piece of the secret before it: a text with a comma needs quotes";
        let message = format!("no such key ({why}); {alternatives}");
        return Problem { path: parent.path(), ..Problem::at(&entry.place, message) };
    }
    Problem::at(&entry.place, format!("no such key; {alternatives}"))
}

fn check_tagged(node: &mut Node, variants: &[(&str, &Json)], problems: &mut Vec<Problem>) {
    let known = || variants.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    let Value::Map(entries) = &mut node.value else {
        report(node, format!("must be a mapping, not {}", node.kind()), problems);
        return;
    };
    let Some(tag) = entries.iter_mut().find(|entry| entry.key == "type").map(|entry| &mut entry.node) else {
        report(node, format!("the key `type` is missing; {}", all_of(known())), problems);
        return;
    };
    let variant = match &tag.value {
        Value::Text(text) => variants.iter().find(|(name, _)| name == text),
        _ => None,
    };
    if let Some((_, schema)) = variant {
        check_kind(node, schema, problems);
    } else {
        check_choice(tag, &known(), problems);
        // Without its kind nothing more can be said about it.
        node.broken = true;
    }
}

fn check_choice(node: &mut Node, texts: &[&str], problems: &mut Vec<Problem>) {
    let message = match &node.value {
        _ if node.broken => return,
        Value::Text(text) if texts.contains(&text.as_str()) => return,
        Value::Text(text) if unavailable::value(&node.place.kind_of_path(), text) => {
            format!("{} is not available in this version", node.shown())
        }
        Value::Text(text) => format!("{} is no choice here; {}", node.shown(), alternatives(text, texts.to_vec())),
        _ => format!("must be a text; {}", all_of(texts.to_vec())),
    };
    report(node, message, problems);
}

fn check_any(node: &mut Node, branches: &[&Json], problems: &mut Vec<Problem>) {
    if let Some(branch) = branches.iter().find(|branch| is_of_kind(&node.value, kind(branch))) {
        return check(node, branch, problems);
    }
    let words: Vec<&str> = branches.iter().map(|branch| words(branch)).collect();
    report(node, format!("must be {}, not {}", words.join(" or "), node.kind()), problems);
}

fn is_of_kind(value: &Value, kind: &str) -> bool {
    matches!(
        (kind, value),
        ("object", Value::Map(_))
            | ("array", Value::List(_))
            | ("string", Value::Text(_))
            | ("integer" | "number", Value::Integer(_))
            | ("number", Value::Float(_))
            | ("boolean", Value::Bool(_))
    )
}

/// What could have been meant: the nearest of `known`, and all of them.
pub(super) fn alternatives(given: &str, known: Vec<&str>) -> String {
    match nearest(given, &known) {
        Some(near) => format!("did you mean `{near}`? {}", all_of(known)),
        None => all_of(known),
    }
}

fn all_of(mut known: Vec<&str>) -> String {
    known.sort_unstable();
    format!("known are: {}", known.join(", "))
}

fn nearest<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    let given = given.get(..given.floor_char_boundary(64)).unwrap_or(given).to_ascii_lowercase();
    known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(&given, &name.to_ascii_lowercase()), *name))
        .filter(|(distance, name)| *distance <= name.len().div_ceil(3).min(3))
        .min()
        .map(|(_, name)| name)
}

fn kind(schema: &Json) -> &str {
    schema.get("type").and_then(Json::as_str).unwrap_or_default()
}

fn is_secret(schema: &Json) -> bool {
    schema.get("writeOnly").is_some()
}

/// What a schema asks for, in the reader's words.
fn words(schema: &Json) -> &'static str {
    match kind(schema) {
        "object" => "a mapping",
        "array" => "a list",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        _ if form(schema).is_some() => "a text with a number and its unit",
        _ => "a text",
    }
}

type Form = fn(&str) -> Result<(), String>;

/// The reader of a text with a `pattern`. The schema has no other patterns than these.
fn form(schema: &Json) -> Option<Form> {
    match schema.get("pattern").and_then(Json::as_str)? {
        SPAN_PATTERN => Some(|text| Span::parse(text).map(drop)),
        SIZE_PATTERN => Some(|text| Size::parse(text).map(drop)),
        _ => None,
    }
}

/// The texts that an enumeration allows.
fn texts(schema: &Json) -> Option<Vec<&str>> {
    if let Some(only) = schema.get("const") {
        return only.as_str().map(|only| vec![only]);
    }
    if let Some(values) = schema.get("enum") {
        return values.as_array()?.iter().map(Json::as_str).collect();
    }
    let nested: Option<Vec<_>> = schema.get("oneOf")?.as_array()?.iter().map(texts).collect();
    nested.map(|texts| texts.into_iter().flatten().collect())
}

/// The kinds of a mapping that its `type` key tells apart.
fn variants(schema: &Json) -> Option<Vec<(&str, &Json)>> {
    let variant = |branch: &'_ Json| branch.pointer("/properties/type/const")?.as_str().map(ToOwned::to_owned);
    let branches = schema.get("oneOf")?.as_array()?;
    branches.iter().all(|branch| variant(branch).is_some()).then(|| {
        branches
            .iter()
            .filter_map(|branch| Some((branch.pointer("/properties/type/const")?.as_str()?, branch)))
            .collect()
    })
}

/// The branches of a value that may be of several kinds, those of nested ones included.
fn branches(schema: &Json) -> Option<Vec<&Json>> {
    let any = schema.get("anyOf")?.as_array()?;
    Some(any.iter().flat_map(|branch| branches(branch).unwrap_or_else(|| vec![branch])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::schema;

    const ANNOTATIONS: [&str; 9] =
        ["$schema", "$id", "title", "description", "default", "format", "writeOnly", "type", "additionalProperties"];
    const CHECKED: [&str; 12] = [
        "properties",
        "required",
        "items",
        "minItems",
        "minProperties",
        "minimum",
        "maximum",
        "pattern",
        "enum",
        "const",
        "oneOf",
        "anyOf",
    ];

    #[test]
    fn the_walker_knows_every_word_and_every_pattern_of_the_schema() {
        fn look(schema: &Json, path: &str) {
            let Some(object) = schema.as_object() else { return };
            for (word, value) in object {
                assert!(ANNOTATIONS.contains(&word.as_str()) || CHECKED.contains(&word.as_str()), "{path}: {word}");
                match (word.as_str(), value) {
                    ("properties", Json::Object(properties)) => {
                        properties.iter().for_each(|(key, schema)| look(schema, &format!("{path}.{key}")));
                    }
                    ("items" | "additionalProperties", inner) => look(inner, &format!("{path}[]")),
                    ("oneOf" | "anyOf", Json::Array(branches)) => branches.iter().for_each(|inner| look(inner, path)),
                    ("pattern", _) => assert!(form(schema).is_some(), "{path}: {value}"),
                    ("minItems" | "minProperties", value) => assert_eq!(value, &Json::from(1), "{path}"),
                    ("type", value) => assert!(value.is_string(), "{path}: {value}"),
                    _ => {}
                }
            }
            let many = ["oneOf", "anyOf"].iter().any(|word| object.contains_key(*word));
            assert!(object.contains_key("type") || many || texts(schema).is_some(), "{path} has no type");
            assert!(!object.contains_key("oneOf") || variants(schema).is_some() || texts(schema).is_some(), "{path}");
        }
        look(schema(), "");
    }

    #[test]
    fn every_key_of_the_schema_is_described() {
        fn look(schema: &Json, path: &str) {
            for (key, inner) in schema.get("properties").and_then(Json::as_object).into_iter().flatten() {
                let path = format!("{path}.{key}");
                assert!(inner.get("description").is_some() || inner.get("const").is_some(), "{path}");
                look(inner, &path);
            }
            let branches = schema.get("oneOf").and_then(Json::as_array).into_iter().flatten();
            let inner = [schema.get("items"), schema.get("additionalProperties")].into_iter().flatten();
            branches.chain(inner).for_each(|inner| look(inner, path));
        }
        look(schema(), "");
    }

    #[test]
    fn a_near_miss_is_suggested_and_nothing_far_away() {
        let known = ["interval", "batch", "batch_bytes"];
        for (given, expected) in [
            ("intervall", Some("interval")),
            ("Batch", Some("batch")),
            ("batchbytes", Some("batch_bytes")),
            ("zzz", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, &known), expected, "{given}");
        }
    }
}
