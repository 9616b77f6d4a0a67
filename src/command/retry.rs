//! `outbill retry`: failed bills back to pending.

use std::path::Path;

use serde_json::json;

use crate::{
    cli::Retry,
    command::{self, Exit, Failure, Output},
    config::Environment,
    store::Selection,
};

/// Ids that are named one by one; more are only counted.
const SHOWN: usize = 20;

pub(super) async fn run(
    options: Retry,
    file: &Path,
    env: &Environment<'_>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let ledger = command::ledger(file, env).await?;
    let asked = options.id.len();
    let selection = match options.bill_type {
        Some(bill_type) => Selection::Type(bill_type),
        None => Selection::Ids(options.id),
    };
    let limit = options.limit as usize;
    let ids = ledger.retry(&selection, limit, options.dry_run).await?;
    let is_at_limit = matches!(selection, Selection::Type(_)) && ids.len() == limit;
    if options.format.json {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        output
            .line(json!({ "dry_run": options.dry_run, "count": ids.len(), "ids": ids, "limit_reached": is_at_limit }));
    } else {
        let verb = if options.dry_run { "would be" } else { "are" };
        output.line(format!("{} failed bills {verb} pending again", ids.len()));
        for id in ids.iter().take(SHOWN) {
            output.line(format!("  {id}"));
        }
        if let Some(more) = ids.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            output.line(format!("  and {more} more"));
        }
        if is_at_limit {
            output.line(format!("that is the limit of {limit}: there may be more, run it again"));
        }
    }
    // By id a person means just these: one that is not failed, or not there, is worth a word.
    let missed = asked.saturating_sub(ids.len());
    if missed > 0 {
        output.error(format!("{missed} of the bills named are not failed, or do not exist: left alone"));
        return Ok(Exit::Found);
    }
    Ok(Exit::Fine)
}
