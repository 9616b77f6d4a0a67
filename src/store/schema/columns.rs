//! The columns that Outbill reads and writes, and whether the table's columns can serve. Pure.

use super::{
    status,
    table::{Column, Kind, Table, near_miss},
};
use crate::{
    finding::Finding,
    store::{
        mapping::quote_name,
        settings::{Settings, StatusValue},
    },
};

/// The dialect and the quoted name of the table, as the statements of a remedy need them.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) is_sqlite: bool,
    pub(super) is_mariadb: bool,
    /// Quoted, with its schema.
    pub(super) table: String,
}

/// Columns that an account may not see, so that it cannot tell whether they are there.
#[derive(Debug, Default)]
pub(super) struct Hidden {
    pub(super) account: String,
    pub(super) columns: Vec<String>,
}

/// A column of the table and what Outbill does with it.
#[derive(Clone, Debug)]
pub(super) struct Role {
    /// The key under `store.columns`.
    pub(super) key: String,
    pub(super) column: String,
    pub(super) reads: bool,
    pub(super) writes: bool,
    wants: Wants,
}

/// What values a column must be able to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    Id,
    Words,
    Key,
    Status,
    Payload,
    Count,
    Moment,
    /// NULL for "not yet".
    MomentOrNull,
    Object,
    Reason,
    MessageId,
    Version,
    Anything,
}

/// Every mapped column, in the order of the default table.
pub(super) fn roles(settings: &Settings) -> Vec<Role> {
    let columns = &settings.columns;
    let mut roles = Vec::new();
    let mut add = |key: &str, column: &str, access: &str, wants| {
        let (reads, writes) = (access.contains('r'), access.contains('w'));
        roles.push(Role { key: key.to_owned(), column: column.to_owned(), reads, writes, wants });
    };
    add("id", &columns.id, "r", Wants::Id);
    add("type", &columns.bill_type, "r", Wants::Words);
    add("key", &columns.key, "r", Wants::Key);
    add("status", &columns.status, "rw", Wants::Status);
    add("payload", &columns.payload, "r", Wants::Payload);
    add("retry_count", &columns.retry_count, "rw", Wants::Count);
    add("next_retry_time", &columns.next_retry_time, "rw", Wants::MomentOrNull);
    add("finished_at", &columns.finished_at, "w", Wants::MomentOrNull);
    add("created_at", &columns.created_at, "r", Wants::Moment);
    for (key, column, access, wants) in [
        ("headers", &columns.headers, "r", Wants::Object),
        ("reason", &columns.reason, "w", Wants::Reason),
        ("published_at", &columns.published_at, "w", Wants::MomentOrNull),
        ("message_id", &columns.message_id, "r", Wants::MessageId),
        ("version", &columns.version, "r", Wants::Version),
    ] {
        if let Some(column) = column {
            add(key, column, access, wants);
        }
    }
    for (name, column) in &columns.extra {
        add(&format!("extra.{name}"), column, "r", Wants::Anything);
    }
    roles
}

/// Every mistake in the columns, or one point that says there is none. `hidden` are those that may be there without the
/// account being allowed to see them.
pub(super) fn judge(table: &Table, settings: &Settings, target: &Target, hidden: &Hidden) -> Vec<Finding> {
    let roles = roles(settings);
    let mut findings = Vec::new();
    for role in &roles {
        match table.column(&role.column) {
            Some(column) => findings.extend(role.judge(column, settings, target)),
            None => findings.push(role.missing(table, settings, target, hidden)),
        }
    }
    if !findings.iter().any(Finding::is_bad) {
        let detail = format!("all {} mapped columns are there and of a fitting type", roles.len());
        findings.insert(0, Finding::good(format!("columns of {}", target.table), detail));
    }
    findings
}

impl Role {
    /// The column as `CREATE TABLE` defines it.
    pub(super) fn definition(&self, settings: &Settings, is_sqlite: bool) -> String {
        let (mysql, sqlite) = match self.wants {
            Wants::Id => ("bigint unsigned NOT NULL AUTO_INCREMENT", "integer PRIMARY KEY AUTOINCREMENT"),
            Wants::Words | Wants::Key => ("varchar(64) NOT NULL", "text NOT NULL"),
            Wants::Status => return status::definition(&settings.statuses, is_sqlite),
            Wants::Payload | Wants::Object => ("json DEFAULT NULL", "text DEFAULT NULL"),
            Wants::Count => ("int NOT NULL DEFAULT 0", "integer NOT NULL DEFAULT 0"),
            Wants::Moment => ("datetime DEFAULT CURRENT_TIMESTAMP", "datetime DEFAULT CURRENT_TIMESTAMP"),
            Wants::MomentOrNull => ("datetime DEFAULT NULL", "datetime DEFAULT NULL"),
            Wants::Reason => ("varchar(1000) DEFAULT NULL", "text DEFAULT NULL"),
            Wants::MessageId | Wants::Anything => ("varchar(255) DEFAULT NULL", "text DEFAULT NULL"),
            Wants::Version => ("bigint NOT NULL DEFAULT 0", "integer NOT NULL DEFAULT 0"),
        };
        if is_sqlite { sqlite } else { mysql }.to_owned()
    }

    fn judge(&self, column: &Column, settings: &Settings, target: &Target) -> Vec<Finding> {
        let mut findings = Vec::new();
        if self.wants == Wants::Status {
            if let Some((problem, remedy)) = status::judge(column, &settings.statuses, target) {
                findings.push(self.bad(column, &problem, remedy));
            }
        } else if let Err(wanted) = self.wants.accepts(column, target.is_sqlite) {
            let problem = format!("is {}, but has to be {wanted}", column.declared);
            findings.push(self.bad(column, &problem, self.modify(settings, target)));
        } else if !column.nullable && self.wants == Wants::MomentOrNull && self.key == "finished_at" {
            let problem = "is NOT NULL, but has to be NULL while a bill is open";
            findings.push(self.bad(column, problem, self.modify(settings, target)));
        }
        if column.generated && self.writes {
            let problem = "is a generated column, but Outbill has to write it";
            findings.push(self.bad(column, problem, self.replace(settings, target)));
        }
        if column.touched_on_update && matches!(self.key.as_str(), "next_retry_time" | "created_at") {
            let problem =
                "is set to the present time by every UPDATE that does not name it (ON UPDATE CURRENT_TIMESTAMP)";
            findings.push(Finding::warning(self.point(column), problem, self.modify(settings, target)));
        }
        findings
    }

    fn missing(&self, table: &Table, settings: &Settings, target: &Target, hidden: &Hidden) -> Finding {
        let name = quote_name(&self.column, '`');
        let mut definition = self.definition(settings, target.is_sqlite);
        if self.wants == Wants::Id {
            definition = definition.replace("AUTO_INCREMENT", "AUTO_INCREMENT UNIQUE");
        }
        if target.is_sqlite {
            // SQLite adds no column that is NOT NULL without a default, nor one whose default is an expression.
            definition =
                definition.replace("text NOT NULL", "text NOT NULL DEFAULT ''").replace("CURRENT_TIMESTAMP", "NULL");
        }
        let account = hidden.columns.contains(&self.column).then_some(hidden.account.as_str());
        let mut problem = match account {
            Some(account) => format!("not visible to {account}: missing, or no privilege on it"),
            None => "missing".to_owned(),
        };
        let taken: Vec<String> = roles(settings).into_iter().map(|role| role.column).collect();
        let free =
            table.columns.iter().map(|column| column.name.as_str()).filter(|name| !taken.iter().any(|it| it == name));
        let unique = table.lone_unique_column().filter(|_| self.wants == Wants::Id);
        if let Some(candidate) = unique.or_else(|| near_miss(&self.column, free)) {
            problem = format!("{problem}; did you mean {candidate}? Then set store.columns.{}: {candidate}", self.key);
        }
        let mut remedy = format!("ALTER TABLE {} ADD COLUMN {name} {definition};", target.table);
        if let (Some(candidate), Wants::Id) = (unique, self.wants) {
            // It may be an AUTO_INCREMENT column, of which there can be only one.
            remedy = format!("set store.columns.id: {candidate}, which is unique");
        } else if target.is_sqlite && self.wants == Wants::Id {
            "SQLite cannot add a primary key: create the table anew with it and copy the rows".clone_into(&mut remedy);
        }
        if let Some(account) = account {
            remedy = format!("{} or, where it exists: {}", remedy, self.grant(&self.rights(), target, account));
        }
        Finding::bad(format!("column {} (store.columns.{})", self.column, self.key), problem, remedy)
    }

    /// What Outbill does with the column, as GRANT names it.
    pub(super) fn rights(&self) -> Vec<&'static str> {
        [(self.reads, "SELECT"), (self.writes, "UPDATE")]
            .into_iter()
            .filter_map(|(used, right)| used.then_some(right))
            .collect()
    }

    /// The statement that gives an account rights on this one column.
    pub(super) fn grant(&self, rights: &[&str], target: &Target, account: &str) -> String {
        let name = quote_name(&self.column, '`');
        let rights: Vec<String> = rights.iter().map(|right| format!("{right} ({name})")).collect();
        format!("GRANT {} ON {} TO {account};", rights.join(", "), target.table)
    }

    fn modify(&self, settings: &Settings, target: &Target) -> String {
        // A table takes one AUTO_INCREMENT column, and may have another one.
        let definition = self.definition(settings, target.is_sqlite).replace(" AUTO_INCREMENT", "");
        alter(target, &self.column, &definition)
    }

    fn replace(&self, settings: &Settings, target: &Target) -> String {
        let (name, table) = (quote_name(&self.column, '`'), &target.table);
        let definition = self.definition(settings, target.is_sqlite);
        if target.is_sqlite {
            return format!(
                "ALTER TABLE {table} DROP COLUMN {name}; ALTER TABLE {table} ADD COLUMN {name} {definition};"
            );
        }
        format!("ALTER TABLE {table} DROP COLUMN {name}, ADD COLUMN {name} {definition};")
    }

    fn bad(&self, column: &Column, problem: &str, remedy: String) -> Finding {
        Finding::bad(self.point(column), problem, remedy)
    }

    fn point(&self, column: &Column) -> String {
        format!("column {} (store.columns.{})", column.name, self.key)
    }
}

impl Wants {
    /// # Errors
    /// What the column would have to be.
    fn accepts(self, column: &Column, is_sqlite: bool) -> Result<(), &'static str> {
        // `BINARY(n)` pads what is shorter with NULs.
        let is_padded = column.declared.to_lowercase().starts_with("binary");
        let (fits, wanted) = match (self, &column.kind) {
            (Self::Id, kind) if is_sqlite => (matches!(kind, Kind::Integer { .. }), "INTEGER"),
            // The widths are those of `outbill_attempt.bill_id`, where binary ids stand as hexadecimal digits.
            (Self::Id, kind) => (
                match kind {
                    Kind::Integer { .. } | Kind::Uuid => true,
                    Kind::Text { chars } => chars.is_some_and(|chars| chars <= 255),
                    Kind::Bytes { bytes } => bytes.is_some_and(|bytes| bytes <= 127),
                    _ => false,
                },
                "an integer, CHAR or VARCHAR of up to 255 characters, BINARY of up to 127 bytes, or UUID",
            ),
            (Self::Status | Self::Anything, _)
            | (Self::Key, Kind::Integer { .. })
            | (Self::Words | Self::MessageId | Self::Key, Kind::Text { .. } | Kind::Enum(_) | Kind::Uuid) => (true, ""),
            (Self::Words | Self::MessageId, Kind::Bytes { .. }) => (!is_padded, "VARCHAR"),
            (Self::Words | Self::MessageId, _) => (false, "VARCHAR"),
            (Self::Key, Kind::Bytes { .. }) => (!is_padded, "VARCHAR or an integer"),
            (Self::Key, _) => (false, "VARCHAR or an integer"),
            (Self::Payload, kind) => {
                (matches!(kind, Kind::Json | Kind::Text { .. } | Kind::Bytes { .. }), "JSON, TEXT, VARCHAR or BLOB")
            }
            (Self::Count, kind) => (matches!(kind, Kind::Integer { .. }), "an integer"),
            (Self::Moment | Self::MomentOrNull, Kind::Text { .. }) if is_sqlite => (true, ""),
            (Self::Moment | Self::MomentOrNull, kind) => (matches!(kind, Kind::Moment { .. }), "DATETIME or TIMESTAMP"),
            (Self::Object, kind) => (matches!(kind, Kind::Json | Kind::Text { .. }), "JSON or TEXT"),
            (Self::Reason, kind) => (matches!(kind, Kind::Text { .. }), "VARCHAR or TEXT"),
            (Self::Version, kind) => {
                let fits = matches!(kind, Kind::Integer { .. } | Kind::Text { .. } | Kind::Moment { .. } | Kind::Uuid);
                (fits, "an integer, VARCHAR, DATETIME or TIMESTAMP")
            }
        };
        if fits { Ok(()) } else { Err(wanted) }
    }
}

/// The statement that gives a column another definition.
pub(super) fn alter(target: &Target, column: &str, definition: &str) -> String {
    let name = quote_name(column, '`');
    if target.is_sqlite {
        return format!(
            "create the table anew with {name} {definition} and copy the rows (SQLite cannot change a column)"
        );
    }
    format!("ALTER TABLE {} MODIFY COLUMN {name} {definition};", target.table)
}

/// A status in words, for a person.
pub(super) fn shown(value: &StatusValue) -> String {
    match value {
        StatusValue::Number(number) => number.to_string(),
        StatusValue::Text(text) => format!("'{text}'"),
    }
}
