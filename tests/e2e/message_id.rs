//! The message id is one bill's own, for ever, whatever its type and key hold.

use crate::support::{Kind, LONG, Shop};

on_both_databases!(no_two_bills_share_a_message_id, names_too_long_for_the_broker_cost_only_themselves);

/// Joined plainly, some of these would be the same.
async fn no_two_bills_share_a_message_id(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume_all().await;
    shop.database
        .execute(format!(
            "INSERT INTO async_bill (biz_type, biz_id) VALUES ('a:b', 'c'), ('a', 'b:c'), ('a%3Ab', 'c'), ('a', ''),
             ('付款', '1'), ('long', '{}')",
            "é".repeat(64)
        ))
        .await;
    let outbill = shop.run(&shop.config().route("to", &to(&shop, "k"))).await;
    shop.wait_for(6, "status = 1").await;
    outbill.terminate(LONG).await;
    let ids = ledger.ids().await;
    for id in ["a%3Ab:c", "a:b%3Ac", "a%253Ab:c", "a:", "%E4%BB%98%E6%AC%BE:1"] {
        assert!(ids.iter().any(|have| have == id), "{id} is not in {ids:?}");
    }
    let hashed: Vec<&String> = ids.iter().filter(|id| id.starts_with("sha256:") && id.len() == 71).collect();
    assert_eq!((hashed.len(), ids.len()), (1, 6), "{ids:?}");
}

fn to(shop: &Shop, key: &str) -> String {
    format!("{{ exchange: {}, routing_key: {key} }}", shop.broker.exchange)
}

/// 64 characters of four bytes are 256 bytes, one more than AMQP takes.
async fn names_too_long_for_the_broker_cost_only_themselves(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume_all().await;
    let long = "🎉".repeat(64);
    shop.database.execute(format!("INSERT INTO async_bill (biz_type, biz_id) VALUES ('{long}', '1')")).await;
    shop.database.bills("order.paid", "a", 10).await;
    let outbill = shop.run(&shop.config().route("to", &to(&shop, "k"))).await;
    shop.wait_for(10, "biz_type = 'order.paid' AND status = 1").await;
    shop.wait_for(1, "biz_id = '1' AND status = 2").await;
    outbill.terminate(LONG).await;
    assert_eq!(ledger.complete().await.0, 10);
    assert_eq!(shop.database.column("SELECT error_class FROM outbill_attempt").await, ["too_long"]);
}
