//! The commands. A file for each; this one prints, and turns what came of a command into the exit code.

mod check;
mod config;
mod demo;
pub mod findings;
mod init;
pub mod output;
mod preview;
mod release;
mod retry;
mod run;
mod status;

use std::{path::Path, process::ExitCode, sync::Arc};

use crate::{
    cli::{Cli, Command},
    config::{self as settings, Environment, Problems},
    lifecycle::Ending,
    store::{self, Ledger, StoreError},
};
pub use output::Output;

/// The exit code for wrong usage or configuration.
pub const USAGE: u8 = 64;
/// The exit code for a server that cannot be reached or refuses us.
pub const UNREACHABLE: u8 = 69;
/// The exit code for a fault of ours.
pub const FAULT: u8 = 70;

/// What came of a command that did its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0.
    Fine,
    /// 1: differences or problems were found.
    Found,
    /// 69: a server could not be reached, which was said among the results.
    Unreachable,
    /// 128 and the number of the signal that stopped it at once.
    Aborted(u8),
}

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// 64.
    #[error(transparent)]
    Config(#[from] Problems),
    /// 64: a wrong argument, such as a route that does not exist.
    #[error("{0}")]
    Usage(String),
    /// 69: a server cannot be reached or refuses us.
    #[error("{0:#}")]
    Unreachable(anyhow::Error),
    /// 70: a fault of ours.
    #[error("{0:#}")]
    Fault(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    /// The store's word decides, wherever it stands in the chain.
    fn from(error: anyhow::Error) -> Self {
        match error.downcast_ref::<StoreError>() {
            Some(StoreError::Unavailable(_) | StoreError::Busy(_)) => Self::Unreachable(error),
            Some(StoreError::Invalid(_)) => Self::Usage(format!("{error:#}")),
            Some(StoreError::Refused(_) | StoreError::OverMatched { .. }) | None => Self::Fault(error),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        anyhow::Error::from(error).into()
    }
}

impl From<Ending> for Result<Exit, Failure> {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Finished => Ok(Exit::Fine),
            // It was said in the log which tasks; the next start delivers what they had in flight once more.
            Ending::TimedOut(_) => Ok(Exit::Found),
            Ending::Aborted(signal) => Ok(Exit::Aborted(128 + signal.number())),
            Ending::Fault(fault) => Err(Failure::Fault(anyhow::anyhow!(fault))),
        }
    }
}

/// Does what the command line asks for, prints why it could not, and gives the exit code.
pub async fn run(cli: Cli, env: &Environment<'_>, output: &mut Output) -> ExitCode {
    let result = dispatch(cli, env, output).await;
    let code = match &result {
        Ok(Exit::Fine) => 0,
        Ok(Exit::Found) => 1,
        Ok(Exit::Aborted(code)) => *code,
        Err(Failure::Config(_) | Failure::Usage(_)) => USAGE,
        Ok(Exit::Unreachable) | Err(Failure::Unreachable(_)) => UNREACHABLE,
        Err(Failure::Fault(_)) => FAULT,
    };
    match &result {
        Ok(_) => {}
        Err(Failure::Config(problems)) => output.error(problems),
        Err(failure) => output.error(format!("outbill: {failure}")),
    }
    match output.finish() {
        Ok(()) => ExitCode::from(code),
        Err(error) => {
            output.error(format!("outbill: cannot write to standard output: {error}"));
            ExitCode::from(FAULT)
        }
    }
}

/// What an operator's command works on.
async fn ledger(file: &Path, env: &Environment<'_>) -> Result<Arc<dyn Ledger>, Failure> {
    let config = settings::load(file, env)?;
    Ok(store::open(&config.store, &config.instance).await?.ledger)
}

async fn dispatch(cli: Cli, env: &Environment<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let file = settings::file(cli.config, env);
    match cli.command {
        Command::Config(command) => config::run(command, &file, env, output),
        Command::Run => Box::pin(run::run(&file, env, output)).await,
        Command::Init(options) => init::run(options, &file, env, output).await,
        Command::Check(format) => check::run(format, &file, env, output).await,
        Command::Status(format) => status::run(format, &file, env, output).await,
        Command::Preview(options) => preview::run(options, &file, env, output).await,
        Command::Retry(options) => retry::run(options, &file, env, output).await,
        Command::Release(options) => release::run(options, &file, env, output).await,
        Command::Demo(options) => demo::run(&options, output).await,
    }
}
