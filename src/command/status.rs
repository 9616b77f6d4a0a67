//! `outbill status`: the open bills at a glance.

use std::path::Path;

use serde_json::{Value, json};

use crate::{
    cli::Format,
    command::{
        self, Exit, Failure, Output,
        output::{about, grouped},
    },
    config::Environment,
    store::{Count, Overview, OverviewLimits},
};

pub(super) async fn run(
    format: Format,
    file: &Path,
    env: &Environment<'_>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let ledger = command::ledger(file, env).await?;
    let overview = ledger.overview(&OverviewLimits::default()).await?;
    if format.json {
        output.line(json_of(&overview));
    } else {
        print(&overview, output);
    }
    let needs_a_person = !overview.holds.is_empty() || overview.failed.is_some_and(|failed| failed.value > 0);
    Ok(if needs_a_person { Exit::Found } else { Exit::Fine })
}

fn print(overview: &Overview, output: &mut Output) {
    output.line(format!("pending       {}", shown(overview.pending)));
    output.line(format!("  due retries {}", shown(overview.due_retries)));
    output.line(format!("  scheduled   {}", shown(overview.scheduled)));
    let oldest = match overview.oldest_pending_s {
        Some(seconds) => about(u64::try_from(seconds).unwrap_or(0)),
        None if overview.pending.is_some_and(|pending| pending.value == 0) => "-".to_owned(),
        None => "not known".to_owned(),
    };
    output.line(format!("  oldest      {oldest}"));
    print_types(overview.pending_by_type.as_deref(), output);
    output.line(format!("failed        {}", shown(overview.failed)));
    print_types(overview.failed_by_type.as_deref(), output);
    if overview.holds.is_empty() {
        output.line("held routes   none");
    }
    let mut holds: Vec<_> = overview.holds.iter().collect();
    holds.sort_by_key(|(route, _)| route.as_str());
    for (route, hold) in holds {
        output.line(format!("held          {route}: {}: {}", hold.class, hold.reason));
        output.line(format!("              mend the cause, then: outbill release '{route}'"));
    }
}

fn print_types(types: Option<&[(String, Count)]>, output: &mut Output) {
    for (bill_type, count) in types.unwrap_or_default() {
        output.line(format!("  {:11} {}", bill_type, shown(Some(*count))));
    }
}

fn shown(count: Option<Count>) -> String {
    match count {
        None => "not known (the database did not answer in time)".to_owned(),
        Some(Count { value, capped: true }) => format!("≥ {}", grouped(value)),
        Some(Count { value, capped: false }) => grouped(value),
    }
}

fn json_of(overview: &Overview) -> Value {
    let count = |count: Option<Count>| match count {
        Some(Count { value, capped }) => json!({ "value": value, "capped": capped }),
        None => Value::Null,
    };
    let types = |types: Option<&Vec<(String, Count)>>| match types {
        Some(types) => {
            types.iter().map(|(bill_type, value)| json!({ "type": bill_type, "count": count(Some(*value)) })).collect()
        }
        None => Value::Null,
    };
    let holds: Vec<Value> = overview
        .holds
        .iter()
        .map(|(route, hold)| json!({ "route": route, "class": hold.class, "reason": hold.reason }))
        .collect();
    json!({
        "pending": count(overview.pending),
        "due_retries": count(overview.due_retries),
        "scheduled": count(overview.scheduled),
        "failed": count(overview.failed),
        "pending_by_type": types(overview.pending_by_type.as_ref()),
        "failed_by_type": types(overview.failed_by_type.as_ref()),
        "oldest_pending_s": overview.oldest_pending_s,
        "holds": holds,
    })
}
