//! A shop: an application's database, its exchange, and Outbill beside them.

use tempfile::TempDir;

use super::{Broker, Config, Database, Finished, Kind, LONG, Outbill, broker_url};

#[derive(Debug)]
pub(crate) struct Shop {
    pub(crate) database: Database,
    pub(crate) broker: Broker,
    pub(crate) dir: TempDir,
}

impl Shop {
    /// A shop on the shared servers; `None`, and said loudly, where they are not there.
    pub(crate) async fn open(kind: Kind) -> Option<Self> {
        Some(Self::open_on(&kind.url()?, &broker_url()?).await)
    }

    pub(crate) async fn open_on(database_url: &str, broker_url: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("outbill-shop-").tempdir().unwrap();
        Self { database: Database::create(database_url).await, broker: Broker::new(broker_url).await, dir }
    }

    pub(crate) fn config(&self) -> Config {
        Config::new(&self.database.url(), &self.broker.url, &self.broker.exchange)
    }

    /// Makes Outbill's own tables, then starts `outbill run`.
    pub(crate) async fn run(&self, config: &Config) -> Outbill {
        self.init(config).await;
        self.start(config)
    }

    pub(crate) async fn init(&self, config: &Config) {
        let finished = self.command(config, &["init", "--apply"]).await;
        assert_eq!(finished.code, Some(0), "init: {finished:?}");
    }

    pub(crate) fn start(&self, config: &Config) -> Outbill {
        self.spawn(config, &["run"])
    }

    pub(crate) fn spawn(&self, config: &Config, arguments: &[&str]) -> Outbill {
        Outbill::start(self.dir.path(), config, arguments, std::slice::from_ref(&self.database.password))
    }

    /// Runs a command to its end.
    pub(crate) async fn command(&self, config: &Config, arguments: &[&str]) -> Finished {
        self.spawn(config, arguments).finish(LONG).await
    }

    /// Waits until this many bills meet a condition.
    pub(crate) async fn wait_for(&self, count: usize, condition: &str) {
        self.wait_for_within(count, condition, LONG).await;
    }

    pub(crate) async fn wait_for_within(&self, count: usize, condition: &str, limit: std::time::Duration) {
        super::eventually(&format!("{count} bills with {condition}"), limit, async || {
            (self.database.count(condition).await >= count).then_some(())
        })
        .await;
    }
}
