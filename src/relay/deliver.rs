//! Deliver: hands messages to the sinks and decides what their reports mean.

use std::sync::Arc;

use tokio::time::Instant;
use tracing::{debug, error, warn};

use super::{Relay, flight::Flight, settle::Owner};
use crate::{
    decision::{Decision, Exposure, Outcome, Trouble, decide},
    sink::{Report, Ticket},
    store::{Attempt, Hold, Settlement, Verdict},
};

impl Relay {
    pub(super) fn dispatch(&mut self, now: Instant) {
        let mut sent = Vec::new();
        for line in &mut self.lines {
            line.dispatch(&mut sent);
        }
        for ticket in sent {
            if let Some(flight) = self.flights.get_mut(ticket) {
                flight.since = now;
            }
        }
    }

    pub(super) fn take_reports(&mut self, reports: &mut Vec<Report>) {
        let now = Instant::now();
        for Report { ticket, outcome } in reports.drain(..) {
            let Some(flight) = self.flights.reported(ticket) else { continue };
            let line = self.line_of(flight.route);
            let outcome = match self.lines.get_mut(line) {
                Some(line) => line.reported(ticket, &flight.id, outcome),
                None => outcome,
            };
            self.book(flight, outcome, now);
        }
    }

    /// Bills that were taken but not sent: they stay as they are in the table and are read again later.
    pub(super) fn put_back(&mut self, tickets: Vec<Ticket>) {
        for ticket in tickets {
            if let Some(flight) = self.flights.reported(ticket) {
                self.land_untouched(flight);
            }
        }
    }

    /// A bill that never gets as far as the sink.
    pub(super) fn reject_unsent(&mut self, flight: Flight, trouble: Trouble) {
        let now = Instant::now();
        let line = self.line_of(flight.route);
        if let Some(line) = self.lines.get_mut(line) {
            line.hold();
        }
        let ticket = self.flights.take_off(flight);
        if let Some(flight) = self.flights.reported(ticket) {
            self.book(flight, Outcome::Rejected(trouble), now);
        }
    }

    fn book(&mut self, flight: Flight, outcome: Outcome, now: Instant) {
        let Some(retry) = self.routes.get(flight.route).map(|route| route.retry) else { return };
        let label = label(&outcome);
        let exposure = match outcome {
            Outcome::Unavailable(_, exposure) => Some(exposure),
            _ => None,
        };
        let decision = decide(outcome, &retry, flight.seen.attempts(), self.chance.uniform());
        match decision {
            Decision::PutBack { trouble } => {
                if exposure != Some(Exposure::Unsent) {
                    debug!(
                        bill = %flight.id, r#type = %flight.bill_type, message_id = %flight.message_id, class = trouble.class,
                        "unconfirmed, will be sent again"
                    );
                }
                // What was not sent, or not to blame, waits for its sink alone.
                if exposure == Some(Exposure::InFlight)
                    && let Some(state) = self.states.get_mut(flight.route)
                {
                    state.pause(now, &mut self.chance);
                }
                self.land_untouched(flight);
            }
            Decision::Hold { trouble } => {
                self.hold_route(flight.route, &trouble);
                self.land_untouched(flight);
            }
            Decision::Fail { .. }
                if label == "rejected"
                    && self.states.get(flight.route).is_some_and(super::route::RouteState::is_held) =>
            {
                // The route was held for a row of such rejections: the others wait for the person too.
                self.land_untouched(flight);
            }
            decision => self.settle_later(flight, decision, label, now),
        }
    }

    fn settle_later(&mut self, flight: Flight, decision: Decision, label: &'static str, now: Instant) {
        let (Some(route), Some(state)) = (self.routes.get(flight.route), self.states.get_mut(flight.route)) else {
            return;
        };
        let Some(line) = self.lines.get_mut(route.line) else { return };
        let retries = flight.seen.attempts();
        let is_logged = decision.is_logged(route.attempt_log, retries);
        let number = retries.saturating_add(1);
        let (verdict, trouble, streak_is_full) = match decision {
            Decision::Retry { delay, trouble } => {
                let key = format!("{} {}", route.name, trouble.class);
                self.quiet.note(now, &key, || {
                    warn!(
                        bill = %flight.id, r#type = %flight.bill_type, message_id = %flight.message_id, attempt = number,
                        sink = %line.name, route = %route.name, class = trouble.class, error = %trouble.error,
                        delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX), "attempt failed, will be tried again"
                    );
                });
                (Verdict::Retry { delay }, Some(trouble), false)
            }
            Decision::Fail { trouble } => {
                line.clear(&flight.id);
                let streak_is_full = label == "rejected" && state.rejected(trouble.class);
                let key = format!("{} {} failed", route.name, trouble.class);
                self.quiet.failure(now, &key, || {
                    error!(
                        bill = %flight.id, r#type = %flight.bill_type, message_id = %flight.message_id, attempt = number,
                        sink = %line.name, route = %route.name, class = trouble.class, error = %trouble.error,
                        "failed: a person has to look"
                    );
                });
                let reason = format!("{}: {}", trouble.class, trouble.error);
                (Verdict::Failed { reason }, Some(trouble), streak_is_full)
            }
            Decision::Done | Decision::PutBack { .. } | Decision::Hold { .. } => {
                state.delivered();
                debug!(
                    bill = %flight.id, r#type = %flight.bill_type, message_id = %flight.message_id, attempt = number,
                    sink = %line.name, route = %route.name, "delivered"
                );
                (Verdict::Done, None, false)
            }
        };
        let attempt = is_logged.then(|| Attempt {
            bill_type: flight.bill_type.as_ref().to_owned(),
            message_id: flight.message_id.as_ref().to_owned(),
            number,
            outcome: label,
            class: trouble.as_ref().map(|trouble| trouble.class),
            error: trouble.as_ref().map(|trouble| trouble.error.clone()),
            sink: Arc::clone(&line.name),
            route: Arc::clone(&route.name),
            duration: now.saturating_duration_since(flight.since),
        });
        let owner = Owner { route: flight.route, line: route.line };
        self.books.add(Settlement { id: flight.id, seen: flight.seen, verdict, attempt }, owner);
        if let Some(trouble) = trouble.filter(|_| streak_is_full) {
            let error = format!("20 bills in a row were rejected; the last: {}", trouble.error);
            self.hold_route(owner.route, &Trouble::new(trouble.class, error));
        }
    }

    /// Holds a route: nothing more of it is delivered until a person releases it.
    pub(super) fn hold_route(&mut self, route: usize, trouble: &Trouble) {
        let (Some(settings), Some(state)) = (self.routes.get(route), self.states.get_mut(route)) else { return };
        let hold = Hold { class: trouble.class.to_owned(), reason: trouble.error.clone() };
        if !state.hold(hold, false) {
            return;
        }
        error!(
            route = %settings.name, class = trouble.class, error = %trouble.error,
            "route held: mend the cause, then run `outbill release`"
        );
        self.books.hold_soon();
        self.recall(route);
    }

    /// Puts back what waits of a route.
    pub(super) fn recall(&mut self, route: usize) {
        self.stale.insert(route);
        let index = self.line_of(route);
        let flights = &self.flights;
        let recalled = match self.lines.get_mut(index) {
            Some(line) => line.recall(|ticket| flights.route_of(ticket) == Some(route)),
            None => Vec::new(),
        };
        self.put_back(recalled);
    }

    fn land_untouched(&mut self, flight: Flight) {
        self.stale.insert(flight.route);
        let line = self.line_of(flight.route);
        if let Some(line) = self.lines.get_mut(line) {
            line.dismiss();
        }
        self.flights.land(flight.id);
    }

    pub(super) fn line_of(&self, route: usize) -> usize {
        self.routes.get(route).map_or(usize::MAX, |route| route.line)
    }
}

fn label(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Delivered => "delivered",
        Outcome::Unavailable(..) | Outcome::Misconfigured(_) => "unavailable",
        Outcome::Transient(_) => "transient",
        Outcome::Rejected(_) => "rejected",
    }
}
