//! What `check` asks of a broker: can it be reached, and are the addresses there? Nothing is declared.

use std::collections::BTreeSet;

use lapin::{Connection, ErrorKind, options::QueueDeclareOptions, types::FieldTable};

use super::{
    connect::{self, Wish},
    exchanges, wire,
};
use crate::{decision::Trouble, finding::Finding, sink::Address};

pub(super) async fn check(sink: &str, wish: &Wish<'_>, addresses: &[Address]) -> Vec<Finding> {
    let point = format!("sink {sink}");
    let link = match Box::pin(connect::connect(wish)).await {
        Ok(link) => link,
        Err(failure) => {
            return vec![Finding::bad(point, failure.trouble.error, remedy(failure.trouble.class))];
        }
    };
    let encrypted = if wish.endpoint.tls.is_some() { "encrypted" } else { "not encrypted" };
    let detail = format!(
        "RabbitMQ at {}:{}, vhost {:?}, {encrypted}",
        wish.endpoint.host, wish.endpoint.port, wish.endpoint.vhost
    );
    let mut findings = vec![Finding::good(point, detail)];
    for target in targets(addresses) {
        findings.push(target.look(&link.connection).await);
    }
    link.close().await;
    findings
}

fn remedy(class: &str) -> &'static str {
    match class {
        "dns" => "correct host, or the name service",
        "unreachable" | "connect_timeout" => "start the broker, or correct host and port, or open the firewall",
        "credentials_refused" => "correct user and password, or create the user with: rabbitmqctl add_user",
        "vhost_missing" => "correct vhost, or create it with: rabbitmqctl add_vhost",
        "vhost_refused" => "grant the user the vhost with: rabbitmqctl set_permissions",
        "password_unreadable" => "correct password_file, or its permissions",
        "tls" => "correct tls, or the broker's certificates",
        _ => "see the broker's log",
    }
}

/// What of an address is known without a bill.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Exchange(String),
    /// The default exchange routes to the queue of the routing key's name.
    Queue(String),
}

fn targets(addresses: &[Address]) -> BTreeSet<Target> {
    let target = |address: &Address| match &**address {
        [exchange, _] if exchange.from_row => None,
        [exchange, routing_key] if exchange.text.is_empty() => {
            (!routing_key.from_row).then(|| Target::Queue(routing_key.text.as_ref().to_owned()))
        }
        [exchange, _] => Some(Target::Exchange(exchange.text.as_ref().to_owned())),
        _ => None,
    };
    addresses.iter().filter_map(target).collect()
}

impl Target {
    async fn look(&self, connection: &Connection) -> Finding {
        let (point, looked, remedy) = match self {
            Self::Exchange(name) => (
                format!("exchange {name}"),
                exchanges::look_up(connection, name).await,
                "declare the exchange where the application declares its own, or correct to.exchange",
            ),
            Self::Queue(name) => (
                format!("queue {name}"),
                look_up_queue(connection, name).await,
                "declare the queue where the application declares its own, or correct to.routing_key",
            ),
        };
        match looked {
            Ok(Ok(())) => Finding::good(point, "exists"),
            Ok(Err(trouble)) => Finding::bad(point, trouble.error, remedy),
            Err(_) => Finding::bad(point, "the connection broke while looking", "see the broker's log"),
        }
    }
}

async fn look_up_queue(connection: &Connection, queue: &str) -> Result<Result<(), Trouble>, lapin::Error> {
    let name = match wire::short("queue", queue) {
        Ok(name) => name,
        Err(trouble) => return Ok(Err(trouble)),
    };
    let channel = connection.create_channel().await?;
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    match channel.queue_declare(name, passive, FieldTable::default()).await {
        Ok(_) => Ok(Ok(())),
        Err(error) => match error.kind() {
            // Held by another connection alone: it is there, and messages reach it.
            ErrorKind::ProtocolError(reply) if reply.get_id() == 405 => Ok(Ok(())),
            ErrorKind::ProtocolError(reply) => Ok(Err(Trouble::new("queue_missing", reply.get_message().as_str()))),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::template::{Destination, Template};

    #[test]
    fn only_what_is_known_without_a_bill_is_looked_for_and_once() {
        let outline =
            |exchange, key| Destination::new([exchange, key].map(|text| Template::parse(text, &[]).unwrap())).outline();
        let addresses =
            [outline("a", "{type}"), outline("a", "x"), outline("{type}", "k"), outline("", "q"), outline("", "{key}")];
        let expected = [Target::Exchange("a".to_owned()), Target::Queue("q".to_owned())];
        assert_eq!(targets(&addresses).into_iter().collect::<Vec<_>>(), expected);
    }
}
