//! Who is to blame when the broker closes a channel: it names the exchange, or the size, in its reply.

use std::sync::Arc;

use lapin::ErrorKind;

use super::{
    exchanges::{self, Exchanges},
    flights::{Failure, Flight},
};
use crate::decision::{Exposure, Outcome, Trouble};

/// What made a channel or connection end, as far as the broker says.
#[derive(Debug)]
pub(super) enum Blame {
    /// Messages to this exchange (or only those with this routing key on it).
    Exchange { name: Name, routing_key: Option<String>, trouble: Trouble },
    /// Messages with bodies larger than this.
    LargerThan(usize, Trouble),
    /// We gave the channel up ourselves; no message is to blame.
    Nobody(Trouble),
    /// Any of those under way.
    Anyone(Trouble),
}

/// A name from the broker's reply, which is cut off at 255 bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Name {
    Whole(String),
    BeginsWith(String),
}

impl Name {
    pub(super) fn fits(&self, name: &str) -> bool {
        match self {
            Self::Whole(whole) => name == whole,
            Self::BeginsWith(start) => name.starts_with(start.as_str()),
        }
    }
}

impl Blame {
    pub(super) fn of(failure: &Failure) -> Self {
        match failure {
            Failure::NoConfirms => Self::Nobody(Trouble::new("no_confirms", "the broker does not confirm messages")),
            Failure::StrangeReturn => Self::Nobody(Trouble::new(
                "strange_return",
                "the broker returned a message that is none of those under way",
            )),
            Failure::TooManyOverdue => {
                Self::Nobody(Trouble::new("confirm_timeout", "the broker left too many messages unconfirmed"))
            }
            Failure::Ended => Self::Anyone(Trouble::new("connection_lost", "the connection to the broker ended")),
            Failure::Broken(error) => match error.kind() {
                ErrorKind::ProtocolError(reply) => Self::of_reply(reply.get_id(), reply.get_message().as_str()),
                ErrorKind::MissingHeartbeatError => {
                    Self::Anyone(Trouble::new("connection_lost", "the broker fell silent: no heartbeat"))
                }
                ErrorKind::IOError(error) => {
                    Self::Anyone(Trouble::new("connection_lost", format!("the connection broke: {error}")))
                }
                // What the library says of a frame could quote it.
                _ => Self::Anyone(Trouble::new("connection_lost", "the connection to the broker ended")),
            },
        }
    }

    fn of_reply(code: u16, text: &str) -> Self {
        match code {
            403 | 404 => {
                if let Some(name) = exchange_in(text) {
                    let shown = match &name {
                        Name::Whole(name) | Name::BeginsWith(name) => name.as_str(),
                    };
                    let trouble = match code {
                        404 => exchanges::missing(shown),
                        _ => Trouble::new("exchange_refused", text),
                    };
                    return Self::Exchange { name, routing_key: topic_in(text), trouble };
                }
            }
            406 => {
                if let Some(limit) = size_limit_in(text) {
                    return Self::LargerThan(limit, Trouble::new("too_large", text));
                }
            }
            // The broker is told to close connections, or stops.
            320 => return Self::Anyone(Trouble::new("connection_lost", text)),
            _ => {}
        }
        Self::Anyone(Trouble::new("channel_closed", text))
    }

    /// What a person reads about the end as a whole.
    pub(super) fn trouble(&self) -> &Trouble {
        match self {
            Self::Exchange { trouble, .. }
            | Self::LargerThan(_, trouble)
            | Self::Nobody(trouble)
            | Self::Anyone(trouble) => trouble,
        }
    }

    /// What it means for one message that was under way. `is_known` tells whether the guilty are among them.
    pub(super) fn outcome(&self, flight: &Flight, is_known: bool) -> Outcome {
        match self {
            _ if self.is_guilty(flight) => match self {
                Self::Exchange { routing_key, trouble, .. } => {
                    let from_row = flight.exchange.from_row || routing_key.is_some() && flight.routing_key.from_row;
                    charge(from_row, trouble.clone())
                }
                _ => Outcome::Rejected(self.trouble().clone()),
            },
            Self::Nobody(trouble) => Outcome::Unavailable(trouble.clone(), Exposure::Innocent),
            Self::Exchange { trouble, .. } | Self::LargerThan(_, trouble) if is_known => {
                let text = format!("another message made the broker close the channel: {}", trouble.error);
                Outcome::Unavailable(Trouble::new("channel_closed", text), Exposure::Innocent)
            }
            _ => Outcome::Unavailable(self.trouble().clone(), Exposure::InFlight),
        }
    }

    /// Keeps the next messages to the guilty address from doing the same again. `culprit` was one of them.
    pub(super) fn note(&self, culprit: &Flight, exchanges: &mut Exchanges) {
        let Self::Exchange { routing_key, trouble, .. } = self else { return };
        let exchange = Arc::clone(&culprit.exchange.text);
        if trouble.class == exchanges::MISSING {
            exchanges.is_missing(exchange, trouble.clone());
        } else {
            let routing_key = routing_key.as_ref().map(|_| Arc::clone(&culprit.routing_key.text));
            exchanges.is_refused(exchange, routing_key, trouble.clone());
        }
    }

    pub(super) fn is_guilty(&self, flight: &Flight) -> bool {
        match self {
            Self::Exchange { name, routing_key, .. } => {
                name.fits(&flight.exchange.text)
                    && routing_key.as_deref().is_none_or(|key| key == &*flight.routing_key.text)
            }
            Self::LargerThan(limit, _) => flight.body_bytes > *limit,
            Self::Nobody(_) | Self::Anyone(_) => false,
        }
    }
}

/// A fault of the address: the bill's, if its row named it, else the route's.
pub(super) fn charge(from_row: bool, trouble: Trouble) -> Outcome {
    if from_row { Outcome::Rejected(trouble) } else { Outcome::Misconfigured(trouble) }
}

/// `… exchange 'name' in vhost …`
fn exchange_in(text: &str) -> Option<Name> {
    let (_, rest) = text.split_once("exchange '")?;
    Some(match rest.rsplit_once("' in vhost") {
        Some((name, _)) => Name::Whole(name.to_owned()),
        None => Name::BeginsWith(rest.strip_suffix("...").unwrap_or(rest).to_owned()),
    })
}

/// `… topic 'routing key' in exchange …`
fn topic_in(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("topic '")?;
    rest.split_once("' in exchange").map(|(topic, _)| topic.to_owned())
}

/// `… message size 20 is larger than configured max size 10`
fn size_limit_in(text: &str) -> Option<usize> {
    let (_, rest) = text.split_once("message size ")?;
    let (_, limit) = rest.split_once(" max size ")?;
    limit.trim_end_matches(|last: char| !last.is_ascii_digit()).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::{AddressPart, Ticket};

    fn flight(exchange: &str, from_row: bool, routing_key: &str, body_bytes: usize) -> Flight {
        Flight {
            ticket: Ticket(1),
            bill_id: "7".into(),
            attempt: 1,
            exchange: AddressPart { text: exchange.into(), from_row },
            routing_key: AddressPart { text: routing_key.into(), from_row: true },
            body_bytes,
        }
    }

    #[test]
    fn only_messages_to_the_exchange_that_the_broker_names_are_charged() {
        let blame = Blame::of_reply(404, "NOT_FOUND - no exchange 'it's' in vhost '/'");
        assert!(
            matches!(blame.outcome(&flight("it's", true, "k", 1), true), Outcome::Rejected(trouble) if trouble.class == "exchange_missing")
        );
        assert!(matches!(blame.outcome(&flight("it's", false, "k", 1), true), Outcome::Misconfigured(_)));
        assert!(matches!(
            blame.outcome(&flight("its", true, "k", 1), true),
            Outcome::Unavailable(_, Exposure::Innocent)
        ));
    }

    #[test]
    fn a_name_that_the_broker_cut_off_is_matched_by_its_beginning() {
        let long = "x".repeat(250);
        let blame = Blame::of_reply(404, &format!("NOT_FOUND - no exchange '{}...", "x".repeat(228)));
        assert!(blame.is_guilty(&flight(&long, true, "k", 1)));
        assert!(!blame.is_guilty(&flight("y", true, "k", 1)));
    }

    #[test]
    fn a_refused_topic_charges_only_its_routing_key() {
        let text = "ACCESS_REFUSED - access to topic 'a.b' in exchange 'x' in vhost '/' refused for user 'u'";
        let blame = Blame::of_reply(403, text);
        assert!(blame.is_guilty(&flight("x", false, "a.b", 1)));
        assert!(!blame.is_guilty(&flight("x", false, "a.c", 1)));
        assert!(matches!(blame.outcome(&flight("x", false, "a.b", 1), true), Outcome::Rejected(_)));
    }

    #[test]
    fn a_message_over_the_brokers_own_size_limit_is_charged_by_its_size() {
        let text = "PRECONDITION_FAILED - message size 2000 is larger than configured max size 1000";
        let blame = Blame::of_reply(406, text);
        assert!(
            matches!(blame.outcome(&flight("x", false, "k", 1_001), true), Outcome::Rejected(trouble) if trouble.class == "too_large")
        );
        assert!(matches!(
            blame.outcome(&flight("x", false, "k", 1_000), true),
            Outcome::Unavailable(_, Exposure::Innocent)
        ));
    }

    #[test]
    fn where_the_broker_names_nobody_all_are_suspects() {
        for (code, text) in
            [(320, "CONNECTION_FORCED - broker forced"), (406, "PRECONDITION_FAILED - x"), (501, "FRAME_ERROR")]
        {
            let blame = Blame::of_reply(code, text);
            assert!(matches!(
                blame.outcome(&flight("x", true, "k", 1), false),
                Outcome::Unavailable(_, Exposure::InFlight)
            ));
        }
    }
}
