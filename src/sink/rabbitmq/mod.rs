//! RabbitMQ, over AMQP 0-9-1 with publisher confirms.

mod endpoint;
pub mod settings;

use crate::sink::AddressKey;

/// What a route's `to` says for RabbitMQ. The default exchange takes a queue's name as the routing key.
pub const ADDRESS_KEYS: &[AddressKey] =
    &[AddressKey { name: "exchange", default: Some("") }, AddressKey { name: "routing_key", default: None }];
