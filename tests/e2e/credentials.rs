//! Wrong credentials are an outage: no busy loop, the file is read again, and no secret is ever shown.

use std::{fs, time::Duration};

use crate::support::{Kind, LONG, Proxy, Shop, let_it_last, unique};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_refuses_us_is_asked_again_now_and_then_with_the_file_read_anew() {
    let Some(shop) = Shop::open(Kind::MariaDb).await else { return };
    let ledger = shop.broker.consume_all().await;
    let uri: lapin::uri::AMQPUri = shop.broker.url.parse().unwrap();
    let proxy = Proxy::to(format!("{}:{}", uri.authority.host, uri.authority.port)).await;
    let file = shop.dir.path().join("broker-password");
    let wrong = format!("wrong-{}", unique());
    fs::write(&file, &wrong).unwrap();
    let config = shop
        .config()
        .without_sink("url")
        .sink("host", "127.0.0.1")
        .sink("port", &proxy.port.to_string())
        .sink("user", &uri.authority.userinfo.username)
        .sink("password_file", file.to_str().unwrap());
    shop.init(&config).await;
    shop.database.bills("order.paid", "a", 100).await;
    let mut outbill = shop.spawn(&config, &["run"]);
    outbill.wait_for_line(0, &["credentials_refused"], LONG).await;
    let (before, cpu) = (proxy.connections(), outbill.cpu_ms());
    let_it_last(Duration::from_secs(5)).await;
    let tries = proxy.connections() - before;
    assert!(tries <= 10, "{tries} tries in five seconds");
    assert!(outbill.cpu_ms() - cpu < 1_000);
    assert!(outbill.line_count() < 20, "{:#?}", outbill.lines());
    assert_eq!(shop.database.count("status <> 0 OR retry_count <> 0").await, 0);
    assert!(!outbill.lines().join("\n").contains(&wrong), "the refused password is in the log");

    fs::write(&file, format!("{}\n", uri.authority.userinfo.password)).unwrap();
    shop.wait_for(100, "status = 1 AND retry_count = 0").await;
    outbill.terminate(LONG).await;
    assert_eq!(ledger.complete().await, (100, 0));
}

on_both_databases!(
    a_database_password_that_changes_in_mid_run_is_read_from_its_file_again,
    passwords_may_hold_any_character,
    a_server_that_cannot_be_reached_or_refuses_us_is_exit_code_69,
    no_log_level_shows_a_payload_or_a_secret,
);

async fn a_database_password_that_changes_in_mid_run_is_read_from_its_file_again(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume_all().await;
    let (database, file) = (&shop.database, shop.dir.path().join("store-password"));
    fs::write(&file, &database.password).unwrap();
    let config = by_keys(&shop).store("password_file", file.to_str().unwrap());
    let mut outbill = shop.run(&config).await;
    database.bills("order.paid", "a", 10).await;
    shop.wait_for(10, "status = 1").await;

    let changed = format!("changed-{}", unique());
    database.execute(format!("ALTER USER {}@'%' IDENTIFIED BY '{changed}'", database.user)).await;
    disconnect(&shop).await;
    let lines = outbill.line_count();
    database.bills("order.paid", "b", 10).await;
    outbill.wait_for_line(0, &["unavailable"], LONG).await;
    fs::write(&file, &changed).unwrap();
    shop.wait_for(20, "status = 1 AND retry_count = 0").await;
    assert!(outbill.line_count() - lines < 20, "{:#?}", outbill.lines());
    assert!(!outbill.lines().join("\n").contains(&changed));
    outbill.terminate(LONG).await;
    assert_eq!(ledger.complete().await, (20, 0));
}

/// Ends every connection that Outbill has.
async fn disconnect(shop: &Shop) {
    let user = &shop.database.user;
    let ids =
        shop.database.column(format!("SELECT id FROM information_schema.processlist WHERE user = '{user}'")).await;
    for id in ids {
        // One that has gone by itself meanwhile is no trouble.
        let sql = sqlx::AssertSqlSafe(format!("KILL {id}"));
        if let Err(error) = sqlx::raw_sql(sql).execute(&shop.database.pool).await {
            eprintln!("connection {id}: {error}");
        }
    }
}

fn by_keys(shop: &Shop) -> crate::support::Config {
    let database = &shop.database;
    shop.config()
        .without_store("url")
        .store("host", &database.host)
        .store("port", &database.port.to_string())
        .store("user", &database.user)
        .store("database", &database.name)
}

async fn passwords_may_hold_any_character(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume_all().await;
    let password = r"p@ss:w/rd?#%25 é'\";
    let sql = password.replace('\\', "\\\\").replace('\'', "''");
    shop.database.execute(format!("ALTER USER {}@'%' IDENTIFIED BY '{sql}'", shop.database.user)).await;
    let config = by_keys(&shop).store("password", "\"p@ss:w/rd?#%25 é'\\\\\"");
    shop.database.bills("order.paid", "a", 10).await;
    let outbill = shop.run(&config).await;
    ledger.wait_for(10, LONG).await;
    let finished = outbill.terminate(LONG).await;
    assert!(!finished.stderr.contains("p@ss"), "{}", finished.stderr);

    let raw = format!("mysql://{}:{password}@{}:{}/x", shop.database.user, shop.database.host, shop.database.port);
    let raw = raw.replace('\\', "");
    let refused = shop.command(&shop.config().store("url", &format!("\"{raw}\"")), &["run"]).await;
    assert_eq!(refused.code, Some(64), "{refused:?}");
    let said = refused.said();
    assert!(!said.contains("p@ss") && !said.contains("w/rd"), "{said}");
    assert!(said.contains("percent"), "says that the URL form needs percent-encoding: {said}");
}

async fn a_server_that_cannot_be_reached_or_refuses_us_is_exit_code_69(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let config = by_keys(&shop).store("password", "wrong-marker");
    let refused = shop.command(&config, &["check"]).await;
    assert_eq!(refused.code, Some(69), "{refused:?}");
    assert!(!format!("{refused:?}").contains("wrong-marker"));
    let closed = by_keys(&shop).store("password", &shop.database.password).store("port", "1");
    let status = shop.command(&closed, &["status"]).await;
    assert_eq!(status.code, Some(69), "{status:?}");
}

/// The broker's client logs what comes back, payload and all.
async fn no_log_level_shows_a_payload_or_a_secret(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume(&shop.broker.queue("order.paid").await).await;
    shop.broker.full_queue("order.full").await;
    let config = shop.config().top("log", "{ format: text, level: trace }");
    let marker = format!("card-{}", unique());
    let values: Vec<String> = ["order.paid", "order.lost", "order.full"]
        .iter()
        .map(|bill_type| format!("('{bill_type}', '1', '{{\"card\": \"{marker}\"}}')"))
        .collect();
    shop.database
        .execute(format!("INSERT INTO async_bill (biz_type, biz_id, payload) VALUES {}", values.join(",")))
        .await;
    let outbill = shop.run(&config).await;
    ledger.wait_for(1, LONG).await;
    shop.wait_for(1, "status = 1").await;
    shop.wait_for(1, "status = 2").await;
    shop.wait_for(1, "retry_count >= 1 AND biz_type = 'order.full'").await;
    let finished = outbill.terminate(LONG).await;
    assert!(!finished.said().contains(&marker), "a payload is in the log");
    assert!(finished.stderr.contains("order.full"), "what was said is said as text: {}", finished.stderr);
    let config = config.route("match", "nothing").store("where", "biz_type <> 'order.full'");
    let preview = shop.command(&config, &["status"]).await;
    assert!(!preview.said().contains(&marker));
}

/// MariaDB 10.11 has no TLS unless it is told to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encryption_that_the_server_has_not_is_never_silently_left_out() {
    let Some(shop) = Shop::open(Kind::MariaDb).await else { return };
    let config = shop.config().store("tls", "{ mode: required }");
    let check = shop.command(&config, &["check"]).await;
    assert_eq!(check.code, Some(69), "{check:?}");
    assert!(check.said().contains("TLS"), "{check:?}");
}
