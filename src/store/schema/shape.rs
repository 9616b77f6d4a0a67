//! What a table must have beyond its columns: an index for the queues, an id that means one row, transactions. Pure.

use super::{
    columns::{Hidden, Target},
    table::Table,
};
use crate::{
    finding::Finding,
    store::{mapping::quote_name, settings::Settings},
};

/// Every mistake in the table as a whole, and what is right about it. An index over a hidden column may be hidden with it:
/// nothing is said about it before the column is to be seen.
pub(super) fn judge(table: &Table, settings: &Settings, target: &Target, hidden: &Hidden) -> Vec<Finding> {
    let mut findings = vec![kind(table, target)];
    let is_hidden = |column: &str| hidden.columns.iter().any(|it| it == column);
    if !table.is_view && !is_hidden(&settings.columns.id) {
        findings.push(identity(table, settings, target));
    }
    if !table.is_view && !queue_columns(settings).into_iter().any(is_hidden) {
        findings.push(index(table, settings, target));
    }
    if table.is_partitioned {
        findings.push(Finding::warning(
            format!("table {}", target.table),
            "is partitioned: every read of a page looks into every partition",
            "keep the number of partitions small, or partition an archive instead",
        ));
    }
    if !table.triggers.is_empty() {
        findings.push(Finding::warning(
            format!("table {}", target.table),
            format!("has triggers on UPDATE ({}): they run within every settle", table.triggers.join(", ")),
            "make sure that they are quick, refuse nothing and leave Outbill's columns alone",
        ));
    }
    findings
}

/// The columns whose order a page is read in.
pub(super) fn queue_columns(settings: &Settings) -> [&str; 3] {
    let columns = &settings.columns;
    [&columns.status, &columns.next_retry_time, &columns.id]
}

/// How message ids can be made for this table: whether type and key identify a bill, or why not.
pub(super) fn type_and_key_identify(table: &Table, settings: &Settings) -> Result<(), String> {
    let (bill_type, key) = (settings.columns.bill_type.as_str(), settings.columns.key.as_str());
    if !table.is_unique(&[bill_type, key]) {
        return Err(format!("no unique index on exactly {bill_type} and {key}"));
    }
    match [bill_type, key].into_iter().find(|name| table.column(name).is_none_or(|column| column.nullable)) {
        Some(name) => Err(format!("{name} can be NULL, and NULLs are not unique")),
        None => Ok(()),
    }
}

fn kind(table: &Table, target: &Target) -> Finding {
    let point = format!("table {}", target.table);
    if table.is_view {
        return Finding::warning(
            point,
            "is a view: whether it has the index, and an id that is unique, cannot be checked",
            "point store.table at the table itself, and put the view's condition into store.where",
        );
    }
    match table.engine.as_deref() {
        Some(engine) if !engine.eq_ignore_ascii_case("InnoDB") => Finding::bad(
            point,
            format!("is stored by {engine}, not InnoDB: a bill would not share the application's transaction"),
            format!("ALTER TABLE {} ENGINE = InnoDB;", target.table),
        ),
        Some(engine) => Finding::good(point, format!("found, stored by {engine}")),
        None => Finding::good(point, "found"),
    }
}

fn index(table: &Table, settings: &Settings, target: &Target) -> Finding {
    let wanted = queue_columns(settings);
    let [status, next_retry_time, id] = wanted;
    let point = format!("index on ({status}, {next_retry_time})");
    if let Some(index) = table.queue_index(wanted) {
        return Finding::good(point, index.to_string());
    }
    if let (Some(index), false) = (table.hidden_queue_index(wanted), target.is_sqlite) {
        let word = if target.is_mariadb { "NOT IGNORED" } else { "VISIBLE" };
        let remedy = format!("ALTER TABLE {} ALTER INDEX {} {word};", target.table, quote_name(&index.name, '`'));
        return Finding::bad(point, format!("{index} is hidden from the optimizer, which has to use it"), remedy);
    }
    let mut problem = format!(
        "missing: without it every poll reads the whole table; it must be exactly ({status}, {next_retry_time}), or end in {id}"
    );
    // The nearest one tells what is amiss: hidden, descending, with one column too many.
    let near = table.indexes.iter().find(|index| {
        index
            .parts
            .first()
            .and_then(|part| part.column.as_deref())
            .is_some_and(|column| column.eq_ignore_ascii_case(status))
    });
    if let Some(index) = near {
        problem = format!("{problem}; {index} will not do");
    }
    Finding::bad(point, problem, create_index(table, settings, target))
}

fn create_index(table: &Table, settings: &Settings, target: &Target) -> String {
    let [status, next_retry_time, id] = queue_columns(settings).map(|name| quote_name(name, '`'));
    let base =
        if target.is_sqlite { format!("idx_{}_status_next", settings.table) } else { "idx_status_next".to_owned() };
    let taken = |name: &str| table.indexes.iter().any(|index| index.name.eq_ignore_ascii_case(name));
    let name = if taken(&base) { format!("{base}_outbill") } else { base };
    let name = quote_name(&name, '`');
    // The database appends the primary key to every index: only where that does not begin with the id must it be named.
    // Where there is no key yet, the id is going to be it.
    let is_led_by_id = table.appended().first().is_none_or(|part| part.is_whole(&settings.columns.id));
    let columns = if is_led_by_id {
        format!("{status}, {next_retry_time}")
    } else {
        format!("{status}, {next_retry_time}, {id}")
    };
    // So made, the index keeps no INSERT of the application waiting.
    let online = if target.is_sqlite { "" } else { " ALGORITHM=INPLACE LOCK=NONE" };
    format!("CREATE INDEX {name} ON {} ({columns}){online};", target.table)
}

fn identity(table: &Table, settings: &Settings, target: &Target) -> Finding {
    let id = settings.columns.id.as_str();
    let point = format!("id {id}");
    let is_nullable = table.column(id).is_some_and(|column| column.nullable);
    let is_unique = table.is_unique(&[id]);
    if is_unique && !is_nullable {
        return Finding::good(point, "identifies one row");
    }
    let name = quote_name(id, '`');
    if is_unique {
        let declared = table.column(id).map_or("bigint unsigned", |column| column.declared.as_str());
        let remedy = super::columns::alter(target, id, &format!("{declared} NOT NULL"));
        return Finding::bad(point, "is unique, but can be NULL: a bill without an id could not be settled", remedy);
    }
    let has_primary = table.indexes.iter().any(|index| index.primary);
    let remedy = match (target.is_sqlite, has_primary) {
        (true, _) => format!(
            "CREATE UNIQUE INDEX {} ON {} ({name});",
            quote_name(&format!("uk_{}_id", settings.table), '`'),
            target.table
        ),
        (false, true) => format!("ALTER TABLE {} ADD UNIQUE KEY ({name});", target.table),
        (false, false) => format!("ALTER TABLE {} ADD PRIMARY KEY ({name});", target.table),
    };
    Finding::bad(point, "is not unique by itself: an update by id could hit another bill", remedy)
}
