//! Without a fault nothing is delivered twice.

use std::time::Duration;

use crate::support::{Kind, LONG, Shop};

on_both_databases!(heavy_a_hundred_thousand_fresh_and_due_bills_arrive_without_a_duplicate);

/// Small pages and a short interval make many snapshots that race with many settles.
async fn heavy_a_hundred_thousand_fresh_and_due_bills_arrive_without_a_duplicate(kind: Kind) {
    const WRITERS: usize = 4;
    const ROUNDS: usize = 50;
    const ROWS: usize = 500;
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume_all().await;
    let outbill = shop.run(&shop.config().store("poll", "{ interval: 10ms, batch: 200 }")).await;
    let database = &shop.database;
    let writers = (0..WRITERS).map(|writer| async move {
        for round in 0..ROUNDS {
            let time = match (writer + round) % 4 {
                0 | 1 => "NULL",
                2 => "NOW() - INTERVAL 1 SECOND",
                _ => "NOW() + INTERVAL 1 SECOND",
            };
            database.bills_at("order.paid", &format!("{writer}-{round}"), ROWS, time).await;
        }
    });
    futures_util::future::join_all(writers).await;
    let all = WRITERS * ROUNDS * ROWS;
    shop.wait_for_within(all, "status = 1", Duration::from_mins(4)).await;
    outbill.terminate(LONG).await;
    assert_eq!(ledger.complete().await, (all, 0));
    assert_eq!(shop.database.count("retry_count <> 0 OR finished_at IS NULL").await, 0);
}
