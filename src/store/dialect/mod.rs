//! What differs between databases: how to connect, what errors mean, and a few words of SQL. A dialect is one file here and
//! one folder under `sql/`.

mod mysql;
mod sqlite;

use std::fmt::Debug;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use sqlx::SqlStr;

pub use self::{mysql::MySql, sqlite::Sqlite};
use crate::store::{
    facts::{Facts, IdKind},
    settings::Settings,
};

/// A database that can hold bills.
#[async_trait]
pub trait Dialect: Debug + Send + Sync + Sized + 'static {
    /// One connection. Dropping it closes it at once, and the server rolls back what was open.
    type Link: Send + 'static;
    type Row: Cells + Send;

    /// What quotes a name.
    const QUOTE: char;
    const TEXTS: Texts;
    /// The database's clock, as finely as it goes.
    const NOW: &'static str;
    /// Begins a transaction that is going to write.
    const BEGIN: &'static str;

    /// Opens a connection and sets it up. Secrets in files are read anew.
    async fn connect(&self) -> Result<Self::Link, Fault>;

    /// Sends one statement without values.
    async fn run(link: &mut Self::Link, sql: &'static str) -> Result<(), sqlx::Error>;

    /// Sends a statement and counts the rows that it matched.
    async fn execute(link: &mut Self::Link, sql: SqlStr, values: &[Value<'_>]) -> Result<u64, sqlx::Error>;

    /// Sends a query and streams its rows.
    fn rows<'link>(
        link: &'link mut Self::Link,
        sql: SqlStr,
        values: &[Value<'_>],
    ) -> BoxStream<'link, Result<Self::Row, sqlx::Error>>;

    async fn ping(link: &mut Self::Link) -> Result<(), sqlx::Error>;

    fn fault(error: &sqlx::Error) -> Fault;

    /// Reads what statements depend on; refuses a missing table or column.
    async fn facts(link: &mut Self::Link, settings: &Settings) -> anyhow::Result<Facts>;

    /// An id, as an expression that [`Cells`] can read in the form of `kind`.
    fn id_read(kind: IdKind, expression: &str) -> String;

    /// A column of any type, as an expression that reads as bytes of text.
    fn text_read(column: &str) -> String;

    /// A condition that holds where a text expression and a value are the same or both NULL.
    fn same(expression: &str) -> String;

    /// Makes the server read the table through this index.
    fn index_hint(quoted_index: &str) -> String;

    /// The beginning of a SELECT that the server gives up after `limit_ms`.
    fn timed_select(facts: &Facts, limit_ms: u64) -> String;

    /// The values of `settle_retry` that say when: `delay_us` microseconds from the database's now. At most two.
    fn delay_values(delay_us: i64) -> [Option<Delay>; 2];
}

/// The statements of a dialect, as they are in its folder.
#[derive(Debug)]
pub struct Texts {
    pub columns: &'static str,
    pub fetch_fresh: &'static str,
    pub fetch_due: &'static str,
    pub entries_fresh: &'static str,
    pub entries_due: &'static str,
    pub entries_failed: &'static str,
    pub scan: &'static str,
    pub load: &'static str,
    pub find: &'static str,
    pub settle_done: &'static str,
    pub settle_retry: &'static str,
    pub settle_failed: &'static str,
    pub log_attempts: &'static str,
    pub log_attempt_row: &'static str,
    pub holds: &'static str,
    pub hold: &'static str,
    pub release: &'static str,
    pub count: &'static str,
    pub types: &'static str,
    pub oldest: &'static str,
    pub failed_ids: &'static str,
    pub rearm: &'static str,
}

/// The texts of the folder `sql/<dialect>/`.
macro_rules! texts {
    ($dialect:literal: $($name:ident),* $(,)?) => {
        Texts { $($name: include_str!(concat!("../../../sql/", $dialect, "/", stringify!($name), ".sql")),)* }
    };
    ($dialect:literal) => {
        texts!($dialect: columns, fetch_fresh, fetch_due, entries_fresh, entries_due, entries_failed, scan, load, find,
            settle_done, settle_retry, settle_failed, log_attempts, log_attempt_row, holds, hold, release, count, types,
            oldest, failed_ids, rearm)
    };
}
use texts;

/// A value for a placeholder of a statement.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    Null,
    Integer(i64),
    Unsigned(u64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    pub fn text(text: Option<&'a str>) -> Self {
        text.map_or(Self::Null, Self::Text)
    }

    pub fn count(count: usize) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

/// A part of a delay, in the form that the dialect's time functions take.
#[derive(Clone, Debug)]
pub enum Delay {
    Microseconds(i64),
    Modifier(String),
}

impl Delay {
    pub fn value(&self) -> Value<'_> {
        match self {
            Self::Microseconds(delay_us) => Value::Integer(*delay_us),
            Self::Modifier(text) => Value::Text(text),
        }
    }
}

/// Reads a row by position. Statements cast what they select, so that reading cannot fail by type; `None` is NULL.
pub trait Cells {
    fn integer(&self, position: usize) -> Result<Option<i64>, sqlx::Error>;
    fn unsigned(&self, position: usize) -> Result<Option<u64>, sqlx::Error>;
    fn bytes(&self, position: usize) -> Result<Option<&[u8]>, sqlx::Error>;

    fn text(&self, position: usize) -> Result<Option<String>, sqlx::Error> {
        let bytes = self.bytes(position)?;
        bytes
            .map(|bytes| {
                std::str::from_utf8(bytes).map(str::to_owned).map_err(|error| sqlx::Error::Decode(error.into()))
            })
            .transpose()
    }
}

/// What an error of the database means for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Deadlock or lock timeout: the same again may work at once.
    Conflict(String),
    /// The content is refused, by a constraint or a trigger.
    Content(String),
    /// The server is gone or must not be used any more: other connections to it are no better.
    Away(String),
    /// The server gave the statement up after the time it was allowed.
    TooSlow(String),
    /// Anything else that may pass.
    Other(String),
}

impl Fault {
    pub fn into_text(self) -> String {
        match self {
            Self::Conflict(text) | Self::Content(text) | Self::Away(text) | Self::TooSlow(text) | Self::Other(text) => {
                text
            }
        }
    }
}

/// The error in words, short enough for a log line.
fn words(error: &sqlx::Error) -> String {
    const MAX: usize = 400;
    let mut text = error.to_string();
    text.truncate(text.floor_char_boundary(MAX));
    text
}
