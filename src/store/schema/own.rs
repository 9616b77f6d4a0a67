//! Outbill's own tables: their shape, whether they are there, and what is written in `meta`.

use std::sync::Arc;

use super::{
    link::{Ask, literal},
    read_table,
    server::Server,
    table::Table,
};
use crate::{
    bill::MessageIdForm,
    finding::Finding,
    store::{
        mapping::{TableName, own_table},
        settings::Settings,
    },
};

/// The version of the own tables' shape that this release makes and needs.
pub const SCHEMA_VERSION: u32 = 1;

const REMEDY: &str = "run `outbill init --apply` with an account that may create tables";

/// One of Outbill's own tables.
#[derive(Debug)]
pub(super) struct Own {
    /// The last part of its name.
    pub(super) suffix: &'static str,
    mysql: &'static str,
    sqlite: &'static str,
    /// What `run` and `release` need on it.
    pub(super) rights: &'static [&'static str],
}

pub(super) const OWN: [Own; 3] = [
    Own {
        suffix: "attempt",
        mysql: include_str!("../../../sql/mysql/own_attempt.sql"),
        sqlite: include_str!("../../../sql/sqlite/own_attempt.sql"),
        rights: &["INSERT"],
    },
    Own {
        suffix: "hold",
        mysql: include_str!("../../../sql/mysql/own_hold.sql"),
        sqlite: include_str!("../../../sql/sqlite/own_hold.sql"),
        rights: &["SELECT", "INSERT", "DELETE"],
    },
    Own {
        suffix: "meta",
        mysql: include_str!("../../../sql/mysql/own_meta.sql"),
        sqlite: include_str!("../../../sql/sqlite/own_meta.sql"),
        rights: &["SELECT"],
    },
];

/// What is at the place of an own table.
#[derive(Debug)]
pub(super) enum Found {
    Nothing,
    Ours,
    /// Somebody else's table, and how that shows.
    Foreign(String),
}

/// The values of `meta`.
#[derive(Debug, Default)]
pub(super) struct Meta {
    pub(super) schema_version: Option<String>,
    pub(super) message_id_form: Option<String>,
}

impl Own {
    pub(super) fn name(&self, settings: &Settings, application: &TableName) -> TableName {
        own_table(settings, application, self.suffix)
    }

    pub(super) fn create(&self, settings: &Settings, application: &TableName, is_sqlite: bool) -> String {
        let name = self.name(settings, application).quoted('`');
        self.definition(is_sqlite).trim_end().replacen("{table}", &name, 1)
    }

    pub(super) async fn find(&self, link: &mut dyn Ask, place: &Place<'_>) -> sqlx::Result<Found> {
        let name = self.name(place.settings, place.application);
        let Some(table) = read_table(link, place.server, &name).await? else { return Ok(Found::Nothing) };
        Ok(match self.difference(&table, place.server.is_none()) {
            None => Found::Ours,
            Some(difference) => Found::Foreign(difference),
        })
    }

    /// How a table differs from this one; `None` where it does not. More columns are no difference: a later release may
    /// have added them.
    fn difference(&self, table: &Table, is_sqlite: bool) -> Option<String> {
        let definition = self.definition(is_sqlite);
        for (name, declared, nullable) in definition.lines().filter_map(column_line) {
            let Some(column) = table.column(name) else { return Some(format!("it has no column {name}")) };
            if plain_type(&column.declared) != declared {
                return Some(format!("its column {name} is {}, not {declared}", column.declared));
            }
            if column.nullable != nullable {
                return Some(format!("its column {name} is {}", if nullable { "NOT NULL" } else { "nullable" }));
            }
        }
        let first = definition.lines().find_map(column_line).map(|(name, ..)| name)?;
        (!table.is_unique(&[first])).then(|| format!("its column {first} is not the primary key"))
    }

    /// The least that `run` needs on the table.
    pub(super) fn grant(&self, settings: &Settings, application: &TableName, server: &Server, account: &str) -> String {
        let table = server.qualified(&self.name(settings, application));
        format!("GRANT {} ON {table} TO {account}", self.rights.join(", "))
    }

    fn definition(&self, is_sqlite: bool) -> &'static str {
        if is_sqlite { self.sqlite } else { self.mysql }
    }
}

/// Where the own tables are looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) settings: &'a Settings,
    pub(super) application: &'a TableName,
    /// `None` for SQLite.
    pub(super) server: Option<&'a Server>,
}

/// Whether `run` can work with the own tables, and how message ids are made.
pub(super) async fn inspect(
    link: &mut dyn Ask,
    place: &Place<'_>,
) -> sqlx::Result<(Vec<Finding>, Option<MessageIdForm>)> {
    let mut findings = Vec::new();
    for own in &OWN {
        let point = format!("table {}", own.name(place.settings, place.application));
        match own.find(link, place).await? {
            Found::Ours => {}
            Found::Nothing => {
                let problem = match place.server {
                    Some(server) => format!("not visible to {}: missing, or no privilege on it", server.account),
                    None => "missing".to_owned(),
                };
                let grant =
                    place.server.map(|server| own.grant(place.settings, place.application, server, &server.account));
                let remedy =
                    grant.map_or(REMEDY.to_owned(), |grant| format!("{REMEDY}; or, where it is there: {grant};"));
                findings.push(Finding::bad(point, problem, remedy));
            }
            Found::Foreign(difference) => findings.push(foreign(point, &difference)),
        }
    }
    if !findings.is_empty() {
        return Ok((findings, None));
    }
    let name = own_table(place.settings, place.application, "meta");
    let meta = match meta(link, &name, place.server.is_none()).await {
        Ok(meta) => meta,
        // Most likely the privilege is missing, which the trial of privileges says with its remedy.
        Err(sqlx::Error::Database(_)) => return Ok((Vec::new(), None)),
        Err(error) => return Err(error),
    };
    let point = format!("table {name}");
    let form = meta.message_id_form.as_deref().and_then(parse_form);
    findings.push(match (meta.schema_version.as_deref().map(str::parse), &form) {
        (Some(Ok(SCHEMA_VERSION)), Some(form)) => {
            let detail = format!("schema version {SCHEMA_VERSION}, message ids are {}", form_in_words(form));
            Finding::good("Outbill's own tables", detail)
        }
        (Some(Ok(version)), _) if version > SCHEMA_VERSION => {
            let problem = format!("its schema version is {version}; this release knows {SCHEMA_VERSION}");
            Finding::bad(
                point,
                problem,
                "run a release of Outbill that is at least as new as the one that made the tables",
            )
        }
        (Some(Ok(SCHEMA_VERSION)), None) => Finding::bad(point, "it does not say how message ids are made", REMEDY),
        _ => Finding::bad(point, format!("its schema version is not {SCHEMA_VERSION}"), REMEDY),
    });
    Ok((findings, form))
}

pub(super) fn foreign(point: String, difference: &str) -> Finding {
    Finding::bad(
        point,
        format!("there is a table of that name that is not Outbill's: {difference}"),
        "set store.own_prefix to another beginning of the names, or store.own_schema to another schema",
    )
}

pub(super) async fn meta(link: &mut dyn Ask, name: &TableName, is_sqlite: bool) -> sqlx::Result<Meta> {
    let table = name.quoted('`');
    let mut meta = Meta::default();
    for (key, value) in [("schema_version", &mut meta.schema_version), ("message_id_form", &mut meta.message_id_form)] {
        let sql = format!("/* outbill:meta */ SELECT value FROM {table} WHERE name = {}", literal(key, is_sqlite));
        *value = link.ask_one(&sql).await?;
    }
    Ok(meta)
}

/// The statement that writes a value of `meta`.
pub(super) fn insert_meta(name: &TableName, key: &str, value: &str, is_sqlite: bool) -> String {
    let value = if value.is_ascii() && !value.contains(['\'', '\\']) {
        format!("'{value}'")
    } else {
        literal(value, is_sqlite)
    };
    format!("INSERT INTO {} (name, value) VALUES ('{key}', {value})", name.quoted('`'))
}

/// The form as `meta.message_id_form` holds it. The table's name is kept too: renaming the table must not change the
/// ids of bills that were delivered already.
pub(super) fn form_text(form: &MessageIdForm) -> String {
    match form {
        MessageIdForm::TypeAndKey => "type_and_key".to_owned(),
        MessageIdForm::TableAndId(table) => format!("table_and_id:{table}"),
    }
}

pub(super) fn form_in_words(form: &MessageIdForm) -> String {
    match form {
        MessageIdForm::TypeAndKey => "{type}:{key}".to_owned(),
        MessageIdForm::TableAndId(table) => format!("{table}:{{id}}"),
    }
}

pub(super) fn parse_form(text: &str) -> Option<MessageIdForm> {
    match text.split_once(':') {
        None if text == "type_and_key" => Some(MessageIdForm::TypeAndKey),
        Some(("table_and_id", table)) => Some(MessageIdForm::TableAndId(Arc::from(table))),
        _ => None,
    }
}

/// `(name, type, nullable)` of a line of `CREATE TABLE` that defines a column.
fn column_line(line: &str) -> Option<(&str, &str, bool)> {
    let line = line.strip_prefix("  ")?.trim_end_matches(',');
    let (name, rest) = line.split_once(' ')?;
    let is_column = name.starts_with(|first: char| first.is_ascii_lowercase());
    let end = [" NOT NULL", " DEFAULT", " PRIMARY KEY"].iter().filter_map(|word| rest.find(word)).min()?;
    is_column.then_some((name, rest.get(..end)?, !rest.contains("NOT NULL") && !rest.contains("PRIMARY KEY")))
}

/// A type without the display width that MariaDB and old MySQL servers give integers.
fn plain_type(declared: &str) -> String {
    let declared = declared.to_lowercase();
    match (declared.split_once("int("), declared.split_once(')')) {
        (Some((before, _)), Some((_, after))) => format!("{before}int{after}"),
        _ => declared,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_of_an_own_table_is_read_from_the_statement_that_makes_it() {
        let columns: Vec<_> = OWN[1].mysql.lines().filter_map(column_line).collect();
        assert_eq!(columns.first(), Some(&("route", "varchar(255)", false)));
        assert_eq!(columns.len(), 5);
        let attempt: Vec<_> = OWN[0].sqlite.lines().filter_map(column_line).collect();
        assert_eq!(attempt.first(), Some(&("id", "integer", false)));
        assert_eq!(attempt.len(), 13);
    }

    #[test]
    fn an_integer_is_the_same_with_and_without_its_display_width() {
        for (declared, expected) in [
            ("bigint(20) unsigned", "bigint unsigned"),
            ("int(10) unsigned", "int unsigned"),
            ("varchar(64)", "varchar(64)"),
        ] {
            assert_eq!(plain_type(declared), expected);
        }
    }

    #[test]
    fn a_message_id_form_survives_being_written_down() {
        for form in [MessageIdForm::TypeAndKey, MessageIdForm::TableAndId(Arc::from("a:b"))] {
            assert_eq!(parse_form(&form_text(&form)), Some(form));
        }
        assert_eq!(parse_form("table_and_id"), None);
        assert_eq!(parse_form("anything"), None);
    }
}
