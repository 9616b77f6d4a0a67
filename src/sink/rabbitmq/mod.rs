//! RabbitMQ, over AMQP 0-9-1 with publisher confirms.

pub mod settings;
