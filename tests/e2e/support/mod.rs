//! What every scenario needs: servers, a shop with its table, a consumer that keeps books, the binary, a bad network.

mod broker;
mod config;
mod database;
mod outbill;
mod proxy;
mod servers;
mod shop;

use std::time::Duration;

pub(crate) use broker::Broker;
pub(crate) use config::Config;
pub(crate) use database::{Database, execute};
pub(crate) use outbill::{Finished, Outbill};
pub(crate) use proxy::Proxy;
pub(crate) use servers::{Kind, Private, broker_url, start_broker, start_database};
pub(crate) use shop::Shop;

/// Long enough for anything that should happen at all on a busy machine.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// Looks until there is something to see, the only way in which a scenario waits.
///
/// # Panics
/// Nothing came within `limit`.
pub(crate) async fn eventually<T>(what: &str, limit: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + limit;
    let mut interval = tokio::time::interval(Duration::from_millis(25));
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(outbill::all_alive(), "outbill has ended, and there was still to come: {what}");
        assert!(tokio::time::Instant::now() < deadline, "not within {limit:?}: {what}");
    }
}

/// How long a fault lasts, where its length is what the scenario is about.
pub(crate) async fn let_it_last(length: Duration) {
    tokio::time::sleep(length).await;
}

/// A few letters that no other test of this or any other run has.
pub(crate) fn unique() -> String {
    format!("{:012x}", rand::random::<u64>() >> 16)
}
