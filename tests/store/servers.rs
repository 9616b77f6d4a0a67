//! What happens only on servers: other sessions, triggers, time zones, broken connections.

use std::{sync::Arc, time::Duration};

use outbill::store::{FetchRequest, Opened, Page, Settlement, StoreError, Verdict};
use serde_json::json;
use sqlx::Executor as _;
use tokio::time::{Instant, timeout};

use crate::{
    attempt, default_store, failed, fresh, ids, insert, on_every_server, retry_in, settlement, store,
    support::{databases::Database, proxy::Proxy},
};

on_every_server! {
    a_wait_is_rounded_up_to_what_the_column_keeps,
    a_time_the_application_wrote_is_due_in_the_servers_zone,
    more_rows_than_ids_are_rolled_back,
    a_trigger_refuses_one_bill_and_nothing_else_is_half_done,
    a_locked_row_is_waited_for_and_then_left,
    a_deadlock_is_tried_again,
    a_fetch_waits_for_no_lock,
    a_cancelled_call_leaves_no_transaction_behind,
    a_killed_connection_is_replaced,
    a_table_locked_by_a_backup_is_waited_for,
    a_server_that_stops_answering_is_given_up_in_time,
}

async fn all_fresh(opened: &Opened) -> Page {
    opened.store.fetch(&fresh()).await.unwrap()
}

fn all(page: &Page, verdict: &Verdict) -> Vec<Settlement> {
    page.rows.iter().map(|row| settlement(row, verdict.clone())).collect()
}

async fn a_wait_is_rounded_up_to_what_the_column_keeps(database: Arc<Database>) {
    database.create_tables().await;
    for decimals in [0, 3, 6] {
        database.execute("DELETE FROM async_bill").await;
        insert(&database, "order.paid", 1..=20).await;
        database.execute(&format!("ALTER TABLE async_bill MODIFY next_retry_time datetime({decimals}) NULL")).await;
        let opened = store(&database, json!({})).await;
        let page = all_fresh(&opened).await;
        for (n, row) in page.rows.iter().enumerate() {
            let delay = Duration::from_micros(1_600_001 + 37_003 * u64::try_from(n).unwrap());
            let id = n + 1;
            let before = database.value("NOW(6)", "dual").await;
            assert_eq!(opened.store.settle(&[settlement(row, retry_in(delay))]).await.unwrap(), 1);
            let waited = format!("TIMESTAMPDIFF(MICROSECOND, '{before}', next_retry_time)");
            let took = format!("TIMESTAMPDIFF(MICROSECOND, '{before}', NOW(6))");
            let waited_us: u128 =
                database.value(&waited, &format!("async_bill WHERE id = {id}")).await.parse().unwrap();
            let took_us: u128 = database.value(&took, "dual").await.parse().unwrap();
            let unit_us = 10_u128.pow(6 - decimals);
            assert!(waited_us >= delay.as_micros(), "DATETIME({decimals}): {waited_us} is earlier than {delay:?}");
            assert!(
                waited_us <= delay.as_micros() + took_us + unit_us,
                "DATETIME({decimals}): {waited_us} for {delay:?}"
            );
        }
    }
}

async fn a_time_the_application_wrote_is_due_in_the_servers_zone(database: Arc<Database>) {
    database.create_tables().await;
    insert(&database, "order.paid", 1..=2).await;
    let mut application = database.connect_in_zone("+08:00").await;
    application.execute("UPDATE async_bill SET next_retry_time = NOW() WHERE id = 1").await.unwrap();
    application.execute("UPDATE async_bill SET next_retry_time = NOW() + INTERVAL 1 HOUR WHERE id = 2").await.unwrap();
    let opened = store(&database, json!({ "time_zone": "+08:00" })).await;
    let page = opened.store.fetch(&crate::due()).await.unwrap();
    assert_eq!(ids(&page), [1]);
    assert_eq!(opened.store.settle(&all(&page, &retry_in(Duration::from_hours(1)))).await.unwrap(), 1);
    let near: Option<String> = sqlx::query_scalar(
        "SELECT CAST(ABS(TIMESTAMPDIFF(SECOND, NOW() + INTERVAL 1 HOUR, next_retry_time)) < 5 AS CHAR) FROM async_bill WHERE id = 1",
    )
    .fetch_one(&mut application)
    .await
    .unwrap();
    assert_eq!(near.as_deref(), Some("1"));
    // A zone that the server does not know is an error of the settings, said as such.
    let error =
        outbill::store::open(&database.settings(&json!({ "time_zone": "Nowhere/At_all" })), "x").await.unwrap_err();
    assert!(format!("{error:#}").contains("time zone"), "{error:#}");
}

async fn more_rows_than_ids_are_rolled_back(database: Arc<Database>) {
    database.create_tables().await;
    database.execute("ALTER TABLE async_bill MODIFY id bigint unsigned NOT NULL, DROP PRIMARY KEY, ADD KEY (id)").await;
    insert(&database, "order.paid", 1..=2).await;
    database.execute("INSERT INTO async_bill (id, biz_type, biz_id) VALUES (1, 'order.paid', 'again')").await;
    let opened = store(&database, json!({})).await;
    let page = all_fresh(&opened).await;
    for verdict in [Verdict::Done, failed(), retry_in(Duration::from_secs(1))] {
        let error = opened.store.settle(&all(&page, &verdict)[..1]).await.unwrap_err();
        assert!(matches!(error, StoreError::OverMatched { asked: 1, matched: 2 }), "{error:?}");
    }
    assert_eq!(database.value("COUNT(*)", "async_bill WHERE status = 0 AND retry_count = 0").await, "3");
}

async fn a_trigger_refuses_one_bill_and_nothing_else_is_half_done(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert(&database, "order.paid", 1..=3).await;
    database
        .execute(
            "CREATE TRIGGER guard BEFORE UPDATE ON async_bill FOR EACH ROW \
             IF NEW.id = 2 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF",
        )
        .await;
    let mut settlements = all(&all_fresh(&opened).await, &Verdict::Done);
    settlements[0].attempt = Some(attempt(1));
    let error = opened.store.settle(&settlements).await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused(text) if text.contains("not this one")), "{error:?}");
    assert_eq!(database.value("COUNT(*)", "async_bill WHERE status = 0").await, "3");
    assert_eq!(database.value("COUNT(*)", "outbill_attempt").await, "0");
    let mut settled = 0;
    for settlement in &settlements {
        settled += opened.store.settle(std::slice::from_ref(settlement)).await.unwrap_or(0);
    }
    assert_eq!(settled, 2);
}

async fn a_locked_row_is_waited_for_and_then_left(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert(&database, "order.paid", 1..=2).await;
    let page = all_fresh(&opened).await;
    let mut application = database.connect().await;
    application.execute("BEGIN").await.unwrap();
    application.execute("UPDATE async_bill SET retry_count = 7 WHERE id = 1").await.unwrap();
    let settlements = all(&page, &failed());
    let settling = opened.store.settle(&settlements);
    tokio::pin!(settling);
    assert!(timeout(Duration::from_millis(300), &mut settling).await.is_err(), "it did not wait");
    application.execute("COMMIT").await.unwrap();
    assert_eq!(settling.await.unwrap(), 1);
    assert_eq!(database.value("status", "async_bill WHERE id = 1").await, "0");
}

async fn a_deadlock_is_tried_again(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert(&database, "order.paid", 1..=200).await;
    // The heavier side of a deadlock survives: let it be the application.
    let page = opened.store.fetch(&FetchRequest { rows: 2, ..fresh() }).await.unwrap();
    let mut application = database.connect().await;
    application.execute("BEGIN").await.unwrap();
    application.execute("UPDATE async_bill SET created_at = '2000-01-01' WHERE id >= 2").await.unwrap();
    let store = Arc::clone(&opened.store);
    let settlements = all(&page, &failed());
    let mut settling = tokio::task::JoinSet::new();
    settling.spawn(async move { store.settle(&settlements).await });
    let deadline = Instant::now() + Duration::from_secs(4);
    // InnoDB renews what it says of its transactions only for those who ask less than ten times a second.
    let mut ticks = tokio::time::interval(Duration::from_millis(150));
    while database.value("trx_state", "information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'").await == "NULL" {
        assert!(Instant::now() < deadline, "the settle does not wait for the application's lock");
        ticks.tick().await;
    }
    // Closes the ring; the settle is the victim, and goes through once the application has committed.
    application.execute("UPDATE async_bill SET created_at = '2000-01-01' WHERE id = 1").await.unwrap();
    application.execute("COMMIT").await.unwrap();
    assert_eq!(settling.join_next().await.unwrap().unwrap().unwrap(), 2);
    assert_eq!(database.value("COUNT(*)", "async_bill WHERE status = 2").await, "2");
}

async fn a_fetch_waits_for_no_lock(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert(&database, "order.paid", 1..=2).await;
    let mut application = database.connect().await;
    application.execute("BEGIN").await.unwrap();
    application.execute("SELECT * FROM async_bill FOR UPDATE").await.unwrap();
    let page = timeout(Duration::from_secs(2), opened.store.fetch(&fresh())).await.unwrap().unwrap();
    assert_eq!(ids(&page), [1, 2]);
}

/// Drops settles at ever later moments, through a slow line, and then looks whether later settles are committed.
async fn a_cancelled_call_leaves_no_transaction_behind(database: Arc<Database>) {
    database.create_tables().await;
    insert(&database, "order.paid", 1..=60).await;
    let (host, port) = database.address();
    let proxy = Proxy::start(&host, port).await;
    proxy.delay(Duration::from_millis(5));
    let opened = store(&database, json!({ "url": database.url_at(proxy.port()), "max_connections": 2 })).await;
    let page = all_fresh(&opened).await;
    for (n, row) in page.rows.iter().enumerate() {
        let cancelled = [settlement(row, retry_in(Duration::from_mins(1)))];
        let patience = Duration::from_millis(u64::try_from(n).unwrap() * 2 % 70);
        let _outcome = timeout(patience, opened.store.settle(&cancelled)).await;
    }
    proxy.delay(Duration::ZERO);
    let rows = settle_all_done(&opened, &database).await;
    assert_eq!(rows, "60");
}

/// Settles every bill as done, whatever its queue, and counts in another session what was committed.
async fn settle_all_done(opened: &Opened, database: &Database) -> String {
    database.execute("UPDATE async_bill SET next_retry_time = NULL").await;
    for row in &all_fresh(opened).await.rows {
        opened.store.settle(&[settlement(row, Verdict::Done)]).await.unwrap();
    }
    database.value("COUNT(*)", "async_bill WHERE status = 1").await
}

async fn a_killed_connection_is_replaced(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert(&database, "order.paid", 1..=1).await;
    let page = all_fresh(&opened).await;
    for id in database
        .texts(&format!(
            "SELECT CAST(id AS CHAR) FROM information_schema.processlist WHERE db = '{}' AND id <> CONNECTION_ID()",
            database.name
        ))
        .await
    {
        database.execute(&format!("KILL {}", id.unwrap())).await;
    }
    // The first call may meet the dead connection; no later one does.
    let _first = opened.store.fetch(&fresh()).await;
    assert_eq!(opened.store.settle(&all(&page, &Verdict::Done)).await.unwrap(), 1);
}

async fn a_table_locked_by_a_backup_is_waited_for(database: Arc<Database>) {
    let opened = default_store(&database).await;
    insert(&database, "order.paid", 1..=1).await;
    let page = all_fresh(&opened).await;
    let settlements = all(&page, &Verdict::Done);
    database.execute("FLUSH TABLES async_bill WITH READ LOCK").await;
    let settling = opened.store.settle(&settlements);
    tokio::pin!(settling);
    assert!(timeout(Duration::from_millis(300), &mut settling).await.is_err(), "it did not wait");
    database.execute("UNLOCK TABLES").await;
    assert_eq!(settling.await.unwrap(), 1);
}

async fn a_server_that_stops_answering_is_given_up_in_time(database: Arc<Database>) {
    database.create_tables().await;
    insert(&database, "order.paid", 1..=1).await;
    let (host, port) = database.address();
    let proxy = Proxy::start(&host, port).await;
    let settings = json!({ "url": database.url_at(proxy.port()), "statement_timeout": "1s" });
    let opened = store(&database, settings).await;
    let page = all_fresh(&opened).await;
    proxy.stall(true);
    let before = Instant::now();
    let error = opened.store.settle(&all(&page, &Verdict::Done)).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unavailable(_)), "{error:?}");
    assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
    proxy.stall(false);
    let deadline = Instant::now() + Duration::from_secs(20);
    while opened.store.settle(&all(&page, &Verdict::Done)).await.is_err() {
        assert!(Instant::now() < deadline, "it does not come back");
    }
    assert!(all_fresh(&opened).await.rows.is_empty());
}
