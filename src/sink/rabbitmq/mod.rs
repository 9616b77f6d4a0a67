//! RabbitMQ, over AMQP 0-9-1 with publisher confirms.

mod endpoint;
pub mod settings;
