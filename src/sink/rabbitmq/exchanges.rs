//! Which exchanges may be published to. A publish to a missing one makes the broker close the channel, and with it fail
//! every innocent neighbour, so each exchange is looked up before its first message.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use lapin::{Connection, ErrorKind, ExchangeKind, options::ExchangeDeclareOptions, types::FieldTable};
use tokio::time::Instant;

use super::wire;
use crate::decision::Trouble;

/// Names come from rows, so what is remembered about them has a bound; beyond it, all is forgotten and looked up anew.
const MAX_REMEMBERED: usize = 4_096;
/// How long a missing exchange is taken to be missing still.
const MISSING_FOR: Duration = Duration::from_secs(2);
/// The same for one that we may not write to: finding that out costs a channel. Shorter than it takes a person to mend it
/// and to release the route.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// What is known about exchanges.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    /// Seen on the present connection.
    there: HashSet<Arc<str>>,
    /// Outlives connections. Each until its time.
    bad: HashMap<Place, (Trouble, Instant)>,
}

/// An exchange and, where only that is refused, a routing key.
type Place = (Arc<str>, Option<Arc<str>>);

#[derive(Debug)]
pub(super) enum Standing {
    Good,
    /// `is_topic`: only this routing key is refused.
    Bad {
        trouble: Trouble,
        is_topic: bool,
    },
    Unknown,
}

impl Exchanges {
    pub(super) fn standing(&self, exchange: &Arc<str>, routing_key: &Arc<str>) -> Standing {
        if !self.bad.is_empty() {
            for routing_key in [None, Some(routing_key)] {
                let found = self.bad.get(&(Arc::clone(exchange), routing_key.map(Arc::clone)));
                if let Some((trouble, _)) = found.filter(|(_, until)| Instant::now() < *until) {
                    return Standing::Bad { trouble: trouble.clone(), is_topic: routing_key.is_some() };
                }
            }
        }
        // The default exchange always exists.
        if exchange.is_empty() || self.there.contains(exchange) { Standing::Good } else { Standing::Unknown }
    }

    pub(super) fn is_there(&mut self, exchange: Arc<str>) {
        if self.there.len() >= MAX_REMEMBERED {
            self.there.clear();
        }
        self.bad.remove(&(Arc::clone(&exchange), None));
        self.there.insert(exchange);
    }

    pub(super) fn is_missing(&mut self, exchange: Arc<str>, trouble: Trouble) {
        self.there.remove(&exchange);
        self.note(exchange, None, trouble, MISSING_FOR);
    }

    pub(super) fn is_refused(&mut self, exchange: Arc<str>, routing_key: Option<Arc<str>>, trouble: Trouble) {
        self.note(exchange, routing_key, trouble, REFUSED_FOR);
    }

    /// A new connection: what was there may have been deleted meanwhile.
    pub(super) fn forget_those_there(&mut self) {
        self.there.clear();
    }

    fn note(&mut self, exchange: Arc<str>, routing_key: Option<Arc<str>>, trouble: Trouble, time: Duration) {
        if self.bad.len() >= MAX_REMEMBERED {
            self.bad.clear();
        }
        self.bad.insert((exchange, routing_key), (trouble, Instant::now() + time));
    }
}

/// Looks whether an exchange exists, on a channel of its own: the broker closes it if not.
///
/// # Errors
/// The connection broke.
pub(super) async fn look_up(connection: &Connection, exchange: &str) -> Result<Result<(), Trouble>, lapin::Error> {
    let name = match wire::short("exchange", exchange) {
        Ok(name) => name,
        Err(trouble) => return Ok(Err(trouble)),
    };
    let channel = connection.create_channel().await?;
    let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
    match channel.exchange_declare(name, ExchangeKind::Direct, passive, FieldTable::default()).await {
        Ok(()) => Ok(Ok(())),
        Err(error) if !connection.status().connected() => Err(error),
        Err(error) => match error.kind() {
            ErrorKind::ProtocolError(reply) if reply.get_id() == 404 => Ok(Err(missing(exchange))),
            ErrorKind::ProtocolError(reply) => {
                Ok(Err(Trouble::new("exchange_refused", format!("exchange {exchange:?}: {}", reply.get_message()))))
            }
            _ => Err(error),
        },
    }
}

/// The class of a missing exchange.
pub(super) const MISSING: &str = "exchange_missing";

pub(super) fn missing(exchange: &str) -> Trouble {
    Trouble::new(MISSING, format!("the broker has no exchange {exchange:?} in this vhost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_bad(exchanges: &Exchanges, exchange: &str, routing_key: &str) -> bool {
        matches!(exchanges.standing(&exchange.into(), &routing_key.into()), Standing::Bad { .. })
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_exchange_is_asked_for_again_after_a_while() {
        let mut exchanges = Exchanges::default();
        exchanges.is_missing("x".into(), missing("x"));
        assert!(is_bad(&exchanges, "x", "k"));
        assert!(matches!(exchanges.standing(&"y".into(), &"k".into()), Standing::Unknown));
        tokio::time::advance(MISSING_FOR).await;
        assert!(matches!(exchanges.standing(&"x".into(), &"k".into()), Standing::Unknown));
        exchanges.is_there("x".into());
        assert!(matches!(exchanges.standing(&"x".into(), &"k".into()), Standing::Good));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_routing_key_leaves_the_others_of_its_exchange_alone() {
        let mut exchanges = Exchanges::default();
        exchanges.is_there("x".into());
        exchanges.is_refused("x".into(), Some("k".into()), missing("x"));
        assert!(is_bad(&exchanges, "x", "k"));
        assert!(!is_bad(&exchanges, "x", "other"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_bounded() {
        let mut exchanges = Exchanges::default();
        for number in 0..3 * MAX_REMEMBERED {
            exchanges.is_there(number.to_string().into());
            exchanges.is_missing(format!("m{number}").into(), missing("m"));
        }
        assert!(exchanges.there.len() <= MAX_REMEMBERED && exchanges.bad.len() <= MAX_REMEMBERED);
    }

    #[test]
    fn the_default_exchange_needs_no_looking_up() {
        assert!(matches!(Exchanges::default().standing(&"".into(), &"queue".into()), Standing::Good));
    }
}
