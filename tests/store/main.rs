//! What every store keeps, on SQLite and on real MariaDB and MySQL servers (`support::databases` says how they are named).

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says loudly what it could not test"
)]

#[path = "../support/mod.rs"]
mod support;

mod connecting;
mod ledger;
mod model;
mod pages;
mod servers;
mod settling;
mod speed;
mod tables;

use std::{sync::Arc, time::Duration};

use outbill::{
    bill::{Bill, BillId, Seen},
    store::{Attempt, FetchRequest, Filter, Mark, Opened, Page, Queue, Row, Settlement, Verdict, open},
};
use serde_json::{Value, json};

use crate::support::databases::Database;

/// One test for each kind of database, of async functions that take an `Arc<Database>`.
macro_rules! on {
    ($($kind:ident as $module:ident: $($test:ident),* $(,)?;)*) => {
        $(mod $module { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                crate::support::databases::with_database(crate::support::databases::Kind::$kind, super::$test).await;
            }
        )* })*
    };
}

macro_rules! on_every_store {
    ($($test:ident),* $(,)?) => {
        crate::on! { Sqlite as sqlite: $($test),*; MariaDb as mariadb: $($test),*; MySql as mysql: $($test),*; }
    };
}

macro_rules! on_every_server {
    ($($test:ident),* $(,)?) => { crate::on! { MariaDb as mariadb: $($test),*; MySql as mysql: $($test),*; } };
}

use {on, on_every_server, on_every_store};

/// The store of the default table.
async fn default_store(database: &Database) -> Opened {
    database.create_tables().await;
    store(database, json!({})).await
}

async fn store(database: &Database, changes: Value) -> Opened {
    open(&database.settings(&changes), "test-1").await.unwrap()
}

/// Inserts bills `first..=last` of one type.
async fn insert(database: &Database, bill_type: &str, ids: std::ops::RangeInclusive<u64>) {
    let rows: Vec<String> = ids.map(|id| format!("({id}, '{bill_type}', 'k{id}', '{{\"n\":{id}}}')")).collect();
    for chunk in rows.chunks(1_000) {
        database
            .execute(&format!("INSERT INTO async_bill (id, biz_type, biz_id, payload) VALUES {}", chunk.join(",")))
            .await;
    }
}

fn page_of(queue: Queue) -> FetchRequest {
    FetchRequest { queue, after: None, rows: 1_000, bytes: 16 << 20, max_payload: 1 << 20, wanted: None }
}

fn fresh() -> FetchRequest {
    page_of(Queue::Fresh)
}

fn due() -> FetchRequest {
    page_of(Queue::Due)
}

fn of_types(types: &'static [&'static str]) -> Filter {
    Arc::new(|bill_type| types.contains(&bill_type))
}

fn bill(row: &Row) -> &Bill {
    match row {
        Row::Bill(bill) => bill,
        Row::Invalid { problem, .. } => panic!("not a bill: {problem}"),
    }
}

fn ids(page: &Page) -> Vec<i128> {
    page.rows.iter().map(|row| row_id(row).as_integer().unwrap()).collect()
}

fn row_id(row: &Row) -> &BillId {
    match row {
        Row::Bill(bill) => &bill.id,
        Row::Invalid { id, .. } => id,
    }
}

fn row_seen(row: &Row) -> Seen {
    match row {
        Row::Bill(bill) => bill.seen.clone(),
        Row::Invalid { seen, .. } => seen.clone(),
    }
}

fn after(page: &Page) -> Option<Mark> {
    page.end.clone()
}

fn settlement(row: &Row, verdict: Verdict) -> Settlement {
    Settlement { id: row_id(row).clone(), seen: row_seen(row), verdict, attempt: None }
}

fn retry_in(delay: Duration) -> Verdict {
    Verdict::Retry { delay }
}

fn failed() -> Verdict {
    Verdict::Failed { reason: "the broker does not know the queue".to_owned() }
}

fn attempt(number: u32) -> Attempt {
    Attempt {
        bill_type: "order.paid".to_owned(),
        message_id: "order.paid:1".to_owned(),
        number,
        outcome: "transient",
        class: Some("nack"),
        error: Some("the broker refused it".to_owned()),
        sink: "rabbit".into(),
        route: "orders".into(),
        duration: Duration::from_millis(12),
    }
}
