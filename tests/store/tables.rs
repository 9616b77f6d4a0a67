//! Tables of every shape: ids, statuses, names.

use std::{sync::Arc, time::Duration};

use outbill::{
    bill::BillId,
    store::{FetchRequest, Selection, Verdict},
};
use serde_json::{Value, json};

use crate::{
    after, bill, due, failed, fresh, of_types, on, on_every_server, on_every_store, retry_in, row_id, settlement,
    store,
    support::databases::{Database, Kind},
};

on_every_store! {
    odd_names_are_quoted,
    statuses_may_be_words_and_pending_may_be_several,
}

mod servers {
    use super::*;
    on_every_server! {
        ids_may_be_of_any_kind,
        a_count_saturates_at_its_columns_maximum_and_null_is_zero,
    }
    use super::{a_count_saturates_at_its_columns_maximum_and_null_is_zero, ids_may_be_of_any_kind};
}

mod uuid {
    use super::*;
    on! { MariaDb as mariadb: a_uuid_column_is_an_id; }
    use super::a_uuid_column_is_an_id;
}

/// Creates a table of the usual columns with some of them defined otherwise.
async fn create(database: &Database, table: &str, id: &str, status: &str, retry_count: &str) {
    let time = if database.kind == Kind::Sqlite { "text" } else { "datetime" };
    let text = if database.kind == Kind::Sqlite { "text" } else { "varchar(64)" };
    database
        .execute(&format!(
            "CREATE TABLE {table} (id {id} NOT NULL PRIMARY KEY, biz_type {text} NOT NULL, biz_id {text}, status {status}, \
             payload {text}, retry_count {retry_count}, next_retry_time {time}, finished_at {time}, \
             created_at {time} DEFAULT CURRENT_TIMESTAMP)"
        ))
        .await;
    let on = if database.kind == Kind::Sqlite { "by_status" } else { "`by status`" };
    database.execute(&format!("CREATE INDEX {on} ON {table} (status, next_retry_time)")).await;
}

/// Walks both queues page by page, retries every bill once, settles it and finds it again by what it is called.
async fn goes_round(database: &Database, changes: Value, expected: usize) -> Vec<BillId> {
    let opened = store(database, changes).await;
    let mut walked = Vec::new();
    for wanted in [None, Some(of_types(&["a"]))] {
        let mut request = FetchRequest { rows: 1, wanted, ..fresh() };
        walked.clear();
        loop {
            let page = opened.store.fetch(&request).await.unwrap();
            walked.extend(page.rows.iter().map(|row| row_id(row).clone()));
            if page.rows.is_empty() {
                break;
            }
            request.after = after(&page);
        }
        assert_eq!(walked.len(), expected, "{walked:?}");
    }
    let page = opened.store.fetch(&fresh()).await.unwrap();
    let retries: Vec<_> = page.rows.iter().map(|row| settlement(row, retry_in(Duration::ZERO))).collect();
    assert_eq!(opened.store.settle(&retries).await.unwrap(), u64::try_from(expected).unwrap());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    let page = loop {
        let page = opened.store.fetch(&due()).await.unwrap();
        if page.rows.len() == expected {
            break page;
        }
        assert!(tokio::time::Instant::now() < deadline, "not due: {page:?}");
    };
    let mut request = FetchRequest { rows: 1, ..due() };
    let mut again = 0;
    loop {
        let page = opened.store.fetch(&request).await.unwrap();
        again += page.rows.len();
        if page.rows.is_empty() {
            break;
        }
        request.after = after(&page);
    }
    assert_eq!(again, expected);
    let fails: Vec<_> = page.rows.iter().map(|row| settlement(row, failed())).collect();
    assert_eq!(opened.store.settle(&fails).await.unwrap(), u64::try_from(expected).unwrap());
    let typed: Vec<String> = walked.iter().map(ToString::to_string).collect();
    let found = opened.ledger.find(&typed[0]).await.unwrap().unwrap();
    assert_eq!(row_id(&found.row), &walked[0]);
    assert_eq!(opened.ledger.retry(&Selection::Ids(typed), 100, false).await.unwrap().len(), expected);
    let page = opened.store.fetch(&due()).await.unwrap();
    let done: Vec<_> = page.rows.iter().map(|row| settlement(row, Verdict::Done)).collect();
    assert_eq!(opened.store.settle(&done).await.unwrap(), u64::try_from(expected).unwrap());
    walked
}

async fn odd_names_are_quoted(database: Arc<Database>) {
    database.create_tables().await;
    let (quoted, name) = match database.kind {
        Kind::Sqlite => ("\"my-order's \"\"bills\"\".{id}\"".to_owned(), "`my-order's \"bills\".{id}`".to_owned()),
        _ => (
            format!("`{}`.`my-order's \"``bills``\".{{id}}`", database.name),
            format!("{}.`my-order's \"``bills``\".{{id}}`", database.name),
        ),
    };
    let int = if database.kind == Kind::Sqlite { "integer" } else { "bigint" };
    create(&database, &quoted, int, "int DEFAULT 0", "int DEFAULT 0").await;
    let key = if database.kind == Kind::Sqlite { "\"order\"" } else { "`order`" };
    database.execute(&format!("ALTER TABLE {quoted} RENAME COLUMN biz_id TO {key}")).await;
    database.execute(&format!("INSERT INTO {quoted} (id, biz_type, {key}) VALUES (1, 'a', 'x'), (2, 'a', 'y')")).await;
    goes_round(&database, json!({ "table": name, "columns": { "key": "order" } }), 2).await;
}

async fn statuses_may_be_words_and_pending_may_be_several(database: Arc<Database>) {
    database.create_tables().await;
    let status = match database.kind {
        Kind::Sqlite => "text DEFAULT 'new'",
        _ => "ENUM('closed', 'new', 'it''s again', 'sent', 'broken') DEFAULT 'new'",
    };
    let int = if database.kind == Kind::Sqlite { "integer" } else { "bigint" };
    create(&database, "jobs", int, status, "int DEFAULT 0").await;
    database
        .execute(
            "INSERT INTO jobs (id, biz_type, status) VALUES (1, 'a', 'new'), (2, 'a', 'it''s again'), (3, 'a', 'sent'), \
             (4, 'a', 'it''s again'), (5, 'a', 'new'), (6, 'a', 'new')",
        )
        .await;
    let settings = json!({ "table": "jobs", "statuses": { "pending": ["new", "it's again"], "done": "sent",
        "failed": "broken", "compensated": "closed" } });
    let walked = goes_round(&database, settings.clone(), 5).await;
    assert_eq!(walked.iter().filter_map(BillId::as_integer).collect::<Vec<_>>(), [1, 2, 4, 5, 6]);
    assert_eq!(database.value("COUNT(*)", "jobs WHERE status = 'sent'").await, "6");
    let found = store(&database, settings).await.ledger.find("1").await.unwrap().unwrap();
    assert_eq!(found.status, "sent (done)");
}

async fn ids_may_be_of_any_kind(database: Arc<Database>) {
    database.create_tables().await;
    for (kind, column, values) in [
        ("large", "bigint unsigned", ["1", "9223372036854775808", "18446744073709551615"]),
        ("signed", "bigint", ["-5", "0", "9223372036854775807"]),
        ("small", "smallint unsigned", ["1", "2", "65535"]),
        ("text", "char(36)", ["'018f-a'", "'018f-b'", "'ümlaut'"]),
        ("latin", "varchar(20) CHARACTER SET latin1", ["'a'", "'b'", "'ü'"]),
        ("bytes", "binary(16)", ["X'00'", "X'00FF'", "X'FF000000000000000000000000000001'"]),
    ] {
        create(&database, kind, column, "tinyint DEFAULT 0", "int DEFAULT 0").await;
        let rows = values.map(|value| format!("({value}, 'a', 'x')")).join(",");
        database.execute(&format!("INSERT INTO {kind} (id, biz_type, biz_id) VALUES {rows}")).await;
        goes_round(&database, json!({ "table": kind }), 3).await;
    }
}

async fn a_uuid_column_is_an_id(database: Arc<Database>) {
    database.create_tables().await;
    create(&database, "jobs", "uuid", "tinyint DEFAULT 0", "int DEFAULT 0").await;
    database
        .execute(
            "INSERT INTO jobs (id, biz_type) VALUES ('018f0000-0000-7000-8000-000000000001', 'a'), \
             ('a18f0000-0000-1000-8000-000000000002', 'a')",
        )
        .await;
    goes_round(&database, json!({ "table": "jobs" }), 2).await;
}

async fn a_count_saturates_at_its_columns_maximum_and_null_is_zero(database: Arc<Database>) {
    database.create_tables().await;
    create(&database, "jobs", "bigint", "tinyint DEFAULT 0", "tinyint unsigned NULL").await;
    database
        .execute("INSERT INTO jobs (id, biz_type, retry_count) VALUES (1, 'a', 255), (2, 'a', NULL), (3, 'a', 254)")
        .await;
    let opened = store(&database, json!({ "table": "jobs" })).await;
    let page = opened.store.fetch(&fresh()).await.unwrap();
    assert_eq!(page.rows.iter().map(|row| bill(row).seen.attempts()).collect::<Vec<_>>(), [255, 0, 254]);
    let retries: Vec<_> = page.rows.iter().map(|row| settlement(row, retry_in(Duration::from_secs(5)))).collect();
    assert_eq!(opened.store.settle(&retries).await.unwrap(), 3);
    let counts = database.texts("SELECT CAST(retry_count AS CHAR) FROM jobs ORDER BY id").await;
    assert_eq!(counts, [Some("255".to_owned()), Some("1".to_owned()), Some("255".to_owned())]);
}
