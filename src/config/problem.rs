//! What is wrong with a configuration: every mistake with its place, all at once.

use std::fmt;

use crate::config::tree::Place;

/// One mistake. Its text never holds the value of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line and column, both from 1; `None` where the file as a whole is meant.
    pub position: Option<(usize, usize)>,
    /// `routes[0].sink`; empty for the root.
    pub path: String,
    pub message: String,
}

impl Problem {
    pub(super) fn at(place: &Place, message: impl Into<String>) -> Self {
        Self { position: Some((place.line, place.column)), path: place.path(), message: message.into() }
    }

    pub(super) fn of_file(message: impl Into<String>) -> Self {
        Self { position: None, path: String::new(), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.position {
            write!(f, "{line}:{column}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// All mistakes of one file, in the order of the file. `Display` gives a line for each: `outbill.yaml:12:5: …`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problems {
    /// The file as the user named it.
    pub file: String,
    pub problems: Vec<Problem>,
}

impl Problems {
    /// Sorts by place and drops repetitions: a mistake under `defaults` is found again in every route.
    pub(super) fn new(file: String, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.position);
        let mut unique: Vec<Problem> = Vec::with_capacity(problems.len());
        for problem in problems {
            if !unique.contains(&problem) {
                unique.push(problem);
            }
        }
        Self { file, problems: unique }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let line_break = if index == 0 { "" } else { "\n" };
            let separator = if problem.position.is_some() { ":" } else { ": " };
            write!(f, "{line_break}{}{separator}{problem}", self.file)?;
        }
        Ok(())
    }
}
