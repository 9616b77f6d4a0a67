//! The messages under way on one channel, and what the broker said of each.
//!
//! The client library hangs a returned message on whichever confirmation completes next, not on its own. Three facts
//! of its source make it possible to put that right, and [`Flights::collect`] relies on them: a confirmation frame is
//! worked off in one locked section, which also hands out the returns that came before it; the broker sends a return
//! before the confirmation of its message, and confirms returned messages in their order; so a return is handed out in
//! the section that confirms its own message, or in an earlier one.

use std::{
    collections::{BTreeMap, HashMap},
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use futures_util::{FutureExt, Stream, stream::FuturesUnordered};
use lapin::{Channel, Confirmation, message::BasicReturnMessage, types::AMQPValue};
use tokio::time::Instant;

use super::wire;
use crate::sink::{AddressPart, Ticket};

/// One message under way.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) ticket: Ticket,
    /// With the attempt, it tells this publish from all others; the message id need not be unique.
    pub(super) bill_id: Arc<str>,
    pub(super) attempt: u32,
    pub(super) exchange: AddressPart,
    pub(super) routing_key: AddressPart,
    pub(super) body_bytes: usize,
}

/// What the broker said of one message.
#[derive(Debug)]
pub(super) enum Answer {
    Confirmed,
    Nacked,
    /// It reached no queue; the text says where it was to go.
    Returned(String),
}

/// What [`Flights::collect`] found.
#[derive(Debug, Default)]
pub(super) struct Harvest {
    pub(super) answers: Vec<(Flight, Answer)>,
    /// Messages that were not handed over, because channel or connection were closed already.
    pub(super) unsent: Vec<Flight>,
    /// The channel or the connection broke; those under way are still in [`Flights`].
    pub(super) failure: Option<Failure>,
}

#[derive(Debug)]
pub(super) enum Failure {
    Broken(lapin::Error),
    /// The broker does not confirm on this channel: nothing it "accepts" can be trusted.
    NoConfirms,
    /// A message came back that is none of those under way: one of them did not arrive, and nothing tells which.
    StrangeReturn,
    /// Too many messages were given up on; the channel is not worth keeping.
    TooManyOverdue,
    /// The channel or the connection is closed, and nobody said why.
    Ended,
}

impl Failure {
    /// Of several failures the one in which the broker gives a reason counts.
    pub(super) fn names_more_than(&self, other: &Self) -> bool {
        let is_reason = |failure: &Self| matches!(failure, Self::Broken(error) if error.is_amqp_error());
        is_reason(self) && !is_reason(other)
    }
}

/// What comes of one publish: the number of its flight, and the broker's word.
pub(super) type Landing = (u64, Result<Confirmation, lapin::Error>);

/// Messages under way, in the order of their sending.
pub(super) struct Flights<F> {
    confirmations: FuturesUnordered<F>,
    landed: Vec<Landing>,
    /// By number, with the time of sending on the channel's clock.
    aloft: BTreeMap<u64, (Flight, Duration)>,
    /// Given up waiting for, reported already; kept so that what comes of them late is not taken for another's.
    overdue: BTreeMap<u64, Flight>,
    /// Returned messages whose own confirmation is not here yet.
    returned: HashMap<(Vec<u8>, i64), String>,
    next: u64,
    clock: Clock,
}

impl<F: Future<Output = Landing>> Flights<F> {
    pub(super) fn new() -> Self {
        Self {
            confirmations: FuturesUnordered::new(),
            landed: Vec::new(),
            aloft: BTreeMap::new(),
            overdue: BTreeMap::new(),
            returned: HashMap::new(),
            next: 0,
            clock: Clock::start(),
        }
    }

    /// Takes a message under way. `publish` makes its future from the flight's number.
    pub(super) fn add(&mut self, flight: Flight, publish: impl FnOnce(u64) -> F) {
        let number = self.next;
        self.next += 1;
        self.aloft.insert(number, (flight, self.clock.now()));
        self.confirmations.push(publish(number));
    }

    /// Whether nothing is waited for any more.
    pub(super) fn is_empty(&self) -> bool {
        self.aloft.is_empty()
    }

    /// How many were given up waiting for and may still be answered.
    pub(super) fn overdue(&self) -> usize {
        self.overdue.len()
    }

    /// Sends what was added and waits until at least one message is answered. Safe to cancel.
    pub(super) async fn landing(&mut self) {
        poll_fn(|context| {
            self.drain(context);
            if self.landed.is_empty() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    /// Takes all answers that are there, each with its own return. See the module's head for why this is right: after
    /// passing the lock of the section that gave us an answer, everything that section handed out is ready too.
    pub(super) fn collect(&mut self, channel: &Channel) -> Harvest {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        loop {
            // Takes the lock and gives it back; whether confirmations are outstanding is of no interest here.
            drop(channel.wait_for_confirms().now_or_never());
            let before = self.landed.len();
            loop {
                woken.0.store(false, Ordering::SeqCst);
                self.drain(&mut context);
                // The set of futures sometimes yields although more are ready; then it has woken us.
                if !woken.0.load(Ordering::SeqCst) {
                    break;
                }
            }
            if self.landed.len() == before {
                return self.book();
            }
        }
    }

    /// Gives up waiting for messages that are not answered within `limit`, time in which the broker had asked us to
    /// wait aside.
    pub(super) fn give_up(&mut self, limit: Duration) -> Vec<Ticket> {
        let now = self.clock.now();
        let mut tickets = Vec::new();
        while let Some(entry) = self.aloft.first_entry() {
            if now < entry.get().1 + limit {
                break;
            }
            let number = *entry.key();
            let (flight, _) = entry.remove();
            tickets.push(flight.ticket);
            self.overdue.insert(number, flight);
        }
        tickets
    }

    /// Stops the clock of the messages under way.
    pub(super) fn pause(&mut self) {
        self.clock.pause();
    }

    pub(super) fn resume(&mut self) {
        self.clock.resume();
    }

    /// Those still under way, when the channel is lost.
    pub(super) fn into_unanswered(self) -> Vec<Flight> {
        self.aloft.into_values().map(|(flight, _)| flight).collect()
    }

    fn drain(&mut self, context: &mut Context<'_>) {
        while let Poll::Ready(Some(landing)) = Pin::new(&mut self.confirmations).poll_next(context) {
            self.landed.push(landing);
        }
    }

    fn book(&mut self) -> Harvest {
        let mut harvest = Harvest::default();
        let mut landed = std::mem::take(&mut self.landed);
        for (_, result) in &mut landed {
            let Ok(Confirmation::Ack(returned) | Confirmation::Nack(returned)) = result else { continue };
            let Some(message) = returned.take() else { continue };
            match publish_of(&message) {
                Some(publish) => {
                    self.returned.insert(publish, where_to(&message));
                }
                None => harvest.fail(Failure::StrangeReturn),
            }
        }
        for (number, result) in landed.drain(..) {
            self.book_one(number, result, &mut harvest);
        }
        self.landed = landed;
        harvest
    }

    fn book_one(&mut self, number: u64, result: Result<Confirmation, lapin::Error>, harvest: &mut Harvest) {
        let answer = match result {
            Ok(Confirmation::Ack(_)) => Answer::Confirmed,
            Ok(Confirmation::Nack(_)) => Answer::Nacked,
            Ok(Confirmation::NotRequested) => return harvest.fail(Failure::NoConfirms),
            Err(error) => {
                if was_not_sent(&error)
                    && let Some((flight, _)) = self.aloft.remove(&number)
                {
                    harvest.unsent.push(flight);
                }
                return harvest.fail(Failure::Broken(error));
            }
        };
        let late = self.overdue.remove(&number);
        let is_late = late.is_some();
        let Some(flight) = late.or_else(|| self.aloft.remove(&number).map(|(flight, _)| flight)) else { return };
        let returned = if self.returned.is_empty() {
            None
        } else {
            self.returned.remove(&(flight.bill_id.as_bytes().to_vec(), i64::from(flight.attempt)))
        };
        if !is_late {
            harvest.answers.push((flight, returned.map_or(answer, Answer::Returned)));
        }
    }
}

impl Harvest {
    fn fail(&mut self, failure: Failure) {
        if self.failure.as_ref().is_none_or(|known| failure.names_more_than(known)) {
            self.failure = Some(failure);
        }
    }
}

/// The client library refused the message itself, before a byte of it left.
fn was_not_sent(error: &lapin::Error) -> bool {
    matches!(error.kind(), lapin::ErrorKind::InvalidChannelState(_, "basic.publish"))
}

/// Which publish a returned message was: by headers that only we write.
fn publish_of(message: &BasicReturnMessage) -> Option<(Vec<u8>, i64)> {
    let headers = message.properties.headers().as_ref()?.inner();
    match (headers.get(wire::ID_HEADER)?, headers.get(wire::ATTEMPT_HEADER)?) {
        (AMQPValue::LongString(bill_id), AMQPValue::LongLongInt(attempt)) => {
            Some((bill_id.as_bytes().to_vec(), *attempt))
        }
        _ => None,
    }
}

fn where_to(message: &BasicReturnMessage) -> String {
    format!(
        "the broker returned it: {} {} (exchange {:?}, routing key {:?})",
        message.reply_code,
        message.reply_text,
        message.exchange.as_str(),
        message.routing_key.as_str()
    )
}

/// A waker that only notes that it was called.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Time that stands still while paused.
struct Clock {
    start: Instant,
    paused: Option<Instant>,
    lost: Duration,
}

impl Clock {
    fn start() -> Self {
        Self { start: Instant::now(), paused: None, lost: Duration::ZERO }
    }

    fn now(&self) -> Duration {
        self.paused.unwrap_or_else(Instant::now).saturating_duration_since(self.start).saturating_sub(self.lost)
    }

    fn pause(&mut self) {
        self.paused.get_or_insert_with(Instant::now);
    }

    fn resume(&mut self) {
        if let Some(paused) = self.paused.take() {
            self.lost += paused.elapsed();
        }
    }
}
