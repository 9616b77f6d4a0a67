//! A connection of one's own for questions about the schema. Everything is asked as text and answered as text, so that
//! no server's idea of types matters and no statement is prepared.

use futures_util::TryStreamExt as _;
use sqlx::{
    AssertSqlSafe, Connection as _, Either, Executor as _, MySqlConnection, MySqlPool, Row as _, SqliteConnection,
    SqlitePool, mysql::MySqlRow, sqlite::SqliteRow,
};

/// The pool that leads to the store.
#[derive(Clone, Debug)]
pub enum Database {
    MySql(MySqlPool),
    Sqlite(SqlitePool),
}

/// One connection, taken out of its pool. It is closed when dropped, so that nothing it was left in survives.
#[derive(Debug)]
pub(super) enum Link {
    MySql(MySqlConnection),
    Sqlite(SqliteConnection),
}

/// A row of an answer: each value as text, `None` for NULL.
pub(super) type Answer = Vec<Option<String>>;

impl Database {
    pub(super) async fn link(&self) -> sqlx::Result<Link> {
        match self {
            Self::MySql(pool) => Ok(Link::MySql(pool.acquire().await?.detach())),
            Self::Sqlite(pool) => Ok(Link::Sqlite(pool.acquire().await?.detach())),
        }
    }

    /// What the dialect is called in `sql/`.
    pub(super) fn is_sqlite(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }
}

impl Link {
    /// The rows that one statement answers with; none where it gives none.
    pub(super) async fn ask(&mut self, sql: &str) -> sqlx::Result<Vec<Answer>> {
        let query = sqlx::raw_sql(AssertSqlSafe(sql));
        match self {
            Self::MySql(link) => {
                link.fetch_many(query).try_filter_map(async |step| mysql_answer(step)).try_collect().await
            }
            Self::Sqlite(link) => {
                link.fetch_many(query).try_filter_map(async |step| sqlite_answer(step)).try_collect().await
            }
        }
    }

    /// The first value of the first row.
    pub(super) async fn ask_one(&mut self, sql: &str) -> sqlx::Result<Option<String>> {
        Ok(self.ask(sql).await?.into_iter().next().and_then(|answer| answer.into_iter().next()).flatten())
    }

    pub(super) async fn close(self) -> sqlx::Result<()> {
        match self {
            Self::MySql(link) => link.close().await,
            Self::Sqlite(link) => link.close().await,
        }
    }
}

fn mysql_answer<D>(step: Either<D, MySqlRow>) -> sqlx::Result<Option<Answer>> {
    let Either::Right(row) = step else { return Ok(None) };
    let text = |index| {
        // The text protocol sends every value as text; only the declared type differs, and is not asked for.
        let value = row.try_get_unchecked::<Option<Vec<u8>>, _>(index)?;
        Ok(value.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    };
    (0..row.len()).map(text).collect::<sqlx::Result<_>>().map(Some)
}

fn sqlite_answer<D>(step: Either<D, SqliteRow>) -> sqlx::Result<Option<Answer>> {
    let Either::Right(row) = step else { return Ok(None) };
    (0..row.len()).map(|index| row.try_get_unchecked(index)).collect::<sqlx::Result<_>>().map(Some)
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
