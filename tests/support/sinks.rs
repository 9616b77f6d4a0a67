//! A running sink of any kind, with the relay's side of it in the test's hands.

#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::disallowed_methods, reason = "no lifecycle owns a test's tasks")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use outbill::{
    decision::Outcome,
    sink::{AddressPart, Delivery, Health, Message, Report, Sink, Ticket},
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::timeout,
};

/// Long enough for a slow machine; a test that waits so long has failed.
const DEADLINE: Duration = Duration::from_mins(1);

pub(crate) struct Rig {
    pub(crate) sink: Arc<dyn Sink>,
    inbox: Option<mpsc::Sender<Delivery>>,
    reports: mpsc::Receiver<Report>,
    health: watch::Receiver<Health>,
    run: JoinHandle<()>,
    next: u64,
}

impl Rig {
    pub(crate) fn start(sink: Arc<dyn Sink>) -> Self {
        let (inbox, deliveries) = mpsc::channel(4_096);
        let (to_relay, reports) = mpsc::channel(4_096);
        let running = Arc::clone(&sink);
        let run = tokio::spawn(async move { running.run(deliveries, to_relay).await });
        Self { health: sink.health(), sink, inbox: Some(inbox), reports, run, next: 0 }
    }

    /// Starts a sink and waits until it is up.
    pub(crate) async fn up(sink: Arc<dyn Sink>) -> Self {
        let mut rig = Self::start(sink);
        rig.wait_for_health(|health| *health == Health::Up).await;
        rig
    }

    pub(crate) async fn wait_for_health(&mut self, is_wanted: impl FnMut(&Health) -> bool) -> Health {
        let waited = timeout(DEADLINE, self.health.wait_for(is_wanted)).await;
        waited.expect("the sink's health changes in time").unwrap().clone()
    }

    /// Hands over messages; their tickets.
    pub(crate) async fn send(&mut self, messages: impl IntoIterator<Item = Message>) -> Vec<Ticket> {
        let mut tickets = Vec::new();
        for message in messages {
            let ticket = Ticket(self.next);
            self.next += 1;
            self.inbox.as_ref().unwrap().send(Delivery { ticket, message }).await.unwrap();
            tickets.push(ticket);
        }
        tickets
    }

    /// Waits for as many reports; no ticket may be reported twice.
    pub(crate) async fn outcomes(&mut self, count: usize) -> BTreeMap<Ticket, Outcome> {
        let mut outcomes = BTreeMap::new();
        while outcomes.len() < count {
            let report = timeout(DEADLINE, self.reports.recv()).await.expect("every delivery is reported in time");
            let Report { ticket, outcome } = report.expect("the sink runs");
            assert!(outcomes.insert(ticket, outcome).is_none(), "{ticket:?} is reported twice");
        }
        outcomes
    }

    /// Waits for one report, and takes those that are there with it.
    pub(crate) async fn some_outcomes(&mut self) -> Vec<Outcome> {
        let mut reports = Vec::new();
        timeout(DEADLINE, self.reports.recv_many(&mut reports, 1_000)).await.expect("something is reported in time");
        reports.into_iter().map(|report| report.outcome).collect()
    }

    /// Whether nothing is reported and the health stays as it is for so long.
    pub(crate) async fn is_silent_for(&mut self, span: Duration) -> bool {
        self.health.mark_unchanged();
        tokio::select! {
            _ = self.reports.recv() => false,
            _ = self.health.changed() => false,
            () = tokio::time::sleep(span) => true,
        }
    }

    /// Sends messages and waits for what came of them, in their order.
    pub(crate) async fn deliver(&mut self, messages: impl IntoIterator<Item = Message>) -> Vec<Outcome> {
        let tickets = self.send(messages).await;
        let mut outcomes = self.outcomes(tickets.len()).await;
        tickets.iter().map(|ticket| outcomes.remove(ticket).expect("a report for each")).collect()
    }

    /// Closes the inbox and waits for the sink to end; what it still reported.
    pub(crate) async fn finish(mut self) -> BTreeMap<Ticket, Outcome> {
        self.inbox = None;
        let mut outcomes = BTreeMap::new();
        while let Some(report) = timeout(DEADLINE, self.reports.recv()).await.expect("the sink ends in time") {
            outcomes.insert(report.ticket, report.outcome);
        }
        timeout(DEADLINE, self.run).await.expect("the sink ends in time").unwrap();
        outcomes
    }
}

/// A message of bill `number` with a row-independent address.
pub(crate) fn message(number: u64, address: &[&str]) -> Message {
    Message {
        message_id: format!("order.paid:{number}").into(),
        bill_type: "order.paid".into(),
        bill_id: number.to_string().into(),
        attempt: 1,
        created_at_s: Some(1_700_000_000),
        content_type: "application/json".into(),
        address: address.iter().map(|text| AddressPart { text: (*text).into(), from_row: false }).collect(),
        headers: Vec::new(),
        body: Bytes::from(format!("{{\"order\":{number}}}")),
    }
}

/// The same, with all parts of the address from the row.
pub(crate) fn message_from_row(number: u64, address: &[&str]) -> Message {
    let mut message = message(number, address);
    for part in &mut message.address {
        part.from_row = true;
    }
    message
}

/// The class of what came of a message; `delivered` for success.
pub(crate) fn class(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Delivered => "delivered",
        Outcome::Unavailable(trouble, _)
        | Outcome::Misconfigured(trouble)
        | Outcome::Transient(trouble)
        | Outcome::Rejected(trouble) => trouble.class,
    }
}
