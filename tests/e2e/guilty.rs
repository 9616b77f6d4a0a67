//! Whoever is at fault is charged, and nobody else, however many are in flight together.

use crate::support::{Kind, LONG, Proxy, Shop, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_of_fifty_bills_in_flight_only_the_unroutable_one_fails_in_two_hundred_rounds() {
    const ROUNDS: usize = 200;
    let Some(shop) = Shop::open(Kind::MariaDb).await else { return };
    let ledger = shop.broker.consume(&shop.broker.queue("round.good").await).await;
    let outbill = shop.run(&shop.config().store("poll", "{ interval: 10ms }")).await;
    for round in 0..ROUNDS {
        let guilty = (round * 7) % 50;
        let rows: Vec<String> = (0..50)
            .map(|n| format!("('round.{}', '{round}-{n}', '{{}}')", if n == guilty { "bad" } else { "good" }))
            .collect();
        shop.database
            .execute(format!("INSERT INTO async_bill (biz_type, biz_id, payload) VALUES {}", rows.join(",")))
            .await;
        shop.wait_for((round + 1) * 50, "status <> 0").await;
    }
    outbill.terminate(LONG).await;
    assert_eq!(shop.database.count("biz_type = 'round.bad' AND status = 2 AND retry_count = 1").await, ROUNDS);
    assert_eq!(shop.database.count("biz_type = 'round.good' AND status = 1 AND retry_count = 0").await, ROUNDS * 49);
    let logged = shop
        .database
        .number(
            "SELECT COUNT(*) FROM outbill_attempt a JOIN async_bill b ON a.bill_id = b.id
             WHERE b.biz_type = 'round.bad' AND a.error_class = 'unroutable' AND a.outcome = 'rejected'
             AND a.message_id = CONCAT('round.bad:', b.biz_id)",
        )
        .await;
    assert_eq!(usize::try_from(logged).unwrap(), ROUNDS);
    assert_eq!(shop.database.number("SELECT COUNT(*) FROM outbill_attempt").await, logged, "nobody else has an entry");
    assert_eq!(ledger.complete().await, (ROUNDS * 49, 0));
}

on_both_databases!(of_ten_bills_only_the_three_that_no_broker_could_take_fail);

async fn of_ten_bills_only_the_three_that_no_broker_could_take_fail(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume_all().await;
    shop.database.execute("ALTER TABLE async_bill ADD COLUMN headers json DEFAULT NULL").await;
    let config = shop
        .config()
        .store("columns", "{ headers: headers }")
        .route("to", "{ exchange: \"{payload.exchange}\", routing_key: \"{payload.key}\" }");
    let exchange = &shop.broker.exchange;
    let long_key = "k".repeat(300);
    let rows: Vec<String> = (1..=10)
        .map(|n| {
            let (exchange, key) = match n {
                3 => ("no-such-exchange", "good"),
                5 => (exchange.as_str(), long_key.as_str()),
                _ => (exchange.as_str(), "good"),
            };
            let headers =
                if n == 7 { format!("'{{\"big\": \"{}\"}}'", "h".repeat(200_000)) } else { "NULL".to_owned() };
            format!("('order.paid', '{n}', '{{\"exchange\": \"{exchange}\", \"key\": \"{key}\"}}', {headers})")
        })
        .collect();
    let insert = "INSERT INTO async_bill (biz_type, biz_id, payload, headers) VALUES";
    shop.database.execute(format!("{insert} {}", rows.join(","))).await;
    let outbill = shop.run(&config).await;
    shop.wait_for(10, "status <> 0").await;
    outbill.terminate(LONG).await;

    assert_eq!(
        shop.database.column("SELECT biz_id FROM async_bill WHERE status = 2 ORDER BY id").await,
        ["3", "5", "7"]
    );
    assert_eq!(shop.database.count("status = 1 AND retry_count = 0").await, 7);
    assert_eq!(ledger.complete().await, (7, 0));
    for (n, class, word) in
        [(3, "exchange_missing", "no-such-exchange"), (5, "too_long", "300"), (7, "headers_too_large", "200")]
    {
        let logged = shop
            .database
            .rows(format!(
                "SELECT error_class, error FROM outbill_attempt WHERE message_id = 'order.paid:{n}' AND outcome = 'rejected'"
            ))
            .await;
        assert_eq!(logged.len(), 1, "bill {n}: {logged:?}");
        assert_eq!(logged[0][0].as_deref(), Some(class), "{logged:?}");
        assert!(logged[0][1].as_deref().unwrap().contains(word), "{logged:?}");
    }
}

/// A firewall cuts the connection on which a certain payload passes: it looks like an outage and is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_on_which_the_connection_is_cut_is_charged_alone() {
    let Some(shop) = Shop::open(Kind::MariaDb).await else { return };
    let ledger = shop.broker.consume_all().await;
    let (proxy, url) = Proxy::to_broker(&shop.broker.url).await;
    proxy.cut_when("a firewall hates this");
    let config =
        shop.config().sink("url", &format!("\"{url}\"")).route("retry", "{ base: 1s, cap: 1s, max_attempts: 2 }");
    shop.database.bills("order.paid", "before", 100).await;
    let poison = "INSERT INTO async_bill (biz_type, biz_id, payload) VALUES ('order.paid', 'poison', ";
    shop.database.execute(format!("{poison} '{{\"x\": \"a firewall hates this\"}}')")).await;
    shop.database.bills("order.paid", "after", 100).await;
    let outbill = shop.run(&config).await;
    eventually("the guilty bill charged once", LONG, async || (proxy.poisoned() >= 3).then_some(())).await;
    shop.database.bills("order.paid", "later", 100).await;
    shop.wait_for(301, "status <> 0").await;
    outbill.terminate(LONG).await;
    let failed = shop.database.rows("SELECT biz_id, retry_count FROM async_bill WHERE status = 2").await;
    assert_eq!(failed, [[Some("poison".to_owned()), Some("2".to_owned())]]);
    assert_eq!(shop.database.count("status = 1 AND retry_count = 0").await, 300, "nobody else was charged");
    assert_eq!(ledger.complete().await.0, 300);
    let classes = shop.database.column("SELECT DISTINCT error_class FROM outbill_attempt").await;
    assert_eq!(classes, ["breaks_connection"]);
    assert!(proxy.poisoned() <= 5, "the connection was cut {} times", proxy.poisoned());
}
