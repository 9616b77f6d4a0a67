//! One mistake must not fail everything: a route is held, and goes on when a person says so.

use crate::support::{Kind, LONG, Outbill, Shop};

async fn wait_until_held(outbill: &mut Outbill, word: &str) {
    let line = outbill.wait_for_line(0, &["route held"], LONG).await;
    assert!(line.contains(word), "the log says why: {line}");
}

on_both_databases!(a_route_whose_exchange_is_missing_is_held_and_goes_on_when_released);

async fn a_route_whose_exchange_is_missing_is_held_and_goes_on_when_released(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let other = shop.broker.consume(&shop.broker.queue("sms.*").await).await;
    let missing = format!("{}-missing", shop.broker.exchange);
    let config = shop.config().before(&format!(
        "{{ name: orders, match: \"order.*\", sink: rabbit, done_on: publish, to: {{ exchange: {missing}, routing_key: \"{{type}}\" }} }}"
    ));
    shop.database.bills("order.paid", "a", 1_000).await;
    let mut outbill = shop.run(&config).await;
    wait_until_held(&mut outbill, &missing).await;
    shop.database.bills("sms.send", "b", 10).await;
    other.wait_for(10, LONG).await;
    assert_eq!(shop.database.count("biz_type = 'order.paid' AND status = 0 AND retry_count = 0").await, 1_000);

    crate::support::eventually("status names the held route and why", LONG, async || {
        let status = shop.command(&config, &["status"]).await;
        (status.stdout.contains("orders") && status.stdout.contains(&missing)).then_some(())
    })
    .await;
    let held = outbill.line_count();
    shop.broker.declare_exchange(&missing).await;
    let mended = crate::support::Broker::attach(&shop.broker.url, &missing).await;
    let ledger = mended.consume_all().await;
    let released = shop.command(&config, &["release", "orders"]).await;
    assert_eq!(released.code, Some(0), "{released:?}");
    shop.wait_for(1_010, "status = 1 AND retry_count = 0").await;
    outbill.wait_for_line(held, &["released"], LONG).await;
    outbill.terminate(LONG).await;
    assert_eq!(ledger.complete().await, (1_000, 0));
    mended.delete_exchange(&missing).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_binding_fails_twenty_bills_and_the_hold_outlives_a_restart() {
    let Some(shop) = Shop::open(Kind::MariaDb).await else { return };
    let queue = shop.broker.queue("order.*").await;
    let ledger = shop.broker.consume(&queue).await;
    let config = shop.config().route("name", "orders").route("match", "\"order.*\"");
    shop.broker.unbind(&queue, "order.*").await;
    shop.database.bills("order.paid", "a", 1_000).await;
    let mut outbill = shop.run(&config).await;
    wait_until_held(&mut outbill, "unroutable").await;
    crate::support::eventually("the hold in the table", LONG, async || {
        (shop.database.number("SELECT COUNT(*) FROM outbill_hold WHERE route = 'orders'").await == 1).then_some(())
    })
    .await;
    shop.wait_for(1, "status = 2").await;
    outbill.terminate(LONG).await;
    let failed = shop.database.count("status = 2").await;
    assert!((1..=20).contains(&failed), "{failed} bills failed");
    assert_eq!(shop.database.count("status = 0 AND retry_count = 0").await, 1_000 - failed);

    shop.broker.bind(&queue, "order.*").await;
    let mut outbill = shop.start(&config);
    outbill.wait_for_line(0, &["held"], LONG).await;
    let status = shop.command(&config, &["status"]).await;
    assert!(status.stdout.contains("unroutable"), "{status:?}");
    assert_eq!(shop.database.count("status = 1").await, 0, "nothing goes before a person says so");
    let released = shop.command(&config, &["release", "orders"]).await;
    assert_eq!(released.code, Some(0), "{released:?}");
    shop.wait_for(1_000 - failed, "status = 1").await;
    let retried = shop.command(&config, &["retry", "--type", "order.paid"]).await;
    assert_eq!(retried.code, Some(0), "{retried:?}");
    shop.wait_for(1_000, "status = 1").await;
    outbill.terminate(LONG).await;
    assert_eq!(ledger.complete().await, (1_000, 0));
}
