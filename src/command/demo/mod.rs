//! `outbill demo`: the main job with nothing installed. A shop on SQLite, the real relay, and a sink that misbehaves on
//! purpose; at the end a ledger shows where every bill went.

mod ledger;
mod sink;

use std::{io::IsTerminal, path::Path, sync::Arc, time::Duration};

use anyhow::Context;
use tokio::{
    task::JoinSet,
    time::{Instant, interval, sleep_until},
};
use tokio_util::sync::CancellationToken;

use self::{ledger::Ledger, sink::DemoSink};
use crate::{
    app,
    bill::MessageIdForm,
    clock::Chance,
    command::{Exit, Output},
    config::Config,
    policy::{AttemptLog, Pattern, Retry, Selector},
    relay::{Options, Relay, Route, SinkLine},
    store::{
        self,
        shop::{Order, Shop},
    },
};

/// The shop is open this long; bills that are retried, and the outage, take a little longer.
const SHOP_OPEN: Duration = Duration::from_secs(6);
/// What is not finished by then is not going to be: the ledger will not balance, and says so.
const PATIENCE: Duration = Duration::from_secs(18);
const PROGRESS: Duration = Duration::from_millis(100);

/// What the demo is asked to do.
#[derive(Clone, Copy, Debug)]
pub struct Options_ {
    pub bills: u32,
    pub seed: u64,
    pub progress: bool,
}
