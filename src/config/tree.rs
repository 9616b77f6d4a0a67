//! The configuration file as a small tree, in which every value knows where it stands.

use std::rc::Rc;

/// A value with its place. Deliberately without `Debug`: it holds secrets as plain text.
#[derive(Clone)]
pub(super) struct Node {
    pub place: Rc<Place>,
    pub value: Value,
    /// Whether (a part of) the text came from the environment: it is then never shown.
    pub expanded: Expanded,
    /// Whether the text stood between quotes (or in a block): then nothing in it can have been taken for a key.
    pub quoted: bool,
    /// Whether a mistake in the value itself has been reported. It is then left out, so that the rest can be looked at.
    pub broken: bool,
}

#[derive(Clone)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone)]
pub(super) struct Entry {
    pub key: String,
    /// Where the key stands; its `path` is that of the value.
    pub place: Rc<Place>,
    pub node: Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expanded {
    No,
    Partly,
    /// The text was one `${NAME}` and nothing else: it may stand for a number or a boolean.
    Whole,
}

/// Where a value stands, in the file and in the tree.
pub(super) struct Place {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    pub step: Step,
    pub parent: Option<Rc<Self>>,
}

/// The last part of a path; `Root` where a value has no name of its own.
pub(super) enum Step {
    Root,
    Key(String),
    Index(usize),
}

impl Place {
    /// `routes[0].sink`; empty for the root. Odd keys are shortened, so that a path stays one readable word.
    pub(super) fn path(&self) -> String {
        self.render(|index| format!("[{index}]"))
    }

    /// The path with all indices left out (`routes[].sink`), as tables of known keys have it.
    pub(super) fn kind_of_path(&self) -> String {
        self.render(|_| "[]".to_owned())
    }

    fn render(&self, index_form: impl Fn(usize) -> String) -> String {
        let mut places = vec![self];
        while let Some(parent) = places.last().and_then(|place| place.parent.as_deref()) {
            places.push(parent);
        }
        let mut path = String::new();
        for place in places.iter().rev() {
            match &place.step {
                Step::Root => {}
                Step::Index(index) => path.push_str(&index_form(*index)),
                Step::Key(key) if path.is_empty() => path.push_str(&key_shown(key)),
                Step::Key(key) => path.extend([".", &key_shown(key)]),
            }
        }
        path
    }
}

/// A key as a path shows it: between quotes where it would not read as one word.
fn key_shown(key: &str) -> String {
    let is_word =
        key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')) && !key.is_empty();
    if is_word { shorten(key) } else { format!("{:?}", shorten(key)) }
}

/// At most 64 characters of a text, without control characters.
pub(super) fn shorten(text: &str) -> String {
    const MAX: usize = 64;
    let mut short: String = text.chars().take(MAX).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(MAX).is_some() {
        short.push('…');
    }
    short
}

impl Node {
    pub(super) fn new(place: Rc<Place>, value: Value, quoted: bool) -> Self {
        Self { place, value, expanded: Expanded::No, quoted, broken: false }
    }

    /// What kind of value this is, in the reader's words.
    pub(super) fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Integer(_) => "a whole number",
            Value::Float(_) => "a decimal number",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node),
            _ => None,
        }
    }

    /// The value under `keys`, or as much of the way as there is: the nearest place to point at.
    pub(super) fn nearest(&self, keys: &[&str]) -> &Self {
        let mut node = self;
        for key in keys {
            match node.get(key) {
                Some(child) => node = child,
                None => break,
            }
        }
        node
    }

    /// A text as a message may show it: shortened, and never one that came from the environment.
    pub(super) fn shown(&self) -> String {
        match (&self.value, self.expanded) {
            (Value::Text(text), Expanded::No) => format!("{:?}", shorten(text)),
            (Value::Text(_), _) => "the text from the environment".to_owned(),
            _ => self.kind().to_owned(),
        }
    }

    /// Whether no mistake has been reported in the value or below it.
    pub(super) fn is_sound(&self) -> bool {
        !self.broken
            && match &self.value {
                Value::List(items) => items.iter().all(Self::is_sound),
                Value::Map(entries) => entries.iter().all(|entry| entry.node.is_sound()),
                _ => true,
            }
    }

    /// The value without its broken parts.
    pub(super) fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::from(*value),
            Value::Integer(value) => Json::from(*value),
            Value::Float(value) => Json::from(*value),
            Value::Text(text) => Json::from(text.as_str()),
            Value::List(items) => items.iter().filter(|item| !item.broken).map(Self::to_json).collect(),
            Value::Map(entries) => {
                let sound = entries.iter().filter(|entry| !entry.node.broken);
                sound.map(|entry| (entry.key.clone(), entry.node.to_json())).collect()
            }
        }
    }

    /// Bytes that the value takes in memory, roughly.
    pub(super) fn weight(&self) -> usize {
        let own = match &self.value {
            Value::Text(text) => text.len(),
            Value::List(items) => items.iter().map(Self::weight).sum(),
            Value::Map(entries) => entries.iter().map(|entry| entry.key.len() + entry.node.weight()).sum(),
            _ => 0,
        };
        own.saturating_add(size_of::<Self>() / 4)
    }
}

/// A plain scalar by YAML 1.2's core schema, decimal numbers only: an octal or hexadecimal port helps nobody.
pub(super) fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let starts_like_a_number =
        text.trim_start_matches(['+', '-']).starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if !starts_like_a_number {
        return Value::Text(text.to_owned());
    }
    if let Ok(integer) = text.parse() {
        return Value::Integer(integer);
    }
    match text.parse() {
        Ok(float) => Value::Float(float),
        Err(_) => Value::Text(text.to_owned()),
    }
}
