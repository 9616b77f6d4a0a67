//! RabbitMQ, over AMQP 0-9-1 with publisher confirms.
//!
//! Every message is persistent and `mandatory`, and counts as delivered when the broker has confirmed it and not
//! returned it. Nothing is declared here: exchanges and queues belong to the application.

mod blame;
mod check;
mod connect;
mod endpoint;
mod exchanges;
mod flights;
mod session;
pub mod settings;
mod tls;
mod wire;

use std::time::Duration;

use anyhow::{Context, ensure};
use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use self::{
    connect::{Failure, Link, Wish},
    endpoint::Endpoint,
    exchanges::Exchanges,
    session::{Ending, Limits, Loss},
    settings::Settings,
};
use crate::{
    clock::Chance,
    decision::Trouble,
    finding::Finding,
    sink::{
        Address, AddressKey, Delivery, Health, Message, Report, Sink,
        outlet::Outlet,
        pace::{Pace, Voice},
    },
};

/// The keys of a route's `to`, in the order of a message's address. The default exchange routes to the queue that the
/// routing key names.
pub const ADDRESS_KEYS: &[AddressKey] =
    &[AddressKey { name: "exchange", default: Some("") }, AddressKey { name: "routing_key", default: None }];

/// One broker.
#[derive(Debug)]
pub struct RabbitmqSink {
    /// As the configuration calls it.
    name: String,
    /// As the broker's list of connections shows it.
    connection_name: String,
    endpoint: Endpoint,
    settings: Settings,
    health: watch::Sender<Health>,
}

impl RabbitmqSink {
    /// Makes a sink without connecting.
    ///
    /// # Errors
    /// The settings contradict each other, or a certificate cannot be read. No error holds a secret.
    pub fn new(name: &str, settings: Settings) -> anyhow::Result<Self> {
        let endpoint = Endpoint::resolve(&settings).with_context(|| format!("read the settings of sink {name}"))?;
        for (key, span) in [
            ("confirm_timeout", settings.confirm_timeout),
            ("connect_timeout", settings.connect_timeout),
            ("heartbeat", settings.heartbeat),
        ] {
            ensure!(!span.0.is_zero(), "{key} of sink {name} is zero");
        }
        if let Some(options) = &endpoint.tls {
            tls::connector(options).with_context(|| format!("prepare TLS for sink {name}"))?;
        }
        let down = Health::Down(Trouble::new("starting", "not connected yet"));
        Ok(Self {
            name: name.to_owned(),
            connection_name: format!("outbill/{name}"),
            endpoint,
            settings,
            health: watch::Sender::new(down),
        })
    }

    fn wish(&self) -> Wish<'_> {
        Wish {
            endpoint: &self.endpoint,
            name: &self.connection_name,
            heartbeat: self.settings.heartbeat.0,
            timeout: self.settings.connect_timeout.0,
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            confirm_timeout: self.settings.confirm_timeout.0,
            overdue: usize::try_from(self.settings.in_flight).unwrap_or(usize::MAX),
        }
    }
}

#[async_trait]
impl Sink for RabbitmqSink {
    fn admit(&self, message: &Message) -> Result<(), Trouble> {
        wire::admit(message, self.settings.max_message.0)
    }

    fn additions(&self, message: &Message) -> Vec<(&'static str, Value)> {
        wire::additions(message)
    }

    async fn run(&self, inbox: mpsc::Receiver<Delivery>, reports: mpsc::Sender<Report>) {
        let mut outlet = Outlet::new(inbox, reports, &self.health);
        let mut tries = Tries {
            sink: &self.name,
            limits: self.limits(),
            pace: Pace::new(Chance::from_system()),
            voice: Voice::default(),
            exchanges: Exchanges::default(),
        };
        let mut away = Some(Trouble::new("starting", "not connected yet"));
        loop {
            let wish = self.wish();
            let wait = match outlet.meanwhile(Box::pin(connect::connect(&wish)), away.as_ref()).await {
                None => return,
                Some(Err(failure)) => tries.failed(failure, &outlet, &mut away),
                Some(Ok(link)) => match tries.serve(link, &mut outlet).await {
                    Ending::Finished => return,
                    Ending::Lost(loss) => tries.lost(loss, &outlet, &mut away),
                },
            };
            if !wait.is_zero() && outlet.meanwhile(tokio::time::sleep(wait), away.as_ref()).await.is_none() {
                return;
            }
        }
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    async fn check(&self, addresses: &[Address]) -> Vec<Finding> {
        check::check(&self.name, &self.wish(), addresses).await
    }
}

/// What is kept over all tries to reach the broker.
struct Tries<'a> {
    sink: &'a str,
    limits: Limits,
    pace: Pace,
    voice: Voice,
    exchanges: Exchanges,
}

impl Tries<'_> {
    async fn serve(&mut self, link: Link, outlet: &mut Outlet<'_>) -> Ending {
        if self.voice.may_rejoice() {
            tracing::info!(sink = self.sink, "connected to the broker");
        }
        Box::pin(session::serve(link, outlet, &mut self.exchanges, self.limits)).await
    }

    /// Notes a failed try; the wait until the next.
    fn failed(&mut self, failure: Failure, outlet: &Outlet<'_>, away: &mut Option<Trouble>) -> Duration {
        let Failure { trouble, is_stubborn } = failure;
        let wait = self.pace.after_failure(is_stubborn);
        self.complain(&trouble, "cannot reach the broker; trying again");
        outlet.set_health(Health::Down(trouble.clone()));
        *away = Some(trouble);
        wait
    }

    /// Notes the end of a session. Where only the channel went, a new connection is made at once and the sink stays up.
    fn lost(&mut self, loss: Loss, outlet: &Outlet<'_>, away: &mut Option<Trouble>) -> Duration {
        if loss.made_progress {
            self.pace.reset();
        }
        self.complain(&loss.trouble, "lost the broker; connecting anew");
        if !loss.is_connection && loss.made_progress {
            *away = None;
            return Duration::ZERO;
        }
        outlet.set_health(Health::Down(loss.trouble.clone()));
        *away = Some(loss.trouble);
        self.pace.after_failure(false)
    }

    fn complain(&mut self, trouble: &Trouble, message: &str) {
        if self.voice.may_complain() {
            tracing::warn!(sink = self.sink, class = trouble.class, error = trouble.error, "{message}");
        }
    }
}
