//! The only wiring: from a configuration to sinks, routes and a relay. Nowhere else is an adapter named.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use tracing::warn;

use crate::{
    bill::MessageIdForm,
    config::{Config, RouteSettings, SinkSettings},
    policy::Retry,
    relay::{Compose, Options, Route, SinkLine},
    sink::{AddressKey, Sink, file, message, rabbitmq, template::Destination},
    store::facts::Facts,
};

/// `next_retry_time` in whole seconds cannot tell shorter waits apart, and a shorter one could come out as none.
const SHORTEST_BASE_IN_SECONDS: Duration = Duration::from_secs(1);

/// Makes the sinks of a configuration, in the order of their names; connects to nothing.
pub fn sinks(config: &Config) -> anyhow::Result<Vec<SinkLine>> {
    config.sinks.iter().map(|(name, settings)| sink(name, settings)).collect()
}

fn sink(name: &str, settings: &SinkSettings) -> anyhow::Result<SinkLine> {
    let (sink, in_flight): (Arc<dyn Sink>, u32) = match settings {
        SinkSettings::Rabbitmq(settings) => {
            (Arc::new(rabbitmq::RabbitmqSink::new(name, settings.as_ref().clone())?), settings.in_flight)
        }
        SinkSettings::File(settings) => (Arc::new(file::FileSink::new(name, settings.clone())), settings.in_flight),
    };
    Ok(SinkLine { name: name.into(), sink, in_flight: in_flight as usize })
}

/// The names of the parts of an address of this kind of sink.
pub fn address_keys(settings: &SinkSettings) -> &'static [AddressKey] {
    match settings {
        SinkSettings::Rabbitmq(_) => rabbitmq::ADDRESS_KEYS,
        SinkSettings::File(_) => file::ADDRESS_KEYS,
    }
}

/// The longest payload that any sink takes, in bytes: a longer one is not even read.
pub fn max_payload(config: &Config) -> u64 {
    let limits = config.sinks.values().map(|settings| match settings {
        SinkSettings::Rabbitmq(settings) => settings.max_message.0,
        SinkSettings::File(settings) => settings.max_message.0,
    });
    limits.max().unwrap_or(0)
}

/// The routes of a configuration, in its order.
pub fn routes(config: &Config, form: &MessageIdForm, facts: &Facts) -> anyhow::Result<Vec<Route>> {
    config
        .routes
        .iter()
        .map(|settings| {
            let line = config.sinks.keys().position(|name| *name == settings.sink);
            Ok(Route {
                name: settings.name.as_str().into(),
                selector: settings.selector.clone(),
                line: line.with_context(|| format!("find the sink {:?} of a route", settings.sink))?,
                compose: compose(settings, form),
                retry: retry(settings, facts),
                attempt_log: settings.attempt_log,
            })
        })
        .collect()
}

/// How a route makes a message of a bill.
pub fn compose(settings: &RouteSettings, form: &MessageIdForm) -> Compose {
    let destination = settings.destination.clone();
    let content_type: Arc<str> = settings.content_type.as_deref().unwrap_or(message::DEFAULT_CONTENT_TYPE).into();
    let form = form.clone();
    Arc::new(move |bill| (message::message_id(bill, &form), message::compose(bill, &form, &destination, &content_type)))
}

/// Messages without an address, for a sink that needs none.
pub fn compose_plainly(form: &MessageIdForm) -> Compose {
    let (form, destination) = (form.clone(), Destination::new([]));
    let content_type: Arc<str> = message::DEFAULT_CONTENT_TYPE.into();
    Arc::new(move |bill| (message::message_id(bill, &form), message::compose(bill, &form, &destination, &content_type)))
}

fn retry(settings: &RouteSettings, facts: &Facts) -> Retry {
    let mut retry = settings.retry;
    if facts.retry_time_decimals == 0 && retry.base < SHORTEST_BASE_IN_SECONDS {
        warn!(
            route = %settings.name, base_ms = retry.base.as_millis(),
            "next_retry_time is kept in whole seconds: the route's retry.base becomes 1s"
        );
        retry.base = SHORTEST_BASE_IN_SECONDS;
        retry.cap = retry.cap.max(retry.base);
    }
    retry
}

/// How the relay works, by the configuration.
pub fn options(config: &Config) -> Options {
    let poll = &config.store.poll;
    Options {
        poll_interval: poll.interval.0,
        batch: poll.batch as usize,
        batch_bytes: usize::try_from(poll.batch_bytes.0).unwrap_or(usize::MAX),
        max_payload: usize::try_from(max_payload(config)).unwrap_or(usize::MAX),
        // The rest of the time is for closing connections.
        drain_limit: config.shutdown_timeout.0.mul_f64(0.8),
    }
}
