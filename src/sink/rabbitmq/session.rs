//! One connection's life: deliveries in, the broker's answers out, until it breaks or the work ends.

use std::{collections::VecDeque, pin::Pin, sync::Arc, time::Duration};

use futures_util::{StreamExt, future::OptionFuture};
use lapin::{Channel, Connection, Event, options::BasicPublishOptions};
use tokio::time::{MissedTickBehavior, interval};

use super::{
    blame::{Blame, charge},
    connect::{Events, Link},
    exchanges::{self, Exchanges, Standing},
    flights::{Answer, Failure, Flight, Flights, Landing},
    wire,
};
use crate::{
    decision::{Exposure, Outcome, Trouble},
    sink::{Delivery, Health, Message, Ticket, outlet::Outlet},
};

/// Deliveries taken from the inbox at once: enough to share a wake-up, few enough to answer in between.
const BATCH: usize = 256;
/// How often overdue messages and a silent end are looked for.
const TICK: Duration = Duration::from_millis(250);

/// How a session ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// The inbox is closed and everything is reported, or nobody takes reports any more.
    Finished,
    /// The channel or the connection is gone. Everything is reported.
    Lost(Loss),
}

#[derive(Debug)]
pub(super) struct Loss {
    pub(super) trouble: Trouble,
    /// Whether anything was confirmed before, or the guilty message was found: then the next session can do better.
    pub(super) made_progress: bool,
    /// Whether the connection itself went, not only our channel on it.
    pub(super) is_connection: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) confirm_timeout: Duration,
    /// So many messages may be given up on, unanswered, before the channel is.
    pub(super) overdue: usize,
}

/// Serves one connection to its end.
pub(super) async fn serve(
    mut link: Link,
    outlet: &mut Outlet<'_>,
    exchanges: &mut Exchanges,
    limits: Limits,
) -> Ending {
    let Link { channel, connection, events, frame_max, .. } = &mut link;
    exchanges.forget_those_there();
    let session = Session {
        channel,
        connection,
        frame_max: *frame_max,
        outlet,
        exchanges,
        limits,
        flights: Flights::new(),
        waiting: VecDeque::new(),
        looking: None,
        blocked: None,
        was_useful: false,
    };
    let ending = session.run(events).await;
    link.close().await;
    ending
}

type Flying<'a> = Pin<Box<dyn Future<Output = Landing> + Send + 'a>>;
/// An exchange that was looked up, and what came of it.
type Found = (Arc<str>, Result<Result<(), Trouble>, lapin::Error>);

struct Session<'a, 'o> {
    channel: &'a Channel,
    connection: &'a Connection,
    frame_max: u32,
    outlet: &'a mut Outlet<'o>,
    exchanges: &'a mut Exchanges,
    limits: Limits,
    flights: Flights<Flying<'a>>,
    /// Deliveries whose exchange is being looked up, or will be.
    waiting: VecDeque<Delivery>,
    looking: Option<Pin<Box<dyn Future<Output = Found> + Send + 'a>>>,
    /// Why the broker asks us to wait.
    blocked: Option<Trouble>,
    was_useful: bool,
}

impl Session<'_, '_> {
    async fn run(mut self, events: &mut Events) -> Ending {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut batch = Vec::with_capacity(BATCH);
        if self.connection.status().blocked() {
            self.block("");
        } else {
            self.outlet.set_health(Health::Up);
        }
        loop {
            let failure = tokio::select! {
                biased;
                () = self.outlet.reports.closed() => return Ending::Finished,
                Some(event) = events.next() => self.heed(event),
                count = self.outlet.inbox.recv_many(&mut batch, BATCH), if self.outlet.is_open => {
                    self.outlet.is_open = count > 0;
                    batch.drain(..).for_each(|delivery| self.take(delivery));
                    None
                }
                () = self.flights.landing(), if !self.flights.is_empty() => self.harvest(),
                Some(found) = OptionFuture::from(self.looking.as_mut()), if self.looking.is_some() => self.found(found),
                _ = tick.tick() => self.look_around(),
            };
            if let Some(failure) = failure {
                return self.lose(failure).await;
            }
            if !self.outlet.flush().await {
                return Ending::Finished;
            }
            if !self.outlet.is_open && self.flights.is_empty() && self.waiting.is_empty() {
                return Ending::Finished;
            }
        }
    }

    fn heed(&mut self, event: Event) -> Option<Failure> {
        match event {
            Event::ConnectionBlocked(reason) => self.block(&reason),
            Event::ConnectionUnblocked => {
                self.blocked = None;
                self.flights.resume();
                self.outlet.set_health(Health::Up);
            }
            // Looking up a missing exchange ends a channel of its own, which is no matter.
            Event::Error(error) if !self.is_open() => return Some(Failure::Broken(error)),
            _ => {}
        }
        None
    }

    fn block(&mut self, reason: &str) {
        let trouble = Trouble::new("blocked", format!("the broker asks us to wait: {reason}"));
        self.flights.pause();
        self.looking = None;
        for delivery in self.waiting.drain(..) {
            self.outlet.report(delivery.ticket, Outcome::Unavailable(trouble.clone(), Exposure::Unsent));
        }
        self.outlet.set_health(Health::Blocked(trouble.clone()));
        self.blocked = Some(trouble);
    }

    fn take(&mut self, delivery: Delivery) {
        let ticket = delivery.ticket;
        if let Some(trouble) = &self.blocked {
            return self.outlet.report(ticket, Outcome::Unavailable(trouble.clone(), Exposure::Unsent));
        }
        let [exchange, routing_key] = &*delivery.message.address else {
            let trouble = Trouble::new("address", "the address is not an exchange and a routing key");
            return self.outlet.report(ticket, Outcome::Misconfigured(trouble));
        };
        match self.exchanges.standing(&exchange.text, &routing_key.text) {
            Standing::Good => self.send(delivery),
            Standing::Bad { trouble, is_topic } => {
                let from_row = exchange.from_row || is_topic && routing_key.from_row;
                self.outlet.report(ticket, charge(from_row, trouble));
            }
            Standing::Unknown => {
                self.waiting.push_back(delivery);
                self.look_up_next();
            }
        }
    }

    fn send(&mut self, delivery: Delivery) {
        let Delivery { ticket, mut message } = delivery;
        let prepared = wire::fits_frame(&message, self.frame_max).and_then(|()| Envelope::of(&mut message));
        let envelope = match prepared {
            Ok(envelope) => envelope,
            Err(trouble) => return self.outlet.report(ticket, Outcome::Rejected(trouble)),
        };
        let Some(flight) = flight(ticket, &message) else { return };
        let channel = self.channel;
        self.flights.add(flight, move |number| Box::pin(publish(channel, number, envelope)));
    }

    fn look_up_next(&mut self) {
        if self.looking.is_some() {
            return;
        }
        let Some(exchange) = self.waiting.front().and_then(|delivery| delivery.message.address.first()) else { return };
        let (exchange, connection) = (Arc::clone(&exchange.text), self.connection);
        self.looking = Some(Box::pin(async move {
            let found = exchanges::look_up(connection, &exchange).await;
            (exchange, found)
        }));
    }

    fn found(&mut self, (exchange, found): Found) -> Option<Failure> {
        self.looking = None;
        match found {
            Ok(Ok(())) => self.exchanges.is_there(Arc::clone(&exchange)),
            Ok(Err(trouble)) => self.exchanges.is_missing(Arc::clone(&exchange), trouble),
            Err(error) => return Some(Failure::Broken(error)),
        }
        for delivery in std::mem::take(&mut self.waiting) {
            if delivery.message.address.first().is_some_and(|part| part.text == exchange) {
                self.take(delivery);
            } else {
                self.waiting.push_back(delivery);
            }
        }
        self.look_up_next();
        None
    }

    fn harvest(&mut self) -> Option<Failure> {
        let harvest = self.flights.collect(self.channel);
        for (flight, answer) in harvest.answers {
            let outcome = match answer {
                Answer::Confirmed => {
                    self.was_useful = true;
                    Outcome::Delivered
                }
                Answer::Returned(text) => Outcome::Rejected(Trouble::new("unroutable", text)),
                Answer::Nacked => Outcome::Transient(Trouble::new(
                    "nack",
                    "the broker refused to take the message; is a queue at its limit?",
                )),
            };
            self.outlet.report(flight.ticket, outcome);
        }
        for flight in harvest.unsent {
            let trouble = Trouble::new("connection_lost", "the channel had closed before the message was sent");
            self.outlet.report(flight.ticket, Outcome::Unavailable(trouble, Exposure::Unsent));
        }
        harvest.failure
    }

    fn look_around(&mut self) -> Option<Failure> {
        if !self.is_open() {
            return Some(Failure::Ended);
        }
        for ticket in self.flights.give_up(self.limits.confirm_timeout) {
            let limit_ms = self.limits.confirm_timeout.as_millis();
            let text = format!("the broker did not confirm the message within {limit_ms} ms");
            self.outlet.report(ticket, Outcome::Transient(Trouble::new("confirm_timeout", text)));
        }
        (self.flights.overdue() > self.limits.overdue).then_some(Failure::TooManyOverdue)
    }

    fn is_open(&self) -> bool {
        self.connection.status().connected() && self.channel.status().connected()
    }

    /// Books what is still to be had and reports the rest as lost, each by its share in the fault.
    async fn lose(mut self, failure: Failure) -> Ending {
        let failure = match self.harvest() {
            Some(later) if later.names_more_than(&failure) => later,
            _ => failure,
        };
        let blame = Blame::of(&failure);
        let flights = self.flights.into_unanswered();
        let culprit = flights.iter().find(|flight| blame.is_guilty(flight));
        if let Some(culprit) = culprit {
            blame.note(culprit, self.exchanges);
        }
        let is_known = culprit.is_some();
        for flight in &flights {
            self.outlet.report(flight.ticket, blame.outcome(flight, is_known));
        }
        for delivery in self.waiting {
            let outcome = Outcome::Unavailable(blame.trouble().clone(), Exposure::Unsent);
            self.outlet.report(delivery.ticket, outcome);
        }
        let is_connection = !self.connection.status().connected();
        if !self.outlet.flush().await {
            return Ending::Finished;
        }
        let made_progress = self.was_useful || is_known;
        Ending::Lost(Loss { trouble: blame.trouble().clone(), made_progress, is_connection })
    }
}

/// A message on its way to the client library.
struct Envelope {
    exchange: lapin::types::ShortString,
    routing_key: lapin::types::ShortString,
    properties: lapin::BasicProperties,
    body: bytes::Bytes,
}

impl Envelope {
    fn of(message: &mut Message) -> Result<Self, Trouble> {
        let text = |at: usize| message.address.get(at).map_or("", |part| &part.text);
        Ok(Self {
            exchange: wire::short("exchange", text(0))?,
            routing_key: wire::short("routing key", text(1))?,
            body: message.body.clone(),
            properties: wire::properties(message)?,
        })
    }
}

fn flight(ticket: Ticket, message: &Message) -> Option<Flight> {
    let [exchange, routing_key] = &*message.address else { return None };
    Some(Flight {
        ticket,
        bill_id: Arc::clone(&message.bill_id),
        attempt: message.attempt,
        exchange: exchange.clone(),
        routing_key: routing_key.clone(),
        body_bytes: message.body.len(),
    })
}

async fn publish(channel: &Channel, number: u64, envelope: Envelope) -> Landing {
    let Envelope { exchange, routing_key, properties, body } = envelope;
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let sent = channel.basic_publish(exchange, routing_key, options, &body, properties).await;
    // It is on the wire: waiting for the broker needs no copy of it.
    drop(body);
    let landed = match sent {
        Ok(confirmation) => confirmation.await,
        Err(error) => Err(error),
    };
    (number, landed)
}
