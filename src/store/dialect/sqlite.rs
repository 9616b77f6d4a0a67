//! SQLite, the embedded default: one process, times as UTC text.

use async_trait::async_trait;
use futures_util::{StreamExt, stream::BoxStream};
use sqlx::{
    ConnectOptions, Connection, Executor, Row as _, SqlStr,
    sqlite::{SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteRow},
};

use super::{Cells, Delay, Dialect, Fault, Texts, Value, texts, words};
use crate::store::{
    facts::{Facts, IdKind},
    schema,
    settings::Settings,
};

/// Opens a database file.
#[derive(Debug)]
pub struct Sqlite {
    pub(in crate::store) options: SqliteConnectOptions,
}

#[async_trait]
impl Dialect for Sqlite {
    type Link = SqliteConnection;
    type Row = SqliteRow;

    const QUOTE: char = '"';
    const TEXTS: Texts = texts!("sqlite");
    const NOW: &'static str = "strftime('%Y-%m-%d %H:%M:%f', 'now')";
    // The write lock at once: a lock taken later could not be waited for.
    const BEGIN: &'static str = "BEGIN IMMEDIATE";

    async fn connect(&self) -> Result<SqliteConnection, Fault> {
        self.options.connect().await.map_err(|error| {
            let file = self.options.get_filename().display();
            Fault::Away(format!("cannot open the SQLite database {file}: {}", words(&error)))
        })
    }

    async fn run(link: &mut SqliteConnection, sql: &'static str) -> Result<(), sqlx::Error> {
        link.execute(sql).await.map(drop)
    }

    async fn execute(link: &mut SqliteConnection, sql: SqlStr, values: &[Value<'_>]) -> Result<u64, sqlx::Error> {
        let done = sqlx::query_with(sql, bind(values)?).execute(link).await?;
        Ok(done.rows_affected())
    }

    fn rows<'link>(
        link: &'link mut SqliteConnection,
        sql: SqlStr,
        values: &[Value<'_>],
    ) -> BoxStream<'link, Result<SqliteRow, sqlx::Error>> {
        match bind(values) {
            Ok(arguments) => sqlx::query_with(sql, arguments).fetch(link),
            Err(error) => futures_util::stream::once(async move { Err(error) }).boxed(),
        }
    }

    async fn ping(link: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        link.ping().await
    }

    fn fault(error: &sqlx::Error) -> Fault {
        let Some(reported) = error.as_database_error() else { return Fault::Away(words(error)) };
        let extended: i32 = reported.code().and_then(|code| code.parse().ok()).unwrap_or(0);
        // The low byte is the primary result code.
        match extended & 0xff {
            5 | 6 => Fault::Conflict(words(error)),
            18..=20 => Fault::Content(words(error)),
            8 | 10 | 11 | 14 | 26 => Fault::Away(words(error)),
            9 => Fault::TooSlow(words(error)),
            _ => Fault::Other(words(error)),
        }
    }

    async fn facts(link: &mut SqliteConnection, settings: &Settings) -> anyhow::Result<Facts> {
        schema::facts(link, true, settings).await
    }

    fn id_read(kind: IdKind, expression: &str) -> String {
        match kind {
            IdKind::Signed | IdKind::Unsigned => format!("CAST({expression} AS INTEGER)"),
            IdKind::Text => format!("CAST({expression} AS TEXT)"),
            IdKind::Binary => expression.to_owned(),
        }
    }

    fn text_read(column: &str) -> String {
        format!("CAST({column} AS TEXT)")
    }

    fn same(expression: &str) -> String {
        format!("{expression} IS ?")
    }

    fn index_hint(quoted_index: &str) -> String {
        format!("INDEXED BY {quoted_index}")
    }

    fn timed_select(_facts: &Facts, _limit_ms: u64) -> String {
        "SELECT".to_owned()
    }

    // SQLite's clock gives whole milliseconds, cut off: one more makes up for it.
    fn delay_values(delay_us: i64) -> [Option<Delay>; 2] {
        let thousandths = delay_us.saturating_add(999) / 1_000 + 1;
        let modifier = format!("+{}.{:03} seconds", thousandths / 1_000, thousandths % 1_000);
        [Some(Delay::Modifier(modifier)), None]
    }
}

fn bind(values: &[Value<'_>]) -> Result<SqliteArguments, sqlx::Error> {
    use sqlx::Arguments;

    let mut arguments = SqliteArguments::default();
    for value in values {
        match *value {
            Value::Null => arguments.add(None::<&str>),
            Value::Integer(number) => arguments.add(number),
            Value::Unsigned(number) => arguments.add(i64::try_from(number).unwrap_or(i64::MAX)),
            Value::Text(text) => arguments.add(text),
            Value::Bytes(bytes) => arguments.add(bytes),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

impl Cells for SqliteRow {
    fn integer(&self, position: usize) -> Result<Option<i64>, sqlx::Error> {
        self.try_get_unchecked(position)
    }

    fn unsigned(&self, position: usize) -> Result<Option<u64>, sqlx::Error> {
        Ok(self.integer(position)?.and_then(|number| u64::try_from(number).ok()))
    }

    fn bytes(&self, position: usize) -> Result<Option<&[u8]>, sqlx::Error> {
        self.try_get_unchecked(position)
    }
}
