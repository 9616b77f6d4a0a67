//! `outbill preview`: the exact message that a bill would become. Nothing is sent and nothing is changed.

use std::path::Path;

use anyhow::Context;

use crate::{
    app,
    cli::Preview,
    command::{Exit, Failure, Output},
    config::{self, Config, Environment},
    store::{self, Found, Row},
};

pub(super) async fn run(
    options: Preview,
    file: &Path,
    env: &Environment<'_>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let config = config::load(file, env)?;
    let inspection = store::schema::inspect(&config.store, None).await.map_err(Failure::Unreachable)?;
    let form = inspection.message_id_form.context("read how message ids are made: run `outbill init --apply` first")?;
    let ledger = store::open(&config.store, &config.instance).await?.ledger;
    let Some(Found { row, status }) = ledger.find(&options.id).await? else {
        return Err(Failure::Usage(format!("there is no bill with the id {}", options.id)));
    };
    let bill = match row {
        Row::Bill(bill) => bill,
        Row::Invalid { class, problem, .. } => {
            output.error(format!("the bill would be rejected ({class}): {problem}"));
            return Ok(Exit::Found);
        }
    };
    let Some(route) = config.routes.iter().find(|route| route.selector.takes(&bill.bill_type)) else {
        output.error(format!("no route matches the type {:?}: the bill is left alone", bill.bill_type));
        return Ok(Exit::Found);
    };
    let message = match app::compose(route, &form)(&bill) {
        Ok(message) => message,
        Err(trouble) => {
            output.error(format!("the bill would be rejected ({}): {}", trouble.class, trouble.error));
            return Ok(Exit::Found);
        }
    };
    let keys = keys(&config, &route.sink);
    if options.format.json {
        output.line(serde_json::to_string(&message.shown(keys)).context("render the message")?);
    } else {
        output.line(format!("status   {status}"));
        output.line(format!("route    {}", route.name));
        output.line(format!("sink     {}", route.sink));
        output.line(message.shown(keys));
    }
    let line =
        app::sinks(&config)?.into_iter().find(|line| *line.name == route.sink).context("find the route's sink")?;
    match line.sink.admit(&message) {
        Ok(()) => Ok(Exit::Fine),
        Err(trouble) => {
            output.error(format!("the bill would be rejected ({}): {}", trouble.class, trouble.error));
            Ok(Exit::Found)
        }
    }
}

fn keys(config: &Config, sink: &str) -> &'static [crate::sink::AddressKey] {
    config.sinks.get(sink).map(app::address_keys).unwrap_or_default()
}
