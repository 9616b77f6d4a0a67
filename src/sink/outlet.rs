//! A sink's side of the contract with the relay, kept over all connections: where deliveries come from and reports go.

use tokio::sync::{mpsc, watch};

use crate::{
    decision::{Exposure, Outcome, Trouble},
    sink::{Delivery, Health, Report, Ticket},
};

#[derive(Debug)]
pub(super) struct Outlet<'a> {
    pub(super) inbox: mpsc::Receiver<Delivery>,
    /// Whether the inbox may still bring something.
    pub(super) is_open: bool,
    pub(super) reports: mpsc::Sender<Report>,
    health: &'a watch::Sender<Health>,
    /// Reports that are due, until the next [`flush`](Self::flush).
    due: Vec<Report>,
}

impl<'a> Outlet<'a> {
    pub(super) fn new(
        inbox: mpsc::Receiver<Delivery>,
        reports: mpsc::Sender<Report>,
        health: &'a watch::Sender<Health>,
    ) -> Self {
        Self { inbox, is_open: true, reports, health, due: Vec::new() }
    }

    pub(super) fn report(&mut self, ticket: Ticket, outcome: Outcome) {
        self.due.push(Report { ticket, outcome });
    }

    /// Hands over the reports that are due; `false` when nobody takes them any more.
    pub(super) async fn flush(&mut self) -> bool {
        for report in self.due.drain(..) {
            if self.reports.send(report).await.is_err() {
                return false;
            }
        }
        true
    }

    pub(super) fn set_health(&self, health: Health) {
        self.health.send_if_modified(|known| {
            let is_news = *known != health;
            *known = health;
            is_news
        });
    }

    /// Does `work` while there is no connection. With `away`, deliveries that come meanwhile are reported as
    /// unavailable for that reason; without, they are left for later. `None`: the inbox is closed, or nobody takes reports.
    pub(super) async fn meanwhile<T>(&mut self, work: impl Future<Output = T>, away: Option<&Trouble>) -> Option<T> {
        tokio::pin!(work);
        loop {
            let delivery = tokio::select! {
                biased;
                () = self.reports.closed() => return None,
                delivery = self.inbox.recv(), if away.is_some() => delivery?,
                done = &mut work => return Some(done),
            };
            let trouble = away?.clone();
            self.report(delivery.ticket, Outcome::Unavailable(trouble, Exposure::Unsent));
            if !self.flush().await {
                return None;
            }
        }
    }
}
