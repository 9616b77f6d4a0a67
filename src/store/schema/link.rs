//! Questions about the schema. Everything is asked as text and answered as text, so that no server's idea of types matters
//! and no statement is prepared.

use std::{io, time::Duration};

use anyhow::anyhow;
use async_trait::async_trait;
use futures_util::{Stream, TryStreamExt as _};
use sqlx::{
    AssertSqlSafe, Connection as _, Either, Executor as _, MySqlConnection, Row as _, SqliteConnection,
    mysql::MySqlRow, sqlite::SqliteRow,
};
use tokio::time::timeout;
use tracing::debug;

use crate::store::{
    connect::Database,
    dialect::{Dialect, Fault, MySql, Sqlite},
    settings::Settings,
};

/// A row of an answer: each value as text, `None` for NULL.
pub(in crate::store) type Answer = Vec<Option<String>>;

/// A connection that can be asked.
#[async_trait]
pub(in crate::store) trait Ask: Send {
    /// The rows that one statement, or several, answer with; none where they give none.
    async fn ask(&mut self, sql: &str) -> sqlx::Result<Vec<Answer>>;

    /// The first value of the first row.
    async fn ask_one(&mut self, sql: &str) -> sqlx::Result<Option<String>> {
        Ok(self.ask(sql).await?.into_iter().next().and_then(|answer| answer.into_iter().next()).flatten())
    }
}

#[async_trait]
impl Ask for MySqlConnection {
    async fn ask(&mut self, sql: &str) -> sqlx::Result<Vec<Answer>> {
        collect(self.fetch_many(sqlx::raw_sql(AssertSqlSafe(sql))), mysql_answer).await
    }
}

#[async_trait]
impl Ask for SqliteConnection {
    async fn ask(&mut self, sql: &str) -> sqlx::Result<Vec<Answer>> {
        collect(self.fetch_many(sqlx::raw_sql(AssertSqlSafe(sql))), sqlite_answer).await
    }
}

/// A connection of one's own, whose answers are waited for so long and no longer. Dropped, it is closed.
pub(super) struct Link {
    inner: Inner,
    limit: Duration,
}

enum Inner {
    MySql(MySqlConnection),
    Sqlite(SqliteConnection),
}

/// # Errors
/// The database cannot be reached; in words, and without any secret.
pub(super) async fn connect(settings: &Settings) -> anyhow::Result<Link> {
    let limit = settings.statement_timeout.0;
    let inner = match Database::new(settings).map_err(anyhow::Error::msg)? {
        Database::MySql(mysql) => within(limit, MySql::connect(&mysql)).await.map(Inner::MySql)?,
        Database::Sqlite(sqlite) => within(limit, Sqlite::connect(&sqlite)).await.map(Inner::Sqlite)?,
    };
    Ok(Link { inner, limit })
}

async fn within<L>(limit: Duration, connecting: impl Future<Output = Result<L, Fault>>) -> anyhow::Result<L> {
    match timeout(limit, connecting).await {
        Ok(Ok(link)) => Ok(link),
        Ok(Err(fault)) => Err(anyhow!(fault.into_text())),
        Err(_) => Err(anyhow!("the database did not answer a connect within {limit:?}")),
    }
}

impl Link {
    pub(super) fn is_sqlite(&self) -> bool {
        matches!(self.inner, Inner::Sqlite(_))
    }

    /// Says goodbye, so that the server does not log a broken connection. That the other side was faster is no error:
    /// MySQL closes a socket at once, and the end of TLS that is sent after that finds a broken pipe.
    pub(super) async fn close(self) {
        let goodbye = match self.inner {
            Inner::MySql(link) => link.close().await,
            Inner::Sqlite(link) => link.close().await,
        };
        if let Err(error) = goodbye {
            debug!(%error, "a connection ended without a goodbye");
        }
    }
}

#[async_trait]
impl Ask for Link {
    async fn ask(&mut self, sql: &str) -> sqlx::Result<Vec<Answer>> {
        let asking = match &mut self.inner {
            Inner::MySql(link) => link.ask(sql),
            Inner::Sqlite(link) => link.ask(sql),
        };
        let late = |_| sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "the database did not answer in time"));
        timeout(self.limit, asking).await.map_err(late)?
    }
}

async fn collect<D, R>(
    steps: impl Stream<Item = sqlx::Result<Either<D, R>>>,
    answer: fn(&R) -> sqlx::Result<Answer>,
) -> sqlx::Result<Vec<Answer>> {
    steps.try_filter_map(async |step| step.right().map(|row| answer(&row)).transpose()).try_collect().await
}

fn mysql_answer(row: &MySqlRow) -> sqlx::Result<Answer> {
    let text = |index| {
        // The text protocol sends every value as text; only the declared type differs, and is not asked for.
        let value = row.try_get_unchecked::<Option<Vec<u8>>, _>(index)?;
        Ok(value.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    };
    (0..row.len()).map(text).collect()
}

fn sqlite_answer(row: &SqliteRow) -> sqlx::Result<Answer> {
    (0..row.len()).map(|index| row.try_get_unchecked(index)).collect()
}

/// A text as an SQL literal that means the same in every SQL mode.
pub(super) fn literal(text: &str, is_sqlite: bool) -> String {
    if is_sqlite {
        return format!("'{}'", text.replace('\'', "''"));
    }
    let mut digits = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        digits.extend([byte >> 4, byte & 15].map(|half| char::from_digit(half.into(), 16).unwrap_or('0')));
    }
    format!("_utf8mb4 x'{digits}'")
}
