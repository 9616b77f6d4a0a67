//! A fresh database for each test, on SQLite and on real servers.
//!
//! `OUTBILL_TEST_MARIADB_URL` and `OUTBILL_TEST_MYSQL_URL` name servers (`mysql://root:password@127.0.0.1:3306`) on which the
//! tests may create and drop databases. A server that is not named is said loudly, and fails the run where `CI` is set.

#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::disallowed_methods, reason = "tests take their servers from the environment")]

use std::{
    future::Future,
    sync::atomic::{AtomicU32, Ordering},
};

use outbill::store::{schema, settings::Settings};
use serde_json::{Value, json};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, MySqlConnection, SqliteConnection,
    mysql::MySqlConnectOptions, sqlite::SqliteConnectOptions,
};
use tokio::sync::Mutex;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    MariaDb,
    MySql,
    Sqlite,
}

impl Kind {
    fn variable(self) -> Option<&'static str> {
        match self {
            Self::MariaDb => Some("OUTBILL_TEST_MARIADB_URL"),
            Self::MySql => Some("OUTBILL_TEST_MYSQL_URL"),
            Self::Sqlite => None,
        }
    }
}

/// A database of its own for one test.
pub(crate) struct Database {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    /// The URL of the database itself.
    pub(crate) url: String,
    link: Mutex<Link>,
    _folder: Option<tempfile::TempDir>,
}

enum Link {
    MySql(MySqlConnection),
    Sqlite(SqliteConnection),
}

/// Runs a test on a fresh database, and drops it afterwards; a test that fails leaves it for a look.
pub(crate) async fn with_database<F: Future<Output = ()>>(
    kind: Kind,
    test: impl FnOnce(std::sync::Arc<Database>) -> F,
) {
    let Some(database) = Database::create(kind).await else { return };
    let database = std::sync::Arc::new(database);
    test(std::sync::Arc::clone(&database)).await;
    if kind != Kind::Sqlite {
        database.execute(&format!("DROP DATABASE `{}`", database.name)).await;
    }
}

impl Database {
    /// `None` where the server is not there and need not be.
    pub(crate) async fn create(kind: Kind) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("outbill_test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let Some(variable) = kind.variable() else {
            let folder = tempfile::tempdir().unwrap();
            let url = format!("sqlite://{}/shop.db", folder.path().display());
            let options: SqliteConnectOptions = url.parse().unwrap();
            let link = Link::Sqlite(options.create_if_missing(true).connect().await.unwrap());
            return Some(Self { kind, name, url, link: Mutex::new(link), _folder: Some(folder) });
        };
        let Ok(server) = std::env::var(variable) else {
            assert!(std::env::var("CI").is_err(), "{variable} is not set, and CI wants every server");
            eprintln!("NOT TESTED on {kind:?}: set {variable} to the URL of a server");
            return None;
        };
        let server = server.trim_end_matches('/').to_owned();
        let options: MySqlConnectOptions = server.parse().unwrap();
        let mut link = options.timezone(None).connect().await.unwrap();
        link.execute(AssertSqlSafe(format!("CREATE DATABASE `{name}` CHARACTER SET utf8mb4"))).await.unwrap();
        link.execute(AssertSqlSafe(format!("USE `{name}`"))).await.unwrap();
        Some(Self { kind, url: format!("{server}/{name}"), name, link: Mutex::new(Link::MySql(link)), _folder: None })
    }

    /// Settings for this database, with `changes` on top.
    pub(crate) fn settings(&self, changes: &Value) -> Settings {
        let mut settings = json!({ "url": self.url });
        settings.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(settings).unwrap()
    }

    pub(crate) async fn execute(&self, sql: &str) {
        self.try_execute(sql).await.unwrap_or_else(|error| panic!("{error}: {sql}"));
    }

    pub(crate) async fn try_execute(&self, sql: &str) -> sqlx::Result<()> {
        match &mut *self.link.lock().await {
            Link::MySql(link) => link.execute(AssertSqlSafe(sql)).await.map(drop),
            Link::Sqlite(link) => link.execute(AssertSqlSafe(sql)).await.map(drop),
        }
    }

    /// The first column of the rows of a query, which has to be text.
    pub(crate) async fn texts(&self, sql: &str) -> Vec<Option<String>> {
        match &mut *self.link.lock().await {
            Link::MySql(link) => sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(link).await,
            Link::Sqlite(link) => sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(link).await,
        }
        .unwrap_or_else(|error| panic!("{error}: {sql}"))
    }

    /// One value as text: `value("status", "async_bill WHERE id = 1")`; `NULL` where it is that or there is no row.
    pub(crate) async fn value(&self, expression: &str, from: &str) -> String {
        let rows = self.texts(&format!("SELECT CAST({expression} AS CHAR) FROM {from}")).await;
        rows.into_iter().next().flatten().unwrap_or_else(|| "NULL".to_owned())
    }

    /// The application's table as `init --example` prints it, and Outbill's own as `init --apply` makes them.
    pub(crate) async fn create_tables(&self) {
        let settings = self.settings(&json!({}));
        for statement in schema::example(&settings).await.unwrap().iter().filter(|it| !it.contains("GRANT ")) {
            self.execute(statement).await;
        }
        let plan = schema::plan(&settings, false).await.unwrap();
        schema::apply(&settings, &plan).await.unwrap();
    }

    /// Another connection, for a second party.
    pub(crate) async fn connect(&self) -> MySqlConnection {
        MySqlConnection::connect(&self.url).await.unwrap()
    }

    /// A connection of a client whose session has this time zone.
    pub(crate) async fn connect_in_zone(&self, zone: &str) -> MySqlConnection {
        let options: MySqlConnectOptions = self.url.parse().unwrap();
        options.timezone(Some(zone.to_owned())).connect().await.unwrap()
    }

    /// Host and port of the server.
    pub(crate) fn address(&self) -> (String, u16) {
        let options: MySqlConnectOptions = self.url.parse().unwrap();
        (options.get_host().to_owned(), options.get_port())
    }

    /// The URL of the database at another port of this machine, where a proxy listens.
    pub(crate) fn url_at(&self, port: u16) -> String {
        let (host, own) = self.address();
        self.url.replace(&format!("{host}:{own}"), &format!("127.0.0.1:{port}"))
    }
}
