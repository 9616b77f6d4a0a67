//! `outbill config`: the configuration itself, without connecting to anything.

use std::path::Path;

use anyhow::Context;

use crate::{
    cli::Config,
    command::{Exit, Failure, Output},
    config::{self, Environment},
};

pub(super) fn run(command: Config, file: &Path, env: &Environment<'_>, output: &mut Output) -> Result<Exit, Failure> {
    match command {
        Config::Schema => {
            output.line(serde_json::to_string_pretty(config::schema()).context("render the schema")?);
        }
        Config::Check => {
            let config = config::load(file, env)?;
            for warning in &config.warnings {
                output.line(format!("{}:{warning} (a warning)", file.display()));
            }
            let (sinks, routes) = (config.sinks.len(), config.routes.len());
            output.line(format!("{} is valid: {sinks} sinks, {routes} routes", file.display()));
        }
    }
    Ok(Exit::Fine)
}
