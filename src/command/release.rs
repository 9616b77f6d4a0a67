//! `outbill release`: lets held routes go on.

use std::path::Path;

use serde_json::json;

use crate::{
    cli::Release,
    command::{self, Exit, Failure, Output},
    config::Environment,
    store::OverviewLimits,
};

pub(super) async fn run(
    options: Release,
    file: &Path,
    env: &Environment<'_>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let ledger = command::ledger(file, env).await?;
    let mut held: Vec<String> = ledger.overview(&OverviewLimits::default()).await?.holds.into_keys().collect();
    held.sort();
    let is_asked_for = |route: &String| options.route.as_ref().is_none_or(|asked| asked == route);
    let mut released: Vec<String> = held.iter().filter(|route| is_asked_for(route)).cloned().collect();
    if !options.dry_run {
        let mut done = Vec::new();
        for route in released {
            if ledger.release(&route).await? {
                done.push(route);
            }
        }
        released = done;
    }
    if options.format.json {
        output.line(json!({ "dry_run": options.dry_run, "released": released }));
    } else {
        for route in &released {
            output.line(if options.dry_run {
                format!("{route} would be released")
            } else {
                format!("{route} is released; a running relay goes on with it within a few seconds")
            });
        }
        if held.is_empty() {
            output.line("no route is held");
        }
    }
    match options.route {
        Some(route) if !released.contains(&route) => {
            output.error(format!("{route} is not held; held are: {}", held.join(", ")));
            Ok(Exit::Found)
        }
        _ => Ok(Exit::Fine),
    }
}
