//! `outbill init`: Outbill's own tables, and the application's table as an example.

use std::path::Path;

use crate::{
    cli::Init,
    command::{Exit, Failure, Output},
    config::{self, Environment},
    store::{self, schema::InitError},
};

pub(super) async fn run(options: Init, file: &Path, env: &Environment<'_>, output: &mut Output) -> Result<Exit, Failure> {
    let config = config::load(file, env)?;
    if options.example {
        print(&store::example(&config.store).await.map_err(Failure::Unreachable)?, output);
    } else if options.print {
        print(&store::init_plan(&config.store).await?.statements, output);
    } else {
        let done = store::init_apply(&config.store).await?;
        for statement in &done {
            output.line(format!("{statement};"));
        }
        output.line(if done.is_empty() { "-- everything is there already" } else { "-- done" });
    }
    Ok(Exit::Fine)
}

fn print(statements: &[String], output: &mut Output) {
    if statements.is_empty() {
        output.line("-- everything is there already");
    }
    for statement in statements {
        output.line(format!("{statement};"));
    }
}
