//! `outbill run`: delivers until told to stop.

use std::{path::Path, time::Duration};

use anyhow::Context;
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use crate::{
    app,
    clock::Chance,
    command::{Exit, Failure, Output, findings},
    config::{self, Config, Environment},
    finding::{Finding, FindingState},
    lifecycle::{self, Lifecycle, Signals},
    relay::Relay,
    store::{self, Opened, schema::Inspection},
    telemetry,
};

/// The wait between two attempts to reach the store at start.
const AGAIN: Duration = Duration::from_secs(2);
/// How often that is mentioned.
const MENTION: Duration = Duration::from_secs(20);

pub(super) async fn run(file: &Path, env: &Environment<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let config = config::load(file, env)?;
    telemetry::init(&config.log);
    for warning in &config.warnings {
        warn!(file = %file.display(), "{warning}");
    }
    let sinks = app::sinks(&config)?;
    let mut signals = lifecycle::listen().context("listen for signals")?;
    let (inspection, opened) = match start(&config, &mut signals).await? {
        Start::Ready(inspection, opened) => (inspection, opened),
        Start::Bad(bad) => {
            findings::print(&bad, false, output);
            error!(points = bad.len(), "the store cannot be worked with before these points are mended");
            return Ok(Exit::Found);
        }
        Start::Stopped => return Ok(Exit::Fine),
    };
    let form = inspection.message_id_form.context("read how message ids are made")?;
    let routes = app::routes(&config, &form, &opened.facts)?;
    let names: Vec<&str> = routes.iter().map(|route| route.name.as_ref()).collect();
    info!(
        version = env!("CARGO_PKG_VERSION"), instance = %config.instance, table = %config.store.table,
        routes = names.join(", "), "running"
    );
    let life = Lifecycle::new();
    let relay = Relay::new(opened.store, sinks, routes, app::options(&config), Chance::from_system());
    life.spawn("relay", relay.run(life.stopping()));
    life.finish(&mut signals, config.shutdown_timeout).await.into()
}

enum Start {
    Ready(Inspection, Opened),
    /// What has to be mended first.
    Bad(Vec<Finding>),
    /// A signal came first.
    Stopped,
}

/// Waits for the store, which may start later than we do, and looks whether it can be worked with.
async fn start(config: &Config, signals: &mut Signals) -> Result<Start, Failure> {
    let mut mentioned: Option<Instant> = None;
    loop {
        // A silent server may take its time to refuse us: nobody who wants us to stop waits for that.
        let result = tokio::select! {
            result = attempt(config) => result,
            _ = signals.recv() => return Ok(Start::Stopped),
        };
        let error = match result {
            Ok(start) => {
                if mentioned.is_some() {
                    info!("the store answers");
                }
                return Ok(start);
            }
            Err(error) => error,
        };
        if mentioned.is_none_or(|at| at.elapsed() >= MENTION) {
            warn!(error = format!("{error:#}"), "the store is unavailable, trying again");
            mentioned = Some(Instant::now());
        }
        tokio::select! {
            () = sleep(AGAIN) => {}
            _ = signals.recv() => return Ok(Start::Stopped),
        }
    }
}

async fn attempt(config: &Config) -> anyhow::Result<Start> {
    let inspection = store::schema::inspect(&config.store, Some(app::max_payload(config))).await?;
    let bad: Vec<Finding> = inspection.findings.iter().filter(|finding| finding.is_bad()).cloned().collect();
    if !bad.is_empty() {
        return Ok(Start::Bad(bad));
    }
    for finding in &inspection.findings {
        if let FindingState::Warning { problem, remedy } = &finding.state {
            warn!(point = %finding.point, %problem, %remedy, "not quite in order");
        }
    }
    let opened = store::open(&config.store, &config.instance).await?;
    Ok(Start::Ready(inspection, opened))
}
