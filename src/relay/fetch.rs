//! Fetch: which page to read next, and what is taken from it.

use std::sync::Arc;

use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    Event, Relay,
    cursor::{Found, Step},
    flight::Flight,
    route::RouteSet,
};
use crate::{
    bill::{Bill, BillId, Seen},
    decision::Trouble,
    store::{FetchRequest, Mark, Page, Queue, Row, StoreError},
};

/// Types without a route that are remembered, so that each is reported once.
const MAX_UNROUTED: usize = 1_000;

#[derive(Debug)]
pub(super) struct Fetched {
    step: Step,
    result: Result<Page, StoreError>,
}

impl Relay {
    /// Starts reading the next page, if there is room, time and somebody to read for.
    pub(super) fn start_fetch(&mut self, now: Instant) {
        if self.fetching || !self.books.knows_the_holds() || !self.fetch_pause.is_over(now) {
            return;
        }
        let ready = self.ready(now);
        let Some(step) = self.cursors.next(now, &ready) else { return };
        let room = step.routes.iter().map(|route| self.room(*route)).max().unwrap_or(0);
        let router = Arc::clone(&self.router);
        let wanted = step.routes.clone();
        let request = FetchRequest {
            queue: step.queue,
            after: step.after.clone(),
            rows: room.clamp(1, self.options.batch),
            bytes: self.options.batch_bytes,
            max_payload: self.options.max_payload,
            wanted: step.filtered.then(|| {
                Arc::new(move |bill_type: &str| router.route(bill_type).is_some_and(|route| wanted.contains(&route)))
                    as _
            }),
        };
        self.fetching = true;
        self.flights.open_page();
        let store = Arc::clone(&self.store);
        self.tasks.spawn(async move { Event::Fetched(Fetched { step, result: store.fetch(&request).await }) });
    }

    /// When the next page is due, as far as time alone decides.
    pub(super) fn next_fetch_at(&self, now: Instant) -> Option<Instant> {
        if self.fetching || !self.books.knows_the_holds() {
            return None;
        }
        let next = self.cursors.next_at(now, &self.ready(now))?;
        Some(self.fetch_pause.until().map_or(next, |until| next.max(until)))
    }

    /// Routes that were passed and are open again read from the start.
    pub(super) fn reopen(&mut self, now: Instant) {
        if self.stale.is_empty() {
            return;
        }
        let open: RouteSet = self.stale.iter().copied().filter(|route| self.is_open(*route, now)).collect();
        if !open.is_empty() {
            self.stale.retain(|route| !open.contains(route));
            self.cursors.restart(open);
        }
    }

    pub(super) fn take_page(&mut self, Fetched { step, result }: Fetched) {
        let now = Instant::now();
        self.fetching = false;
        match result {
            Ok(page) => {
                if self.fetch_pause.was_begun() {
                    info!("the store answers again");
                    self.fetch_pause.reset();
                }
                let found = self.take_rows(&step, page, now);
                self.cursors.found(&step, found, now);
            }
            Err(error) => {
                self.fetch_pause.begin(now, &mut self.chance);
                self.quiet.outage(now, "store", &error.to_string());
                self.cursors.failed(&step, now);
            }
        }
        self.flights.close_page();
    }

    fn take_rows(&mut self, step: &Step, page: Page, now: Instant) -> Found {
        let mut found = Found { end: page.end, exhausted: page.exhausted, ..Found::default() };
        let (total, mut foreign) = (page.rows.len(), 0);
        let mut before = step.after.clone();
        for row in page.rows {
            let (id, bill_type, seen) = parts(&row);
            // A row of the fresh queue may have been scheduled since its entry of the index was read.
            let next_retry_time = seen.next_retry_time.clone().filter(|_| step.queue == Queue::Due);
            let mark = Mark { next_retry_time, id: id.clone() };
            let route = bill_type.and_then(|bill_type| self.router.route(bill_type));
            match route {
                None => {
                    foreign += 1;
                    self.report_unrouted(id, bill_type);
                }
                Some(route) if !step.routes.contains(&route) => foreign += 1,
                Some(_) if !self.flights.is_news(id) => {}
                Some(route) if !self.is_open(route, now) => {
                    self.stale.insert(route);
                }
                Some(route) if found.behind.iter().any(|(behind, _)| *behind == route) => {}
                Some(route) if self.room(route) == 0 => found.behind.push((route, before.clone())),
                Some(route) => self.take_row(route, row, now),
            }
            before = Some(mark);
        }
        // What a filtered page passed is not told; while it comes back half empty, it is worth filtering.
        found.foreign = 2 * foreign > total || (step.filtered && 2 * total < self.options.batch);
        found
    }

    fn take_row(&mut self, route: usize, row: Row, now: Instant) {
        match row {
            Row::Bill(bill) => self.take_bill(route, bill, now),
            Row::Invalid { id, bill_type, seen, class, problem } => {
                let flight = Flight {
                    message_id: id.to_string().into(),
                    bill_type: bill_type.unwrap_or_default().into(),
                    id,
                    seen,
                    route,
                    line: self.line_of(route),
                    since: now,
                    weight: 0,
                };
                self.reject_unsent(flight, Trouble::new(class, problem));
            }
        }
    }

    fn take_bill(&mut self, route: usize, bill: Bill, now: Instant) {
        let Some(settings) = self.routes.get(route) else { return };
        let (message_id, composed) = (settings.compose)(&bill);
        let line = settings.line;
        let weight = bill.weight();
        let flight = Flight {
            message_id,
            bill_type: bill.bill_type.into(),
            id: bill.id,
            seen: bill.seen,
            route,
            line,
            since: now,
            weight,
        };
        let admitted = composed
            .and_then(|message| self.sinks.get(line).map_or(Ok(()), |sink| sink.admit(&message)).map(|()| message));
        match admitted {
            Ok(message) => {
                let id = flight.id.clone();
                let ticket = self.flights.take_off(flight);
                if let Some(line) = self.lines.get_mut(line) {
                    line.hold();
                    line.queue(ticket, id, message);
                }
            }
            Err(trouble) => self.reject_unsent(flight, trouble),
        }
    }

    /// A bill that no route matches is left alone, and somebody is told once.
    fn report_unrouted(&mut self, id: &BillId, bill_type: Option<&str>) {
        let Some(bill_type) = bill_type else {
            self.quiet.note(Instant::now(), "unreadable type", || {
                warn!(bill = %id, "the type of a bill cannot be read: it is left alone");
            });
            return;
        };
        if self.unrouted.len() < MAX_UNROUTED && !self.unrouted.contains(bill_type) {
            warn!(bill = %id, r#type = bill_type, "no route matches this type: its bills are left alone");
            self.unrouted.insert(bill_type.to_owned());
        }
    }

    fn ready(&self, now: Instant) -> RouteSet {
        // Small pages cost as much as large ones, so a route waits until half a page fits.
        let enough = self.options.batch.div_ceil(2);
        let is_ready = |route: &usize| {
            self.is_open(*route, now) && self.room(*route) >= enough && self.has_memory(self.line_of(*route))
        };
        (0..self.routes.len()).filter(is_ready).collect()
    }

    /// Each line has its own share: one that is blocked with large bills does not keep the others from reading.
    fn has_memory(&self, line: usize) -> bool {
        let share = self.options.batch_bytes.saturating_mul(2) / self.lines.len().max(1);
        self.flights.weight(line) < share.max(1)
    }

    pub(super) fn is_open(&self, route: usize, now: Instant) -> bool {
        let line = self.routes.get(route).and_then(|settings| self.lines.get(settings.line));
        line.is_some_and(super::line::Line::is_up) && self.states.get(route).is_some_and(|state| state.is_open(now))
    }

    fn room(&self, route: usize) -> usize {
        let line = self.routes.get(route).and_then(|settings| self.lines.get(settings.line));
        line.map_or(0, super::line::Line::room)
    }
}

fn parts(row: &Row) -> (&BillId, Option<&str>, &Seen) {
    match row {
        Row::Bill(bill) => (&bill.id, Some(&bill.bill_type), &bill.seen),
        Row::Invalid { id, bill_type, seen, .. } => (id, bill_type.as_deref(), seen),
    }
}
