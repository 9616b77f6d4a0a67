//! A stop in mid-batch settles what is in flight, and is over in time.

use std::time::Duration;

use crate::support::{Kind, LONG, Proxy, Shop, eventually, start_broker};

on_both_databases!(a_stop_in_mid_batch_loses_nothing_and_repeats_nothing);

async fn a_stop_in_mid_batch_loses_nothing_and_repeats_nothing(kind: Kind) {
    const BILLS: usize = 12_000;
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume_all().await;
    let config = shop.config().sink("in_flight", "200").top("shutdown_timeout", "10s");
    shop.init(&config).await;
    shop.database.bills("order.paid", "a", BILLS).await;
    for signal in ["TERM", "INT", "TERM"] {
        let outbill = shop.start(&config);
        ledger.wait_for(ledger.distinct() + 500, LONG).await;
        outbill.signal(signal);
        let finished = outbill.finish(Duration::from_secs(10)).await;
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        let settled = shop.database.count("status = 1").await;
        assert!(settled < BILLS, "stopped in mid-batch");
        assert_eq!(ledger.complete().await, (settled, 0), "what was delivered is settled");
    }
    let outbill = shop.start(&config);
    shop.wait_for(BILLS, "status = 1 AND retry_count = 0").await;
    outbill.terminate(Duration::from_secs(10)).await;
    assert_eq!(ledger.complete().await, (BILLS, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_broker_holds_up_no_stop_and_a_second_signal_ends_at_once() {
    let (Some(url), Some(server)) = (Kind::MariaDb.url(), start_broker().await) else { return };
    let shop = Shop::open_on(&url, &server.url).await;
    let ledger = shop.broker.consume_all().await;
    let config = shop.config().top("shutdown_timeout", "4s");
    shop.init(&config).await;
    let outbill = shop.start(&config);
    shop.database.bills("order.paid", "before", 10).await;
    shop.wait_for(10, "status = 1").await;
    server.ctl(&["set_vm_memory_high_watermark", "absolute", "1MB"]).await;
    shop.database.bills("order.paid", "while", 1_000).await;
    let mut outbill = outbill;
    outbill.wait_for_line(0, &["block"], LONG).await;
    let finished = { outbill.terminate(Duration::from_secs(6)).await };
    assert_eq!(finished.code, Some(0));

    let mut impatient = shop.start(&config.clone().top("shutdown_timeout", "25s"));
    // The broker reports the alarm only to a connection that publishes.
    impatient.wait_for_line(0, &["block"], LONG).await;
    impatient.signal("TERM");
    impatient.wait_for_line(0, &["stopping"], LONG).await;
    impatient.signal("TERM");
    let finished = impatient.finish(Duration::from_secs(3)).await;
    assert_ne!(finished.code, Some(0), "an end that settled not everything is not fine");

    server.ctl(&["set_vm_memory_high_watermark", "absolute", "4GB"]).await;
    let outbill = shop.start(&config);
    shop.wait_for(1_010, "status = 1 AND retry_count = 0").await;
    outbill.terminate(LONG).await;
    ledger.wait_for(1_010, LONG).await;
}

/// A firewall swallows what we say to the database, and somebody wants us to stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_database_holds_up_no_stop_neither_at_the_start_nor_later() {
    let Some(shop) = Shop::open(Kind::MariaDb).await else { return };
    let proxy = Proxy::to(format!("{}:{}", shop.database.host, shop.database.port)).await;
    let config =
        shop.config().store("url", &format!("\"{}\"", shop.database.url_at(proxy.port))).top("shutdown_timeout", "3s");
    shop.init(&config).await;
    proxy.swallow(true);
    let connections = proxy.connections();
    let outbill = shop.start(&config);
    eventually("a try to connect", LONG, async || (proxy.connections() > connections).then_some(())).await;
    outbill.terminate(Duration::from_secs(5)).await;

    proxy.swallow(false);
    let outbill = shop.start(&config);
    shop.database.bills("order.paid", "a", 1).await;
    shop.broker.consume_all().await;
    shop.wait_for(1, "status <> 0").await;
    proxy.swallow(true);
    outbill.terminate(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_process_stops_at_once() {
    let Some(shop) = Shop::open(Kind::MariaDb).await else { return };
    let outbill = shop.run(&shop.config()).await;
    shop.database.bills("order.paid", "a", 1).await;
    shop.broker.consume_all().await;
    shop.wait_for(1, "status <> 0").await;
    outbill.terminate(Duration::from_secs(2)).await;
}
