//! The relay in situations that chance seldom brings about: paused time (a sleep only moves the clock), a store in memory,
//! sinks that do as they are told.

#![allow(clippy::unwrap_used, reason = "a test may end with a panic, and says so")]

#[path = "support/routes.rs"]
mod routes;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use outbill::{
    clock::Chance,
    decision::{Outcome, Trouble},
    finding::Finding,
    policy::Retry,
    relay::{Options, Relay, SinkLine},
    sink::{Address, Delivery, Health, Message, Report, Sink},
    store::{
        FetchRequest, Hold, Page, Queue, Row, Settlement, Store, StoreError,
        memory::{MemoryStore, Status},
    },
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

const OPTIONS: Options = Options {
    poll_interval: Duration::from_millis(200),
    batch: 10,
    batch_bytes: 32 << 10,
    max_payload: 1 << 20,
    drain_limit: Duration::from_secs(20),
};
const PAYLOAD: &[u8] = &[b'x'; 4 << 10];

/// A sink that answers while it is told to, and remembers what it took.
#[derive(Debug)]
struct TestSink {
    health: watch::Sender<Health>,
    answers: watch::Sender<bool>,
    rejects: bool,
    delivered: Mutex<BTreeSet<String>>,
}

impl TestSink {
    fn new(answers: bool, rejects: bool) -> Arc<Self> {
        Arc::new(Self {
            health: watch::Sender::new(Health::Up),
            answers: watch::Sender::new(answers),
            rejects,
            delivered: Mutex::default(),
        })
    }

    fn delivered(&self) -> usize {
        self.delivered.lock().unwrap().len()
    }
}

#[async_trait]
impl Sink for TestSink {
    fn admit(&self, _message: &Message) -> Result<(), Trouble> {
        Ok(())
    }

    async fn run(&self, mut inbox: mpsc::Receiver<Delivery>, reports: mpsc::Sender<Report>) {
        let mut answers = self.answers.subscribe();
        while let Some(Delivery { ticket, message }) = inbox.recv().await {
            answers.wait_for(|answers| *answers).await.unwrap();
            let outcome = if self.rejects {
                Outcome::Rejected(Trouble::new("refused", "on purpose"))
            } else {
                self.delivered.lock().unwrap().insert(message.bill_id.to_string());
                Outcome::Delivered
            };
            drop(reports.send(Report { ticket, outcome }).await);
        }
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    async fn check(&self, _addresses: &[Address]) -> Vec<Finding> {
        Vec::new()
    }
}

struct Running {
    stop: CancellationToken,
    relay: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    async fn stop(self) {
        self.stop.cancel();
        self.relay.await.unwrap().unwrap();
    }
}

/// Starts a relay with a route for each sink: `a.*` goes to the first, `b.*` to the second.
fn start(store: Arc<dyn Store>, sinks: &[(&Arc<TestSink>, usize)]) -> Running {
    let names = ["a", "b"];
    let lines = sinks.iter().zip(names).map(|((sink, in_flight), name)| SinkLine {
        name: name.into(),
        sink: Arc::<TestSink>::clone(sink),
        in_flight: *in_flight,
    });
    let routes = names
        .iter()
        .take(sinks.len())
        .enumerate()
        .map(|(line, name)| routes::route(name, &format!("{name}.*"), line, Retry::default()));
    let stop = CancellationToken::new();
    let relay = Relay::new(store, lines.collect(), routes.collect(), OPTIONS, Chance::from_seed(7));
    #[allow(clippy::disallowed_methods, reason = "the test waits for it")]
    let relay = tokio::spawn(relay.run(stop.clone()));
    Running { stop, relay }
}

async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let seen = timeout(Duration::from_mins(2), async {
        while !is_so() {
            sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(seen.await.is_ok(), "{what}");
}

fn hold() -> Hold {
    Hold { class: "unroutable".to_owned(), reason: "no queue is bound".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn a_blocked_sink_with_large_bills_does_not_keep_the_others_from_reading() {
    let store = MemoryStore::new();
    let (blocked, other) = (TestSink::new(false, false), TestSink::new(true, false));
    for id in 1..=100 {
        store.commit(id, "a.large", Some(PAYLOAD));
    }
    let running = start(Arc::<MemoryStore>::clone(&store), &[(&blocked, 4), (&other, 4)]);
    sleep(Duration::from_secs(1)).await;
    blocked.health.send_replace(Health::Blocked(Trouble::new("blocked", "memory alarm")));
    for id in 101..=110 {
        store.commit(id, "b.small", Some(b"{}"));
    }
    eventually("the other sink gets its bills", || other.delivered() == 10).await;
    blocked.health.send_replace(Health::Up);
    blocked.answers.send_replace(true);
    eventually("the blocked sink goes on", || blocked.delivered() == 100).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_route_that_was_held_before_the_start_delivers_nothing_even_if_the_holds_cannot_be_read_at_once() {
    for answers in [vec![], vec![false, true], vec![true, false], vec![true, true]] {
        let store = MemoryStore::new();
        store.hold("a", &hold()).await.unwrap();
        for id in 1..=10 {
            store.commit(id, if id % 2 == 0 { "a.one" } else { "b.one" }, Some(b"{}"));
        }
        store.set_weather(|weather| weather.next_calls_fail.extend(answers.clone()));
        let (held, other) = (TestSink::new(true, false), TestSink::new(true, false));
        let running = start(Arc::<MemoryStore>::clone(&store), &[(&held, 4), (&other, 4)]);
        eventually("the other route delivers", || other.delivered() == 5).await;
        sleep(Duration::from_secs(30)).await;
        assert_eq!(held.delivered(), 0, "held, answers {answers:?}");
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_by_another_process_keeps_what_waits_from_being_sent() {
    let store = MemoryStore::new();
    let sink = TestSink::new(false, false);
    for id in 1..=10 {
        store.commit(id, "a.one", Some(b"{}"));
    }
    let running = start(Arc::<MemoryStore>::clone(&store), &[(&sink, 2)]);
    sleep(Duration::from_secs(1)).await;
    store.hold("a", &hold()).await.unwrap();
    sleep(Duration::from_secs(20)).await;
    sink.answers.send_replace(true);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(sink.delivered(), 2, "only what was under way");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_not_written_yet_is_written_before_the_relay_stops() {
    let store = MemoryStore::new();
    let sink = TestSink::new(false, true);
    for id in 1..=30 {
        store.commit(id, "a.one", Some(b"{}"));
    }
    let running = start(Arc::<MemoryStore>::clone(&store), &[(&sink, 30)]);
    sleep(Duration::from_secs(1)).await;
    store.set_weather(|weather| weather.is_away = true);
    sink.answers.send_replace(true);
    sleep(Duration::from_secs(1)).await;
    running.stop.cancel();
    sleep(Duration::from_secs(1)).await;
    store.set_weather(|weather| weather.is_away = false);
    running.stop().await;
    assert_eq!(store.count(Status::Failed), 20);
    assert!(store.holds().await.unwrap().contains_key("a"), "after a restart 20 more would fail");
}

/// A store in which the application has locked a row.
#[derive(Debug)]
struct Locked {
    memory: Arc<MemoryStore>,
    locked: Mutex<BTreeSet<i128>>,
}

#[async_trait]
impl Store for Locked {
    async fn fetch(&self, request: &FetchRequest) -> Result<Page, StoreError> {
        self.memory.fetch(request).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<u64, StoreError> {
        let is_locked = |s: &Settlement| self.locked.lock().unwrap().contains(&s.id.as_integer().unwrap());
        if settlements.iter().any(is_locked) {
            sleep(Duration::from_secs(1)).await;
            return Err(StoreError::Busy("lock wait timeout".to_owned()));
        }
        self.memory.settle(settlements).await
    }

    async fn holds(&self) -> Result<HashMap<String, Hold>, StoreError> {
        self.memory.holds().await
    }

    async fn hold(&self, route: &str, hold: &Hold) -> Result<(), StoreError> {
        self.memory.hold(route, hold).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_that_the_application_has_locked_keeps_no_other_bill_waiting() {
    let memory = MemoryStore::new();
    for id in 1..=60 {
        memory.commit(id, "a.one", Some(b"{}"));
    }
    let store = Arc::new(Locked { memory: Arc::clone(&memory), locked: Mutex::new([3, 4, 5].into()) });
    let sink = TestSink::new(true, false);
    let running = start(Arc::<Locked>::clone(&store), &[(&sink, 8)]);
    eventually("all others are done", || memory.count(Status::Done) == 57).await;
    store.locked.lock().unwrap().clear();
    eventually("in the end these too", || memory.count(Status::Done) == 60).await;
    memory.commit(61, "a.one", Some(b"{}"));
    store.locked.lock().unwrap().insert(61);
    eventually("it is delivered", || sink.delivered() == 61).await;
    running.stop.cancel();
    sleep(Duration::from_secs(3)).await;
    store.locked.lock().unwrap().clear();
    running.stop().await;
    assert_eq!(memory.count(Status::Done), 61, "settled before the end");
}

/// A store whose fresh rows were scheduled between the look at the index and the reading of the row.
#[derive(Debug)]
struct Rescheduled(Arc<MemoryStore>);

#[async_trait]
impl Store for Rescheduled {
    async fn fetch(&self, request: &FetchRequest) -> Result<Page, StoreError> {
        let has_time = request.after.as_ref().is_some_and(|mark| mark.next_retry_time.is_some());
        assert!(request.queue == Queue::Due || !has_time, "fresh bills are read by id alone");
        let mut page = self.0.fetch(request).await?;
        for row in &mut page.rows {
            if let Row::Bill(bill) = row {
                bill.seen.next_retry_time = Some("0".to_owned());
            }
        }
        Ok(page)
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<u64, StoreError> {
        self.0.settle(settlements).await
    }

    async fn holds(&self) -> Result<HashMap<String, Hold>, StoreError> {
        self.0.holds().await
    }

    async fn hold(&self, route: &str, hold: &Hold) -> Result<(), StoreError> {
        self.0.hold(route, hold).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_that_was_scheduled_while_its_page_was_read_is_no_place_in_the_queue_of_fresh_bills() {
    let store = MemoryStore::new();
    for id in 1..=60 {
        store.commit(id, "a.one", Some(b"{}"));
    }
    let (slow, other) = (TestSink::new(false, false), TestSink::new(true, false));
    let running = start(Arc::new(Rescheduled(Arc::clone(&store))), &[(&slow, 6), (&other, 6)]);
    sleep(Duration::from_secs(1)).await;
    slow.answers.send_replace(true);
    eventually("all are done", || store.count(Status::Done) == 60).await;
    running.stop().await;
}
