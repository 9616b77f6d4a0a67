//! `outbill demo`: the main job with nothing installed. A shop on SQLite, the real relay, and a sink that misbehaves on
//! purpose; at the end a ledger shows where every bill went.

mod ledger;
mod sink;

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use self::{ledger::Ledger, sink::DemoSink};
use crate::{
    app,
    bill::MessageIdForm,
    cli::Demo,
    clock::Chance,
    command::{Exit, Failure, Output},
    lifecycle::{self, Ending, Lifecycle, Signals},
    policy::{AttemptLog, Pattern, Retry, Selector},
    relay::{Options, Relay, Route, SinkLine},
    store::{
        self, schema,
        settings::Settings,
        shop::{Order, Shop},
    },
    telemetry::{self, LogFormat, LogSettings},
    units::Span,
};

/// How long the shop is open. Retries and the outage take a little longer.
const SHOP_OPEN: Duration = Duration::from_secs(6);
/// What is not finished by then is not going to be: the ledger does not balance, and says so.
const PATIENCE: Duration = Duration::from_secs(18);
const PROGRESS: Duration = Duration::from_millis(100);
const SHUTDOWN: Span = Span(Duration::from_secs(1));

/// What the shop sells leads to work of these types.
const TYPES: [&str; 3] = ["order.paid", "order.refunded", "sms.send"];

pub(super) async fn run(options: &Demo, output: &mut Output) -> Result<Exit, Failure> {
    telemetry::init(&LogSettings { format: LogFormat::Text, level: "off".to_owned() });
    let mut signals = lifecycle::listen().context("listen for signals")?;
    let folder = tempfile::tempdir().context("make a temporary folder for the shop")?;
    let database = folder.path().join("shop.db");
    let mut chance = options.seed.map_or_else(Chance::from_system, Chance::from_seed);
    let mut shop = Shop::open(&database).await.context("open the shop")?;
    let settings: Settings =
        serde_json::from_value(serde_json::json!({ "url": format!("sqlite://{}", database.display()) }))
            .context("describe the shop's database")?;
    shop.make_table(schema::example(&settings).await?).await.context("make the table of bills")?;
    output.line(
        "A shop writes an order and a bill in one transaction, and rolls some of them back. Outbill delivers the",
    );
    output.line(
        "committed bills to a sink that will be away for two seconds, refuses some messages once and one for ever.",
    );
    output.line("");

    let sink = Arc::new(DemoSink::new(options.bills as usize * 2 / 5));
    let life = Lifecycle::new();
    let relay = relay(&settings, &sink, &mut chance).await?;
    life.spawn("relay", relay.run(life.stopping()));
    let counts = Arc::new(Counts::default());
    life.spawn("shop", open_shop(database.clone(), options.bills, chance, Arc::clone(&counts)));

    let is_live = !options.no_progress && io::stdout().is_terminal();
    let counter = Counter { counts: &counts, sink: &sink, bills: options.bills };
    let watched = counter.watch(&mut shop, is_live.then_some(&mut *output), &mut signals).await;
    life.stop();
    if let Ending::Fault(fault) = life.finish(&mut signals, SHUTDOWN).await {
        return Err(Failure::Fault(anyhow::anyhow!(fault)));
    }
    let watched = watched?;
    let ledger = Ledger::close(&mut shop, &sink, counts.rolled_back.load(Ordering::Relaxed)).await?;
    if watched == Stop::TimeLimit {
        output.line(format!("Stopped at the time limit of {} s, before everything was finished.", PATIENCE.as_secs()));
    }
    ledger.print(output);
    Ok(if ledger.balances() { Exit::Fine } else { Exit::Found })
}

/// What the shop has done so far.
#[derive(Debug, Default)]
struct Counts {
    committed: AtomicU32,
    rolled_back: AtomicU32,
}

/// The relay as `run` has it, over the shop's own database.
async fn relay(settings: &Settings, sink: &Arc<DemoSink>, chance: &mut Chance) -> anyhow::Result<Relay> {
    let plan = schema::plan(settings, false).await.context("plan Outbill's own tables")?;
    schema::apply(settings, &plan).await.context("make Outbill's own tables")?;
    let store = store::open(settings, "demo").await?.store;
    let retry =
        Retry { base: Duration::from_millis(200), cap: Duration::from_secs(1), max_attempts: 5, ..Retry::default() };
    let route = Route {
        name: "everything".into(),
        selector: Selector { include: vec![Pattern::new("*")], except: Vec::new() },
        line: 0,
        compose: app::compose_plainly(&MessageIdForm::TypeAndKey),
        retry,
        attempt_log: AttemptLog::Failures,
    };
    let line = SinkLine { name: "demo".into(), sink: Arc::clone(sink) as _, in_flight: 100 };
    let options = Options {
        poll_interval: Duration::from_millis(50),
        batch: 200,
        batch_bytes: 1 << 20,
        max_payload: 1 << 20,
        drain_limit: SHUTDOWN.0.mul_f64(0.8),
    };
    // An own seed, so that the shop's chance does not depend on how often the relay asks for it.
    let seed = chance.seed();
    Ok(Relay::new(store, vec![line], vec![route], options, Chance::from_seed(seed)))
}

/// The application: one transaction after the other, evenly over the time that the shop is open.
async fn open_shop(database: PathBuf, bills: u32, mut chance: Chance, counts: Arc<Counts>) -> anyhow::Result<()> {
    let mut shop = Shop::open(&database).await.context("open the shop a second time, as an application of its own")?;
    let began = Instant::now();
    for number in 1..=bills {
        sleep_until(began + SHOP_OPEN.mul_f64(f64::from(number) / f64::from(bills))).await;
        let amount_cents = 100 + number % 9_900;
        let is_poison = number == bills / 2;
        let payload = if is_poison {
            format!("{{\"order\":{number},\"amount\":{}}}", sink::POISON)
        } else {
            format!("{{\"order\":{number},\"amount\":{}.{:02}}}", amount_cents / 100, amount_cents % 100)
        };
        let bill_type = TYPES.get(number as usize % TYPES.len()).copied().unwrap_or("order.paid");
        let commits = is_poison || chance.uniform() > 0.1;
        let order = Order { number: 1_000 + number, amount_cents, bill_type, payload: &payload };
        shop.place(&order, commits).await.context("place an order")?;
        let count = if commits { &counts.committed } else { &counts.rolled_back };
        count.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Why nobody watches the shop any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Finished,
    TimeLimit,
    Signal,
}

/// Somebody who watches the shop and the sink.
struct Counter<'a> {
    counts: &'a Counts,
    sink: &'a DemoSink,
    bills: u32,
}

impl Counter<'_> {
    /// Waits until the shop is closed and no bill is pending, with a live line where somebody can see it.
    async fn watch(
        &self,
        shop: &mut Shop,
        mut live: Option<&mut Output>,
        signals: &mut Signals,
    ) -> anyhow::Result<Stop> {
        let began = Instant::now();
        let mut tick = interval(PROGRESS);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let watched = loop {
            tokio::select! {
                _ = tick.tick() => {}
                _ = signals.recv() => break Stop::Signal,
            }
            let [pending, done, failed, _] = shop.standing().await.context("count the bills")?;
            let committed = self.counts.committed.load(Ordering::Relaxed);
            let rolled_back = self.counts.rolled_back.load(Ordering::Relaxed);
            if let Some(output) = live.as_deref_mut() {
                let away = if self.sink.is_away() { "  the sink is away" } else { "" };
                output.part(format!(
                    "\r\x1b[Kcommitted {committed:>6}  rolled back {rolled_back:>5}  pending {pending:>5}  \
                     delivered {done:>6}  failed {failed:>2}{away}"
                ));
            }
            if committed + rolled_back == self.bills && pending == 0 {
                break Stop::Finished;
            }
            if began.elapsed() >= PATIENCE {
                break Stop::TimeLimit;
            }
        };
        if let Some(output) = live {
            output.line("\n");
        }
        Ok(watched)
    }
}
