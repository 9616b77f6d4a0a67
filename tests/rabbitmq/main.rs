//! The RabbitMQ sink against real brokers.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests may fail them")]
#![allow(clippy::print_stdout, reason = "the measurement is printed")]

#[path = "../support/mod.rs"]
mod support;

mod encrypted;
mod outages;
mod returns;
mod routing;
mod speed;

use std::sync::Arc;

use outbill::sink::rabbitmq::{RabbitmqSink, settings::Settings};
use serde_json::{Value, json};

use support::brokers::Broker;

/// A sink with the given settings on top of the broker's URL.
fn sink(broker: &Broker, more: &Value) -> Arc<RabbitmqSink> {
    let mut settings = json!({ "url": broker.url });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    sink_of(&settings)
}

fn sink_of(settings: &Value) -> Arc<RabbitmqSink> {
    let settings: Settings = serde_json::from_value(settings.clone()).unwrap();
    Arc::new(RabbitmqSink::new("rabbit", settings).unwrap())
}
