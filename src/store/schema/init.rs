//! `outbill init`: makes Outbill's own tables, and writes down how message ids are made.

use std::sync::Arc;

use super::{
    application_name, connected,
    link::{Ask, connect, literal},
    own::{self, Found, Meta, OWN, Place, SCHEMA_VERSION},
    read_table,
    server::Server,
    shape,
};
use crate::{
    bill::MessageIdForm,
    store::{
        mapping::{own_table, quote_name},
        settings::Settings,
    },
};

/// What `init` would do: statements that any client of the database takes, in order, each without its semicolon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Empty where all is done already.
    pub statements: Vec<String>,
    pub message_id_form: MessageIdForm,
    /// Why message ids are made so, as a sentence for a person.
    pub message_id_reason: String,
}

/// Why `init` does nothing.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The database or the configuration has to be changed first; the text says how.
    #[error("{0}")]
    Refused(String),
    /// The database cannot be reached, or fails.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

impl From<sqlx::Error> for InitError {
    fn from(error: sqlx::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// Looks at the database and says what is to be done; changes nothing. With `example`, a table of the application that
/// is not there yet counts as made from the example.
///
/// # Errors
/// [`InitError::Refused`] where a table of ours has another shape or version, or where the application's table is missing.
pub async fn plan(settings: &Settings, example: bool) -> Result<Plan, InitError> {
    let application = application_name(settings).map_err(InitError::Refused)?;
    let (mut link, server) = connected(settings).await?;
    let place = Place { settings, application: &application, server: server.as_ref() };
    let mut statements = create_schema(&mut link, settings, server.as_ref()).await?;
    for own in &OWN {
        let name = own.name(settings, &application);
        match own.find(&mut link, &place).await? {
            Found::Nothing => statements.push(own.create(settings, &application, server.is_none())),
            Found::Ours => {}
            Found::Foreign(difference) => {
                return Err(InitError::Refused(format!(
                    "the table {name} is there and is not Outbill's: {difference}; nothing was done. Set store.own_prefix to \
                     another beginning of the names, or store.own_schema to another schema"
                )));
            }
        }
    }
    let name = own_table(settings, &application, "meta");
    let mut meta = Meta::default();
    if read_table(&mut link, server.as_ref(), &name).await?.is_some() {
        meta = own::meta(&mut link, &name, server.is_none()).await?;
    }
    match meta.schema_version {
        None => {
            statements.push(own::insert_meta(&name, "schema_version", &SCHEMA_VERSION.to_string(), server.is_none()));
        }
        Some(version) if version == SCHEMA_VERSION.to_string() => {}
        Some(version) => {
            return Err(InitError::Refused(format!(
                "{name} says schema version {version}; this release knows {SCHEMA_VERSION}; nothing was done"
            )));
        }
    }
    let (message_id_form, message_id_reason) = if let Some(text) = meta.message_id_form {
        let form = own::parse_form(&text).ok_or_else(|| {
            InitError::Refused(format!("{name} holds a message_id_form that means nothing; nothing was done"))
        })?;
        (form, "it was fixed by an earlier init".to_owned())
    } else {
        let (form, reason) = choose_form(&mut link, &place, example).await?;
        statements.push(own::insert_meta(&name, "message_id_form", &own::form_text(&form), server.is_none()));
        (form, reason)
    };
    link.close().await;
    Ok(Plan { statements, message_id_form, message_id_reason })
}

/// How message ids are going to be made, and why so.
async fn choose_form(
    link: &mut dyn Ask,
    place: &Place<'_>,
    example: bool,
) -> Result<(MessageIdForm, String), InitError> {
    let application = place.application;
    match read_table(link, place.server, application).await? {
        Some(table) => Ok(match shape::type_and_key_identify(&table, place.settings) {
            Ok(()) => (MessageIdForm::TypeAndKey, "type and key are unique together".to_owned()),
            Err(why) => (MessageIdForm::TableAndId(Arc::from(application.name.as_str())), why),
        }),
        None if example => Ok((MessageIdForm::TypeAndKey, "type and key are unique in the example table".to_owned())),
        None => Err(InitError::Refused(format!(
            "the application's table {application} is missing or not visible; nothing was done. Its indexes decide how \
             message ids are made, so it has to be there first (init --example prints one)"
        ))),
    }
}

/// Carries a plan out.
///
/// # Errors
/// The statement that failed. Those before it have been carried out: run `init` again once the cause is mended.
pub async fn apply(settings: &Settings, plan: &Plan) -> anyhow::Result<()> {
    use anyhow::Context as _;

    let mut link = connect(settings).await?;
    for statement in &plan.statements {
        link.ask(statement).await.with_context(|| format!("run: {statement}"))?;
    }
    link.close().await;
    Ok(())
}

/// The statement that makes `store.own_schema`, where it is set and not there.
async fn create_schema(
    link: &mut dyn Ask,
    settings: &Settings,
    server: Option<&Server>,
) -> Result<Vec<String>, InitError> {
    let Some(schema) = settings.own_schema.as_deref() else { return Ok(Vec::new()) };
    if server.is_none() {
        return Err(InitError::Refused(
            "store.own_schema means nothing for SQLite, which has no schemas; remove it".to_owned(),
        ));
    }
    let sql = format!("SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = {}", literal(schema, false));
    if link.ask_one(&sql).await?.is_some() {
        return Ok(Vec::new());
    }
    Ok(vec![format!("CREATE DATABASE {} DEFAULT CHARACTER SET utf8mb4", quote_name(schema, '`'))])
}
