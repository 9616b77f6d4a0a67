//! The application never waits for Outbill, and slow networks lose nothing.

use std::time::Duration;

use crate::support::{Kind, LONG, Proxy, Shop, eventually, execute};

on_both_databases!(
    an_open_transaction_of_the_application_holds_up_nobody,
    a_slow_network_to_the_database_repeats_nothing,
    a_firewall_that_forgets_the_database_connection_is_survived,
);

/// Ids commit out of order, and no lock of ours is ever waited for.
async fn an_open_transaction_of_the_application_holds_up_nobody(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume_all().await;
    let outbill = shop.run(&shop.config()).await;
    let mut early = shop.database.pool.acquire().await.unwrap();
    let insert = "INSERT INTO async_bill (biz_type, biz_id, payload) VALUES ('order.paid', 'early', '{}')";
    execute(&mut early, format!("SET innodb_lock_wait_timeout = 1; START TRANSACTION; {insert}")).await;
    shop.database.bills("order.paid", "late", 1_000).await;
    shop.wait_for(1_000, "status = 1").await;
    execute(&mut early, insert.replace("early", "early2")).await;
    execute(&mut early, "COMMIT").await;
    shop.wait_for(1_002, "status = 1").await;

    // A row that somebody has locked waits alone: what was delivered is settled when the lock is gone.
    execute(
        &mut early,
        "START TRANSACTION; INSERT INTO async_bill (biz_type, biz_id) VALUES ('order.paid', 'locked'); COMMIT",
    )
    .await;
    execute(&mut early, "START TRANSACTION; SELECT * FROM async_bill WHERE biz_id = 'locked' FOR UPDATE").await;
    ledger.message("order.paid:locked").await;
    execute(&mut early, "COMMIT").await;
    shop.wait_for(1_003, "status = 1 AND retry_count = 0").await;
    outbill.terminate(LONG).await;
    assert_eq!(ledger.complete().await, (1_003, 0));
}

/// Pages and settles overlap for a long time.
async fn a_slow_network_to_the_database_repeats_nothing(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume_all().await;
    let proxy = Proxy::to(format!("{}:{}", shop.database.host, shop.database.port)).await;
    let config = shop.config().store("url", &format!("\"{}\"", shop.database.url_at(proxy.port)));
    let config = config.store("poll", "{ interval: 10ms, batch: 50 }");
    let outbill = shop.run(&config).await;
    proxy.delay(Duration::from_millis(15));
    for round in 0..20 {
        let time = if round % 2 == 0 { "NULL" } else { "NOW()" };
        shop.database.bills_at("order.paid", &format!("r{round}"), 100, time).await;
    }
    shop.wait_for(2_000, "status = 1 AND retry_count = 0").await;
    outbill.terminate(LONG).await;
    assert_eq!(ledger.complete().await, (2_000, 0));
}

/// Nothing comes back any more, and nobody says so.
async fn a_firewall_that_forgets_the_database_connection_is_survived(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume_all().await;
    let proxy = Proxy::to(format!("{}:{}", shop.database.host, shop.database.port)).await;
    let config = shop
        .config()
        .store("url", &format!("\"{}\"", shop.database.url_at(proxy.port)))
        .store("statement_timeout", "2s");
    let mut outbill = shop.run(&config).await;
    shop.database.bills("order.paid", "a", 10).await;
    shop.wait_for(10, "status = 1").await;
    proxy.swallow(true);
    let lines = outbill.line_count();
    outbill.wait_for_line(lines, &["unavailable"], LONG).await;
    shop.database.bills("order.paid", "b", 10).await;
    proxy.swallow(false);
    shop.wait_for(20, "status = 1 AND retry_count = 0").await;

    // The same with an outage that closes what is open and refuses what is new.
    proxy.refuse(true);
    proxy.cut_all();
    let before = proxy.connections();
    shop.database.bills("order.paid", "c", 10).await;
    eventually("a few tries", LONG, async || (proxy.connections() >= before + 2).then_some(())).await;
    proxy.refuse(false);
    shop.wait_for(30, "status = 1 AND retry_count = 0").await;
    assert!(outbill.line_count() - lines < 20, "{:#?}", outbill.lines());
    outbill.terminate(LONG).await;
    assert_eq!(ledger.complete().await, (30, 0));
}

/// The same on the way to the broker: the heartbeat tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_firewall_that_forgets_the_broker_connection_is_survived() {
    let Some(shop) = Shop::open(Kind::MariaDb).await else { return };
    let ledger = shop.broker.consume_all().await;
    let (proxy, url) = Proxy::to_broker(&shop.broker.url).await;
    let config = shop.config().sink("url", &format!("\"{url}\"")).sink("heartbeat", "1s");
    let outbill = shop.run(&config).await;
    shop.database.bills("order.paid", "a", 10).await;
    shop.wait_for(10, "status = 1").await;
    proxy.swallow(true);
    let connections = proxy.connections();
    shop.database.bills("order.paid", "b", 10).await;
    eventually("another connection", LONG, async || (proxy.connections() > connections).then_some(())).await;
    proxy.swallow(false);
    shop.wait_for(20, "status = 1 AND retry_count = 0").await;
    outbill.terminate(LONG).await;
    let (distinct, duplicates) = ledger.complete().await;
    assert!(distinct == 20 && duplicates <= 10, "{distinct} messages, {duplicates} duplicates");
}
