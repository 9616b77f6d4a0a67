//! What commits is delivered once, what rolls back never.

use std::collections::BTreeSet;

use lapin::types::AMQPValue;
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use sqlx::{Connection, MySqlConnection};

use crate::support::{Kind, LONG, Shop, execute};

on_both_databases!(a_committed_bill_becomes_a_message, heavy_every_committed_bill_of_four_writers_is_delivered_once);

async fn a_committed_bill_becomes_a_message(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume_all().await;
    let outbill = shop.run(&shop.config()).await;
    let mut connection = shop.database.pool.acquire().await.unwrap();
    let order = |number: u32, end: &str| {
        format!(
            "START TRANSACTION; INSERT INTO orders (order_no) VALUES ('{number}');
             INSERT INTO async_bill (biz_type, biz_id, payload)
             VALUES ('order.paid', '{number}', '{{\"order\":{number},  \"amount\": 1.10}}'); {end}"
        )
    };
    execute(&mut connection, order(1000, "ROLLBACK")).await;
    execute(&mut connection, order(1001, "COMMIT")).await;

    let message = ledger.message("order.paid:1001").await;
    shop.wait_for(1, "biz_id = '1001' AND status = 1 AND finished_at IS NOT NULL").await;
    let payload = shop.database.bytes("SELECT payload FROM async_bill WHERE biz_id = '1001'").await.unwrap();
    assert_eq!(message.body, payload, "byte for byte as the database gives it");
    assert_eq!(message.routing_key, "order.paid");
    let properties = &message.properties;
    let created = shop.database.number("SELECT UNIX_TIMESTAMP(created_at) FROM async_bill").await;
    assert_eq!(properties.delivery_mode(), &Some(2));
    assert_eq!(properties.kind().as_ref().unwrap().as_str(), "order.paid");
    assert_eq!(properties.app_id().as_ref().unwrap().as_str(), "outbill");
    assert_eq!(properties.content_type().as_ref().unwrap().as_str(), "application/json");
    assert_eq!(properties.timestamp().unwrap(), u64::try_from(created).unwrap());
    let headers = message.headers();
    let id = shop.database.text("SELECT id FROM async_bill").await;
    assert_eq!(headers["outbill-attempt"], AMQPValue::LongLongInt(1));
    assert_eq!(headers["outbill-id"], AMQPValue::LongString(id.into()));

    outbill.terminate(LONG).await;
    assert_eq!(ledger.ids().await, ["order.paid:1001"]);
    assert_eq!(ledger.complete().await.1, 0);
}

/// Each writer keeps several transactions open at once and ends them in any order, so that ids commit out of order.
async fn heavy_every_committed_bill_of_four_writers_is_delivered_once(kind: Kind) {
    const WRITERS: u64 = 4;
    const BILLS_OF_A_WRITER: usize = 2_500;
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume_all().await;
    let outbill = shop.run(&shop.config()).await;
    let seed = rand::random();
    eprintln!("seed {seed}");

    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let options = shop.database.pool.connect_options();
            tokio::spawn(async move { write(writer, seed, BILLS_OF_A_WRITER, &options).await })
        })
        .collect();
    let mut committed = BTreeSet::new();
    for writer in writers {
        committed.extend(writer.await.unwrap());
    }
    shop.wait_for(committed.len(), "status = 1 AND finished_at IS NOT NULL AND retry_count = 0").await;
    outbill.terminate(LONG).await;
    assert_eq!(shop.database.count("1 = 1").await, committed.len());
    ledger.wait_for(committed.len(), LONG).await;
    let delivered: BTreeSet<String> = ledger.ids().await.into_iter().collect();
    let differences: Vec<_> = delivered.symmetric_difference(&committed).take(10).collect();
    assert!(differences.is_empty(), "all that were committed and none that was rolled back: {differences:?}");
    assert_eq!(ledger.complete().await.1, 0);
    assert!(committed.len() > 5_000 && committed.len() < 10_000, "{} of 10,000 were committed", committed.len());
}

/// Returns the message ids of what was committed.
async fn write(writer: u64, seed: u64, bills: usize, options: &sqlx::mysql::MySqlConnectOptions) -> Vec<String> {
    const OPEN_AT_ONCE: usize = 4;
    let mut chance = SmallRng::seed_from_u64(seed ^ writer);
    let mut free = Vec::new();
    for _ in 0..OPEN_AT_ONCE {
        free.push(MySqlConnection::connect_with(options).await.unwrap());
    }
    let mut open: Vec<(MySqlConnection, Vec<String>)> = Vec::new();
    let (mut committed, mut written) = (Vec::new(), 0);
    while written < bills || !open.is_empty() {
        if written < bills && !free.is_empty() {
            let mut connection = free.pop().unwrap();
            let count = chance.random_range(1..=20).min(bills - written);
            let keys: Vec<String> = (written..written + count).map(|n| format!("{writer}-{n}")).collect();
            written += count;
            let rows: Vec<String> = keys.iter().map(|key| format!("('order.paid', '{key}', '{{}}')")).collect();
            let insert = format!("INSERT INTO async_bill (biz_type, biz_id, payload) VALUES {}", rows.join(","));
            execute(&mut connection, format!("START TRANSACTION; {insert}")).await;
            open.push((connection, keys));
        } else {
            let (mut connection, keys) = open.swap_remove(chance.random_range(0..open.len()));
            if chance.random_bool(0.8) {
                execute(&mut connection, "COMMIT").await;
                committed.extend(keys.iter().map(|key| format!("order.paid:{key}")));
            } else {
                execute(&mut connection, "ROLLBACK").await;
            }
            free.push(connection);
        }
    }
    committed
}
