//! Nobody waits for somebody else's trouble.

use crate::support::{Kind, LONG, Proxy, Shop, eventually};

on_both_databases!(
    bills_that_no_route_matches_or_that_fail_hold_up_no_other,
    types_are_told_apart_by_bytes,
    an_application_that_changes_a_row_meanwhile_has_the_last_word,
    a_bill_that_the_database_refuses_to_settle_holds_its_route_and_no_other,
);

/// A poison head, and types that nobody wants.
async fn bills_that_no_route_matches_or_that_fail_hold_up_no_other(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume(&shop.broker.queue("order.good").await).await;
    shop.broker.full_queue("order.bad").await;
    let config = shop
        .config()
        .store("poll", "{ interval: 50ms, batch: 100 }")
        .route("match", "\"order.*\"")
        .route("retry", "{ base: 1s, cap: 2s }");
    shop.database.bills("foreign.type", "a", 3_000).await;
    shop.database.bills("order.bad", "a", 500).await;
    shop.database.bills("order.good", "a", 1).await;
    let mut outbill = shop.run(&config).await;
    shop.wait_for(1, "biz_type = 'order.good' AND status = 1").await;
    outbill.wait_for_line(0, &["no route", "foreign.type"], LONG).await;
    // The failing ones come back again and again, and still nobody waits.
    shop.wait_for(100, "biz_type = 'order.bad' AND retry_count >= 2").await;
    shop.database.bills("order.good", "b", 100).await;
    shop.wait_for(101, "biz_type = 'order.good' AND status = 1 AND retry_count = 0").await;
    outbill.terminate(LONG).await;
    assert_eq!(ledger.complete().await, (101, 0));
    assert_eq!(shop.database.count("biz_type = 'foreign.type' AND status = 0 AND retry_count = 0").await, 3_000);
}

/// The collation of the column calls them equal.
async fn types_are_told_apart_by_bytes(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume_all().await;
    shop.database
        .execute(
            "INSERT INTO async_bill (biz_type, biz_id) VALUES
             ('SMS.send', '1'), ('sms.send ', '2'), ('sms.send', '3'), ('sms.sénd', '4'), ('a:b', 'c'), ('a', 'b:c')",
        )
        .await;
    let config = shop.config().route("match", "[\"sms.send\", \"a\", \"a:b\"]");
    let outbill = shop.run(&config).await;
    shop.wait_for(3, "status = 1").await;
    outbill.terminate(LONG).await;
    assert_eq!(ledger.complete().await.0, 3, "two bills never share a message id: {:?}", ledger.ids().await);
    let left = shop.database.column("SELECT biz_id FROM async_bill WHERE status = 0 ORDER BY id").await;
    assert_eq!(left, ["1", "2", "4"]);
}

/// A settle is a compare-and-set.
async fn an_application_that_changes_a_row_meanwhile_has_the_last_word(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    shop.broker.full_queue("order.*").await;
    let (proxy, url) = Proxy::to_broker(&shop.broker.url).await;
    let mut outbill = shop.run(&shop.config().sink("url", &format!("\"{url}\""))).await;
    shop.database.bills("order.a", "first", 1).await;
    shop.wait_for(1, "retry_count = 1").await;
    // From here the answers of the broker come late, and the application is faster.
    proxy.delay(std::time::Duration::from_millis(1_500));
    shop.database.bills("order.a", "second", 1).await;
    let query = "UPDATE async_bill SET status = 3, finished_at = NOW() WHERE biz_id = 'second-1' AND status = 0";
    assert_eq!(shop.database.execute(query).await, 1);
    shop.database.bills("order.a", "third", 1).await;
    shop.wait_for(1, "biz_id = 'third-1' AND retry_count = 1").await;
    let lines = outbill.line_count();
    assert_eq!(shop.database.count("biz_id = 'second-1' AND status = 3 AND retry_count = 0").await, 1);
    let rearm =
        "UPDATE async_bill SET retry_count = 7, next_retry_time = NOW() + INTERVAL 1 HOUR WHERE biz_id = 'fourth-1'";
    shop.database.bills("order.a", "fourth", 1).await;
    eventually("the application is faster", LONG, async || (shop.database.execute(rearm).await == 1).then_some(()))
        .await;
    shop.database.bills("order.a", "fifth", 1).await;
    shop.wait_for(1, "biz_id = 'fifth-1' AND retry_count = 1").await;
    assert_eq!(shop.database.count("biz_id = 'fourth-1' AND status = 0 AND retry_count = 7").await, 1);
    assert!(outbill.line_count() >= lines && outbill.is_running());
    outbill.terminate(LONG).await;
}

/// A trigger of the application that says no to one row.
async fn a_bill_that_the_database_refuses_to_settle_holds_its_route_and_no_other(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume_all().await;
    shop.database
        .execute(
            "CREATE TRIGGER guard BEFORE UPDATE ON async_bill FOR EACH ROW
             BEGIN IF NEW.biz_id = 'guarded-1' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF; END",
        )
        .await;
    let config = shop.config().before(&format!(
        "{{ name: guarded, match: guarded, sink: rabbit, done_on: publish, to: {{ exchange: {}, routing_key: g }} }}",
        shop.broker.exchange
    ));
    shop.database.bills("order.paid", "before", 50).await;
    shop.database.bills("guarded", "guarded", 3).await;
    shop.database.bills("order.paid", "after", 50).await;
    let mut outbill = shop.run(&config).await;
    outbill.wait_for_line(0, &["route held", "not this one"], LONG).await;
    shop.wait_for(100, "biz_type = 'order.paid' AND status = 1").await;
    shop.database.bills("order.paid", "later", 10).await;
    shop.wait_for(110, "biz_type = 'order.paid' AND status = 1").await;
    outbill.terminate(LONG).await;
    let (distinct, duplicates) = ledger.complete().await;
    assert!(distinct >= 111, "{distinct}");
    assert_eq!(duplicates, 0, "a bill that cannot be settled is not sent again and again");
}
