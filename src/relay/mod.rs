//! The relay: fetch → deliver → settle.
//!
//! One task owns all state, so nothing here is locked. Around it, and never awaited by it, run the sinks, at most one
//! read and at most one write of the store; they hand over what they found as [`Event`]s. A bill is *in flight* from
//! the moment it is taken from a page until its settle has committed, and is taken from no page meanwhile.

mod cursor;
mod deliver;
mod fetch;
mod flight;
mod line;
mod quiet;
mod route;
mod settle;

use std::{collections::HashSet, future, sync::Arc, time::Duration};

use anyhow::{Context, anyhow};
use tokio::{
    sync::{mpsc, watch},
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    clock::Chance,
    sink::{Health, Report, Sink},
    store::Store,
};
use cursor::Cursors;
use fetch::Fetched;
use flight::Flights;
use line::Line;
use quiet::Quiet;
pub use route::{Compose, Route};
use route::{Pause, RouteSet, RouteState, Router};
use settle::{Books, HoldsRead, Settled};

/// How the relay works, whatever it works on.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The wait between two looks at an idle table.
    pub poll_interval: Duration,
    /// Rows of a page at most.
    pub batch: usize,
    /// Bytes of a page at most; bills in memory may be three times as many: of twice, each sink has an equal share.
    pub batch_bytes: usize,
    /// A longer payload is rejected without being read.
    pub max_payload: usize,
    /// How long an orderly stop waits for confirmations. What is unconfirmed then stays pending in the table.
    pub drain_limit: Duration,
}

/// A sink and how many messages may be under way to it.
#[derive(Clone, Debug)]
pub struct SinkLine {
    pub name: Arc<str>,
    pub sink: Arc<dyn Sink>,
    pub in_flight: usize,
}

/// The main path of Outbill. See the module's documentation.
#[derive(Debug)]
pub struct Relay {
    store: Arc<dyn Store>,
    options: Options,
    chance: Chance,
    sinks: Vec<Arc<dyn Sink>>,
    lines: Vec<Line>,
    routes: Vec<Route>,
    states: Vec<RouteState>,
    router: Arc<Router>,
    cursors: Cursors,
    flights: Flights,
    books: Books,
    /// Routes with bills that were passed or put back: they read from the start once they are open again.
    stale: RouteSet,
    fetching: bool,
    fetch_pause: Pause,
    unrouted: HashSet<String>,
    quiet: Quiet,
    reports: mpsc::Receiver<Report>,
    /// Keeps `reports` open when the sinks have ended, which they do one by one while stopping.
    _reporter: mpsc::Sender<Report>,
    tasks: JoinSet<Event>,
    stopping: bool,
}

/// What the tasks around the relay hand over.
#[derive(Debug)]
enum Event {
    Fetched(Fetched),
    Settled(Settled),
    Holds(HoldsRead),
    Health { line: usize, receiver: watch::Receiver<Health> },
    SinkEnded,
}

impl Relay {
    /// Puts a relay together and starts its sinks. Must be called within a tokio runtime.
    pub fn new(
        store: Arc<dyn Store>,
        sinks: Vec<SinkLine>,
        routes: Vec<Route>,
        options: Options,
        chance: Chance,
    ) -> Self {
        let mut tasks = JoinSet::new();
        let total: usize = sinks.iter().map(|line| line.in_flight).sum();
        let (reporter, reports) = mpsc::channel(total.max(1));
        let mut lines = Vec::new();
        let mut watched = Vec::new();
        for (index, SinkLine { name, sink, in_flight }) in sinks.into_iter().enumerate() {
            let (inbox, deliveries) = mpsc::channel(in_flight);
            lines.push(Line::new(name, in_flight, options.batch, inbox));
            tasks.spawn(watch_health(index, sink.health()));
            watched.push(Arc::clone(&sink));
            let reporter = reporter.clone();
            tasks.spawn(async move {
                sink.run(deliveries, reporter).await;
                Event::SinkEnded
            });
        }
        let now = Instant::now();
        Self {
            cursors: Cursors::new(routes.len(), options.poll_interval, now),
            router: Arc::new(Router::new(&routes)),
            states: routes.iter().map(|_| RouteState::default()).collect(),
            books: Books::new(now),
            flights: Flights::default(),
            stale: RouteSet::new(),
            fetching: false,
            fetch_pause: Pause::default(),
            unrouted: HashSet::new(),
            quiet: Quiet::default(),
            stopping: false,
            sinks: watched,
            store,
            options,
            chance,
            lines,
            routes,
            reports,
            _reporter: reporter,
            tasks,
        }
    }

    /// Works until `stop` is cancelled, then settles what is in flight and returns.
    ///
    /// # Errors
    /// A task of the relay panicked or a sink ended by itself: a fault of Outbill. Bills in flight stay pending.
    pub async fn run(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        for line in 0..self.lines.len() {
            self.look_at_health(line);
        }
        let mut reports = Vec::new();
        let mut deadline = None;
        loop {
            self.start_what_can_be_started();
            if self.stopping && self.is_idle() {
                info!("stopped: everything in flight is settled");
                return Ok(());
            }
            let wake_at = self.wake_at(Instant::now());
            tokio::select! {
                _ = self.reports.recv_many(&mut reports, self.options.batch.max(1)) => self.take_reports(&mut reports),
                Some(event) = self.tasks.join_next() => self.take_event(event)?,
                () = sleep_or_wait(wake_at) => {}
                () = stop.cancelled(), if !self.stopping => {
                    deadline = Some(Instant::now() + self.options.drain_limit);
                    self.begin_to_stop();
                }
                () = sleep_or_wait(deadline) => {
                    warn!(unconfirmed = self.flights.len(), "stopped before everything was confirmed; the rest stays pending");
                    return Ok(());
                }
            }
        }
    }

    fn start_what_can_be_started(&mut self) {
        let now = Instant::now();
        if !self.stopping {
            self.reopen(now);
            self.start_fetch(now);
        }
        if !self.stopping || self.has_unsaved_hold() {
            self.start_reading_holds(now);
        }
        self.dispatch(now);
        self.start_settle(now);
        self.quiet.flush(now);
    }

    fn take_event(&mut self, event: Result<Event, JoinError>) -> anyhow::Result<()> {
        match event.context("run a task of the relay")? {
            Event::Fetched(fetched) => self.take_page(fetched),
            Event::Settled(settled) => self.take_settled(settled),
            Event::Holds(holds) => self.take_holds(holds),
            Event::Health { line, receiver } => {
                self.tasks.spawn(watch_health(line, receiver));
                self.look_at_health(line);
            }
            Event::SinkEnded if self.stopping => {}
            Event::SinkEnded => return Err(anyhow!("a sink ended although nobody asked it to")),
        }
        Ok(())
    }

    fn look_at_health(&mut self, index: usize) {
        let (Some(line), Some(sink)) = (self.lines.get_mut(index), self.sinks.get(index)) else { return };
        let health = sink.health().borrow().clone();
        let is_down = matches!(health, Health::Down(_));
        // A sink says by itself when it is down and when it is back; that it is only asked to wait is heard here.
        match (line.health(), &health) {
            (Health::Blocked(_), Health::Blocked(_)) => {}
            (_, Health::Blocked(trouble)) => self.quiet.note(Instant::now(), &format!("{} blocked", line.name), || {
                warn!(sink = %line.name, class = trouble.class, error = %trouble.error, "a sink asks us to wait");
            }),
            (Health::Blocked(_), Health::Up) => self.quiet.note(Instant::now(), &format!("{} open", line.name), || {
                info!(sink = %line.name, "a sink takes messages again");
            }),
            _ => {}
        }
        line.set_health(health);
        if is_down {
            let recalled = line.recall(|_| true);
            self.put_back(recalled);
        }
    }

    /// No new deliveries: what waits is put back, what is under way is settled.
    fn begin_to_stop(&mut self) {
        info!(in_flight = self.flights.len(), "stopping: no new deliveries, what is in flight is being settled");
        self.stopping = true;
        for index in 0..self.lines.len() {
            let Some(line) = self.lines.get_mut(index) else { continue };
            let recalled = line.recall(|_| true);
            line.close();
            self.put_back(recalled);
        }
    }

    fn is_idle(&self) -> bool {
        self.books.is_empty() && !self.has_unsaved_hold() && self.lines.iter().all(|line| line.under_way() == 0)
    }

    /// When something has to be done although nothing happens.
    fn wake_at(&self, now: Instant) -> Option<Instant> {
        let mut times = vec![self.books.next_at(), self.quiet.next_at()];
        if !self.stopping {
            times.push(self.next_fetch_at(now));
            times.extend(self.states.iter().map(|state| state.opens_at(now)));
        }
        if !self.stopping || self.has_unsaved_hold() {
            times.push(self.books.holds_due_at());
        }
        times.into_iter().flatten().min()
    }
}

async fn watch_health(line: usize, mut receiver: watch::Receiver<Health>) -> Event {
    if receiver.changed().await.is_err() {
        // The sink is gone, which its own task reports.
        future::pending::<()>().await;
    }
    Event::Health { line, receiver }
}

async fn sleep_or_wait(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => future::pending().await,
    }
}
