//! The bills in flight: from the moment they are taken from a page until their settle has committed.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tokio::time::Instant;

use crate::{
    bill::{BillId, Seen},
    sink::Ticket,
};

/// A bill under way.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) id: BillId,
    pub(crate) seen: Seen,
    pub(crate) bill_type: Arc<str>,
    pub(crate) message_id: Arc<str>,
    pub(crate) route: usize,
    /// The line to the route's sink.
    pub(crate) line: usize,
    /// When it was taken, later when it was handed to the sink.
    pub(crate) since: Instant,
    /// Bytes in memory, roughly.
    pub(crate) weight: usize,
}

/// All bills in flight, and which of them a page may not bring back.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    by_ticket: HashMap<Ticket, Flight>,
    aloft: HashSet<BillId>,
    /// Bills that landed since the page that is being read was asked for. Its snapshot may still show them as
    /// pending, although their settle has committed.
    landed: HashSet<BillId>,
    page_is_open: bool,
    next_ticket: u64,
    /// Bytes of the bills that have not been reported yet, by line.
    weights: HashMap<usize, usize>,
}

impl Flights {
    /// A page is about to be asked for.
    pub(crate) fn open_page(&mut self) {
        self.landed.clear();
        self.page_is_open = true;
    }

    /// The page has been taken in: what landed meanwhile need not be remembered any longer.
    pub(crate) fn close_page(&mut self) {
        self.landed.clear();
        self.page_is_open = false;
    }

    /// Whether a row of the open page is news.
    pub(crate) fn is_news(&self, id: &BillId) -> bool {
        !self.aloft.contains(id) && !self.landed.contains(id)
    }

    pub(crate) fn take_off(&mut self, flight: Flight) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        *self.weights.entry(flight.line).or_default() += flight.weight;
        self.aloft.insert(flight.id.clone());
        self.by_ticket.insert(ticket, flight);
        ticket
    }

    pub(crate) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Flight> {
        self.by_ticket.get_mut(&ticket)
    }

    pub(crate) fn route_of(&self, ticket: Ticket) -> Option<usize> {
        self.by_ticket.get(&ticket).map(|flight| flight.route)
    }

    /// The sink has reported: the flight goes to whoever settles it, its id stays aloft until [`Self::land`].
    pub(crate) fn reported(&mut self, ticket: Ticket) -> Option<Flight> {
        let flight = self.by_ticket.remove(&ticket)?;
        if let Some(weight) = self.weights.get_mut(&flight.line) {
            *weight = weight.saturating_sub(flight.weight);
        }
        Some(flight)
    }

    /// The settle has committed, or the bill was put back untouched.
    pub(crate) fn land(&mut self, id: BillId) {
        self.aloft.remove(&id);
        if self.page_is_open {
            self.landed.insert(id);
        }
    }

    /// Bills aloft: queued, under way or being settled.
    pub(crate) fn len(&self) -> usize {
        self.aloft.len()
    }

    /// Bytes of a line's bills that have not been reported yet.
    pub(crate) fn weight(&self, line: usize) -> usize {
        self.weights.get(&line).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(id: i128) -> Flight {
        Flight {
            id: BillId::Integer(id),
            seen: Seen::default(),
            bill_type: "t".into(),
            message_id: "m".into(),
            route: 0,
            line: 3,
            since: Instant::now(),
            weight: 10,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_that_was_settled_after_its_page_was_asked_for_is_no_news() {
        let mut flights = Flights::default();
        let ticket = flights.take_off(flight(7));
        assert_eq!((flights.weight(3), flights.weight(0)), (10, 0));
        flights.open_page();
        assert!(!flights.is_news(&BillId::Integer(7)), "in flight");
        let landed = flights.reported(ticket).unwrap();
        assert!(!flights.is_news(&BillId::Integer(7)), "reported, not yet settled");
        flights.land(landed.id);
        assert!(!flights.is_news(&BillId::Integer(7)), "settled since the page was asked for");
        flights.close_page();
        flights.open_page();
        assert!(flights.is_news(&BillId::Integer(7)), "a later snapshot that shows it pending is right");
        assert_eq!((flights.len(), flights.weight(3)), (0, 0));
    }
}
