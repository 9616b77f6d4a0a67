//! A crash loses nothing, and repeats no more than was in flight.

use std::time::Duration;

use crate::support::{Kind, LONG, Proxy, Shop};

on_both_databases!(a_kill_in_mid_batch_loses_nothing_and_repeats_at_most_what_was_in_flight);

async fn a_kill_in_mid_batch_loses_nothing_and_repeats_at_most_what_was_in_flight(kind: Kind) {
    const IN_FLIGHT: usize = 200;
    const KILLS: usize = 5;
    const BILLS: usize = 6_000;
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume_all().await;
    // A database some milliseconds away: what is delivered waits longer for its settle.
    let proxy = Proxy::to(format!("{}:{}", shop.database.host, shop.database.port)).await;
    let url = format!("\"{}\"", shop.database.url_at(proxy.port));
    let config = shop.config().store("url", &url).sink("in_flight", "200");
    shop.init(&config).await;
    shop.database.bills("order.paid", "a", BILLS).await;
    proxy.delay(Duration::from_millis(10));
    for _ in 0..KILLS {
        let outbill = shop.start(&config);
        let (_, before) = ledger.complete().await;
        ledger.wait_for(ledger.distinct() + 500, LONG).await;
        outbill.kill().await;
        assert!(shop.database.count("status = 0").await > 0, "killed in mid-batch");
        // Those of the kill before; this kill's come after the next start.
        let repeated = ledger.complete().await.1 - before;
        assert!(repeated <= IN_FLIGHT, "{repeated} duplicates after one kill");
    }
    let (_, before) = ledger.complete().await;
    let outbill = shop.start(&config);
    shop.wait_for(BILLS, "status = 1 AND retry_count = 0").await;
    outbill.terminate(LONG).await;
    assert!(ledger.complete().await.1 - before <= IN_FLIGHT);
    for id in ledger.ids().await {
        let copies = ledger.all(&id);
        assert!(copies.iter().all(|copy| copy.body == copies[0].body), "{id} is not one piece of work");
    }
    assert_eq!(ledger.complete().await.0, BILLS);
}
