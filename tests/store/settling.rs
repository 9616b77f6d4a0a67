//! Settling: what is written, what is compared, and that it is all or nothing.

use std::{sync::Arc, time::Duration};

use outbill::store::{FetchRequest, Settlement, StoreError, Verdict};
use serde_json::json;

use crate::{
    attempt, default_store, due, failed, fresh, ids, insert, on_every_store, retry_in, settlement, store,
    support::databases::{Database, Kind},
};

on_every_store! {
    done_bills_are_settled_together,
    a_retry_counts_and_waits_by_the_databases_clock,
    a_failure_keeps_its_reason_and_its_count,
    who_changed_the_row_meanwhile_wins,
    a_version_is_compared_too,
    attempts_are_logged_with_the_settling_or_not_at_all,
    optional_columns_are_written,
    holds_survive_and_keep_their_first_reason,
}

async fn done_bills_are_settled_together(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert(&database, "order.paid", 1..=1_500).await;
    let page = opened.store.fetch(&FetchRequest { rows: 1_500, ..fresh() }).await.unwrap();
    let done: Vec<_> = page.rows.iter().map(|row| settlement(row, Verdict::Done)).collect();
    assert_eq!(opened.store.settle(&done).await.unwrap(), 1_500);
    assert_eq!(database.value("COUNT(*)", "async_bill WHERE status = 1 AND finished_at IS NOT NULL").await, "1500");
    assert_eq!(database.value("SUM(retry_count)", "async_bill").await, "0");
    assert_eq!(opened.store.settle(&done).await.unwrap(), 0);
    assert_eq!(opened.store.settle(&[]).await.unwrap(), 0);
}

async fn a_retry_counts_and_waits_by_the_databases_clock(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert(&database, "order.paid", 1..=2).await;
    let page = opened.store.fetch(&fresh()).await.unwrap();
    let retries = [
        settlement(&page.rows[0], retry_in(Duration::from_mins(1))),
        settlement(&page.rows[1], retry_in(Duration::ZERO)),
    ];
    assert_eq!(opened.store.settle(&retries).await.unwrap(), 2);
    assert_eq!(database.value("SUM(retry_count)", "async_bill WHERE status = 0").await, "2");
    assert!(opened.store.fetch(&fresh()).await.unwrap().rows.is_empty());
    let wait_s = match database.kind {
        Kind::Sqlite => "CAST(ROUND((julianday(next_retry_time) - julianday('now')) * 86400) AS INTEGER)",
        _ => "TIMESTAMPDIFF(SECOND, NOW(), next_retry_time)",
    };
    let wait_s: i64 = database.value(wait_s, "async_bill WHERE id = 1").await.parse().unwrap();
    assert!((58..=61).contains(&wait_s), "{wait_s}");
    // The other one is due with the next second at the latest.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    loop {
        let page = opened.store.fetch(&due()).await.unwrap();
        if ids(&page) == [2] {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "not due");
    }
}

async fn a_failure_keeps_its_reason_and_its_count(database: Arc<Database>) {
    database.create_tables().await;
    database.execute("ALTER TABLE async_bill ADD COLUMN reason varchar(20)").await;
    let opened = store(&database, json!({ "columns": { "reason": "reason" } })).await;
    insert(&database, "order.paid", 1..=1).await;
    let page = opened.store.fetch(&fresh()).await.unwrap();
    assert_eq!(opened.store.settle(&[settlement(&page.rows[0], failed())]).await.unwrap(), 1);
    let row = "async_bill WHERE id = 1 AND status = 2 AND finished_at IS NOT NULL";
    assert_eq!(database.value("retry_count", row).await, "1");
    let reason = database.value("reason", row).await;
    assert!(reason.starts_with("the broker does not "), "{reason}");
}

async fn who_changed_the_row_meanwhile_wins(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert(&database, "order.paid", 1..=6).await;
    let page = opened.store.fetch(&fresh()).await.unwrap();
    for change in [
        "status = 3 WHERE id = 1",
        "retry_count = 1 WHERE id = 2",
        // Failed by another and retried by a person: the count is the same again, the time is not.
        "next_retry_time = '2020-01-01 00:00:00' WHERE id = 3",
        "status = 2 WHERE id = 5",
        "retry_count = 9 WHERE id = 6",
    ] {
        database.execute(&format!("UPDATE async_bill SET {change}")).await;
    }
    let settlements: Vec<_> = page
        .rows
        .iter()
        .enumerate()
        .map(|(n, row)| {
            settlement(
                row,
                [retry_in(Duration::from_secs(9)), failed(), failed(), failed(), Verdict::Done, Verdict::Done][n]
                    .clone(),
            )
        })
        .collect();
    // Left: bill 4, untouched, and bill 6, of which a `Done` compares the status alone.
    assert_eq!(opened.store.settle(&settlements).await.unwrap(), 2);
    let statuses: Vec<_> = database.texts("SELECT CAST(status AS CHAR) FROM async_bill ORDER BY id").await;
    let statuses: Vec<_> = statuses.iter().map(|status| status.as_deref().unwrap()).collect();
    assert_eq!(statuses, ["3", "0", "0", "2", "2", "1"]);
}

async fn a_version_is_compared_too(database: Arc<Database>) {
    database.create_tables().await;
    database.execute("ALTER TABLE async_bill ADD COLUMN version int NOT NULL DEFAULT 1").await;
    let opened = store(&database, json!({ "columns": { "version": "version" } })).await;
    insert(&database, "order.paid", 1..=2).await;
    let page = opened.store.fetch(&fresh()).await.unwrap();
    database.execute("UPDATE async_bill SET version = 2 WHERE id = 1").await;
    let settlements: Vec<_> = page.rows.iter().map(|row| settlement(row, failed())).collect();
    assert_eq!(opened.store.settle(&settlements).await.unwrap(), 1);
    assert_eq!(database.value("status", "async_bill WHERE id = 1").await, "0");
}

async fn attempts_are_logged_with_the_settling_or_not_at_all(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert(&database, "order.paid", 1..=100).await;
    let page = opened.store.fetch(&fresh()).await.unwrap();
    let settlements: Vec<Settlement> = page
        .rows
        .iter()
        .enumerate()
        .map(|(n, row)| Settlement {
            attempt: (n != 0).then(|| attempt(1)),
            ..settlement(row, if n % 2 == 0 { Verdict::Done } else { retry_in(Duration::from_secs(1)) })
        })
        .collect();
    database.execute("ALTER TABLE outbill_attempt RENAME TO elsewhere").await;
    let error = opened.store.settle(&settlements).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    assert_eq!(database.value("COUNT(*)", "async_bill WHERE status = 0 AND retry_count = 0").await, "100");
    database.execute("ALTER TABLE elsewhere RENAME TO outbill_attempt").await;
    assert_eq!(opened.store.settle(&settlements).await.unwrap(), 100);
    assert_eq!(database.value("COUNT(*)", "outbill_attempt").await, "99");
    let row = "outbill_attempt WHERE bill_id = '2'";
    for (column, expected) in [
        ("bill_type", "order.paid"),
        ("message_id", "order.paid:1"),
        ("attempt", "1"),
        ("outcome", "transient"),
        ("error_class", "nack"),
        ("error", "the broker refused it"),
        ("sink", "rabbit"),
        ("route", "orders"),
        ("duration_ms", "12"),
        ("instance", "test-1"),
        ("attempted_at IS NOT NULL", "1"),
    ] {
        assert_eq!(database.value(column, row).await, expected, "{column}");
    }
}

async fn optional_columns_are_written(database: Arc<Database>) {
    database.create_tables().await;
    database.execute("ALTER TABLE async_bill ADD COLUMN reason varchar(200)").await;
    database.execute("ALTER TABLE async_bill ADD COLUMN published_at varchar(40)").await;
    let opened = store(&database, json!({ "columns": { "reason": "reason", "published_at": "published_at" } })).await;
    insert(&database, "order.paid", 1..=1).await;
    database.execute("UPDATE async_bill SET reason = 'old'").await;
    let page = opened.store.fetch(&fresh()).await.unwrap();
    assert_eq!(opened.store.settle(&[settlement(&page.rows[0], Verdict::Done)]).await.unwrap(), 1);
    assert_eq!(database.value("reason", "async_bill").await, "NULL");
    assert_ne!(database.value("published_at", "async_bill").await, "NULL");
}

async fn holds_survive_and_keep_their_first_reason(database: Arc<Database>) {
    use outbill::store::Hold;

    let opened = default_store(&database).await;
    let hold = |reason: &str| Hold { class: "unroutable".to_owned(), reason: reason.to_owned() };
    opened.store.hold("orders", &hold("first")).await.unwrap();
    opened.store.hold("orders", &hold("second")).await.unwrap();
    opened.store.hold("Orders", &hold(&"x".repeat(2_000))).await.unwrap();
    let again = store(&database, json!({})).await;
    let holds = again.store.holds().await.unwrap();
    assert_eq!((holds.len(), &holds["orders"]), (2, &hold("first")));
    assert!(again.ledger.release("orders").await.unwrap());
    assert!(!again.ledger.release("orders").await.unwrap());
    assert_eq!(again.store.holds().await.unwrap().len(), 1);
}
