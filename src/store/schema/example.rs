//! `init --example`: the application's table, and the least GRANTs that `run` needs.

use super::{
    Target, application_name, columns::roles, own::OWN, read_table, server::Server, shape::queue_columns, table::Table,
};
use crate::store::{
    mapping::{TableName, quote_name, status_literal},
    settings::Settings,
};

/// The account that the printed GRANTs are for.
const ACCOUNT: &str = "'outbill'@'%'";

/// The application's table as the configuration describes it, and the GRANTs for the account `'outbill'@'%'`: statements,
/// in order, each without its semicolon.
///
/// # Errors
/// The database cannot be asked for its name and, where the table is there, its columns.
pub async fn example(settings: &Settings) -> anyhow::Result<Vec<String>> {
    let name = application_name(settings).map_err(anyhow::Error::msg)?;
    let (mut link, server) = super::connected(settings).await?;
    let table = read_table(&mut link, server.as_ref(), &name).await?;
    link.close().await;
    let mut statements = create_table(&name, settings, server.is_none());
    if let Some(server) = &server {
        let mut grants = grants(&name, settings, server, table.as_ref(), ACCOUNT).into_iter();
        let account = format!("-- the least rights for `outbill run`; CREATE USER {ACCOUNT} IDENTIFIED BY '...';");
        statements.extend(grants.next().map(|grant| format!("{account}\n{grant}")));
        // A right can be granted on a table only once it is there.
        statements.extend(grants.next().map(|grant| format!("-- after `outbill init --apply`:\n{grant}")));
        statements.extend(grants);
    }
    Ok(statements)
}

/// The default table, with the names and statuses of the configuration.
pub(super) fn create_table(name: &TableName, settings: &Settings, is_sqlite: bool) -> Vec<String> {
    let quoted = |name: &str| quote_name(name, '`');
    let table = name.quoted('`');
    let mut lines: Vec<String> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for role in roles(settings) {
        if !names.contains(&role.column) {
            lines.push(format!("  {} {}", quoted(&role.column), role.definition(settings, is_sqlite)));
            names.push(role.column);
        }
    }
    let columns = &settings.columns;
    if !names.iter().any(|name| name == "updated_at") {
        let touched = if is_sqlite { "" } else { " ON UPDATE CURRENT_TIMESTAMP" };
        lines.push(format!("  `updated_at` datetime DEFAULT CURRENT_TIMESTAMP{touched}"));
    }
    let [status, next_retry_time, id] = queue_columns(settings).map(quoted);
    let (bill_type, key) = (quoted(&columns.bill_type), quoted(&columns.key));
    if is_sqlite {
        lines.push(format!("  UNIQUE ({bill_type}, {key})"));
        let index = quoted(&format!("idx_{}_status_next", name.name));
        return vec![
            format!("CREATE TABLE {table} (\n{}\n)", lines.join(",\n")),
            format!("CREATE INDEX {index} ON {} ({status}, {next_retry_time})", quoted(&name.name)),
        ];
    }
    lines.push(format!("  PRIMARY KEY ({id})"));
    lines.push(format!("  UNIQUE KEY `uk_biz` ({bill_type}, {key})"));
    lines.push(format!("  KEY `idx_status_next` ({status}, {next_retry_time})"));
    let values = super::status::values(&settings.statuses);
    let meaning: Vec<String> = values.iter().map(|(word, value)| format!("{} {word}", status_literal(value))).collect();
    vec![format!(
        "-- {status}: {}\nCREATE TABLE {table} (\n{}\n) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4",
        meaning.join(", "),
        lines.join(",\n")
    )]
}

/// The least that `run` and `release` need, column by column.
pub(super) fn grants(
    name: &TableName,
    settings: &Settings,
    server: &Server,
    table: Option<&Table>,
    account: &str,
) -> Vec<String> {
    let roles = roles(settings);
    let list = |names: Vec<&str>| {
        let mut quoted: Vec<String> = Vec::new();
        for name in names {
            let name = quote_name(name, '`');
            if !quoted.contains(&name) {
                quoted.push(name);
            }
        }
        quoted.join(", ")
    };
    let mut read: Vec<&str> = roles.iter().filter(|role| role.reads).map(|role| role.column.as_str()).collect();
    let written = roles.iter().filter(|role| role.writes).map(|role| role.column.as_str()).collect();
    let condition = settings.condition.as_deref().unwrap_or_default();
    let mut note = "";
    match table {
        Some(table) => {
            read.extend(table.columns.iter().map(|it| it.name.as_str()).filter(|it| mentions(condition, it)));
        }
        None if condition.is_empty() => {}
        None => note = "-- add the columns that store.where reads to SELECT\n",
    }
    let qualified = |name: &TableName| {
        let schema = name.schema.clone().or_else(|| server.schema.clone());
        TableName { schema, name: name.name.clone() }.quoted('`')
    };
    let mut grants = vec![format!(
        "{note}GRANT SELECT ({}), UPDATE ({}) ON {} TO {account}",
        list(read),
        list(written),
        qualified(name)
    )];
    for own in &OWN {
        grants.push(format!(
            "GRANT {} ON {} TO {account}",
            own.rights.join(", "),
            qualified(&own.name(settings, name))
        ));
    }
    grants
}

/// Whether a condition names a column: as a word of its own, or in backticks.
fn mentions(condition: &str, column: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    let (condition, column) = (condition.to_lowercase(), column.to_lowercase());
    condition.contains(&quote_name(&column, '`')) || condition.split(|c| !is_word(c)).any(|word| word == column)
}

/// The schema and the dialect that the statements of a remedy are written for.
pub(super) fn target(name: &TableName, server: Option<&Server>) -> Target {
    let schema = name.schema.clone().or_else(|| server.and_then(|server| server.schema.clone()));
    let table = TableName { schema, name: name.name.clone() }.quoted('`');
    Target { is_sqlite: server.is_none(), is_mariadb: server.is_some_and(|server| server.is_mariadb), table }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_names_columns_as_words_or_in_backticks() {
        for (condition, column, expected) in [
            ("deleted_at IS NULL", "deleted_at", true),
            ("Deleted_At IS NULL", "deleted_at", true),
            ("t.deleted_at IS NULL", "deleted_at", true),
            ("`odd name` = 1", "odd name", true),
            ("deleted_at IS NULL", "deleted", false),
            ("", "id", false),
        ] {
            assert_eq!(mentions(condition, column), expected, "{condition:?} {column:?}");
        }
    }
}
