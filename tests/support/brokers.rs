//! Real RabbitMQ brokers for tests: a shared one named by `OUTBILL_TEST_RABBITMQ_URL`, and private ones that a test may
//! disturb, started by `scripts/servers`.

#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::disallowed_methods, reason = "tests take their servers from the environment")]
#![allow(clippy::print_stderr, reason = "a test that is left out has to be seen")]

use std::{
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use lapin::{
    Channel, Connection, ConnectionProperties, ExchangeKind,
    message::BasicGetMessage,
    options::{
        BasicGetOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions,
        QueueDeleteOptions,
    },
    types::{AMQPValue, FieldTable},
};

/// A name that no other test uses.
pub(crate) fn unique(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("outbill-test-{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A broker, and the application's side of it.
pub(crate) struct Broker {
    pub(crate) url: String,
    private: Option<tempfile::TempDir>,
}

impl Broker {
    /// The broker that tests share; `None` where there is none and none need be.
    pub(crate) fn shared() -> Option<Self> {
        let Ok(url) = std::env::var("OUTBILL_TEST_RABBITMQ_URL") else {
            missing("OUTBILL_TEST_RABBITMQ_URL is not set");
            return None;
        };
        Some(Self { url, private: None })
    }

    /// A broker of one's own. `options` are lines of `rabbitmq.conf`; `{DIR}` in them is the folder that `prepare` filled.
    pub(crate) fn private(options: &[&str], prepare: impl FnOnce(&std::path::Path)) -> Option<Self> {
        if std::env::var("OUTBILL_TEST_RABBITMQ_URL").is_err() {
            missing("OUTBILL_TEST_RABBITMQ_URL is not set, so no private broker is started either");
            return None;
        }
        let folder = tempfile::Builder::new().prefix("outbill-rabbitmq.").tempdir().unwrap();
        prepare(folder.path());
        let dir = folder.path().display().to_string();
        let options: Vec<_> = options.iter().map(|option| option.replace("{DIR}", &dir)).collect();
        let mut broker = Self { url: String::new(), private: Some(folder) };
        let printed = broker.servers("start", &["rabbitmq"], &options);
        let url = printed.lines().find_map(|line| line.strip_prefix("URL=")).expect("a URL is printed");
        url.clone_into(&mut broker.url);
        Some(broker)
    }

    fn folder(&self) -> PathBuf {
        self.private.as_ref().expect("only a private broker may be disturbed").path().join("broker")
    }

    fn servers(&self, verb: &str, before: &[&str], after: &[String]) -> String {
        let script = std::env::var("OUTBILL_SERVERS").unwrap_or_else(|_| "scripts/servers".to_owned());
        let output = Command::new(script).arg(verb).args(before).arg(self.folder()).args(after).output().unwrap();
        assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn kill(&self) {
        self.servers("kill", &[], &[]);
    }

    pub(crate) fn start_again(&self) {
        self.servers("start", &["rabbitmq"], &[]);
    }

    /// `rabbitmqctl`
    pub(crate) fn ctl(&self, arguments: &[&str]) -> String {
        let arguments: Vec<_> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        self.servers("ctl", &[], &arguments)
    }

    /// The URL without its scheme, user and vhost.
    pub(crate) fn host_and_port(&self) -> (String, u16) {
        let (_, place) = self.url.rsplit_once('@').unwrap();
        let (host, port) = place.split('/').next().unwrap().rsplit_once(':').unwrap();
        (host.to_owned(), port.parse().unwrap())
    }

    pub(crate) async fn application(&self) -> Application {
        let connection = Connection::connect(&self.url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        Application { connection, channel }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if self.private.is_some() && !std::thread::panicking() {
            self.kill();
        } else if self.private.is_some() {
            let script = std::env::var("OUTBILL_SERVERS").unwrap_or_else(|_| "scripts/servers".to_owned());
            drop(Command::new(script).arg("kill").arg(self.folder()).output());
        }
    }
}

fn missing(what: &str) {
    assert!(std::env::var("CI").is_err(), "{what}, and CI wants every server");
    eprintln!("LEFT OUT: {what}");
}

/// The application's own connection: it declares what Outbill only uses, and reads what arrives.
pub(crate) struct Application {
    connection: Connection,
    channel: Channel,
}

impl Application {
    pub(crate) async fn declare_queue(&self, queue: &str, arguments: &[(&str, AMQPValue)]) {
        let mut table = FieldTable::default();
        for (name, value) in arguments {
            table.insert((*name).into(), value.clone());
        }
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        self.channel.queue_declare(queue.into(), durable, table).await.unwrap();
    }

    pub(crate) async fn declare_exchange(&self, exchange: &str) {
        let options = ExchangeDeclareOptions::default();
        self.channel
            .exchange_declare(exchange.into(), ExchangeKind::Topic, options, FieldTable::default())
            .await
            .unwrap();
    }

    pub(crate) async fn bind(&self, queue: &str, exchange: &str, pattern: &str) {
        let options = QueueBindOptions::default();
        self.channel
            .queue_bind(queue.into(), exchange.into(), pattern.into(), options, FieldTable::default())
            .await
            .unwrap();
    }

    pub(crate) async fn delete_exchange(&self, exchange: &str) {
        self.channel.exchange_delete(exchange.into(), ExchangeDeleteOptions::default()).await.unwrap();
    }

    pub(crate) async fn delete_queue(&self, queue: &str) {
        self.channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await.unwrap();
    }

    /// Takes one message off a queue.
    pub(crate) async fn get(&self, queue: &str) -> Option<BasicGetMessage> {
        self.channel.basic_get(queue.into(), BasicGetOptions { no_ack: true }).await.unwrap()
    }

    /// Takes all messages off a queue; their message ids.
    pub(crate) async fn drain(&self, queue: &str) -> Vec<String> {
        let mut ids = Vec::new();
        while let Some(message) = self.get(queue).await {
            ids.push(message.properties.message_id().as_ref().unwrap().as_str().to_owned());
        }
        ids
    }
}
