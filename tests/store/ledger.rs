//! What a person asks and orders.

use std::{sync::Arc, time::Duration};

use outbill::store::{Count, Hold, OverviewLimits, Selection, StoreError};
use serde_json::json;

use crate::{
    bill, default_store, due, ids, insert, on_every_store, store,
    support::databases::{Database, Kind},
};

on_every_store! {
    an_overview_counts_open_bills_up_to_its_cap,
    failed_bills_of_one_type_go_back_to_pending,
    failed_bills_are_retried_by_id_and_only_they,
    a_row_is_found_by_its_id_whatever_its_state,
}

fn count(value: u64) -> Count {
    Count { value, capped: false }
}

async fn an_overview_counts_open_bills_up_to_its_cap(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert(&database, "order.paid", 1..=30).await;
    insert(&database, "Order.paid", 31..=35).await;
    let ago = if database.kind == Kind::Sqlite { "datetime('now', '-1 hour')" } else { "NOW() - INTERVAL 1 HOUR" };
    for change in [
        format!("created_at = {ago} WHERE id <= 4"),
        "next_retry_time = '2020-01-01 00:00:00' WHERE id <= 3".to_owned(),
        "next_retry_time = '2099-01-01 00:00:00' WHERE id = 4".to_owned(),
        "status = 2 WHERE id IN (10, 11)".to_owned(),
        "status = 1 WHERE id IN (12, 13)".to_owned(),
    ] {
        database.execute(&format!("UPDATE async_bill SET {change}")).await;
    }
    opened.store.hold("orders", &Hold { class: "c".to_owned(), reason: "r".to_owned() }).await.unwrap();
    let limits = OverviewLimits { time: Duration::from_secs(5), ..OverviewLimits::default() };
    let overview = opened.ledger.overview(&limits).await.unwrap();
    assert_eq!((overview.pending, overview.failed), (Some(count(31)), Some(count(2))));
    assert_eq!((overview.due_retries, overview.scheduled), (Some(count(3)), Some(count(1))));
    let by_type = overview.pending_by_type.unwrap();
    assert_eq!(by_type, [("order.paid".to_owned(), count(26)), ("Order.paid".to_owned(), count(5))]);
    assert_eq!(overview.failed_by_type.unwrap(), [("order.paid".to_owned(), count(2))]);
    assert!((3_600..3_700).contains(&overview.oldest_pending_s.unwrap()), "{:?}", overview.oldest_pending_s);
    assert_eq!(overview.holds.len(), 1);
    let overview = opened.ledger.overview(&OverviewLimits { cap: 10, ..limits }).await.unwrap();
    assert_eq!(overview.pending, Some(Count { value: 10, capped: true }));
    assert_eq!(overview.failed, Some(count(2)));
}

async fn failed_bills_of_one_type_go_back_to_pending(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert(&database, "order.paid", 1..=10).await;
    insert(&database, "Order.paid", 11..=12).await;
    database.execute("UPDATE async_bill SET status = 2, retry_count = 5, finished_at = created_at WHERE id <> 2").await;
    database.execute("UPDATE async_bill SET next_retry_time = '2020-01-01 00:00:00' WHERE id > 6").await;
    let selection = Selection::Type("order.paid".to_owned());
    let listed = opened.ledger.retry(&selection, 4, true).await.unwrap();
    assert_eq!(listed.len(), 4);
    assert_eq!(database.value("COUNT(*)", "async_bill WHERE status = 2").await, "11");
    let retried = opened.ledger.retry(&selection, 100, false).await.unwrap();
    let retried: Vec<_> = retried.iter().filter_map(outbill::bill::BillId::as_integer).collect();
    assert_eq!(retried, [1, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(database.value("COUNT(*)", "async_bill WHERE status = 2").await, "2");
    assert_eq!(
        database.value("COUNT(*)", "async_bill WHERE retry_count = 0 AND finished_at IS NULL AND id <> 2").await,
        "9"
    );
    assert_eq!(ids(&opened.store.fetch(&due()).await.unwrap()), retried);
}

async fn failed_bills_are_retried_by_id_and_only_they(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert(&database, "order.paid", 1..=4).await;
    database.execute("UPDATE async_bill SET status = 2 WHERE id IN (2, 4)").await;
    database.execute("UPDATE async_bill SET status = 1 WHERE id = 3").await;
    let selection = Selection::Ids(["4", "3", "2", "1", "99"].map(str::to_owned).into());
    let retried = opened.ledger.retry(&selection, 100, false).await.unwrap();
    assert_eq!(retried.iter().filter_map(outbill::bill::BillId::as_integer).collect::<Vec<_>>(), [2, 4]);
    assert_eq!(database.value("status", "async_bill WHERE id = 3").await, "1");
    let error = opened.ledger.retry(&Selection::Ids(vec!["4x".to_owned()]), 1, false).await.unwrap_err();
    assert!(matches!(error, StoreError::Invalid(_)), "{error:?}");
}

async fn a_row_is_found_by_its_id_whatever_its_state(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert(&database, "order.paid", 1..=2).await;
    database.execute("UPDATE async_bill SET status = 9 WHERE id = 2").await;
    let found = opened.ledger.find("1").await.unwrap().unwrap();
    assert_eq!((bill(&found.row).key.as_deref(), found.status.as_str()), (Some("k1"), "0 (pending)"));
    assert_eq!(opened.ledger.find("2").await.unwrap().unwrap().status, "9");
    assert!(opened.ledger.find("3").await.unwrap().is_none());
    assert!(matches!(opened.ledger.find("x").await, Err(StoreError::Invalid(_))));
    let again = store(&database, json!({ "columns": { "extra": { "key": "biz_id" } } })).await;
    let found = again.ledger.find("1").await.unwrap().unwrap();
    assert_eq!((bill(&found.row).extra[0].as_deref(), found.status.as_str()), (Some("k1"), "0 (pending)"));
}
