//! The consumer's side of RabbitMQ.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::StreamExt;
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind,
    options::{
        BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, ExchangeDeleteOptions,
        QueueBindOptions, QueueDeclareOptions,
    },
    types::{AMQPValue, FieldTable},
};

use super::{eventually, unique};

/// A durable topic exchange of this test's own.
#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) url: String,
    pub(crate) exchange: String,
    channel: Channel,
    _connection: Connection,
}

impl Broker {
    pub(crate) async fn new(url: &str) -> Self {
        let broker = Self::attach(url, &format!("x-{}", unique())).await;
        broker.declare_exchange(&broker.exchange).await;
        broker
    }

    /// Connects anew, after a restart of the broker.
    pub(crate) async fn attach(url: &str, exchange: &str) -> Self {
        let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        Self { url: url.to_owned(), exchange: exchange.to_owned(), channel, _connection: connection }
    }

    pub(crate) async fn declare_exchange(&self, name: &str) {
        let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        self.channel.exchange_declare(name.into(), ExchangeKind::Topic, options, FieldTable::default()).await.unwrap();
    }

    pub(crate) async fn delete_exchange(&self, name: &str) {
        self.channel.exchange_delete(name.into(), ExchangeDeleteOptions::default()).await.unwrap();
    }

    /// A durable queue bound to the exchange by a pattern; returns its name.
    pub(crate) async fn queue(&self, pattern: &str) -> String {
        self.queue_with(pattern, FieldTable::default()).await
    }

    async fn queue_with(&self, pattern: &str, arguments: FieldTable) -> String {
        let name = format!("q-{}", unique());
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        self.channel.queue_declare(name.as_str().into(), options, arguments).await.unwrap();
        self.bind(&name, pattern).await;
        name
    }

    /// A queue that is full, so that the broker nacks whatever comes.
    pub(crate) async fn full_queue(&self, pattern: &str) -> String {
        let mut arguments = FieldTable::default();
        arguments.insert("x-max-length".into(), AMQPValue::LongInt(1));
        arguments.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
        let name = self.queue_with(pattern, arguments).await;
        let options = BasicPublishOptions::default();
        let confirm =
            self.channel.basic_publish("".into(), name.as_str().into(), options, b"full", BasicProperties::default());
        assert!(confirm.await.unwrap().await.unwrap().is_ack());
        name
    }

    pub(crate) async fn bind(&self, queue: &str, pattern: &str) {
        let (queue, exchange) = (queue.into(), self.exchange.as_str().into());
        let options = QueueBindOptions::default();
        self.channel.queue_bind(queue, exchange, pattern.into(), options, FieldTable::default()).await.unwrap();
    }

    pub(crate) async fn unbind(&self, queue: &str, pattern: &str) {
        let (queue, exchange) = (queue.into(), self.exchange.as_str().into());
        self.channel.queue_unbind(queue, exchange, pattern.into(), FieldTable::default()).await.unwrap();
    }

    /// Consumes a queue and keeps books of everything that comes.
    pub(crate) async fn consume(&self, queue: &str) -> Ledger {
        let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
        let mut consumer =
            self.channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await.unwrap();
        let books = Arc::new(Mutex::new(Books::default()));
        let ledger = Ledger { books: Arc::clone(&books), channel: self.channel.clone(), queue: queue.to_owned() };
        tokio::spawn(async move {
            while let Some(Ok(delivery)) = consumer.next().await {
                books.lock().unwrap().add(Received::from(delivery));
            }
        });
        ledger
    }

    /// A queue for everything, and its ledger.
    pub(crate) async fn consume_all(&self) -> Ledger {
        self.consume(&self.queue("#").await).await
    }
}

/// What a consumer got.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) message_id: String,
    pub(crate) routing_key: String,
    pub(crate) body: Vec<u8>,
    pub(crate) properties: BasicProperties,
}

impl Received {
    pub(crate) fn headers(&self) -> BTreeMap<String, AMQPValue> {
        let table = self.properties.headers().clone().unwrap_or_default();
        table.inner().iter().map(|(name, value)| (name.as_str().to_owned(), value.clone())).collect()
    }
}

impl From<lapin::message::Delivery> for Received {
    fn from(delivery: lapin::message::Delivery) -> Self {
        let message_id = delivery.properties.message_id().as_ref().map(|id| id.as_str().to_owned());
        Self {
            message_id: message_id.unwrap_or_default(),
            routing_key: delivery.routing_key.as_str().to_owned(),
            body: delivery.data,
            properties: delivery.properties,
        }
    }
}

/// What the message ids of our own begin with.
const SIGN: &str = "end of the queue ";

/// The books of one consumer, by message id.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    books: Arc<Mutex<Books>>,
    channel: Channel,
    queue: String,
}

#[derive(Debug, Default)]
struct Books {
    by_id: HashMap<String, Vec<Received>>,
    total: usize,
    signs: HashSet<String>,
}

impl Books {
    fn add(&mut self, received: Received) {
        if received.message_id.starts_with(SIGN) {
            self.signs.insert(received.message_id);
            return;
        }
        self.total += 1;
        self.by_id.entry(received.message_id.clone()).or_default().push(received);
    }
}

impl Ledger {
    /// Different message ids.
    pub(crate) fn distinct(&self) -> usize {
        self.books.lock().unwrap().by_id.len()
    }

    /// Different message ids and duplicates, once everything that is on the queue now has come: a message of ours
    /// behind all of it is the sign.
    pub(crate) async fn complete(&self) -> (usize, usize) {
        let sign = format!("{SIGN}{}", unique());
        let properties = BasicProperties::default().with_message_id(sign.as_str().into());
        let (queue, options) = (self.queue.as_str().into(), BasicPublishOptions::default());
        let confirm = self.channel.basic_publish("".into(), queue, options, b"", properties).await.unwrap();
        assert!(confirm.await.unwrap().is_ack());
        let seen = async || self.books.lock().unwrap().signs.contains(&sign).then_some(());
        eventually("the end of the queue", super::LONG, seen).await;
        (self.distinct(), self.duplicates())
    }

    /// Messages beyond the first of each id.
    pub(crate) fn duplicates(&self) -> usize {
        let books = self.books.lock().unwrap();
        books.total - books.by_id.len()
    }

    /// All message ids, once everything that is on the queue now has come.
    pub(crate) async fn ids(&self) -> Vec<String> {
        self.complete().await;
        let mut ids: Vec<String> = self.books.lock().unwrap().by_id.keys().cloned().collect();
        ids.sort();
        ids
    }

    pub(crate) fn all(&self, message_id: &str) -> Vec<Received> {
        self.books.lock().unwrap().by_id.get(message_id).cloned().unwrap_or_default()
    }

    pub(crate) async fn wait_for(&self, count: usize, limit: Duration) {
        eventually(&format!("{count} messages on the queue"), limit, async || (self.distinct() >= count).then_some(()))
            .await;
    }

    /// The message of an id, as soon as it is there.
    pub(crate) async fn message(&self, message_id: &str) -> Received {
        eventually(&format!("the message {message_id}"), super::LONG, async || self.all(message_id).pop()).await
    }
}
