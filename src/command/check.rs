//! `outbill check`: connects to everything and says what is not in order.

use std::path::Path;

use crate::{
    app,
    cli::Format,
    command::{Exit, Failure, Output, findings, output::about},
    config::{self, Environment, RouteSettings},
    finding::Finding,
    sink::Address,
    store,
};

pub(super) async fn run(
    format: Format,
    file: &Path,
    env: &Environment<'_>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let config = config::load(file, env)?;
    let mut found: Vec<Finding> = config
        .warnings
        .iter()
        .map(|warning| Finding::warning("configuration", warning.to_string(), "change it if it is not meant"))
        .collect();
    let mut is_unreachable = false;
    match store::schema::inspect(&config.store, Some(app::max_payload(&config))).await {
        Ok(inspection) => found.extend(inspection.findings),
        Err(error) => {
            is_unreachable = true;
            found.push(Finding::bad("store", format!("{error:#}"), "start it, or mend store.* in the configuration"));
        }
    }
    for line in app::sinks(&config)? {
        let addresses: Vec<Address> = config
            .routes
            .iter()
            .filter(|route| route.sink == *line.name)
            .map(|route| route.destination.outline())
            .collect();
        found.extend(line.sink.check(&addresses).await);
    }
    found.extend(config.routes.iter().map(horizon));
    findings::print(&found, format.json, output);
    Ok(match (is_unreachable, found.iter().any(Finding::is_bad)) {
        (true, _) => Exit::Unreachable,
        (false, true) => Exit::Found,
        (false, false) => Exit::Fine,
    })
}

/// How long a bill of a route is tried before it is given up.
fn horizon(route: &RouteSettings) -> Finding {
    let attempts = route.retry.max_attempts;
    let horizon = about(route.retry.horizon().as_secs());
    let detail = format!("{attempts} attempts over about {horizon}, to the sink {}", route.sink);
    Finding::good(format!("route {}", route.name), detail)
}
