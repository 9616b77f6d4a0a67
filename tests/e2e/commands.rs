//! The commands of an operator, from outside: what they print, and how they end.

use crate::support::{Kind, LONG, Shop};

on_both_databases!(
    check_names_what_is_missing_with_its_remedy,
    status_counts_the_open_bills,
    preview_shows_the_exact_message_and_sends_nothing,
    retry_brings_failed_bills_back,
    release_says_whether_there_was_a_hold,
    init_prints_what_it_would_do_and_may_be_repeated,
);

async fn check_names_what_is_missing_with_its_remedy(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let config = shop.config();
    let check = shop.command(&config, &["check"]).await;
    assert_eq!(check.code, Some(1), "{check:?}");
    assert!(check.stdout.contains("outbill init --apply"), "{check:?}");
    shop.init(&config).await;
    let check = shop.command(&config, &["check"]).await;
    assert_eq!(check.code, Some(0), "{check:?}");
    assert!(check.stdout.contains('✓') && !check.stdout.contains('✗'), "{check:?}");

    shop.database.execute("ALTER TABLE async_bill DROP INDEX idx_status_next").await;
    let missing = format!("{}-missing", shop.broker.exchange);
    let config = shop.config().route("to", &format!("{{ exchange: {missing}, routing_key: x }}"));
    let check = shop.command(&config, &["check"]).await;
    assert_eq!(check.code, Some(1), "{check:?}");
    assert!(
        check.stdout.contains('✗') && check.stdout.contains("INDEX") && check.stdout.contains(&missing),
        "{check:?}"
    );
    let json = shop.command(&config, &["check", "--json"]).await;
    assert_eq!(json.code, Some(1), "{json:?}");
    assert!(json.json().to_string().contains(&missing));
    let run = shop.command(&config, &["run"]).await;
    assert!(matches!(run.code, Some(1 | 64)), "run refuses a table without the index: {run:?}");
    assert!(run.said().contains("INDEX"), "{run:?}");

    let check = shop.command(&shop.config().store("table", "no_such_table"), &["check"]).await;
    assert_eq!(check.code, Some(1), "{check:?}");
    assert!(check.stdout.contains("no_such_table"), "{check:?}");
    let status = shop.command(&shop.config().store("table", "no_such_table"), &["status"]).await;
    assert_eq!(status.code, Some(64), "a table that is not there is a mistake of the configuration: {status:?}");
    assert!(status.stderr.contains("no_such_table"), "{status:?}");
}

async fn status_counts_the_open_bills(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let config = shop.config();
    shop.init(&config).await;
    shop.database.bills("order.paid", "a", 7).await;
    shop.database.bills("sms.send", "a", 3).await;
    shop.database.bills_at("order.paid", "due", 2, "NOW() - INTERVAL 1 MINUTE").await;
    shop.database.bills_at("order.paid", "later", 4, "NOW() + INTERVAL 1 HOUR").await;
    shop.database.bills("order.failed", "a", 5).await;
    shop.database.execute("UPDATE async_bill SET status = 2 WHERE biz_type = 'order.failed'").await;
    let status = shop.command(&config, &["status"]).await;
    assert_eq!(status.code, Some(1), "failed bills need a person: {status:?}");
    for word in ["order.paid", "sms.send", "order.failed", "16", "13", "5"] {
        assert!(status.stdout.contains(word), "{word}: {}", status.stdout);
    }
    let json = shop.command(&config, &["status", "--json"]).await;
    assert_eq!(json.code, Some(1), "{json:?}");
    let json = json.json();
    assert_eq!(json["pending"], serde_json::json!({ "value": 16, "capped": false }), "{json}");
    assert_eq!(json["due_retries"]["value"], 2, "{json}");
    assert_eq!(json["scheduled"]["value"], 4, "{json}");
    assert_eq!(json["failed"]["value"], 5, "{json}");

    shop.database.bills("order.many", "a", 10_001).await;
    let status = shop.command(&config, &["status"]).await;
    assert!(status.stdout.contains("≥ 10,000"), "{}", status.stdout);
    let many = "SELECT 'order.mass', CONCAT(a.id, '-', b.id) FROM async_bill a JOIN async_bill b LIMIT 400000";
    shop.database.execute(&format!("INSERT INTO async_bill (biz_type, biz_id) {many}")).await;
    let status = shop.command(&config, &["status"]).await;
    assert!(!status.stdout.contains("not known"), "{}", status.stdout);
}

async fn preview_shows_the_exact_message_and_sends_nothing(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume_all().await;
    let config = shop.config();
    shop.init(&config).await;
    shop.database.bills("order.paid", "1001", 1).await;
    let id = shop.database.text("SELECT id FROM async_bill").await;
    let payload = shop.database.text("SELECT payload FROM async_bill").await;
    let preview = shop.command(&config, &["preview", "--id", &id]).await;
    assert_eq!(preview.code, Some(0), "{preview:?}");
    for word in ["order.paid:1001-1", &shop.broker.exchange, &payload, "attempt       1"] {
        assert!(preview.stdout.contains(word), "{word}: {}", preview.stdout);
    }
    let json = shop.command(&config, &["preview", "--id", &id, "--json"]).await;
    let shown = json.json();
    assert_eq!(
        (&shown["message_id"], &shown["status"]),
        (&"order.paid:1001-1".into(), &"0 (pending)".into()),
        "{json:?}"
    );
    assert_eq!(shown["sink_additions"]["outbill-id"], id.as_str(), "{json:?}");
    assert_eq!(shown["body"], payload.as_str(), "{json:?}");
    let none = shop.command(&config, &["preview", "--id", "999999"]).await;
    assert_eq!(none.code, Some(1), "{none:?}");
    let nonsense = shop.command(&config, &["preview", "--id", "abc"]).await;
    assert!(matches!(nonsense.code, Some(1 | 64)), "{nonsense:?}");
    assert_eq!(shop.database.count("status = 0 AND retry_count = 0").await, 1);
    assert_eq!(ledger.complete().await.0, 0);
}

async fn retry_brings_failed_bills_back(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let ledger = shop.broker.consume_all().await;
    let config = shop.config();
    shop.init(&config).await;
    shop.database.bills("order.paid", "a", 10).await;
    shop.database.bills("sms.send", "a", 10).await;
    shop.database.execute("UPDATE async_bill SET status = 2, retry_count = 16, finished_at = NOW()").await;
    shop.database.execute("UPDATE async_bill SET status = 1 WHERE biz_id = 'a-10'").await;
    let id = shop.database.text("SELECT id FROM async_bill WHERE biz_type = 'sms.send' AND biz_id = 'a-3'").await;

    let dry = shop.command(&config, &["retry", "--type", "order.paid", "--dry-run"]).await;
    assert_eq!(dry.code, Some(0), "{dry:?}");
    assert_eq!(shop.database.count("status = 0").await, 0, "a dry run changes nothing");
    assert!(!dry.stdout.contains("limit"), "{dry:?}");
    let some = shop.command(&config, &["retry", "--type", "order.paid", "--dry-run", "--limit", "4"]).await;
    assert!(some.stdout.contains("4 failed bills") && some.stdout.contains("the limit of 4"), "{some:?}");
    let retry = shop.command(&config, &["retry", "--type", "order.paid"]).await;
    assert_eq!(retry.code, Some(0), "{retry:?}");
    assert!(retry.stdout.contains('9'), "{retry:?}");
    let back = "biz_type = 'order.paid' AND status = 0 AND retry_count = 0 AND next_retry_time <= NOW() AND finished_at IS NULL";
    assert_eq!(shop.database.count(back).await, 9);
    let retry = shop.command(&config, &["retry", "--id", &id]).await;
    assert_eq!(retry.code, Some(0), "{retry:?}");
    assert_eq!(shop.database.count("biz_type = 'sms.send' AND status = 0").await, 1);
    let outbill = shop.start(&config);
    shop.wait_for(12, "status = 1").await;
    outbill.terminate(LONG).await;
    assert_eq!(ledger.complete().await.0, 10);
}

async fn release_says_whether_there_was_a_hold(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let config = shop.config();
    shop.init(&config).await;
    let none = shop.command(&config, &["release", "all"]).await;
    assert!(none.code == Some(1) && none.said().contains("not held"), "{none:?}");
    let unknown = shop.command(&config, &["release", "no-such-route"]).await;
    assert!(matches!(unknown.code, Some(1 | 64)), "{unknown:?}");
}

async fn init_prints_what_it_would_do_and_may_be_repeated(kind: Kind) {
    let Some(shop) = Shop::open(kind).await else { return };
    let config = shop.config();
    let print = shop.command(&config, &["init", "--print"]).await;
    assert_eq!(print.code, Some(0), "{print:?}");
    assert!(print.stdout.contains("CREATE TABLE") && print.stdout.contains("outbill_attempt"), "{print:?}");
    assert!(shop.database.rows("SHOW TABLES LIKE 'outbill%'").await.is_empty(), "printing changes nothing");
    // What is printed can be executed as it is.
    shop.database.execute(print.stdout.clone()).await;
    shop.init(&config).await;
    shop.init(&config).await;
    let check = shop.command(&config, &["check"]).await;
    assert_eq!(check.code, Some(0), "{check:?}");

    let foreign = shop.config().store("own_prefix", "app_");
    shop.database.execute("CREATE TABLE app_attempt (x int)").await;
    let refused = shop.command(&foreign, &["init", "--apply"]).await;
    assert!(matches!(refused.code, Some(1 | 64)), "{refused:?}");
    let tables = shop.database.column("SHOW TABLES LIKE 'app\\_%'").await;
    assert_eq!(tables, ["app_attempt"], "nothing done beside a table of another shape");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_usage_and_bad_configuration_are_exit_code_64() {
    let Some(shop) = Shop::open(Kind::MariaDb).await else { return };
    let unknown = shop.command(&shop.config(), &["explode"]).await;
    assert_eq!(unknown.code, Some(64), "{unknown:?}");
    let bad = shop.command(&shop.config().top("alarms", "x").sink("in_flight", "0"), &["check"]).await;
    assert_eq!(bad.code, Some(64), "{bad:?}");
    assert!(bad.stderr.contains("alarms") && bad.stderr.contains("in_flight"), "all at once: {bad:?}");
    let finished = shop.spawn(&shop.config(), &["--version"]).finish(LONG).await;
    assert_eq!(finished.code, Some(0), "{finished:?}");
}
