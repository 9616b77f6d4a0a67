//! Bills per second from MariaDB and MySQL to RabbitMQ, beside a bare publisher with the same message properties and
//! in-flight limit, in alternating rounds of one run. `make bench` runs it; docs/PERFORMANCE.md has the figures.
//!
//! A round of the relay: the real binary runs beside an empty table, one transaction commits all bills, and the clock
//! stops when none is pending. A round of the bare publisher: the same number of the same bodies, all confirmed.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::large_futures,
    reason = "a benchmark prints its figures, reads its environment and takes the time"
)]

use std::{
    env, fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use futures_util::{StreamExt, stream::FuturesUnordered};
use lapin::{
    BasicProperties, Confirmation, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueuePurgeOptions},
    types::{AMQPValue, FieldTable},
};
use sqlx::{AssertSqlSafe, Connection as _, Executor, MySqlConnection};

const BILLS: usize = 50_000;
const ROUNDS: usize = 5;
const IN_FLIGHT: usize = 1_000;
const QUEUE: &str = "outbill-bench";
const BODY_BYTES: usize = 512;
const PATIENCE: Duration = Duration::from_mins(2);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let broker =
        env::var("OUTBILL_TEST_RABBITMQ_URL").context("OUTBILL_TEST_RABBITMQ_URL is not set; use `make bench`")?;
    println!("{BILLS} bills of {BODY_BYTES} bytes, {IN_FLIGHT} in flight, {ROUNDS} rounds, medians");
    println!("| database | bare publisher | relay | ratio | resident at most |");
    println!("|---|---|---|---|---|");
    for (name, variable) in [("MariaDB", "OUTBILL_TEST_MARIADB_URL"), ("MySQL", "OUTBILL_TEST_MYSQL_URL")] {
        let Ok(database) = env::var(variable) else {
            println!("| {name} | not there: {variable} is not set | | | |");
            continue;
        };
        measure(name, &database, &broker).await.with_context(|| format!("measure {name}"))?;
    }
    Ok(())
}

async fn measure(name: &str, server: &str, broker: &str) -> Result<()> {
    let connection = Connection::connect(broker, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(QUEUE.into(), durable, FieldTable::default()).await?;

    let mut admin = MySqlConnection::connect(server).await?;
    admin.execute("DROP DATABASE IF EXISTS outbill_bench").await?;
    admin.execute("CREATE DATABASE outbill_bench").await?;
    admin.execute("USE outbill_bench").await?;
    admin.execute(TABLE).await?;
    let folder = tempfile::tempdir()?;
    let config = folder.path().join("outbill.yaml");
    fs::write(&config, configuration(server, broker))?;
    let init = Command::new(env!("CARGO_BIN_EXE_outbill")).args(["init", "--apply", "-c"]).arg(&config).output()?;
    ensure!(init.status.success(), "init failed: {}", String::from_utf8_lossy(&init.stderr));

    let (mut bare, mut relayed, mut ratios, mut resident_kib) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for round in 0..=ROUNDS {
        let publisher = publish_bare(&channel).await?;
        channel.queue_purge(QUEUE.into(), QueuePurgeOptions::default()).await?;
        let (relay, kib) = drain(&mut admin, &config).await?;
        channel.queue_purge(QUEUE.into(), QueuePurgeOptions::default()).await?;
        // The first round warms both up.
        if round > 0 {
            bare.push(publisher);
            relayed.push(relay);
            ratios.push(relay / publisher);
            resident_kib = resident_kib.max(kib);
        }
    }
    admin.execute("DROP DATABASE outbill_bench").await?;
    let (bare, relayed, ratio) = (median(&mut bare), median(&mut relayed), median(&mut ratios));
    let mib = f64::from(resident_kib) / 1024.0;
    println!("| {name} | {bare:.0}/s | {relayed:.0}/s | {ratio:.2} | {mib:.1} MiB |");
    Ok(())
}

async fn publish_bare(channel: &lapin::Channel) -> Result<f64> {
    let body = vec![b'x'; BODY_BYTES];
    let began = Instant::now();
    let mut confirms = FuturesUnordered::new();
    for number in 0..BILLS {
        while confirms.len() >= IN_FLIGHT {
            confirmed(confirms.next().await)?;
        }
        let mut headers = FieldTable::default();
        headers.insert("outbill-attempt".into(), AMQPValue::LongUInt(1));
        headers.insert("outbill-id".into(), AMQPValue::LongString(number.to_string().into()));
        let properties = BasicProperties::default()
            .with_message_id(format!("order.paid:{number}").into())
            .with_type("order.paid".into())
            .with_timestamp(1_700_000_000)
            .with_delivery_mode(2)
            .with_content_type("application/json".into())
            .with_app_id("outbill".into())
            .with_headers(headers);
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        confirms.push(channel.basic_publish("".into(), QUEUE.into(), options, &body, properties).await?);
    }
    while !confirms.is_empty() {
        confirmed(confirms.next().await)?;
    }
    Ok(rate(began.elapsed()))
}

fn confirmed(confirmation: Option<lapin::Result<Confirmation>>) -> Result<()> {
    match confirmation {
        Some(Ok(Confirmation::Ack(None))) => Ok(()),
        other => bail!("not confirmed: {other:?}"),
    }
}

/// Bills per second and the relay's largest resident memory in KiB.
async fn drain(admin: &mut MySqlConnection, config: &std::path::Path) -> Result<(f64, u32)> {
    admin.execute("TRUNCATE TABLE async_bill").await?;
    let relay = Running::start(config)?;
    let payload = format!("{{\"fill\":\"{}\"}}", "x".repeat(BODY_BYTES - 11));
    admin.execute("BEGIN").await?;
    for chunk in 0..BILLS / 1_000 {
        let rows: Vec<String> =
            (0..1_000).map(|row| format!("('order.paid', '{}', '{payload}')", chunk * 1_000 + row)).collect();
        let insert = format!("INSERT INTO async_bill (biz_type, biz_id, payload) VALUES {}", rows.join(","));
        admin.execute(AssertSqlSafe(insert)).await?;
    }
    admin.execute("COMMIT").await?;
    let began = Instant::now();
    loop {
        let (pending,): (i64,) =
            sqlx::query_as("SELECT COUNT(*) FROM (SELECT 1 FROM async_bill WHERE status = 0 LIMIT 1) x")
                .fetch_one(&mut *admin)
                .await?;
        if pending == 0 {
            break;
        }
        ensure!(began.elapsed() < PATIENCE, "not drained after {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let rate = rate(began.elapsed());
    let (done,): (i64,) =
        sqlx::query_as("SELECT COUNT(*) FROM async_bill WHERE status = 1").fetch_one(&mut *admin).await?;
    ensure!(usize::try_from(done)? == BILLS, "{done} of {BILLS} are done");
    Ok((rate, relay.resident_kib()?))
}

/// The real binary, stopped when dropped.
struct Running(Child);

impl Running {
    fn start(config: &std::path::Path) -> Result<Self> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_outbill"))
            .args(["run", "-c"])
            .arg(config)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        let log = child.stderr.take().context("stderr is piped")?;
        let (told, ready) = std::sync::mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(log).lines().map_while(Result::ok) {
                if line.contains("connected") {
                    told.send(()).ok();
                }
            }
        });
        let running = Self(child);
        ready.recv_timeout(PATIENCE).context("wait for the relay to be connected")?;
        Ok(running)
    }

    fn resident_kib(&self) -> Result<u32> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM is not there")?;
        Ok(peak.trim().trim_end_matches(" kB").parse()?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[allow(clippy::cast_precision_loss, reason = "a number of bills is far below 2^52")]
fn rate(took: Duration) -> f64 {
    BILLS as f64 / took.as_secs_f64()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn configuration(server: &str, broker: &str) -> String {
    format!(
        "store:\n  url: {server}outbill_bench\nsinks:\n  rabbit: {{ type: rabbitmq, url: \"{broker}\", in_flight: {IN_FLIGHT} }}\n\
         routes:\n  - match: \"*\"\n    sink: rabbit\n    to: {{ exchange: \"\", routing_key: {QUEUE} }}\n    done_on: publish\n"
    )
}

const TABLE: &str = "CREATE TABLE async_bill (
  id bigint unsigned NOT NULL AUTO_INCREMENT, biz_type varchar(64) NOT NULL, biz_id varchar(64) NOT NULL,
  status tinyint NOT NULL DEFAULT 0, payload json DEFAULT NULL, retry_count int NOT NULL DEFAULT 0,
  next_retry_time datetime DEFAULT NULL, finished_at datetime DEFAULT NULL,
  created_at datetime DEFAULT CURRENT_TIMESTAMP, updated_at datetime DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (id), UNIQUE KEY uk_biz (biz_type, biz_id), KEY idx_status_next (status, next_retry_time))";
