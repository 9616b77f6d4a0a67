//! From YAML to the [`tree`](super::tree).
//!
//! Built from the parser's events rather than by its loader, which descends by recursion without a bound, expands aliases
//! before anybody can count them, and stops at the first duplicate key.

use std::{collections::HashMap, rc::Rc};

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};

use crate::config::{
    problem::Problem,
    tree::{Entry, Node, Place, Step, Value, resolve},
};

/// Values inside values at most. The configuration needs six.
const MAX_DEPTH: usize = 32;
/// Bytes of all values together, copies made by aliases included. The file itself may have one quarter of it.
const MAX_WEIGHT: usize = 4 << 20;

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
