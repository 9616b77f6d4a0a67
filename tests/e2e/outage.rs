//! Outages are not failures: nothing is counted, little is said, and all goes on by itself.

use std::time::Duration;

use crate::support::{
    Broker, Kind, LONG, Outbill, Private, Shop, broker_url, let_it_last, start_broker, start_database,
};

/// As the promise has it.
const OUTAGE: Duration = Duration::from_secs(30);
/// A tenth of a core, for the debug build on a busy machine.
const MAX_CPU_MS: u64 = 3_000;

async fn last_quietly(outbill: &Outbill, length: Duration) {
    let cpu = outbill.cpu_ms();
    let_it_last(length).await;
    let used = outbill.cpu_ms() - cpu;
    assert!(used < MAX_CPU_MS, "{used} ms of processor time while there was nothing to do");
}

async fn assert_quiet(outbill: &Outbill, from: usize) {
    let said: Vec<String> = outbill.lines().into_iter().skip(from).collect();
    assert!(said.len() < 20, "{} lines about one outage: {said:#?}", said.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_broker_that_stops_for_thirty_seconds_costs_no_bill_an_attempt() {
    let (Some(url), Some(server)) = (Kind::MariaDb.url(), start_broker().await) else { return };
    let mut shop = Shop::open_on(&url, &server.url).await;
    let queue = shop.broker.queue("#").await;
    let config = shop.config();
    let outbill = shop.run(&config).await;
    shop.database.bills("order.paid", "first", 5_000).await;
    shop.wait_for(500, "status = 1").await;
    let lines = outbill.line_count();
    server.stop().await;
    shop.database.bills("order.paid", "second", 5_000).await;
    last_quietly(&outbill, OUTAGE).await;
    assert_eq!(shop.database.count("retry_count <> 0 OR status NOT IN (0, 1)").await, 0);

    server.start_again().await;
    shop.broker = Broker::attach(&server.url, &shop.broker.exchange).await;
    shop.wait_for(10_000, "status = 1 AND retry_count = 0").await;
    assert_quiet(&outbill, lines).await;
    outbill.terminate(LONG).await;
    let ledger = shop.broker.consume(&queue).await;
    let (distinct, duplicates) = ledger.complete().await;
    assert_eq!(distinct, 10_000);
    assert!(duplicates <= 1_000, "{duplicates} duplicates, more than were in flight");
    assert_eq!(shop.database.number("SELECT COUNT(*) FROM outbill_attempt").await, 0);
}

mod database_that_stops {
    use super::{Kind, slow_a_database_that_stops_costs_no_bill_an_attempt};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn slow_mariadb() {
        slow_a_database_that_stops_costs_no_bill_an_attempt(Kind::MariaDb).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn slow_mysql() {
        slow_a_database_that_stops_costs_no_bill_an_attempt(Kind::MySql).await;
    }
}

async fn slow_a_database_that_stops_costs_no_bill_an_attempt(kind: Kind) {
    let (Some(url), Some(server)) = (broker_url(), start_database(kind, &[]).await) else { return };
    let shop = Shop::open_on(&server.url, &url).await;
    let ledger = shop.broker.consume_all().await;
    let outbill = shop.run(&shop.config()).await;
    // Half of them are on their way when the database goes, half become due while it is away.
    shop.database.bills_at("order.paid", "due", 5_000, "NOW() + INTERVAL 6 SECOND").await;
    shop.database.bills("order.paid", "fresh", 5_000).await;
    shop.wait_for(500, "status = 1").await;
    let lines = outbill.line_count();
    server.stop().await;
    last_quietly(&outbill, OUTAGE).await;
    server.start_again().await;
    shop.wait_for(10_000, "status = 1 AND retry_count = 0").await;
    assert_quiet(&outbill, lines).await;
    outbill.terminate(LONG).await;
    assert_eq!(ledger.complete().await, (10_000, 0));
    assert_eq!(shop.database.number("SELECT COUNT(*) FROM outbill_attempt").await, 0);
}

async fn alarm(server: &Private, is_on: bool) {
    let mark = if is_on { "1MB" } else { "4GB" };
    server.ctl(&["set_vm_memory_high_watermark", "absolute", mark]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_memory_alarm_of_twenty_seconds_fails_nothing() {
    let (Some(url), Some(server)) = (Kind::MySql.url(), start_broker().await) else { return };
    let shop = Shop::open_on(&url, &server.url).await;
    let ledger = shop.broker.consume_all().await;
    let config = shop.config();
    let outbill = shop.run(&config).await;
    shop.database.bills("order.paid", "before", 2_000).await;
    shop.wait_for(200, "status = 1").await;
    let lines = outbill.line_count();
    alarm(&server, true).await;
    shop.database.bills("order.paid", "while", 5_000).await;
    last_quietly(&outbill, Duration::from_secs(20)).await;
    assert!(shop.database.count("status = 0").await > 0, "the alarm stopped the flow");
    assert_eq!(shop.database.count("retry_count <> 0 OR status NOT IN (0, 1)").await, 0);
    alarm(&server, false).await;
    shop.wait_for(7_000, "status = 1 AND retry_count = 0").await;
    assert_quiet(&outbill, lines).await;
    outbill.terminate(LONG).await;
    ledger.wait_for(7_000, LONG).await;
    assert_eq!(ledger.complete().await.1, 0);
}

/// A failover makes the old writer read-only.
mod read_only {
    use super::{Kind, LONG, Shop, assert_quiet, broker_url, start_database};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_store_that_turns_read_only_fails_nothing_on_mariadb() {
        a_store_that_turns_read_only_fails_nothing(Kind::MariaDb, "GLOBAL read_only").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_store_that_turns_read_only_fails_nothing_on_mysql() {
        a_store_that_turns_read_only_fails_nothing(Kind::MySql, "GLOBAL super_read_only").await;
    }

    async fn a_store_that_turns_read_only_fails_nothing(kind: Kind, variable: &str) {
        let (Some(url), Some(server)) = (broker_url(), start_database(kind, &[]).await) else { return };
        let shop = Shop::open_on(&server.url, &url).await;
        let ledger = shop.broker.consume_all().await;
        let mut outbill = shop.run(&shop.config()).await;
        shop.database.bills("order.paid", "a", 3_000).await;
        shop.wait_for(300, "status = 1").await;
        let lines = outbill.line_count();
        shop.database.execute(format!("SET {variable} = 1")).await;
        outbill.wait_for_line(lines, &["unavailable"], LONG).await;
        shop.database.execute("SET GLOBAL read_only = 0").await;
        shop.wait_for(3_000, "status = 1 AND retry_count = 0").await;
        assert_quiet(&outbill, lines).await;
        outbill.terminate(LONG).await;
        assert_eq!(ledger.complete().await, (3_000, 0));
    }
}

/// Connections that idle are cut by the server, or forgotten by a firewall.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_the_database_drops_when_idle_are_made_anew() {
    let (Some(url), Some(server)) = (broker_url(), start_database(Kind::MariaDb, &["--wait-timeout=1"]).await) else {
        return;
    };
    let shop = Shop::open_on(&server.url, &url).await;
    let ledger = shop.broker.consume_all().await;
    // Between two polls every connection is dropped.
    let outbill = shop.run(&shop.config().store("poll", "{ interval: 3s }")).await;
    for n in 1..=3 {
        shop.database.bills("order.paid", &format!("round{n}"), 10).await;
        ledger.wait_for(n * 10, LONG).await;
        shop.wait_for(n * 10, "status = 1").await;
    }
    outbill.terminate(LONG).await;
    assert_eq!(ledger.complete().await.1, 0);
    assert_eq!(shop.database.count("retry_count <> 0").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_start_after_outbill_are_waited_for() {
    let Some(database) = start_database(Kind::MariaDb, &[]).await else { return };
    let Some(broker) = start_broker().await else { return };
    let mut shop = Shop::open_on(&database.url, &broker.url).await;
    let queue = shop.broker.queue("#").await;
    let config = shop.config();
    shop.init(&config).await;
    shop.database.bills("order.paid", "a", 100).await;
    database.stop().await;
    broker.stop().await;
    let mut outbill = shop.start(&config);
    outbill.wait_for_line(0, &["the store is unavailable"], LONG).await;
    database.start_again().await;
    outbill.wait_for_line(0, &["running"], LONG).await;
    broker.start_again().await;
    shop.broker = Broker::attach(&broker.url, &shop.broker.exchange).await;
    shop.wait_for(100, "status = 1 AND retry_count = 0").await;
    outbill.terminate(LONG).await;
    let ledger = shop.broker.consume(&queue).await;
    assert_eq!(ledger.complete().await, (100, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_killed_in_mid_batch_lose_nothing() {
    const BILLS: usize = 10_000;
    let Some(database) = start_database(Kind::MariaDb, &[]).await else { return };
    let Some(broker) = start_broker().await else { return };
    let mut shop = Shop::open_on(&database.url, &broker.url).await;
    let queue = shop.broker.queue("#").await;
    let config = shop.config().sink("in_flight", "200");
    shop.init(&config).await;
    shop.database.bills("order.paid", "a", BILLS).await;
    let outbill = shop.start(&config);
    shop.wait_for(500, "status = 1").await;
    broker.kill().await;
    let before = shop.database.count("status = 1").await;
    assert!(before < BILLS, "killed in mid-batch");
    broker.start_again().await;
    shop.broker = Broker::attach(&broker.url, &shop.broker.exchange).await;
    shop.wait_for(before + 500, "status = 1").await;
    database.kill().await;
    database.start_again().await;
    shop.wait_for(BILLS, "status = 1 AND retry_count = 0").await;
    outbill.terminate(LONG).await;
    let (distinct, duplicates) = shop.broker.consume(&queue).await.complete().await;
    assert_eq!(distinct, BILLS);
    assert!(duplicates <= 200, "{duplicates} duplicates, more than were in flight");
}
