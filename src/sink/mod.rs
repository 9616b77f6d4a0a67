//! The sink: where bills go. This is the contract; each sibling file is one kind of sink.

pub mod file;
pub mod message;
mod outlet;
mod pace;
pub mod rabbitmq;
pub mod template;

use std::{fmt::Debug, sync::Arc};

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::{
    decision::{Outcome, Trouble},
    finding::Finding,
};
pub use message::Message;

/// What the relay needs of a sink.
///
/// A sink never retries and never drops: each [`Delivery`] it is given gets exactly one [`Report`], whatever happens.
/// It may have any number of deliveries under way; the relay bounds them. It never blocks the inbox while it is up,
/// and while it is not up it reports what it holds as unavailable instead of keeping it.
#[async_trait]
pub trait Sink: Debug + Send + Sync {
    /// Refuses what the sink could never deliver (too large, a key too long, a reserved header), before anything is
    /// sent. Pure: it neither waits nor connects; `preview` asks it too.
    fn admit(&self, message: &Message) -> Result<(), Trouble>;

    /// What this kind of sink sends besides the parts of the message itself, for `preview`: properties and headers.
    fn additions(&self, _message: &Message) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// The sink's work: connects, delivers what comes in, reconnects for ever. Returns once the inbox is closed and every
    /// delivery has been reported, or at once when the reports' receiver is gone.
    async fn run(&self, inbox: mpsc::Receiver<Delivery>, reports: mpsc::Sender<Report>);

    /// Whether the sink takes deliveries now. Starts as [`Health::Down`] until the first connection.
    fn health(&self) -> watch::Receiver<Health>;

    /// Connects and looks, changing nothing: can it be reached, are the addresses there?
    async fn check(&self, addresses: &[Address]) -> Vec<Finding>;
}

/// One message on its way to a sink.
#[derive(Debug)]
pub struct Delivery {
    /// Given back in the report.
    pub ticket: Ticket,
    pub message: Message,
}

/// Ties a report to its delivery; never used twice in the life of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// What came of one delivery.
#[derive(Debug)]
pub struct Report {
    pub ticket: Ticket,
    pub outcome: Outcome,
}

/// Whether a sink takes deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Up,
    /// Connected, but the other side asks us to wait (memory alarm). What is under way stays under way.
    Blocked(Trouble),
    /// Not connected; the sink tries again by itself.
    Down(Trouble),
}

/// Where in the sink a message goes: the rendered templates of the route's `to`, in the order of the kind's
/// [`AddressKey`]s (for RabbitMQ exchange and routing key).
pub type Address = Box<[AddressPart]>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AddressPart {
    pub text: Arc<str>,
    /// Whether the text came from the row. A fault in it is then the bill's, else the route's.
    pub from_row: bool,
}

/// One key of a route's `to` that a kind of sink knows.
#[derive(Clone, Copy, Debug)]
pub struct AddressKey {
    pub name: &'static str,
    /// The template used where the route says nothing; `None` where it has to be said.
    pub default: Option<&'static str>,
}
