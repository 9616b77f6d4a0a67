//! How long a refused bill waits.

use crate::support::{Kind, LONG, Shop, eventually};

on_both_databases!(
    slow_waits_in_whole_seconds_are_rounded_up,
    slow_waits_in_milliseconds_are_rounded_up,
    slow_waits_in_microseconds_are_rounded_up,
);

async fn slow_waits_in_whole_seconds_are_rounded_up(kind: Kind) {
    a_nacked_bill_backs_off(kind, 0).await;
}

async fn slow_waits_in_milliseconds_are_rounded_up(kind: Kind) {
    a_nacked_bill_backs_off(kind, 3).await;
}

async fn slow_waits_in_microseconds_are_rounded_up(kind: Kind) {
    a_nacked_bill_backs_off(kind, 6).await;
}

/// The broker nacks what comes to a full queue; others flow meanwhile.
async fn a_nacked_bill_backs_off(kind: Kind, decimals: u32) {
    const ATTEMPTS: usize = 5;
    /// What a busy machine may add between the due time and the end of the next attempt.
    const SLACK_S: f64 = 2.0;
    let Some(shop) = Shop::open(kind).await else { return };
    let alter = format!("ALTER TABLE async_bill MODIFY next_retry_time datetime({decimals}) DEFAULT NULL");
    shop.database.execute(alter).await;
    shop.broker.full_queue("order.full").await;
    let ledger = shop.broker.consume(&shop.broker.queue("order.free").await).await;
    let retry = "{ base: 1s, factor: 2, cap: 3s, jitter: 0.2, max_attempts: 5 }";
    let outbill = shop.run(&shop.config().route("retry", retry)).await;
    shop.database.bills("order.full", "a", 5).await;

    // Per attempt: what the row says to wait, in seconds.
    let mut said: Vec<f64> = Vec::new();
    eventually("the bill given up", LONG, async || {
        let row = "SELECT b.status, a.attempt, TIMESTAMPDIFF(MICROSECOND, a.attempted_at, b.next_retry_time) / 1000000
                   FROM async_bill b LEFT JOIN outbill_attempt a ON a.bill_id = b.id AND a.attempt = b.retry_count
                   WHERE b.biz_id = 'a-1'";
        let row = shop.database.rows(row).await.pop().unwrap();
        let attempt: usize = row[1].as_deref().map_or(0, |attempt| attempt.parse().unwrap());
        if attempt > said.len() && attempt < ATTEMPTS {
            said.push(row[2].as_deref().unwrap().parse().unwrap());
            shop.database.bills("order.free", &format!("meanwhile{attempt}"), 1).await;
        }
        (row[0].as_deref() == Some("2")).then_some(())
    })
    .await;
    shop.wait_for(5, "biz_type = 'order.full' AND status = 2 AND retry_count = 5").await;
    ledger.wait_for(ATTEMPTS - 1, LONG).await;
    outbill.terminate(LONG).await;

    let precision = 10_f64.powi(-i32::try_from(decimals).unwrap());
    let nominal = [1.0, 2.0, 3.0, 3.0];
    assert_eq!(said.len(), nominal.len());
    for (attempt, (said, nominal)) in said.iter().zip(nominal).enumerate() {
        let (low, high) = (nominal * 0.8, nominal * 1.2 + precision);
        assert!((low - 0.05..=high + 0.05).contains(said), "attempt {}: {said} not in {low}..{high}", attempt + 1);
    }
    let times = "SELECT bill_id, UNIX_TIMESTAMP(attempted_at) FROM outbill_attempt ORDER BY bill_id, attempt";
    let times = shop.database.rows(times).await;
    let times: Vec<(&str, f64)> = times
        .iter()
        .map(|row| (row[0].as_deref().unwrap(), row[1].as_deref().unwrap().parse::<f64>().unwrap()))
        .filter(|(id, _)| !id.is_empty())
        .collect();
    assert_eq!(times.len(), 5 * ATTEMPTS, "{times:?}");
    for attempts in times.chunks(ATTEMPTS) {
        for (pair, nominal) in attempts.windows(2).zip(nominal) {
            let waited = pair[1].1 - pair[0].1;
            let (low, high) = (nominal * 0.8, nominal * 1.2 + precision);
            assert!((low - 0.05..=high + SLACK_S).contains(&waited), "waited {waited} s, not {low}..{high} s");
        }
    }
    let classes = shop.database.column("SELECT DISTINCT error_class FROM outbill_attempt").await;
    assert_eq!(classes, ["nack"]);
}
