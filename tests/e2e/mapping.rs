//! Any table whose names and values are mapped.

use crate::support::{Kind, LONG, Shop};

on_both_databases!(
    odd_names_and_enum_statuses_are_mapped,
    several_pending_values_and_foreign_values_are_told_apart,
    a_condition_hides_rows,
    tables_of_ours_may_live_in_another_schema,
);

async fn odd_names_and_enum_statuses_are_mapped(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume(&shop.broker.queue("order.paid").await).await;
    shop.database
        .execute(
            "CREATE TABLE `out-box``s` (
               `order` char(36) NOT NULL PRIMARY KEY, `select` varchar(64) NOT NULL, `group` varchar(64) NULL,
               `state` enum('new', 'sent', 'broken', 'closed') NOT NULL DEFAULT 'new', `the body` longtext,
               `tries` tinyint unsigned NULL, `not before` datetime(3) NULL, `end` timestamp NULL, `born` timestamp NULL,
               `why` varchar(200) NULL, `sent_at` datetime NULL, KEY `k` (`state`, `not before`));
             INSERT INTO `out-box``s` (`order`, `select`, `group`, `the body`, `tries`, `not before`) VALUES
               (UUID(), 'order.paid', 'a', '1', NULL, NULL), (UUID(), 'order.paid', 'b', '2', 255, NOW()),
               (UUID(), 'order.lost', 'c', '3', 255, NULL)",
        )
        .await;
    let config = shop
        .config()
        .store("table", "\"`out-box``s`\"")
        .store(
            "columns",
            "{ id: order, type: select, key: group, status: state, payload: the body, retry_count: tries, next_retry_time: not before, \
             finished_at: end, created_at: born, reason: why, published_at: sent_at }",
        )
        .store("statuses", "{ pending: new, done: sent, failed: broken, compensated: closed }")
        .route("retry", "{ max_attempts: 1000 }");
    let outbill = shop.run(&config).await;
    ledger.wait_for(2, LONG).await;
    let ended = "SELECT COUNT(*) FROM `out-box``s` WHERE `state` <> 'new' AND `end` IS NOT NULL";
    crate::support::eventually("all ended", LONG, async || (shop.database.number(ended).await == 3).then_some(()))
        .await;
    outbill.terminate(LONG).await;
    let rows = shop
        .database
        .rows("SELECT `group`, `state`, `tries`, `sent_at` IS NOT NULL, `why` FROM `out-box``s` ORDER BY 1")
        .await;
    let texts: Vec<Vec<&str>> =
        rows.iter().map(|row| row.iter().map(|value| value.as_deref().unwrap_or("NULL")).collect()).collect();
    assert_eq!(texts[0][..4], ["a", "sent", "NULL", "1"]);
    assert_eq!(texts[1][..4], ["b", "sent", "255", "1"]);
    assert_eq!(texts[2][..4], ["c", "broken", "255", "0"], "255 + 1 saturates");
    assert!(texts[2][4].contains("unroutable"), "{texts:?}");
    assert!(
        ledger.ids().await.iter().all(|id| id.starts_with("out-box%60s:") || id.starts_with("out-box`s:")),
        "{:?}",
        ledger.ids().await
    );
}

async fn several_pending_values_and_foreign_values_are_told_apart(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume_all().await;
    let config = shop.config().store("statuses", "{ pending: [0, 4], done: 1, failed: 2, compensated: 3 }");
    shop.database
        .execute(
            "INSERT INTO async_bill (biz_type, biz_id, status, next_retry_time) VALUES ('t', '0', 0, NULL), ('t', '4', 4, NULL),
             ('t', '4due', 4, NOW()), ('t', '0due', 0, NOW()), ('t', '9', 9, NULL), ('t', '3', 3, NULL), ('t', '2', 2, NOW())",
        )
        .await;
    let outbill = shop.run(&config).await;
    shop.wait_for(4, "status = 1").await;
    outbill.terminate(LONG).await;
    assert_eq!(ledger.ids().await, ["t:0", "t:0due", "t:4", "t:4due"]);
    let left = shop.database.column("SELECT status FROM async_bill WHERE status <> 1 ORDER BY status").await;
    assert_eq!(left, ["2", "3", "9"], "values outside the map are left alone");
}

async fn a_condition_hides_rows(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume_all().await;
    shop.database.execute("ALTER TABLE async_bill ADD COLUMN deleted_at datetime NULL").await;
    shop.database.bills("t", "a", 10).await;
    shop.database.execute("UPDATE async_bill SET deleted_at = NOW() WHERE id % 2 = 0").await;
    let outbill = shop.run(&shop.config().store("where", "deleted_at IS NULL")).await;
    shop.wait_for(5, "status = 1").await;
    shop.database.bills("t", "b", 1).await;
    shop.wait_for(6, "status = 1").await;
    outbill.terminate(LONG).await;
    assert_eq!(ledger.complete().await.0, 6);
    assert_eq!(shop.database.count("deleted_at IS NOT NULL AND status = 0").await, 5);
}

async fn tables_of_ours_may_live_in_another_schema(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let own = format!("{}_own", shop.database.name);
    shop.database.execute(format!("CREATE DATABASE {own}; GRANT ALL ON {own}.* TO {}@'%'", shop.database.user)).await;
    let config = shop.config().store("own_schema", &own).store("own_prefix", "ob_").route("attempt_log", "all");
    let ledger = shop.broker.consume_all().await;
    shop.database.bills("order.paid", "a", 10).await;
    let outbill = shop.run(&config).await;
    shop.wait_for(10, "status = 1").await;
    outbill.terminate(LONG).await;
    assert_eq!(ledger.complete().await, (10, 0));
    assert_eq!(
        shop.database.number(format!("SELECT COUNT(*) FROM {own}.ob_attempt WHERE outcome = 'delivered'")).await,
        10
    );
    let tables = shop.database.column(format!("SHOW TABLES FROM {}", shop.database.name)).await;
    assert_eq!(tables, ["async_bill", "orders"], "nothing of ours beside the application's tables");
}
