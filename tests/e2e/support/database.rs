//! The application's side of the database.

use sqlx::{
    AssertSqlSafe, Executor, Row,
    mysql::{MySqlConnectOptions, MySqlConnection, MySqlPool, MySqlPoolOptions},
};

use super::unique;

/// The table of the contract, unchanged.
const ASYNC_BILL: &str = "CREATE TABLE async_bill (
    id bigint unsigned NOT NULL AUTO_INCREMENT,
    biz_type varchar(64) NOT NULL,
    biz_id varchar(64) NOT NULL,
    status tinyint NOT NULL DEFAULT 0,
    payload json DEFAULT NULL,
    retry_count int NOT NULL DEFAULT 0,
    next_retry_time datetime DEFAULT NULL,
    finished_at datetime DEFAULT NULL,
    created_at datetime DEFAULT CURRENT_TIMESTAMP,
    updated_at datetime DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
    PRIMARY KEY (id), UNIQUE KEY uk_biz (biz_type, biz_id), KEY idx_status_next (status, next_retry_time)
)";

const ORDERS: &str = "CREATE TABLE orders (
    order_no varchar(64) NOT NULL, status varchar(16) NOT NULL DEFAULT 'paid', PRIMARY KEY (order_no)
)";

/// A fresh database with the application's two tables, an administrator's pool and the user that Outbill comes as.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) name: String,
    /// Outbill's user, whose password must appear in no output.
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) pool: MySqlPool,
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Database {
    pub(crate) async fn create(admin_url: &str) -> Self {
        let options: MySqlConnectOptions = admin_url.parse().unwrap();
        // The session's time zone is the server's, as a PHP application has it.
        let options = options.timezone(None);
        let (name, user, password) =
            (format!("shop_{}", unique()), format!("u_{}", unique()), format!("pw-{}", unique()));
        let admin = MySqlPoolOptions::new().max_connections(1).connect_with(options.clone()).await.unwrap();
        let setup = format!(
            "CREATE DATABASE {name}; CREATE USER {user}@'%' IDENTIFIED BY '{password}'; GRANT ALL ON {name}.* TO {user}@'%'"
        );
        admin.execute(sqlx::raw_sql(AssertSqlSafe(setup))).await.unwrap();
        admin.close().await;
        let (host, port) = (options.get_host().to_owned(), options.get_port());
        let pool = MySqlPoolOptions::new().max_connections(8).connect_lazy_with(options.database(&name));
        let database = Self { name, user, password, pool, host, port };
        database.execute(format!("{ASYNC_BILL}; {ORDERS}")).await;
        database
    }

    /// The URL that the configuration gives to Outbill.
    pub(crate) fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// The same server by another port: a proxy's.
    pub(crate) fn url_at(&self, port: u16) -> String {
        let Self { user, password, host, name, .. } = self;
        format!("mysql://{user}:{password}@{host}:{port}/{name}")
    }

    pub(crate) async fn execute(&self, sql: impl Into<String>) -> u64 {
        execute(&mut self.pool.acquire().await.unwrap(), sql).await
    }

    /// The rows as the server's text protocol gives them.
    pub(crate) async fn rows(&self, sql: impl Into<String>) -> Vec<Vec<Option<String>>> {
        let rows = self.pool.fetch_all(sqlx::raw_sql(AssertSqlSafe(sql.into()))).await.unwrap();
        rows.iter().map(|row| (0..row.len()).map(|column| row.get_unchecked(column)).collect()).collect()
    }

    pub(crate) async fn bytes(&self, sql: impl Into<String>) -> Option<Vec<u8>> {
        self.pool.fetch_one(sqlx::raw_sql(AssertSqlSafe(sql.into()))).await.unwrap().get_unchecked(0)
    }

    /// One column as text; NULL as `NULL`.
    pub(crate) async fn column(&self, sql: impl Into<String>) -> Vec<String> {
        let rows = self.rows(sql).await;
        rows.into_iter().map(|row| row.into_iter().next().flatten().unwrap_or_else(|| "NULL".to_owned())).collect()
    }

    pub(crate) async fn text(&self, sql: impl Into<String>) -> String {
        self.column(sql).await.pop().unwrap()
    }

    pub(crate) async fn number(&self, sql: impl Into<String>) -> i64 {
        self.text(sql).await.parse().unwrap()
    }

    /// How many bills meet a condition.
    pub(crate) async fn count(&self, condition: &str) -> usize {
        let count = self.number(format!("SELECT COUNT(*) FROM async_bill WHERE {condition}")).await;
        usize::try_from(count).unwrap()
    }

    /// Commits `count` bills of a type whose keys are `PREFIX-1` and up, in statements of a thousand rows.
    pub(crate) async fn bills(&self, bill_type: &str, prefix: &str, count: usize) {
        self.bills_at(bill_type, prefix, count, "NULL").await;
    }

    /// The same, scheduled by an SQL expression for `next_retry_time`.
    pub(crate) async fn bills_at(&self, bill_type: &str, prefix: &str, count: usize, time: &str) {
        let rows: Vec<String> =
            (1..=count).map(|n| format!("('{bill_type}', '{prefix}-{n}', '{{\"n\": {n}}}', {time})")).collect();
        for rows in rows.chunks(1_000) {
            let insert = "INSERT INTO async_bill (biz_type, biz_id, payload, next_retry_time) VALUES";
            self.execute(format!("{insert} {}", rows.join(","))).await;
        }
    }
}

pub(crate) async fn execute(connection: &mut MySqlConnection, sql: impl Into<String>) -> u64 {
    let sql = sql.into();
    let shown: String = sql.chars().take(200).collect();
    match connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await {
        Ok(result) => result.rows_affected(),
        Err(error) => panic!("{shown}: {error}"),
    }
}
