//! The command line of Outbill: read the arguments, start the runtime, do what was asked. Nothing binds, connects or spawns
//! before the configuration is valid.

use std::process::ExitCode;

use clap::Parser;
use outbill::{cli::Cli, command, config, lifecycle};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and the version go to standard output, and are no error. Nobody may be left to read any of it.
            drop(error.print());
            return ExitCode::from(if error.use_stderr() { command::USAGE } else { 0 });
        }
    };
    lifecycle::log_panics();
    let mut output = command::Output::standard();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output.error(format!("outbill: cannot start the runtime: {error}"));
            return ExitCode::from(command::FAULT);
        }
    };
    let code = runtime.block_on(command::run(cli, &config::environment, &mut output));
    // Whoever still runs after a hard stop is left where it stands, instead of being waited for.
    runtime.shutdown_background();
    code
}
