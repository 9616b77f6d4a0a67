//! The schema of the store: whether the application's table can be worked with, and Outbill's own tables.
//!
//! [`inspect`] finds all mistakes at once, each with the statement that would mend it. [`plan`] and [`apply`] are `outbill
//! init`. Outbill changes no definition of the application's table; it only says what to change.

mod columns;
mod example;
mod facts;
mod init;
mod link;
mod mysql;
mod own;
mod server;
mod shape;
mod sqlite;
mod status;
mod table;
mod trial;

use anyhow::Context as _;

pub(in crate::store) use self::facts::facts;
use self::{
    columns::{Hidden, Target},
    link::{Ask, Link, connect},
    own::Place,
    server::Server,
    table::{Table, near_miss},
};
pub use self::{
    example::example,
    init::{InitError, Plan, apply, plan},
    own::SCHEMA_VERSION,
};
use crate::{
    bill::MessageIdForm,
    finding::Finding,
    store::{mapping::TableName, settings::Settings},
};

/// What an inspection found.
#[derive(Debug, Default)]
pub struct Inspection {
    /// In the order in which a person would look. `run` refuses to start where one is bad.
    pub findings: Vec<Finding>,
    /// How message ids are made, as `init` wrote it down; there unless a finding is bad.
    pub message_id_form: Option<MessageIdForm>,
}

/// Looks at the server, the application's table and Outbill's own tables; changes nothing. `max_payload` is the longest
/// payload in bytes that any route takes.
///
/// # Errors
/// The database cannot be reached, or fails in mid-inspection. Whatever can be told about the schema is a finding.
pub async fn inspect(settings: &Settings, max_payload: Option<u64>) -> anyhow::Result<Inspection> {
    let application = match application_name(settings) {
        Ok(application) => application,
        Err(problem) => {
            let finding = Finding::bad("store.table", problem, "write `table` or `schema.table`");
            return Ok(Inspection { findings: vec![finding], message_id_form: None });
        }
    };
    let (mut link, server) = connected(settings).await?;
    let mut inspection = Inspection::default();
    if let Some(server) = &server {
        inspection.findings.extend(server.findings(max_payload));
        inspection.findings.push(server::splitting(settings, server.is_mariadb).await.context("compare connections")?);
    }
    let place = Place { settings, application: &application, server: server.as_ref() };
    inspection.look(&mut link, &place).await.context("inspect the schema")?;
    link.close().await;
    Ok(inspection)
}

impl Inspection {
    async fn look(&mut self, link: &mut dyn Ask, place: &Place<'_>) -> sqlx::Result<()> {
        let Place { settings, application, server } = *place;
        let target = example::target(application, server);
        let table = read_table(link, server, application).await?;
        let hidden = match (&table, server) {
            (Some(table), Some(server)) => trial::hidden(link, table, &target, settings, server).await?,
            _ => Hidden::default(),
        };
        match &table {
            Some(table) => self.look_at_table(link, place, table, &hidden).await?,
            None => self.findings.push(missing(link, place, &target).await?),
        }
        let (own, form) = own::inspect(link, place).await?;
        self.findings.extend(own);
        if let (Some(MessageIdForm::TypeAndKey), Some(table)) = (&form, &table)
            && let Err(why) = shape::type_and_key_identify(table, settings)
            && hidden.columns.is_empty()
        {
            self.findings.push(no_longer_unique(settings, &target, &why));
        }
        self.message_id_form = form;
        Ok(())
    }

    async fn look_at_table(
        &mut self,
        link: &mut dyn Ask,
        place: &Place<'_>,
        table: &Table,
        hidden: &Hidden,
    ) -> sqlx::Result<()> {
        let Place { settings, application, server } = *place;
        let target = example::target(application, server);
        self.findings.extend(columns::judge(table, settings, &target, hidden));
        self.findings.extend(shape::judge(table, settings, &target, hidden));
        self.findings.extend(trial::condition(link, settings, &target).await?);
        if let Some(server) = server {
            self.findings.extend(trial::privileges(link, table, &target, server, place).await?);
        }
        // Rows are looked at only where all that the questions name is there.
        if !self.findings.iter().any(Finding::is_bad) {
            self.findings.extend(trial::statuses(link, table, settings, &target).await?);
            self.findings.extend(trial::clock(link, table, settings, &target).await?);
        }
        Ok(())
    }
}

/// The name of the application's table.
///
/// # Errors
/// What is wrong with `store.table`.
fn application_name(settings: &Settings) -> Result<TableName, String> {
    TableName::parse(&settings.table)
}

/// A connection, and what is known of the server behind it; nothing for SQLite, which has none.
async fn connected(settings: &Settings) -> anyhow::Result<(Link, Option<Server>)> {
    let mut link = connect(settings).await?;
    let server = if link.is_sqlite() { None } else { Some(Server::look(&mut link).await?) };
    Ok((link, server))
}

/// What can be seen of a table, by the dialect's own catalogue.
async fn read_table(link: &mut dyn Ask, server: Option<&Server>, name: &TableName) -> sqlx::Result<Option<Table>> {
    let Some(server) = server else { return sqlite::read(link, &name.name).await };
    let Some(schema) = name.schema.as_ref().or(server.schema.as_ref()) else { return Ok(None) };
    mysql::read(link, server, schema, &name.name).await
}

async fn missing(link: &mut dyn Ask, place: &Place<'_>, target: &Target) -> sqlx::Result<Finding> {
    let Place { settings, application, server } = *place;
    let point = format!("table {application}");
    let create = format!("{};", example::create_table(application, settings, server.is_none()).join("; "));
    let schema = application.schema.as_ref().or(server.and_then(|server| server.schema.as_ref()));
    let names = match (server, schema) {
        (None, _) => sqlite::table_names(link).await?,
        (Some(_), Some(schema)) => mysql::table_names(link, schema).await?,
        (Some(_), None) => {
            let problem = "no schema is selected";
            return Ok(Finding::bad(point, problem, "set store.database, or write store.table as schema.table"));
        }
    };
    let hint = near_miss(&application.name, names.iter().map(String::as_str))
        .map(|name| format!("; did you mean {name}? Then set store.table: {name}"))
        .unwrap_or_default();
    let Some(server) = server else { return Ok(Finding::bad(point, format!("missing{hint}"), create)) };
    // Without any privilege on it, a table that is there answers 1142, as one that is not.
    let probe = link.ask(&format!("SELECT 1 FROM {} LIMIT 0", target.table)).await;
    let is_missing = matches!(&probe, Err(sqlx::Error::Database(error)) if error.message().contains("doesn't exist"));
    if is_missing {
        return Ok(Finding::bad(point, format!("missing{hint}"), create));
    }
    let grants =
        example::grants(application, settings, server, None, &server.account).into_iter().next().unwrap_or_default();
    let problem = format!("not visible to {}: missing, or no privilege on it{hint}", server.account);
    Ok(Finding::bad(point, problem, format!("{create} or, where it exists: {grants};")))
}

fn no_longer_unique(settings: &Settings, target: &Target, why: &str) -> Finding {
    let columns = &settings.columns;
    let [bill_type, key] = [&columns.bill_type, &columns.key].map(|name| crate::store::mapping::quote_name(name, '`'));
    Finding::warning(
        "message ids",
        format!("they are made of type and key, as fixed by init, but now there is {why}: two bills can share one"),
        format!("CREATE UNIQUE INDEX `uk_biz` ON {} ({bill_type}, {key});", target.table),
    )
}
