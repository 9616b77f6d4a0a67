//! `outbill release`: lets a held route go on.

use std::path::Path;

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
    let routes = if let Some(route) = options.route {
        vec![route]
    } else {
        let mut held: Vec<String> = ledger.overview(&OverviewLimits::default()).await?.holds.into_keys().collect();
        held.sort();
        held
    };
    if routes.is_empty() {
        output.line("no route is held");
    }
    let mut missed = false;
    for route in routes {
        if ledger.release(&route).await? {
            output.line(format!("{route} is released; a running relay goes on with it within a few seconds"));
        } else {
            missed = true;
            output.error(format!("{route} is not held"));
        }
    }
    Ok(if missed { Exit::Found } else { Exit::Fine })
}
