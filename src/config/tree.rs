//! The configuration file as a small tree, in which every value knows where it stands.
//!
//! Built from the parser's events rather than by its loader, which descends by recursion without a bound, expands aliases
//! before anybody can count them, and stops at the first duplicate key.

use std::{collections::HashMap, rc::Rc};

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};

use crate::config::problem::Problem;

/// Values inside values at most. The configuration needs six.
const MAX_DEPTH: usize = 32;
/// Bytes of all values together, copies made by aliases included. The file itself may have one quarter of it.
const MAX_WEIGHT: usize = 4 << 20;

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
    step: Step,
    parent: Option<Rc<Self>>,
}

enum Step {
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
    fn new(place: Rc<Place>, value: Value, quoted: bool) -> Self {
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

    fn weight(&self) -> usize {
        let own = match &self.value {
            Value::Text(text) => text.len(),
            Value::List(items) => items.iter().map(Self::weight).sum(),
            Value::Map(entries) => entries.iter().map(|entry| entry.key.len() + entry.node.weight()).sum(),
            _ => 0,
        };
        own.saturating_add(size_of::<Self>() / 4)
    }
}

/// Reads one document. The problems that do not stop the reading come with the tree.
pub(super) fn parse(text: &str) -> Result<(Node, Vec<Problem>), Vec<Problem>> {
    let mut builder = Builder::default();
    for step in Parser::new(StrInput::new(text)) {
        let taken = step.map_err(|error| scan_problem(&error)).and_then(|(event, span)| builder.take(event, span));
        if let Err(problem) = taken {
            builder.problems.push(problem);
            return Err(builder.problems);
        }
    }
    match builder.root.filter(|root| !matches!(root.value, Value::Null)) {
        Some(root) => Ok((root, builder.problems)),
        None => Err(vec![Problem::of_file("the file is empty; it needs at least store, sinks and routes")]),
    }
}

/// The parser's words without its copies of the text: an unquoted password may have tripped it.
fn scan_problem(error: &ScanError) -> Problem {
    let info = error.info().split_once(": `").map_or(error.info(), |(words, _)| words);
    let place = Place { line: error.marker().line(), column: error.marker().col() + 1, step: Step::Root, parent: None };
    Problem::at(&place, format!("this is no valid YAML: {info} (texts with special characters need quotes)"))
}

#[derive(Default)]
struct Builder {
    root: Option<Node>,
    open: Vec<Frame>,
    anchors: HashMap<usize, Node>,
    documents: usize,
    weight: usize,
    problems: Vec<Problem>,
}

/// A list or mapping whose end has not come yet.
struct Frame {
    place: Rc<Place>,
    anchor: usize,
    kind: FrameKind,
}

enum FrameKind {
    List(Vec<Node>),
    Map {
        entries: Vec<Entry>,
        /// Each key's line, to name it when the key comes again.
        lines: HashMap<String, usize>,
        key: Option<PendingKey>,
    },
}

/// A key that waits for its value.
struct PendingKey {
    text: String,
    place: Rc<Place>,
    /// The mapping has this key already: reported, and the first value stays.
    again: bool,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Problem> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => self.start_document(span),
            Event::SequenceStart(anchor, tag) => {
                self.refuse_tag(tag.is_some(), span)?;
                self.open(anchor, span, FrameKind::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_tag(tag.is_some(), span)?;
                let kind = FrameKind::Map { entries: Vec::new(), lines: HashMap::new(), key: None };
                self.open(anchor, span, kind)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(tag.is_some(), span)?;
                self.scalar(&text, style, anchor, span)
            }
            Event::Alias(anchor) => self.alias(anchor, span),
        }
    }

    fn start_document(&mut self, span: Span) -> Result<(), Problem> {
        self.documents += 1;
        if self.documents > 1 {
            return Err(self.problem(span, "a second YAML document begins here; the file holds exactly one"));
        }
        Ok(())
    }

    fn refuse_tag(&self, tagged: bool, span: Span) -> Result<(), Problem> {
        if tagged {
            return Err(self.problem(span, "a YAML tag (`!…`) is not allowed; a text that begins with ! needs quotes"));
        }
        Ok(())
    }

    fn open(&mut self, anchor: usize, span: Span, kind: FrameKind) -> Result<(), Problem> {
        if self.open.len() >= MAX_DEPTH {
            return Err(self.problem(span, format!("values are nested more than {MAX_DEPTH} deep")));
        }
        if self.expects_key() {
            return Err(self.problem(span, "the key of a mapping must be a text; texts with { or [ need quotes"));
        }
        let place = self.place(span);
        self.open.push(Frame { place, anchor, kind });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Problem> {
        let Some(frame) = self.open.pop() else { return Ok(()) };
        let value = match frame.kind {
            FrameKind::List(items) => Value::List(items),
            FrameKind::Map { entries, .. } => Value::Map(entries),
        };
        self.insert(Node::new(frame.place, value, false), frame.anchor)
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, anchor: usize, span: Span) -> Result<(), Problem> {
        self.charge(text.len() + 1, span)?;
        if self.expects_key() {
            self.key(text, span);
            return Ok(());
        }
        let is_plain = style == ScalarStyle::Plain;
        let value = if is_plain { resolve(text) } else { Value::Text(text.to_owned()) };
        self.insert(Node::new(self.place(span), value, !is_plain), anchor)
    }

    fn key(&mut self, text: &str, span: Span) {
        let place = Rc::new(self.place_of_step(Step::Key(text.to_owned()), span));
        let here = self.place_of_step(Step::Root, span);
        let Some(Frame { kind: FrameKind::Map { lines, key, .. }, .. }) = self.open.last_mut() else { return };
        let first = lines.get(text).copied();
        *key = Some(PendingKey { text: text.to_owned(), place, again: first.is_some() });
        match first {
            None => {
                lines.insert(text.to_owned(), span.start.line());
            }
            // The key itself is not shown: it may be a piece of an unquoted password with commas.
            Some(line) => {
                self.problems.push(Problem::at(&here, format!("this key stands here twice, first on line {line}")));
            }
        }
    }

    fn alias(&mut self, anchor: usize, span: Span) -> Result<(), Problem> {
        if self.expects_key() {
            return Err(self.problem(span, "an alias cannot be a key; a text that begins with * needs quotes"));
        }
        let Some(weight) = self.anchors.get(&anchor).map(Node::weight) else {
            return Err(self.problem(span, "an alias of a value that is not complete yet"));
        };
        self.charge(weight, span)?;
        let place = self.place(span);
        match self.anchors.get(&anchor).cloned() {
            Some(copy) => self.insert(Node { place, ..copy }, 0),
            None => Ok(()),
        }
    }

    fn insert(&mut self, node: Node, anchor: usize) -> Result<(), Problem> {
        if anchor > 0 {
            let position = Span::empty(saphyr_parser::Marker::new(0, node.place.line, node.place.column - 1));
            self.charge(node.weight(), position)?;
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|frame| &mut frame.kind) {
            None => self.root = Some(node),
            Some(FrameKind::List(items)) => items.push(node),
            Some(FrameKind::Map { entries, key, .. }) => {
                if let Some(PendingKey { text: key, place, again: false }) = key.take() {
                    entries.push(Entry { key, place, node });
                }
            }
        }
        Ok(())
    }

    fn expects_key(&self) -> bool {
        matches!(self.open.last(), Some(Frame { kind: FrameKind::Map { key: None, .. }, .. }))
    }

    fn charge(&mut self, bytes: usize, span: Span) -> Result<(), Problem> {
        self.weight = self.weight.saturating_add(bytes);
        if self.weight > MAX_WEIGHT {
            return Err(self.problem(span, "the file is too large once its aliases are written out"));
        }
        Ok(())
    }

    /// The place of the value that begins at `span`.
    fn place(&self, span: Span) -> Rc<Place> {
        let step = match self.open.last().map(|frame| &frame.kind) {
            Some(FrameKind::List(items)) => Step::Index(items.len()),
            Some(FrameKind::Map { key: Some(key), .. }) => Step::Key(key.text.clone()),
            Some(FrameKind::Map { key: None, .. }) | None => Step::Root,
        };
        Rc::new(self.place_of_step(step, span))
    }

    fn place_of_step(&self, step: Step, span: Span) -> Place {
        let parent = self.open.last().map(|frame| Rc::clone(&frame.place));
        Place { line: span.start.line(), column: span.start.col() + 1, step, parent }
    }

    fn problem(&self, span: Span, message: impl Into<String>) -> Problem {
        Problem::at(&self.place_of_step(Step::Root, span), message)
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
