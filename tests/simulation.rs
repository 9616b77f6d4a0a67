//! The relay under seeds: paused time, a store and a sink that fail in every way they can, crashes at any moment.
//!
//! Whatever the seed: every committed bill ends done or failed, what was rolled back is never delivered, no attempt is
//! counted in an outage, and nothing is delivered twice unless a fault explains it. A failing seed is printed;
//! `OUTBILL_SIM_SEED=n cargo test --test simulation` plays it again, `OUTBILL_SIM_RUNS=n` plays more of them.

#![allow(clippy::unwrap_used, reason = "a test may end with a panic, and says so")]

#[path = "support/routes.rs"]
mod routes;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{StreamExt, stream::FuturesUnordered};
use outbill::{
    clock::Chance,
    decision::{Exposure, Outcome, Trouble},
    finding::Finding,
    policy::Retry,
    relay::{Options, Relay, SinkLine},
    sink::{Address, Delivery, Health, Message, Report, Sink, Ticket},
    store::memory::{MemoryStore, Status},
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

const DEFAULT_RUNS: u64 = 300;
const BILLS: i128 = 120;
/// No fault happens after this long, so that the end is reached.
const TROUBLED: Duration = Duration::from_mins(2);
/// By then everything has to be finished, by the paused clock.
const PATIENCE: Duration = Duration::from_hours(1);

#[test]
fn whatever_fails_every_committed_bill_is_finished_and_nothing_is_doubled_without_a_fault() {
    for seed in seeds() {
        let result = std::panic::catch_unwind(|| simulate(seed, true));
        assert!(result.is_ok(), "seed {seed} fails; play it again with OUTBILL_SIM_SEED={seed}");
    }
}

#[test]
fn without_a_fault_nothing_is_ever_delivered_twice() {
    for seed in seeds() {
        let result = std::panic::catch_unwind(|| simulate(seed, false));
        assert!(result.is_ok(), "seed {seed} fails; play it again with OUTBILL_SIM_SEED={seed}");
    }
}

#[allow(clippy::disallowed_methods, reason = "a test is steered from outside")]
fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u64>().ok());
    match (number("OUTBILL_SIM_SEED"), number("OUTBILL_SIM_RUNS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, runs) => 0..runs.unwrap_or(DEFAULT_RUNS),
    }
}

fn simulate(seed: u64, with_faults: bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let everything = tokio::task::LocalSet::new();
    everything.block_on(&runtime, async { Simulation::new(seed, with_faults).run().await });
}

struct Simulation {
    chance: Chance,
    with_faults: bool,
    store: Arc<MemoryStore>,
    world: Arc<World>,
}

/// What the consumers have seen, whichever sink instance brought it.
#[derive(Debug)]
struct World {
    chance: Mutex<Chance>,
    with_faults: bool,
    troubled_until: Instant,
    accepted: Mutex<BTreeMap<i128, u32>>,
    /// Bills that were under way when a connection broke or a process died: they may be delivered again.
    excused: Mutex<BTreeSet<i128>>,
    refused: Mutex<BTreeMap<i128, u32>>,
}

impl World {
    fn chance(&self) -> f64 {
        self.chance.lock().unwrap().uniform()
    }

    fn is_troubled(&self) -> bool {
        self.with_faults && Instant::now() < self.troubled_until
    }
}

impl Simulation {
    fn new(seed: u64, with_faults: bool) -> Self {
        let world = World {
            chance: Mutex::new(Chance::from_seed(seed ^ 0xABCD)),
            with_faults,
            troubled_until: Instant::now() + TROUBLED,
            accepted: Mutex::default(),
            excused: Mutex::default(),
            refused: Mutex::default(),
        };
        Self { chance: Chance::from_seed(seed), with_faults, store: MemoryStore::new(), world: Arc::new(world) }
    }

    async fn run(mut self) {
        let fetch_ms = self.between(1, 150);
        self.store.set_weather(|weather| {
            weather.fetch_takes = Duration::from_millis(fetch_ms);
            weather.settle_takes = Duration::from_millis(5);
        });
        let mut stop = CancellationToken::new();
        let mut relay = self.start(&stop);
        // Ids commit out of order: a few transactions stay open for up to a few seconds.
        let mut late = Vec::new();
        for id in 1..=BILLS {
            sleep(Duration::from_millis(self.between(0, 40))).await;
            match self.between(0, 10) {
                0 => {} // rolled back
                1 => late.push((Instant::now() + Duration::from_millis(self.between(0, 9_000)), id)),
                _ => self.commit(id),
            }
            for (_, id) in late.extract_if(.., |(due, _)| *due <= Instant::now()).collect::<Vec<_>>() {
                self.commit(id);
            }
            if self.with_faults {
                self.fault(&mut stop, &mut relay).await;
            }
        }
        for (due, id) in late {
            sleep_until(due).await;
            self.commit(id);
        }
        self.store.set_weather(|weather| weather.is_away = false);
        let finished = timeout(PATIENCE, async {
            while self.store.count(Status::Pending) > 0 {
                sleep(Duration::from_millis(50)).await;
                assert!(!relay.is_finished(), "the relay ended by itself");
            }
        });
        assert!(finished.await.is_ok(), "{} bills are never finished", self.store.count(Status::Pending));
        stop.cancel();
        relay.await.unwrap().unwrap();
        self.judge();
    }

    fn commit(&self, id: i128) {
        let poison = id % 41 == 0;
        self.store.commit(
            id,
            if id % 3 == 0 { "b.one" } else { "a.one" },
            Some(if poison { b"poison" } else { b"fine" }),
        );
    }

    async fn fault(&mut self, stop: &mut CancellationToken, relay: &mut JoinHandle<anyhow::Result<()>>) {
        match self.between(0, 60) {
            0 => {
                // SIGKILL, at whatever await everything happens to be.
                relay.abort();
                drop((&mut *relay).await);
                self.excuse_the_unsettled();
                *stop = CancellationToken::new();
                *relay = self.start(stop);
            }
            1 => {
                stop.cancel();
                (&mut *relay).await.unwrap().unwrap();
                self.excuse_the_unsettled();
                *stop = CancellationToken::new();
                *relay = self.start(stop);
            }
            2 => self.store.set_weather(|weather| weather.is_away = !weather.is_away),
            3 => {
                let answers: Vec<bool> = (0..6).map(|_| self.between(0, 2) == 0).collect();
                self.store.set_weather(|weather| weather.next_calls_fail.extend(answers));
            }
            _ => {}
        }
    }

    /// What was delivered and not settled when a process ended may come again.
    fn excuse_the_unsettled(&self) {
        let accepted = self.world.accepted.lock().unwrap();
        let pending =
            accepted.keys().filter(|id| self.store.bill(**id).is_some_and(|bill| bill.status == Status::Pending));
        self.world.excused.lock().unwrap().extend(pending);
    }

    fn start(&mut self, stop: &CancellationToken) -> JoinHandle<anyhow::Result<()>> {
        let sinks = ["one", "two"].map(|name| SinkLine {
            name: name.into(),
            sink: Arc::new(SimulatedSink { health: watch::Sender::new(Health::Up), world: Arc::clone(&self.world) }),
            in_flight: 16,
        });
        let retry = Retry {
            base: Duration::from_millis(500),
            cap: Duration::from_secs(5),
            max_attempts: 40,
            ..Retry::default()
        };
        let routes =
            ["a.*", "b.*"].into_iter().enumerate().map(|(line, pattern)| routes::route(pattern, pattern, line, retry));
        let options = Options {
            poll_interval: Duration::from_millis(200),
            batch: 10,
            batch_bytes: 1 << 20,
            max_payload: 1 << 20,
            drain_limit: Duration::from_secs(20),
        };
        let seed = self.between(0, u64::MAX >> 12);
        let store = Arc::clone(&self.store);
        let relay = Relay::new(store, sinks.into(), routes.collect(), options, Chance::from_seed(seed));
        let stop = stop.clone();
        tokio::task::spawn_local(relay.run(stop))
    }

    fn judge(&self) {
        let accepted = self.world.accepted.lock().unwrap();
        let excused = self.world.excused.lock().unwrap();
        let refused = self.world.refused.lock().unwrap();
        let attempts = self.store.attempts();
        for id in 1..=BILLS {
            let times = accepted.get(&id).copied().unwrap_or(0);
            let Some(bill) = self.store.bill(id) else {
                assert_eq!(times, 0, "bill {id} was rolled back and delivered");
                continue;
            };
            let is_poison = id % 41 == 0;
            let expected = if is_poison { Status::Failed } else { Status::Done };
            assert_eq!(bill.status, expected, "bill {id}");
            assert_eq!(times == 0, is_poison, "bill {id} was delivered {times} times");
            assert!(
                times <= 1 || excused.contains(&id),
                "bill {id} was delivered {times} times and no fault explains it"
            );
            let own = attempts.iter().filter(|(bill, _)| *bill == id);
            let failures = own.clone().filter(|(_, attempt)| attempt.outcome != "delivered").count();
            assert_eq!(
                i64::try_from(failures).unwrap(),
                bill.retry_count,
                "bill {id}: each counted attempt has its row"
            );
            let blamed = own.filter(|(_, attempt)| matches!(attempt.class, Some("busy" | "refused"))).count();
            let refusals = refused.get(&id).copied().unwrap_or(0);
            assert!(blamed <= refusals as usize, "bill {id}: {blamed} attempts counted, {refusals} refused");
            if !self.with_faults {
                assert_eq!(failures, blamed, "bill {id}: nothing but refusals is counted");
            }
        }
    }

    /// A number from `low` up to but not including `high`.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            clippy::cast_possible_truncation,
            reason = "small"
        )]
        let offset = (self.chance.uniform() * (high - low) as f64) as u64;
        low + offset
    }
}

/// A sink that takes its time, refuses, breaks and comes back.
#[derive(Debug)]
struct SimulatedSink {
    health: watch::Sender<Health>,
    world: Arc<World>,
}

impl SimulatedSink {
    /// What the other side does with a message, at the moment when it does it.
    fn answer(&self, message: &Message) -> Outcome {
        let id: i128 = message.bill_id.parse().unwrap();
        let refuse = || *self.world.refused.lock().unwrap().entry(id).or_default() += 1;
        if message.body.as_ref() == b"poison" {
            refuse();
            return Outcome::Rejected(Trouble::new("refused", "poison"));
        }
        if self.world.chance() < 0.1 {
            refuse();
            return Outcome::Transient(Trouble::new("busy", "later"));
        }
        *self.world.accepted.lock().unwrap().entry(id).or_default() += 1;
        Outcome::Delivered
    }

    /// The connection breaks: what was under way may have arrived, but nobody will say so.
    async fn break_down(&self, under_way: Vec<(Ticket, Message)>, reports: &mpsc::Sender<Report>) {
        let trouble = Trouble::new("connection_lost", "reset");
        self.health.send_replace(Health::Down(trouble.clone()));
        for (ticket, message) in under_way {
            let id: i128 = message.bill_id.parse().unwrap();
            self.world.excused.lock().unwrap().insert(id);
            if message.body.as_ref() != b"poison" && self.world.chance() < 0.5 {
                *self.world.accepted.lock().unwrap().entry(id).or_default() += 1;
            }
            let outcome = Outcome::Unavailable(trouble.clone(), Exposure::InFlight);
            drop(reports.send(Report { ticket, outcome }).await);
        }
        sleep(Duration::from_secs_f64(self.world.chance() * 4.0)).await;
        self.health.send_replace(Health::Up);
    }
}

#[async_trait]
impl Sink for SimulatedSink {
    fn admit(&self, _message: &Message) -> Result<(), Trouble> {
        Ok(())
    }

    async fn run(&self, mut inbox: mpsc::Receiver<Delivery>, reports: mpsc::Sender<Report>) {
        let mut under_way: FuturesUnordered<_> = FuturesUnordered::new();
        let mut messages: BTreeMap<Ticket, Message> = BTreeMap::new();
        let mut is_open = true;
        while is_open || !messages.is_empty() {
            let breaks = self.world.is_troubled() && self.world.chance() < 0.02;
            if breaks {
                under_way.clear();
                self.break_down(std::mem::take(&mut messages).into_iter().collect(), &reports).await;
                continue;
            }
            tokio::select! {
                delivery = inbox.recv(), if is_open => match delivery {
                    Some(Delivery { ticket, message }) => {
                        let takes = Duration::from_secs_f64(self.world.chance() * 0.05);
                        messages.insert(ticket, message);
                        under_way.push(async move { sleep(takes).await; ticket });
                    }
                    None => is_open = false,
                },
                Some(ticket) = under_way.next() => {
                    let Some(message) = messages.remove(&ticket) else { continue };
                    let outcome = self.answer(&message);
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
