//! `outbill preview`: the exact message that a bill would become. Nothing is sent and nothing is changed.

use std::path::Path;

use anyhow::bail;
use serde_json::{Map, Value, json};

use crate::{
    app,
    bill::MessageIdForm,
    cli::Preview,
    command::{Exit, Failure, Output, findings},
    config::{self, Config, Environment, RouteSettings},
    decision::Trouble,
    finding::Finding,
    sink::{AddressKey, Message, Sink},
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
    let Some(form) = inspection.message_id_form else {
        let bad: Vec<Finding> = inspection.findings.into_iter().filter(Finding::is_bad).collect();
        findings::print(&bad, false, output);
        return Ok(Exit::Found);
    };
    let ledger = store::open(&config.store, &config.instance).await?.ledger;
    let Some(found) = ledger.find(&options.id).await? else {
        output.error(format!("there is no bill with the id {}", options.id));
        return Ok(Exit::Found);
    };
    match shown(&config, &form, found, options.format.json, output) {
        Ok(None) => Ok(Exit::Fine),
        Ok(Some(trouble)) => {
            output.error(format!("the bill would be rejected ({}): {}", trouble.class, trouble.error));
            Ok(Exit::Found)
        }
        Err(error) => Err(error.into()),
    }
}

/// Prints the message, as far as there is one. Returns why the bill would be rejected, if it would.
fn shown(
    config: &Config,
    form: &MessageIdForm,
    Found { row, status }: Found,
    as_json: bool,
    output: &mut Output,
) -> anyhow::Result<Option<Trouble>> {
    let bill = match row {
        Row::Bill(bill) => bill,
        Row::Invalid { class, problem, .. } => return Ok(Some(Trouble::new(class, problem))),
    };
    let Some(route) = config.routes.iter().find(|route| route.selector.takes(&bill.bill_type)) else {
        if as_json {
            output.line(json!({ "status": status, "type": bill.bill_type, "route": null }));
        } else {
            output.line(format!("no route matches the type {:?}: the bill is left alone", bill.bill_type));
        }
        return Ok(None);
    };
    let message = match app::compose(route, form)(&bill).1 {
        Ok(message) => message,
        Err(trouble) => return Ok(Some(trouble)),
    };
    let keys = config.sinks.get(&route.sink).map(app::address_keys).unwrap_or_default();
    for line in app::sinks(config)?.into_iter().filter(|line| *line.name == route.sink) {
        if as_json {
            let mut shown = as_value(&message, keys, line.sink.as_ref())?;
            shown.insert("status".to_owned(), status.as_str().into());
            shown.insert("route".to_owned(), route.name.as_str().into());
            shown.insert("sink".to_owned(), route.sink.as_str().into());
            output.line(Value::Object(shown));
        } else {
            output.line(format!("status        {status}"));
            print(&message, keys, route, line.sink.as_ref(), output);
        }
        if let Err(trouble) = line.sink.admit(&message) {
            return Ok(Some(trouble));
        }
    }
    Ok(None)
}

fn print(message: &Message, keys: &[AddressKey], route: &RouteSettings, sink: &dyn Sink, output: &mut Output) {
    output.line(format!("route         {}", route.name));
    output.line(format!("sink          {}", route.sink));
    for (name, value) in sink.additions(message) {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        output.line(format!("{name:<13} {text}"));
    }
    output.line(message.shown(keys));
}

fn as_value(message: &Message, keys: &[AddressKey], sink: &dyn Sink) -> anyhow::Result<Map<String, Value>> {
    let Value::Object(mut shown) = serde_json::to_value(message.shown(keys))? else {
        bail!("a message is shown as an object");
    };
    let additions = sink.additions(message).into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    shown.insert("sink_additions".to_owned(), Value::Object(additions));
    Ok(shown)
}
