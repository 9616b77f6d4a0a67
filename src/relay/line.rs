//! The line to one sink: what waits, what is under way, and who has to go alone.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use tokio::sync::mpsc;

use crate::{
    bill::BillId,
    decision::{Exposure, Outcome, Trouble},
    sink::{Delivery, Health, Message, Ticket},
};

/// A message that waits for its turn.
#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    id: BillId,
    message: Message,
}

/// The relay's side of one sink.
///
/// Where a connection breaks twice with the same bills under way and none of them delivered between, one of them may
/// be what breaks it. From then on each of these *suspects* goes alone; the one that is alone when the connection
/// breaks again is charged, and all others flow.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) name: Arc<str>,
    /// Closed at shutdown, so that the sink ends.
    inbox: Option<mpsc::Sender<Delivery>>,
    health: Health,
    /// Bills under way or being settled at most: what a crash can repeat.
    in_flight: usize,
    /// Bills in memory at most: waiting, under way or being settled.
    capacity: usize,
    held: usize,
    waiting: VecDeque<Waiting>,
    under_way: usize,
    /// Under way when the connection last broke, and not delivered since.
    suspects: HashSet<BillId>,
    /// Suspects of two breaks: they go alone until they are delivered or given up.
    alone: HashSet<BillId>,
    lone_ticket: Option<Ticket>,
    /// What the present break has brought back so far.
    lost: HashSet<BillId>,
}

impl Line {
    pub(crate) fn new(name: Arc<str>, in_flight: usize, batch: usize, inbox: mpsc::Sender<Delivery>) -> Self {
        Self {
            name,
            inbox: Some(inbox),
            health: Health::Down(Trouble::new("starting", "not connected yet")),
            in_flight,
            // One batch waits while the messages under way are confirmed, and one is being settled.
            capacity: in_flight + 2 * batch,
            held: 0,
            waiting: VecDeque::new(),
            under_way: 0,
            suspects: HashSet::new(),
            alone: HashSet::new(),
            lone_ticket: None,
            lost: HashSet::new(),
        }
    }

    /// How many more bills may be taken from the table.
    pub(crate) fn room(&self) -> usize {
        self.capacity.saturating_sub(self.held)
    }

    pub(crate) fn is_up(&self) -> bool {
        self.health == Health::Up
    }

    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    /// Bills that were handed to the sink and are not settled yet.
    fn aloft(&self) -> usize {
        self.held.saturating_sub(self.waiting.len())
    }

    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    pub(crate) fn set_health(&mut self, health: Health) {
        self.health = health;
    }

    /// A bill of this line is in memory from now on, until [`Line::dismiss`].
    pub(crate) fn hold(&mut self) {
        self.held += 1;
    }

    /// A bill of this line has been settled or put back.
    pub(crate) fn dismiss(&mut self) {
        self.held = self.held.saturating_sub(1);
    }

    pub(crate) fn queue(&mut self, ticket: Ticket, id: BillId, message: Message) {
        self.waiting.push_back(Waiting { ticket, id, message });
    }

    /// Hands waiting messages to the sink, as many as may be in flight. Returns their tickets.
    pub(crate) fn dispatch(&mut self, sent: &mut Vec<Ticket>) {
        if self.under_way == 0 {
            self.close_the_break();
        }
        let Some(inbox) = self.inbox.as_ref().filter(|_| self.health == Health::Up) else { return };
        while self.aloft() < self.in_flight && self.lone_ticket.is_none() {
            let Some(next) = self.waiting.front() else { return };
            let goes_alone = self.alone.contains(&next.id);
            if goes_alone && self.under_way > 0 {
                return;
            }
            let Ok(place) = inbox.try_reserve() else { return };
            let Some(Waiting { ticket, message, .. }) = self.waiting.pop_front() else { return };
            place.send(Delivery { ticket, message });
            self.under_way += 1;
            self.lone_ticket = goes_alone.then_some(ticket);
            sent.push(ticket);
        }
    }

    /// Books a report and returns what it means: a bill that was alone when its connection broke is charged.
    pub(crate) fn reported(&mut self, ticket: Ticket, id: &BillId, outcome: Outcome) -> Outcome {
        self.under_way = self.under_way.saturating_sub(1);
        let was_alone = self.lone_ticket.take_if(|lone| *lone == ticket).is_some();
        match outcome {
            Outcome::Unavailable(trouble, Exposure::InFlight) if was_alone => {
                let error = format!("alone under way when the connection broke: {}", trouble.error);
                Outcome::Transient(Trouble::new("breaks_connection", error))
            }
            Outcome::Unavailable(_, Exposure::InFlight) => {
                self.lost.insert(id.clone());
                outcome
            }
            Outcome::Delivered => {
                self.clear(id);
                outcome
            }
            _ => outcome,
        }
    }

    /// The bill needs no watching any longer: it was delivered or given up.
    pub(crate) fn clear(&mut self, id: &BillId) {
        if !self.suspects.is_empty() {
            self.suspects.remove(id);
        }
        if !self.alone.is_empty() {
            self.alone.remove(id);
        }
    }

    /// Everything that waits, to be put back.
    pub(crate) fn recall(&mut self, is_recalled: impl Fn(Ticket) -> bool) -> Vec<Ticket> {
        let (recalled, kept) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<VecDeque<_>, _>(|waiting| is_recalled(waiting.ticket));
        self.waiting = kept;
        recalled.into_iter().map(|waiting| waiting.ticket).collect()
    }

    /// Nothing more is sent: the sink finishes what it has and ends.
    pub(crate) fn close(&mut self) {
        self.inbox = None;
    }

    /// All that was under way has come back: whoever was lost this time and the last time is a suspect from now on.
    fn close_the_break(&mut self) {
        if self.lost.is_empty() {
            return;
        }
        let lost = std::mem::take(&mut self.lost);
        self.alone.extend(lost.intersection(&self.suspects).cloned());
        self.suspects = lost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(in_flight: usize) -> (Line, mpsc::Receiver<Delivery>) {
        let (inbox, deliveries) = mpsc::channel(100);
        let mut line = Line::new("rabbit".into(), in_flight, 10, inbox);
        line.set_health(Health::Up);
        (line, deliveries)
    }

    fn message() -> Message {
        Message {
            message_id: "m".into(),
            bill_type: "t".into(),
            bill_id: "1".into(),
            attempt: 1,
            created_at_s: None,
            content_type: "application/json".into(),
            address: Box::default(),
            headers: Vec::new(),
            body: bytes::Bytes::new(),
        }
    }

    fn send(line: &mut Line, ids: &[u64]) -> Vec<Ticket> {
        for id in ids {
            line.hold();
            line.queue(Ticket(*id), BillId::Integer(i128::from(*id)), message());
        }
        let mut sent = Vec::new();
        line.dispatch(&mut sent);
        sent
    }

    fn lost() -> Outcome {
        Outcome::Unavailable(Trouble::new("connection_lost", "reset"), Exposure::InFlight)
    }

    fn break_connection(line: &mut Line, tickets: &[Ticket]) -> Vec<Outcome> {
        let outcomes = tickets
            .iter()
            .map(|ticket| line.reported(*ticket, &BillId::Integer(i128::from(ticket.0)), lost()))
            .collect();
        line.set_health(Health::Down(Trouble::new("connection_lost", "reset")));
        line.set_health(Health::Up);
        outcomes
    }

    #[test]
    fn suspects_of_two_breaks_go_alone_and_the_guilty_one_is_charged() {
        let (mut line, mut deliveries) = line(100);
        for _ in 0..2 {
            let sent = send(&mut line, &[1, 2, 3]);
            assert_eq!(sent.len(), 3);
            assert!(break_connection(&mut line, &sent).iter().all(|outcome| *outcome == lost()));
        }
        assert_eq!(send(&mut line, &[1, 2, 3, 4]), [Ticket(1)], "a suspect goes alone");
        assert_eq!(line.reported(Ticket(1), &BillId::Integer(1), Outcome::Delivered), Outcome::Delivered);
        assert_eq!(send(&mut line, &[]), [Ticket(2)]);
        let outcomes = break_connection(&mut line, &[Ticket(2)]);
        assert!(matches!(outcomes.as_slice(), [Outcome::Transient(trouble)] if trouble.class == "breaks_connection"));
        assert_eq!(send(&mut line, &[]), [Ticket(3)], "still a suspect");
        line.reported(Ticket(3), &BillId::Integer(3), Outcome::Delivered);
        assert_eq!(send(&mut line, &[5, 6, 2]).len(), 3, "others flow together, the guilty one waits for them");
        assert_eq!(std::iter::from_fn(|| deliveries.try_recv().ok()).count(), 3 + 3 + 3 + 3);
    }

    #[test]
    fn one_break_or_a_delivery_between_two_makes_nobody_go_alone() {
        let (mut line, _deliveries) = line(100);
        let sent = send(&mut line, &[1, 2]);
        break_connection(&mut line, &sent);
        let sent = send(&mut line, &[1, 2]);
        for ticket in sent {
            line.reported(ticket, &BillId::Integer(i128::from(ticket.0)), Outcome::Delivered);
        }
        let sent = send(&mut line, &[3, 4]);
        break_connection(&mut line, &sent);
        assert_eq!(send(&mut line, &[3, 4]).len(), 2);
    }

    #[test]
    fn no_more_than_the_limit_is_under_way_and_nothing_while_blocked() {
        let (mut line, _deliveries) = line(2);
        assert_eq!(send(&mut line, &[1, 2, 3]).len(), 2);
        line.set_health(Health::Blocked(Trouble::new("blocked", "memory alarm")));
        line.reported(Ticket(1), &BillId::Integer(1), Outcome::Delivered);
        assert_eq!(send(&mut line, &[]).len(), 0);
        line.set_health(Health::Up);
        assert_eq!(send(&mut line, &[]).len(), 0, "reported is not settled: a crash would repeat it");
        line.dismiss();
        assert_eq!(send(&mut line, &[]).len(), 1);
    }
}
