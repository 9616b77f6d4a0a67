//! The application of `outbill demo`: a shop on SQLite that writes orders and bills, and rolls some back.

use std::path::Path;

use sqlx::{
    AssertSqlSafe, Connection, Executor, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

/// The shop's connection to its database.
#[derive(Debug)]
pub struct Shop(SqliteConnection);

/// An order and what has to happen because of it.
#[derive(Debug)]
pub struct Order<'a> {
    pub number: u32,
    pub amount_cents: u32,
    /// The bill's type: `order.paid`.
    pub bill_type: &'a str,
    pub payload: &'a str,
}

/// A bill that a person has to look at.
#[derive(Debug)]
pub struct Failure {
    pub message_id: String,
    pub class: String,
    pub error: String,
}

impl Shop {
    /// Opens the database, which is made where it is missing, with a table of orders.
    pub async fn open(path: &Path) -> sqlx::Result<Self> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // The demo's shop ends with the demo.
            .synchronous(SqliteSynchronous::Off);
        let mut connection = SqliteConnection::connect_with(&options).await?;
        connection
            .execute("CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, amount_cents INTEGER NOT NULL)")
            .await?;
        Ok(Self(connection))
    }

    /// Makes the table of bills by the statements of `init --example`.
    pub async fn make_table(&mut self, statements: Vec<String>) -> sqlx::Result<()> {
        for statement in statements {
            self.0.execute(AssertSqlSafe(statement)).await?;
        }
        Ok(())
    }

    /// Writes an order and its bill in one transaction, and commits both or neither.
    pub async fn place(&mut self, order: &Order<'_>, commit: bool) -> sqlx::Result<()> {
        let mut transaction = self.0.begin().await?;
        sqlx::query("INSERT INTO orders (number, amount_cents) VALUES (?, ?)")
            .bind(order.number)
            .bind(order.amount_cents)
            .execute(&mut *transaction)
            .await?;
        sqlx::query("INSERT INTO async_bill (biz_type, biz_id, payload) VALUES (?, ?, ?)")
            .bind(order.bill_type)
            .bind(order.number.to_string())
            .bind(order.payload)
            .execute(&mut *transaction)
            .await?;
        if commit { transaction.commit().await } else { transaction.rollback().await }
    }

    /// How many bills have each status: pending, done, failed, compensated.
    pub async fn standing(&mut self) -> sqlx::Result<[u32; 4]> {
        let mut standing = [0; 4];
        let counts: Vec<(u32, u32)> =
            sqlx::query_as("SELECT status, COUNT(*) FROM async_bill GROUP BY status").fetch_all(&mut self.0).await?;
        for (status, count) in counts {
            if let Some(slot) = standing.get_mut(status as usize) {
                *slot = count;
            }
        }
        Ok(standing)
    }

    /// The message ids of the bills that were committed.
    pub async fn committed(&mut self) -> sqlx::Result<Vec<String>> {
        sqlx::query_scalar("SELECT biz_type || ':' || biz_id FROM async_bill").fetch_all(&mut self.0).await
    }

    /// Failed bills with the last word of the attempt log.
    pub async fn failures(&mut self) -> sqlx::Result<Vec<Failure>> {
        let rows: Vec<(String, String, String)> = sqlx::query_as(
            "SELECT message_id, error_class, error FROM outbill_attempt WHERE outcome = 'rejected' ORDER BY id",
        )
        .fetch_all(&mut self.0)
        .await?;
        Ok(rows.into_iter().map(|(message_id, class, error)| Failure { message_id, class, error }).collect())
    }
}
