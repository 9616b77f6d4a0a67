//! `run` needs only the privileges that `init --example` prints.

use crate::support::{Kind, LONG, Shop};

on_both_databases!(run_works_with_only_the_printed_grants, check_names_a_missing_privilege_and_its_grant);

/// The statements of the printed example that grant something, for this user.
async fn grants(shop: &Shop) -> Vec<String> {
    let example = shop.command(&shop.config(), &["init", "--example"]).await;
    assert_eq!(example.code, Some(0), "{example:?}");
    let statements = example.stdout.split(';').map(|statement| {
        statement.lines().filter(|line| !line.trim_start().starts_with("--")).collect::<Vec<_>>().join("\n")
    });
    let grants: Vec<String> = statements.filter(|statement| statement.trim_start().starts_with("GRANT")).collect();
    assert!(!grants.is_empty(), "{}", example.stdout);
    grants
}

async fn apply(shop: &Shop, grants: &[String]) {
    let user = &shop.database.user;
    shop.database.execute(format!("REVOKE ALL ON {}.* FROM {user}@'%'", shop.database.name)).await;
    for grant in grants {
        let (what, _) = grant.rsplit_once(" TO ").unwrap();
        shop.database.execute(format!("{what} TO {user}@'%'")).await;
    }
}

async fn run_works_with_only_the_printed_grants(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume(&shop.broker.queue("order.paid").await).await;
    let config = shop.config();
    shop.init(&config).await;
    apply(&shop, &grants(&shop).await).await;
    let refused = sqlx::query("SELECT 1 FROM orders").fetch_all(&as_outbill(&shop).await).await;
    assert!(refused.is_err(), "Outbill sees nothing of the application but its bills");

    shop.database.bills("order.paid", "a", 100).await;
    shop.broker.full_queue("order.full").await;
    shop.database.bills("order.full", "a", 1).await;
    shop.database.bills("order.lost", "a", 30).await;
    let mut outbill = shop.start(&config);
    shop.wait_for(100, "status = 1").await;
    shop.wait_for(1, "biz_type = 'order.full' AND retry_count > 0").await;
    outbill.wait_for_line(0, &["route held"], LONG).await;
    for (arguments, code) in [
        (&["check"][..], None),
        (&["status"], Some(1)),
        (&["retry", "--type", "order.lost"], Some(0)),
        (&["release", "all"], Some(0)),
        (&["preview", "--id", "1"], Some(0)),
    ] {
        let finished = shop.command(&config, arguments).await;
        assert!(code.is_none() || finished.code == code, "{arguments:?}: {finished:?}");
        assert!(!finished.stdout.contains("denied") && !finished.stderr.contains("denied"), "{finished:?}");
    }
    outbill.terminate(LONG).await;
    assert_eq!(ledger.complete().await, (100, 0));
}

async fn as_outbill(shop: &Shop) -> sqlx::MySqlPool {
    let options: sqlx::mysql::MySqlConnectOptions = shop.database.url().parse().unwrap();
    sqlx::MySqlPool::connect_with(options).await.unwrap()
}

async fn check_names_a_missing_privilege_and_its_grant(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let config = shop.config();
    shop.init(&config).await;
    let mut grants = grants(&shop).await;
    let fewer = grants.iter_mut().find(|grant| grant.contains("UPDATE")).unwrap();
    let start = fewer.find(", UPDATE").or_else(|| fewer.find("UPDATE")).unwrap();
    let end = start + fewer[start..].find(')').unwrap() + 1;
    fewer.replace_range(start..end, "");
    apply(&shop, &grants).await;
    let check = shop.command(&config, &["check"]).await;
    assert_eq!(check.code, Some(1), "{check:?}");
    assert!(check.stdout.contains("GRANT") && check.stdout.contains("UPDATE"), "{check:?}");
    let run = shop.command(&config, &["run"]).await;
    assert_ne!(run.code, Some(0), "run refuses to start");
    assert!(run.said().contains("GRANT"), "{run:?}");
}
