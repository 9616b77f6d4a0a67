//! MySQL and MariaDB.

use std::fmt;

use async_trait::async_trait;
use futures_util::{StreamExt, stream::BoxStream};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor, Row as _, SqlStr,
    mysql::{MySqlArguments, MySqlConnectOptions, MySqlConnection, MySqlDatabaseError, MySqlRow},
};

use super::{Cells, Delay, Dialect, Fault, Texts, Value, texts, words};
use crate::{
    secret::SecretSource,
    store::{
        facts::{Facts, IdKind},
        schema,
        settings::Settings,
    },
};

/// Connects to a MySQL or MariaDB server.
pub struct MySql {
    pub(in crate::store) options: MySqlConnectOptions,
    pub(in crate::store) password: Option<SecretSource>,
    /// The statements that set up every new connection.
    pub(in crate::store) session: Vec<String>,
    /// Turns an error of connecting into words with a remedy.
    pub(in crate::store) explain: fn(&sqlx::Error, &MySqlConnectOptions) -> Option<String>,
}

// By hand: sqlx's options would show the password.
impl fmt::Debug for MySql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySql").field("host", &self.options.get_host()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Dialect for MySql {
    type Link = MySqlConnection;
    type Row = MySqlRow;

    const QUOTE: char = '`';
    const TEXTS: Texts = texts!("mysql");
    const NOW: &'static str = "NOW(6)";
    const BEGIN: &'static str = "START TRANSACTION";

    async fn connect(&self) -> Result<MySqlConnection, Fault> {
        let mut options = self.options.clone();
        if let Some(source) = &self.password {
            let secret = source.read().map_err(|error| Fault::Other(error.to_string()))?;
            options = options.password(secret.expose());
        }
        let explain = |error: &sqlx::Error| match (self.explain)(error, &self.options) {
            Some(text) => Fault::Away(text),
            None => Self::fault(error),
        };
        let mut link = options.connect().await.map_err(|error| explain(&error))?;
        for statement in &self.session {
            link.execute(AssertSqlSafe(statement.as_str())).await.map_err(|error| explain(&error))?;
        }
        Ok(link)
    }

    async fn run(link: &mut MySqlConnection, sql: &'static str) -> Result<(), sqlx::Error> {
        link.execute(sql).await.map(drop)
    }

    async fn execute(link: &mut MySqlConnection, sql: SqlStr, values: &[Value<'_>]) -> Result<u64, sqlx::Error> {
        let done = sqlx::query_with(sql, bind(values)?).execute(link).await?;
        Ok(done.rows_affected())
    }

    fn rows<'link>(
        link: &'link mut MySqlConnection,
        sql: SqlStr,
        values: &[Value<'_>],
    ) -> BoxStream<'link, Result<MySqlRow, sqlx::Error>> {
        match bind(values) {
            Ok(arguments) => sqlx::query_with(sql, arguments).fetch(link),
            Err(error) => futures_util::stream::once(async move { Err(error) }).boxed(),
        }
    }

    async fn ping(link: &mut MySqlConnection) -> Result<(), sqlx::Error> {
        link.ping().await
    }

    fn fault(error: &sqlx::Error) -> Fault {
        let Some(reported) = error.as_database_error() else { return Fault::Away(words(error)) };
        let number = reported.try_downcast_ref::<MySqlDatabaseError>().map_or(0, MySqlDatabaseError::number);
        let class = reported.code().map(|code| code.chars().take(2).collect::<String>());
        match (number, class.as_deref()) {
            (1205 | 1213, _) => Fault::Conflict(words(error)),
            // Read-only after a failover (1290 is also a refused option, which does not happen here), shutdown, killed.
            (1290 | 1792 | 1836 | 1053 | 1927 | 2006 | 2013 | 4031, _) => Fault::Away(words(error)),
            (1969 | 3024, _) => Fault::TooSlow(words(error)),
            // Signalled by a trigger; no default; truncated, out of range or not in the column's character set;
            // CHECK constraints of MySQL and MariaDB; what a trigger may not do.
            (1644 | 1364 | 1265 | 1366 | 1411 | 3819 | 4025 | 1442, _) | (_, Some("22" | "23" | "45")) => {
                Fault::Content(words(error))
            }
            _ => Fault::Other(words(error)),
        }
    }

    async fn facts(link: &mut MySqlConnection, settings: &Settings) -> anyhow::Result<Facts> {
        schema::facts(link, false, settings).await
    }

    fn id_read(kind: IdKind, expression: &str) -> String {
        match kind {
            IdKind::Signed => format!("CAST({expression} AS SIGNED)"),
            IdKind::Unsigned => format!("CAST({expression} AS UNSIGNED)"),
            IdKind::Text => format!("CAST({expression} AS CHAR)"),
            IdKind::Binary => expression.to_owned(),
        }
    }

    // Unlike CAST, CONCAT leaves the bytes of a binary column as they are.
    fn text_read(column: &str) -> String {
        format!("CONCAT({column})")
    }

    fn same(expression: &str) -> String {
        format!("{expression} <=> ?")
    }

    fn index_hint(quoted_index: &str) -> String {
        format!("FORCE INDEX ({quoted_index})")
    }

    fn timed_select(facts: &Facts, limit_ms: u64) -> String {
        if facts.server.is_mariadb {
            format!("SET STATEMENT max_statement_time = {}.{:03} FOR SELECT", limit_ms / 1_000, limit_ms % 1_000)
        } else {
            format!("SELECT /*+ MAX_EXECUTION_TIME({limit_ms}) */")
        }
    }

    fn delay_values(delay_us: i64) -> [Option<Delay>; 2] {
        [Some(Delay::Microseconds(delay_us)), Some(Delay::Microseconds(delay_us))]
    }
}

fn bind(values: &[Value<'_>]) -> Result<MySqlArguments, sqlx::Error> {
    use sqlx::Arguments;

    let mut arguments = MySqlArguments::default();
    arguments.reserve(values.len(), values.len() * 8);
    for value in values {
        match *value {
            Value::Null => arguments.add(None::<&str>),
            Value::Integer(number) => arguments.add(number),
            Value::Unsigned(number) => arguments.add(number),
            Value::Text(text) => arguments.add(text),
            Value::Bytes(bytes) => arguments.add(bytes),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

impl Cells for MySqlRow {
    fn integer(&self, position: usize) -> Result<Option<i64>, sqlx::Error> {
        self.try_get_unchecked(position)
    }

    fn unsigned(&self, position: usize) -> Result<Option<u64>, sqlx::Error> {
        self.try_get_unchecked(position)
    }

    fn bytes(&self, position: usize) -> Result<Option<&[u8]>, sqlx::Error> {
        self.try_get_unchecked(position)
    }
}
