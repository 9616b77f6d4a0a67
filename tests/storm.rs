//! The relay under seeds, in many shapes: several routes on one sink, foreign types, text ids, limits of one, sinks of very
//! different speed that block, break and refuse, holds that come and go.
//!
//! `OUTBILL_SIM_SEED=n cargo test --test storm` plays one seed again, `OUTBILL_SIM_RUNS=n` plays more of them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may end with a panic, and says so")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the numbers of a simulation are small"
)]

#[path = "support/routes.rs"]
mod routes;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{StreamExt, stream::FuturesUnordered};
use outbill::{
    bill::BillId,
    clock::Chance,
    decision::{Exposure, Outcome, Trouble},
    finding::Finding,
    policy::Retry,
    relay::{Options, Relay, SinkLine},
    sink::{Address, Delivery, Health, Message, Report, Sink, Ticket},
    store::{
        FetchRequest, Hold, Ledger, Mark, Page, Row, Settlement, Store, StoreError,
        memory::{MemoryStore, Status},
    },
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

const DEFAULT_RUNS: u64 = 40;
const BILLS: i128 = 250;
const TROUBLED: Duration = Duration::from_mins(1);
const PATIENCE: Duration = Duration::from_hours(1);

#[test]
fn whatever_the_shape_every_bill_is_finished() {
    play(true);
}

#[test]
fn without_a_fault_nothing_is_doubled_and_a_quick_sink_waits_for_no_other() {
    play(false);
}

#[allow(clippy::disallowed_methods, reason = "a test is steered from outside")]
fn play(with_faults: bool) {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u64>().ok());
    let seeds = match (number("OUTBILL_SIM_SEED"), number("OUTBILL_SIM_RUNS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, runs) => 0..runs.unwrap_or(DEFAULT_RUNS),
    };
    for seed in seeds {
        let result = std::panic::catch_unwind(|| {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            tokio::task::LocalSet::new().block_on(&runtime, Storm::new(seed, with_faults).run());
        });
        assert!(
            result.is_ok(),
            "seed {seed} fails (faults: {with_faults}); play it again with OUTBILL_SIM_SEED={seed}"
        );
    }
}

/// Counts reads, and gives ids as texts where the seed wants it.
#[derive(Debug)]
struct Table {
    memory: Arc<MemoryStore>,
    has_texts: bool,
    fetches: AtomicU64,
}

impl Table {
    fn out(&self, id: BillId) -> BillId {
        if self.has_texts { BillId::Text(id.to_string().into()) } else { id }
    }

    fn back(id: &BillId) -> BillId {
        BillId::Integer(id.to_string().parse().unwrap())
    }
}

#[async_trait]
impl Store for Table {
    async fn fetch(&self, request: &FetchRequest) -> Result<Page, StoreError> {
        self.fetches.fetch_add(1, Ordering::SeqCst);
        let mut request = request.clone();
        if let Some(Mark { id, .. }) = &mut request.after {
            *id = Self::back(id);
        }
        let mut page = self.memory.fetch(&request).await?;
        for row in &mut page.rows {
            let (Row::Bill(outbill::bill::Bill { id, .. }) | Row::Invalid { id, .. }) = row;
            *id = self.out(id.clone());
        }
        page.end = page.end.map(|mark| Mark { id: self.out(mark.id), ..mark });
        Ok(page)
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<u64, StoreError> {
        let mut settlements = settlements.to_vec();
        for settlement in &mut settlements {
            settlement.id = Self::back(&settlement.id);
        }
        self.memory.settle(&settlements).await
    }

    async fn holds(&self) -> Result<HashMap<String, Hold>, StoreError> {
        self.memory.holds().await
    }

    async fn hold(&self, route: &str, hold: &Hold) -> Result<(), StoreError> {
        self.memory.hold(route, hold).await
    }
}

#[derive(Debug)]
struct World {
    chance: Mutex<Chance>,
    with_faults: bool,
    troubled_until: Instant,
    accepted: Mutex<BTreeMap<i128, u32>>,
    first_accepted: Mutex<BTreeMap<i128, Instant>>,
    excused: Mutex<BTreeSet<i128>>,
    refused: Mutex<BTreeSet<i128>>,
}

impl World {
    fn chance(&self) -> f64 {
        self.chance.lock().unwrap().uniform()
    }

    fn is_troubled(&self) -> bool {
        self.with_faults && Instant::now() < self.troubled_until
    }

    fn accept(&self, id: i128) {
        *self.accepted.lock().unwrap().entry(id).or_default() += 1;
        self.first_accepted.lock().unwrap().entry(id).or_insert_with(Instant::now);
    }
}

struct Storm {
    chance: Chance,
    with_faults: bool,
    table: Arc<Table>,
    world: Arc<World>,
    options: Options,
    /// For each sink: in flight, slowest answer in ms, whether it blocks now and then.
    sinks: Vec<(usize, u64, bool)>,
    /// The sink of each route; types `t0.x`, `t1.x`, …
    routes: Vec<usize>,
    committed: BTreeMap<i128, (usize, Instant)>,
}

impl Storm {
    fn new(seed: u64, with_faults: bool) -> Self {
        let mut chance = Chance::from_seed(seed);
        let pick = |chance: &mut Chance, of: &[u64]| of[between(chance, 0, of.len() as u64) as usize];
        let world = World {
            chance: Mutex::new(Chance::from_seed(seed ^ 0xBEEF)),
            with_faults,
            troubled_until: Instant::now() + TROUBLED,
            accepted: Mutex::default(),
            first_accepted: Mutex::default(),
            excused: Mutex::default(),
            refused: Mutex::default(),
        };
        let table = Table {
            memory: MemoryStore::new(),
            has_texts: between(&mut chance, 0, 4) == 0,
            fetches: AtomicU64::new(0),
        };
        let options = Options {
            poll_interval: Duration::from_millis(pick(&mut chance, &[10, 200, 200, 1_000])),
            batch: pick(&mut chance, &[1, 2, 10, 10, 50]) as usize,
            batch_bytes: pick(&mut chance, &[1, 700, 3_000, 1 << 20]) as usize,
            max_payload: 1 << 20,
            drain_limit: Duration::from_secs(20),
        };
        // The first sink is quick and always there where there are no faults.
        let count = between(&mut chance, 1, 4);
        let sinks: Vec<_> = (0..count)
            .map(|index| {
                let in_flight = pick(&mut chance, &[1, 2, 7, 16, 100]) as usize;
                if index == 0 { (in_flight, 5, false) } else { (in_flight, pick(&mut chance, &[5, 100, 2_000]), true) }
            })
            .collect();
        let routes = (0..between(&mut chance, count, count + 4))
            .map(|route| if route < count { route as usize } else { between(&mut chance, 0, count) as usize })
            .collect();
        Self {
            chance,
            with_faults,
            table: Arc::new(table),
            world: Arc::new(world),
            options,
            sinks,
            routes,
            committed: BTreeMap::new(),
        }
    }

    async fn run(mut self) {
        let fetch_ms = self.between(0, 40);
        self.table.memory.set_weather(|weather| {
            weather.fetch_takes = Duration::from_millis(fetch_ms);
            weather.settle_takes = Duration::from_millis(3);
        });
        let backlog = if self.between(0, 3) == 0 { self.between(0, 200) } else { 0 };
        let mut stop = CancellationToken::new();
        let mut relay = None;
        for id in 1..=BILLS {
            if id >= i128::from(backlog) {
                if relay.is_none() {
                    relay = Some(self.start(&stop));
                }
                sleep(Duration::from_millis(self.between(0, 60))).await;
            }
            if self.between(0, 20) > 0 {
                self.commit(id);
            }
            if let Some(relay) = &mut relay
                && self.with_faults
            {
                self.fault(&mut stop, relay).await;
            }
        }
        let mut relay = relay.unwrap();
        self.table.memory.set_weather(|weather| weather.is_away = false);
        let finished = timeout(PATIENCE, async {
            let mut rounds = 0;
            while self.open() > 0 {
                sleep(Duration::from_millis(500)).await;
                assert!(!relay.is_finished(), "the relay ended by itself: {:?}", (&mut relay).await);
                rounds += 1;
                if rounds % 20 == 0 {
                    self.release_all().await;
                }
            }
        });
        let finished = finished.await;
        assert!(finished.is_ok(), "{} bills are never finished; {}", self.open(), self.shape());
        self.judge_idleness().await;
        stop.cancel();
        relay.await.unwrap().unwrap();
        self.judge();
    }

    fn shape(&self) -> String {
        format!("{:?} sinks {:?} routes {:?} texts {}", self.options, self.sinks, self.routes, self.table.has_texts)
    }

    fn open(&self) -> usize {
        let is_open = |id: &&i128| self.table.memory.bill(**id).unwrap().status == Status::Pending;
        self.committed
            .iter()
            .filter(|(_, (route, _))| *route < self.routes.len())
            .map(|(id, _)| id)
            .filter(is_open)
            .count()
    }

    fn commit(&mut self, id: i128) {
        // One number too many: a type that no route takes.
        let route = self.between(0, self.routes.len() as u64 + 1) as usize;
        let payload: &'static [u8] = if id % 41 == 0 { b"poison" } else { &[b'x'; 500] };
        self.table.memory.commit(id, &format!("t{route}.x"), Some(payload));
        self.committed.insert(id, (route, Instant::now()));
    }

    async fn release_all(&self) {
        for route in 0..self.routes.len() {
            drop(self.table.memory.release(&format!("t{route}")).await);
        }
    }

    async fn fault(&mut self, stop: &mut CancellationToken, relay: &mut JoinHandle<anyhow::Result<()>>) {
        match self.between(0, 80) {
            0 => {
                relay.abort();
                drop((&mut *relay).await);
                self.restart(stop, relay);
            }
            1 => {
                stop.cancel();
                (&mut *relay).await.unwrap().unwrap();
                self.restart(stop, relay);
            }
            2 => self.table.memory.set_weather(|weather| weather.is_away = !weather.is_away),
            3 => {
                let answers: Vec<bool> = (0..6).map(|_| self.between(0, 2) == 0).collect();
                self.table.memory.set_weather(|weather| weather.next_calls_fail.extend(answers));
            }
            4 => self.release_all().await,
            5 => {
                let route = format!("t{}", self.between(0, self.routes.len() as u64));
                let hold = Hold { class: "other".to_owned(), reason: "another process".to_owned() };
                drop(self.table.memory.hold(&route, &hold).await);
            }
            _ => {}
        }
    }

    fn restart(&mut self, stop: &mut CancellationToken, relay: &mut JoinHandle<anyhow::Result<()>>) {
        let accepted = self.world.accepted.lock().unwrap().keys().copied().collect::<Vec<_>>();
        let pending = accepted
            .into_iter()
            .filter(|id| self.table.memory.bill(*id).is_some_and(|bill| bill.status == Status::Pending));
        self.world.excused.lock().unwrap().extend(pending);
        *stop = CancellationToken::new();
        *relay = self.start(stop);
    }

    fn start(&mut self, stop: &CancellationToken) -> JoinHandle<anyhow::Result<()>> {
        let sinks = self.sinks.iter().enumerate().map(|(index, (in_flight, slow_ms, blocks))| SinkLine {
            name: index.to_string().into(),
            sink: Arc::new(StormSink {
                health: watch::Sender::new(Health::Up),
                world: Arc::clone(&self.world),
                slow_ms: *slow_ms,
                blocks: *blocks,
            }),
            in_flight: *in_flight,
        });
        let retry = Retry {
            base: Duration::from_millis(500),
            cap: Duration::from_secs(5),
            max_attempts: 60,
            ..Retry::default()
        };
        let routes = self
            .routes
            .iter()
            .enumerate()
            .map(|(index, line)| routes::route(&format!("t{index}"), &format!("t{index}.*"), *line, retry));
        let (sinks, routes) = (sinks.collect(), routes.collect());
        let seed = self.between(0, 1 << 40);
        let table = Arc::<Table>::clone(&self.table);
        let relay = Relay::new(table, sinks, routes, self.options, Chance::from_seed(seed));
        tokio::task::spawn_local(relay.run(stop.clone()))
    }

    /// With nothing to do, it only looks now and then.
    async fn judge_idleness(&self) {
        sleep(Duration::from_secs(20)).await;
        let before = self.table.fetches.load(Ordering::SeqCst);
        sleep(Duration::from_mins(1)).await;
        let fetches = self.table.fetches.load(Ordering::SeqCst) - before;
        let looks = 60_000 / self.options.poll_interval.as_millis() as u64 + 1;
        // Foreign rows stay, and are gone over again: a page of them for each look where the batch is small.
        let foreign = self.committed.values().filter(|(route, _)| *route >= self.routes.len()).count() as u64;
        let pages = 2 + foreign / self.options.batch.min(50) as u64;
        let limit = looks * (self.routes.len() as u64 + 2) * pages.min(4) + 200;
        assert!(
            fetches <= limit,
            "{fetches} reads in an idle minute, {looks} looks, {foreign} foreign; {}",
            self.shape()
        );
    }

    fn judge(&self) {
        let accepted = self.world.accepted.lock().unwrap();
        let excused = self.world.excused.lock().unwrap();
        let refused = self.world.refused.lock().unwrap();
        let first = self.world.first_accepted.lock().unwrap();
        for (id, (route, at)) in &self.committed {
            let bill = self.table.memory.bill(*id).unwrap();
            let times = accepted.get(id).copied().unwrap_or(0);
            let Some(line) = self.routes.get(*route) else {
                assert_eq!((bill.status, times), (Status::Pending, 0), "bill {id} is of no route");
                continue;
            };
            match bill.status {
                Status::Done => assert!(times > 0, "bill {id} is done and was not delivered"),
                _ => assert!(refused.contains(id), "bill {id} is {:?} and was not refused", bill.status),
            }
            assert!(times <= 1 || excused.contains(id), "bill {id} was delivered {times} times; {}", self.shape());
            if !self.with_faults && *line == 0 && self.options.poll_interval <= Duration::from_millis(200) {
                let Some(first) = first.get(id) else { continue };
                let waited = *first - *at;
                let is_alone = self.sinks[0].0 > 2 && self.options.batch > 2 && self.options.batch_bytes > 1_000;
                if is_alone && *id > 200 {
                    assert!(waited < Duration::from_secs(4), "bill {id} waited {waited:?}; {}", self.shape());
                }
            }
        }
        assert!(accepted.keys().all(|id| self.committed.contains_key(id)));
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        between(&mut self.chance, low, high)
    }
}

/// A number from `low` up to but not including `high`.
fn between(chance: &mut Chance, low: u64, high: u64) -> u64 {
    low + (chance.uniform() * (high - low) as f64) as u64
}

#[derive(Debug)]
struct StormSink {
    health: watch::Sender<Health>,
    world: Arc<World>,
    slow_ms: u64,
    blocks: bool,
}

impl StormSink {
    fn answer(&self, message: &Message, is_refusing: bool) -> Outcome {
        let id: i128 = message.bill_id.parse().unwrap();
        if message.body.as_ref() == b"poison" || is_refusing {
            self.world.refused.lock().unwrap().insert(id);
            return Outcome::Rejected(Trouble::new("refused", "poison"));
        }
        if self.world.is_troubled() && self.world.chance() < 0.002 {
            return Outcome::Misconfigured(Trouble::new("exchange_missing", "gone"));
        }
        if self.world.with_faults && self.world.chance() < 0.1 {
            return Outcome::Transient(Trouble::new("busy", "later"));
        }
        self.world.accept(id);
        Outcome::Delivered
    }

    async fn give_up(&self, under_way: BTreeMap<Ticket, Message>, exposure: Exposure, reports: &mpsc::Sender<Report>) {
        for (ticket, message) in under_way {
            let id: i128 = message.bill_id.parse().unwrap();
            self.world.excused.lock().unwrap().insert(id);
            if message.body.as_ref() != b"poison" && self.world.chance() < 0.5 {
                self.world.accept(id);
            }
            let outcome = Outcome::Unavailable(Trouble::new("connection_lost", "reset"), exposure);
            drop(reports.send(Report { ticket, outcome }).await);
        }
    }
}

#[async_trait]
impl Sink for StormSink {
    fn admit(&self, message: &Message) -> Result<(), Trouble> {
        let is_long = message.body.as_ref() == b"poison" && self.slow_ms == 100;
        if is_long {
            self.world.refused.lock().unwrap().insert(message.bill_id.parse().unwrap());
            return Err(Trouble::new("too_long", "poison"));
        }
        Ok(())
    }

    async fn run(&self, mut inbox: mpsc::Receiver<Delivery>, reports: mpsc::Sender<Report>) {
        let mut under_way: FuturesUnordered<_> = FuturesUnordered::new();
        let mut messages: BTreeMap<Ticket, Message> = BTreeMap::new();
        let (mut is_open, mut refuses_until, mut blocked_until) = (true, Instant::now(), None::<Instant>);
        let trouble = Trouble::new("connection_lost", "reset");
        while is_open || !messages.is_empty() {
            if self.world.is_troubled() && blocked_until.is_none() {
                match (self.world.chance() * 300.0) as u64 {
                    0 | 1 => {
                        under_way.clear();
                        let down = self.world.chance() < 0.5;
                        if down {
                            self.health.send_replace(Health::Down(trouble.clone()));
                        }
                        self.give_up(std::mem::take(&mut messages), Exposure::InFlight, &reports).await;
                        if !down {
                            self.health.send_replace(Health::Down(trouble.clone()));
                        }
                        sleep(Duration::from_secs_f64(self.world.chance() * 4.0)).await;
                        self.health.send_replace(Health::Up);
                        continue;
                    }
                    2 => {
                        under_way.clear();
                        self.give_up(std::mem::take(&mut messages), Exposure::Innocent, &reports).await;
                        continue;
                    }
                    3 => refuses_until = Instant::now() + Duration::from_secs(2),
                    _ => {}
                }
            }
            if self.blocks
                && blocked_until.is_none()
                && Instant::now() < self.world.troubled_until
                && self.world.chance() < 0.01
            {
                blocked_until = Some(Instant::now() + Duration::from_secs_f64(self.world.chance() * 20.0));
                self.health.send_replace(Health::Blocked(Trouble::new("blocked", "alarm")));
            }
            let unblock = async {
                match blocked_until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                delivery = inbox.recv(), if is_open => match delivery {
                    Some(Delivery { ticket, .. }) if blocked_until.is_some() => {
                        let outcome = Outcome::Unavailable(Trouble::new("blocked", "alarm"), Exposure::Unsent);
                        drop(reports.send(Report { ticket, outcome }).await);
                    }
                    Some(Delivery { ticket, message }) => {
                        let takes = Duration::from_secs_f64(self.world.chance() * self.slow_ms as f64 / 1_000.0);
                        messages.insert(ticket, message);
                        under_way.push(async move { sleep(takes).await; ticket });
                    }
                    None => is_open = false,
                },
                () = unblock => {
                    blocked_until = None;
                    self.health.send_replace(Health::Up);
                }
                Some(ticket) = under_way.next(), if blocked_until.is_none() => {
                    let Some(message) = messages.remove(&ticket) else { continue };
                    let outcome = self.answer(&message, Instant::now() < refuses_until);
                    drop(reports.send(Report { ticket, outcome }).await);
                }
            }
        }
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    async fn check(&self, _addresses: &[Address]) -> Vec<Finding> {
        Vec::new()
    }
}
