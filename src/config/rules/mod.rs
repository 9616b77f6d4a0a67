//! What a schema cannot say: keys that exclude each other, names that must exist, texts in a language of their own.

mod condition;
pub(super) mod sinks;
pub(super) mod store;

use std::{path::PathBuf, time::Duration};

use crate::{
    config::{problem::Problem, tree::Node},
    telemetry::{self, LogSettings},
    units::Span,
};

/// Where the checks of one part report to.
struct Report<'a> {
    node: &'a Node,
    problems: &'a mut Vec<Problem>,
}

impl Report<'_> {
    /// A mistake in the value under `keys`, or, where that is not there, in the mapping that should hold it.
    fn at(&mut self, keys: &[&str], message: impl Into<String>) {
        self.problems.push(Problem::at(&self.node.nearest(keys).place, message));
    }

    fn has(&self, key: &str) -> bool {
        self.node.get(key).is_some()
    }

    fn within(&mut self, keys: &[&str], span: Span, least: Duration, most: Duration) {
        if span.0 < least || span.0 > most {
            self.at(keys, format!("must be between {} and {}", Span(least), Span(most)));
        }
    }

    /// `url` or the separate keys, not both; a password from one place.
    fn one_way_to_connect(&mut self, separate: &[&str]) {
        let used: Vec<&str> = separate.iter().copied().filter(|key| self.has(key)).collect();
        if self.has("url") {
            for key in used {
                self.at(&[key], format!("`{key}` and `url` exclude each other; say it in one of the two"));
            }
        }
        if self.has("password") && self.has("password_file") {
            self.at(&["password_file"], "`password_file` and `password` exclude each other");
        }
    }

    /// Whether nothing below `key` has been reported: only then do its values belong together.
    fn is_sound(&self, key: &str) -> bool {
        self.node.get(key).is_none_or(Node::is_sound)
    }

    fn certificate_with_key(&mut self, cert: Option<&PathBuf>, key: Option<&PathBuf>) {
        match (cert, key) {
            (Some(_), None) => self.at(&["tls", "cert"], "a client certificate needs its `key` beside it"),
            (None, Some(_)) => self.at(&["tls", "key"], "a client key needs its `cert` beside it"),
            _ => {}
        }
    }
}

pub(super) fn checked_log(log: LogSettings, node: &Node, problems: &mut Vec<Problem>) -> LogSettings {
    if let Err(error) = telemetry::filter(&log.level) {
        Report { node, problems }.at(&["level"], error);
    }
    log
}

pub(super) fn checked_shutdown(span: Span, node: &Node, problems: &mut Vec<Problem>) -> Span {
    Report { node, problems }.within(&[], span, Duration::from_secs(1), Duration::from_hours(1));
    span
}

pub(super) fn checked_instance(name: String, node: &Node, problems: &mut Vec<Problem>) -> String {
    if let Err(error) = checked_name(&name) {
        Report { node, problems }.at(&[], error);
    }
    name
}

/// A name that goes into logs and into columns of 255 characters.
pub(super) fn checked_name(name: &str) -> Result<(), &'static str> {
    match name {
        "" => Err("is empty"),
        _ if name.chars().count() > 255 => Err("is longer than 255 characters"),
        _ if name.chars().any(char::is_control) => Err("holds a control character"),
        _ => Ok(()),
    }
}
