//! The sink of the demo: it has an outage, refuses some messages once and one for ever, and keeps its own ledger.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use crate::{
    decision::{Exposure, Outcome, Trouble},
    finding::Finding,
    sink::{Address, Delivery, Health, Message, Report, Sink},
};

/// How long the sink is away.
const OUTAGE: Duration = Duration::from_secs(2);
/// How long it takes to answer.
const ANSWER: Duration = Duration::from_millis(10);
/// Every n-th message is refused the first time.
const REFUSED_ONCE: u64 = 8;
/// What the body of the poison bill says.
pub(super) const POISON: &str = "\"poison\"";

/// What the sink has seen, by message id.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// How often each message was accepted: once, if all is well.
    pub(super) accepted: BTreeMap<String, u32>,
    pub(super) refused_once: HashSet<String>,
    pub(super) outages: u32,
}

#[derive(Debug)]
pub(super) struct DemoSink {
    health: watch::Sender<Health>,
    seen: Mutex<Seen>,
    /// The outage begins once this many messages have been accepted.
    outage_after: usize,
}

impl DemoSink {
    pub(super) fn new(outage_after: usize) -> Self {
        Self { health: watch::Sender::new(Health::Up), seen: Mutex::default(), outage_after }
    }

    /// Looks at the sink's own ledger.
    pub(super) fn with_seen<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn is_away(&self) -> bool {
        *self.health.borrow() != Health::Up
    }

    fn answer(&self, message: &Message) -> Outcome {
        if message.body.windows(POISON.len()).any(|window| window == POISON.as_bytes()) {
            return Outcome::Rejected(Trouble::new("refused", "the consumer cannot read this message"));
        }
        self.with_seen(|seen| {
            let id = message.message_id.as_ref();
            let turn = u64::try_from(seen.accepted.len() + seen.refused_once.len()).unwrap_or(0);
            if turn % REFUSED_ONCE == REFUSED_ONCE - 1 && seen.refused_once.insert(id.to_owned()) {
                return Outcome::Transient(Trouble::new("busy", "the queue is full, try again"));
            }
            *seen.accepted.entry(id.to_owned()).or_default() += 1;
            Outcome::Delivered
        })
    }

    /// Whether the one outage of the demo begins now.
    fn goes_away(&self) -> bool {
        self.with_seen(|seen| {
            let goes = seen.outages == 0 && seen.accepted.len() >= self.outage_after;
            seen.outages += u32::from(goes);
            goes
        })
    }
}

#[async_trait]
impl Sink for DemoSink {
    fn admit(&self, _message: &Message) -> Result<(), Trouble> {
        Ok(())
    }

    async fn run(&self, mut inbox: mpsc::Receiver<Delivery>, reports: mpsc::Sender<Report>) {
        let mut deliveries = Vec::new();
        let mut back_at: Option<Instant> = None;
        while inbox.recv_many(&mut deliveries, 100).await > 0 {
            if back_at.is_none() && self.goes_away() {
                self.health.send_replace(Health::Down(Trouble::new("outage", "the demo's sink is away on purpose")));
                back_at = Some(Instant::now() + OUTAGE);
            }
            let is_away = back_at.is_some_and(|at| at > Instant::now());
            for Delivery { ticket, message } in deliveries.drain(..) {
                let outcome = if is_away {
                    Outcome::Unavailable(Trouble::new("outage", "the demo's sink is away"), Exposure::Unsent)
                } else {
                    self.answer(&message)
                };
                if reports.send(Report { ticket, outcome }).await.is_err() {
                    return;
                }
            }
            if let Some(at) = back_at.filter(|at| *at > Instant::now()) {
                sleep_until(at).await;
                self.health.send_replace(Health::Up);
            } else {
                sleep_until(Instant::now() + ANSWER).await;
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
