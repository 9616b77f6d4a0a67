//! `outbill init`: Outbill's own tables, and the application's table as an example.

use std::path::Path;

use crate::{
    cli::Init,
    command::{Exit, Failure, Output},
    config::{self, Environment},
    store::schema::{self, InitError},
};

pub(super) async fn run(
    options: Init,
    file: &Path,
    env: &Environment<'_>,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let settings = config::load(file, env)?.store;
    if options.example {
        print(&schema::example(&settings).await.map_err(Failure::Unreachable)?, output);
        return Ok(Exit::Fine);
    }
    let plan = match schema::plan(&settings, false).await {
        Ok(plan) => plan,
        Err(InitError::Refused(reason)) => {
            output.error(reason);
            return Ok(Exit::Found);
        }
        Err(InitError::Failed(error)) => return Err(Failure::Unreachable(error)),
    };
    output.line(format!("-- message ids are made of {}: {}", plan.message_id_form, plan.message_id_reason));
    print(&plan.statements, output);
    if options.apply && !plan.statements.is_empty() {
        schema::apply(&settings, &plan).await.map_err(Failure::Unreachable)?;
        output.line("-- done");
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
