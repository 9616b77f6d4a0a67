//! The database's clock decides, in its own time zone.

use crate::support::{Kind, LONG, Shop, broker_url, start_database};

on_both_databases!(what_the_application_schedules_with_now_in_shanghai_is_due_at_once);

async fn what_the_application_schedules_with_now_in_shanghai_is_due_at_once(kind: Kind) {
    let options = ["--default-time-zone=Asia/Shanghai"];
    let (Some(url), Some(server)) = (broker_url(), start_database(kind, &options).await) else { return };
    let shop = Shop::open_on(&server.url, &url).await;
    assert_eq!(shop.database.text("SELECT TIMEDIFF(NOW(), UTC_TIMESTAMP())").await, "08:00:00");
    let ledger = shop.broker.consume_all().await;
    let outbill = shop.run(&shop.config()).await;
    shop.database.bills_at("order.paid", "hour-ahead", 1, "NOW() + INTERVAL 1 HOUR").await;
    shop.database.bills_at("order.paid", "now", 1, "NOW()").await;
    shop.database.bills_at("order.paid", "soon", 1, "NOW() + INTERVAL 2 SECOND").await;
    shop.wait_for(1, "biz_id = 'now-1' AND status = 1").await;
    let waited = shop
        .database
        .number("SELECT TIMESTAMPDIFF(SECOND, created_at, finished_at) FROM async_bill WHERE biz_id = 'now-1'");
    assert!(waited.await <= 5, "due at once");
    shop.wait_for(1, "biz_id = 'soon-1' AND status = 1").await;
    let early = shop.database.count("biz_id = 'soon-1' AND finished_at < next_retry_time").await;
    assert_eq!(early, 0, "nothing goes before its time");
    outbill.terminate(LONG).await;
    assert_eq!(ledger.ids().await, ["order.paid:now-1", "order.paid:soon-1"]);
    assert_eq!(shop.database.count("biz_id = 'hour-ahead-1' AND status = 0").await, 1);
    let created =
        shop.database.number("SELECT UNIX_TIMESTAMP(created_at) FROM async_bill WHERE biz_id = 'now-1'").await;
    let message = ledger.message("order.paid:now-1").await;
    assert_eq!(message.properties.timestamp().unwrap(), u64::try_from(created).unwrap());
}
