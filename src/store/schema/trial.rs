//! What only trying shows: privileges, `store.where`, and whether the clock of `created_at` is the store's. Each trial is
//! a statement that changes nothing: `LIMIT 0`, or an EXPLAIN, which asks for the same privileges as the real thing.

use super::{
    columns::{Hidden, Role, Target, roles},
    link::Ask,
    own::{OWN, Place},
    server::Server,
    shape::queue_columns,
    table::{Kind, Table},
};
use crate::{
    finding::Finding,
    store::{
        mapping::quote_name,
        settings::{Settings, StatusValue},
    },
};

/// A privilege is missing: on the schema, the table, a column, or of a kind that is granted globally.
const DENIED: [&str; 6] = ["1044", "1142", "1143", "1227", "1370", "1045"];

/// Clocks in different zones differ by multiples of this.
const ZONE_STEP_S: i64 = 15 * 60;
/// The largest difference of two time zones.
const ZONE_MAX_S: i64 = 26 * 3_600;
/// So old may the newest bill of a busy table be.
const BUSY_S: i64 = 60;
/// So far may the clocks of the application's servers be ahead of the database's.
const AHEAD_S: i64 = 30;

/// Values of status that are looked for outside the map, at most.
const STATUSES_MAX: usize = 32;

/// Whether the account may do all that `run` does to the application's table and to the own tables (those that are
/// there), each missing right with its GRANT.
pub(super) async fn privileges(
    link: &mut dyn Ask,
    table: &Table,
    target: &Target,
    server: &Server,
    place: &Place<'_>,
) -> sqlx::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let there: Vec<Role> = roles(place.settings).into_iter().filter(|it| table.column(&it.column).is_some()).collect();
    for role in &there {
        let mut missing = Vec::new();
        for right in role.rights() {
            let sql = if right == "SELECT" { select(role, target) } else { update(role, target) };
            if denied(link, &sql).await? {
                missing.push(right);
            }
        }
        if !missing.is_empty() {
            let point = format!("column {} (store.columns.{})", role.column, role.key);
            let problem = format!("{} may not {} it", server.account, missing.join(" and "));
            findings.push(Finding::bad(point, problem, role.grant(&missing, target, &server.account)));
        }
    }
    for own in &OWN {
        let name = own.name(place.settings, place.application);
        if super::read_table(link, Some(server), &name).await?.is_none() {
            continue;
        }
        let quoted = name.quoted('`');
        for right in own.rights {
            let sql = match *right {
                "SELECT" => format!("SELECT 1 FROM {quoted} LIMIT 0"),
                "INSERT" => format!("EXPLAIN INSERT INTO {quoted} VALUES ()"),
                _ => format!("EXPLAIN DELETE FROM {quoted} WHERE 1 = 0"),
            };
            if denied(link, &sql).await? {
                let problem = format!("{} may not {right}", server.account);
                let remedy = format!("GRANT {} ON {quoted} TO {};", own.rights.join(", "), server.account);
                findings.push(Finding::bad(format!("table {name}"), problem, remedy));
                break;
            }
        }
    }
    if findings.is_empty() {
        let detail = format!("{} may do all that `run` needs", server.account);
        findings.push(Finding::good("privileges", detail));
    }
    Ok(findings)
}

/// Which of the columns that are not to be seen may be there all the same: the server refuses to talk about them.
pub(super) async fn hidden(
    link: &mut dyn Ask,
    table: &Table,
    target: &Target,
    settings: &Settings,
    server: &Server,
) -> sqlx::Result<Hidden> {
    let mut hidden = Hidden { account: server.account.clone(), columns: Vec::new() };
    for role in roles(settings).into_iter().filter(|role| table.column(&role.column).is_none()) {
        if denied(link, &select(&role, target)).await? {
            hidden.columns.push(role.column);
        }
    }
    Ok(hidden)
}

/// Whether `store.where` is a condition over the table's columns.
pub(super) async fn condition(
    link: &mut dyn Ask,
    settings: &Settings,
    target: &Target,
) -> sqlx::Result<Option<Finding>> {
    let Some(condition) = settings.condition.as_deref() else { return Ok(None) };
    let point = "store.where";
    let explain = if target.is_sqlite { "EXPLAIN QUERY PLAN" } else { "EXPLAIN" };
    let id = quote_name(&settings.columns.id, '`');
    // The line break ends a comment that the condition may end with, as the statements of fetch and settle do.
    let sql = format!("{explain} SELECT {id} FROM {} WHERE {id} IS NULL AND ({condition}\n)", target.table);
    Ok(Some(match link.ask(&sql).await {
        Ok(_) => Finding::good(point, condition),
        Err(sqlx::Error::Database(error)) => {
            let is_denied = error.code().is_some() && is_denied(error.message(), number(error.as_ref()).as_deref());
            let remedy = match (is_denied, denied_column(error.message())) {
                (true, Some(column)) => {
                    format!(
                        "GRANT SELECT ({}) ON {} TO the account; or correct the name in store.where",
                        quote_name(column, '`'),
                        target.table
                    )
                }
                _ => "write a condition over the table's columns, such as deleted_at IS NULL".to_owned(),
            };
            Finding::bad(point, format!("the database does not take it: {}", error.message()), remedy)
        }
        Err(error) => return Err(error),
    }))
}

/// Statuses in the table that the map does not know: such bills are left alone. Skips from value to value along the
/// index, and so reads a few entries only.
pub(super) async fn statuses(
    link: &mut dyn Ask,
    table: &Table,
    settings: &Settings,
    target: &Target,
) -> sqlx::Result<Option<Finding>> {
    let [status, ..] = queue_columns(settings);
    let is_number = table.column(status).is_some_and(|column| matches!(column.kind, Kind::Integer { .. }));
    if !is_number || table.queue_index(queue_columns(settings)).is_none() {
        return Ok(None);
    }
    let known = super::status::values(&settings.statuses);
    let name = quote_name(status, '`');
    let mut strangers = Vec::new();
    let mut above = String::new();
    for _ in 0..STATUSES_MAX {
        let sql = format!("/* outbill:inspect_statuses */ SELECT MIN({name}) FROM {}{above}", target.table);
        let Some(value) = link.ask_one(&sql).await? else { break };
        let number = value.parse().map(StatusValue::Number);
        if !known.iter().any(|(_, it)| number.as_ref() == Ok(*it)) {
            strangers.push(value.clone());
        }
        above = format!(" WHERE {name} > {value}");
    }
    Ok((!strangers.is_empty()).then(|| {
        Finding::warning(
            format!("column {status} (store.columns.status)"),
            format!(
                "holds values that store.statuses does not name: {}; bills with them are left alone",
                strangers.join(", ")
            ),
            "name them under store.statuses if they are Outbill's to see; pending may be a list",
        )
    }))
}

/// Whether the application writes `created_at` by the clock that the store's `NOW()` shows: told by the newest bills.
pub(super) async fn clock(
    link: &mut dyn Ask,
    table: &Table,
    settings: &Settings,
    target: &Target,
) -> sqlx::Result<Option<Finding>> {
    let columns = &settings.columns;
    let is_local = table
        .column(&columns.created_at)
        .is_some_and(|it| matches!(it.kind, Kind::Moment { zoned: false, .. } | Kind::Text { .. }));
    let grows = table.column(&columns.id).is_some_and(|it| matches!(it.kind, Kind::Integer { .. }));
    // Only an integer id says which bills are the newest, and only an index finds them at once.
    if !is_local || !grows || !table.is_unique(&[&columns.id]) {
        return Ok(None);
    }
    let (id, created_at) = (quote_name(&columns.id, '`'), quote_name(&columns.created_at, '`'));
    let age = if target.is_sqlite {
        format!("CAST(strftime('%s', 'now') AS INTEGER) - CAST(strftime('%s', {created_at}) AS INTEGER)")
    } else {
        format!("TIMESTAMPDIFF(SECOND, {created_at}, NOW())")
    };
    let sql = format!("/* outbill:inspect_clock */ SELECT {age} FROM {} ORDER BY {id} DESC LIMIT 10", target.table);
    let ages_s: Vec<i64> =
        link.ask(&sql).await?.into_iter().filter_map(|row| row.first()?.as_deref()?.parse().ok()).collect();
    Ok(offset_s(&ages_s).map(|offset_s| {
        let hours = format!("{}{}:{:02}", if offset_s > 0 { "-" } else { "+" }, offset_s.abs() / 3_600, offset_s.abs() / 60 % 60);
        Finding::warning(
            "time zone",
            format!("{} of the newest bills is {hours} h off the store's clock: the application seems to write it in another time zone", columns.created_at),
            if target.is_sqlite {
                "write it in UTC, as CURRENT_TIMESTAMP does; until then nothing is taken for expired"
            } else {
                "set store.time_zone to the application's zone, such as +08:00 or Europe/Berlin; until then nothing is taken for expired"
            },
        )
    }))
}

/// How far `created_at` lies behind (positive) or ahead of the store's clock, where the ages of the newest bills look
/// like another time zone: the youngest is a multiple of 15 minutes off, give or take the moments since it was written.
fn offset_s(ages_s: &[i64]) -> Option<i64> {
    let youngest_s = *ages_s.iter().min()?;
    let offset_s = (youngest_s + AHEAD_S).div_euclid(ZONE_STEP_S) * ZONE_STEP_S;
    let since_s = youngest_s - offset_s;
    (offset_s != 0 && offset_s.abs() <= ZONE_MAX_S && (-AHEAD_S..=BUSY_S).contains(&since_s)).then_some(offset_s)
}

fn select(role: &Role, target: &Target) -> String {
    format!("SELECT {} FROM {} LIMIT 0", quote_name(&role.column, '`'), target.table)
}

fn update(role: &Role, target: &Target) -> String {
    format!("EXPLAIN UPDATE {} SET {} = NULL WHERE 1 = 0", target.table, quote_name(&role.column, '`'))
}

/// Whether a statement is refused for want of a privilege. Any other refusal has a finding of its own elsewhere.
async fn denied(link: &mut dyn Ask, sql: &str) -> sqlx::Result<bool> {
    match link.ask(sql).await {
        Ok(_) => Ok(false),
        Err(sqlx::Error::Database(error)) => Ok(is_denied(error.message(), number(error.as_ref()).as_deref())),
        Err(error) => Err(error),
    }
}

fn is_denied(message: &str, number: Option<&str>) -> bool {
    number.is_some_and(|number| DENIED.contains(&number)) || message.contains(" command denied to user ")
}

fn number(error: &dyn sqlx::error::DatabaseError) -> Option<String> {
    error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>().map(|error| error.number().to_string())
}

/// The column in `SELECT command denied to user … for column 'x' in table 'y'`.
fn denied_column(message: &str) -> Option<&str> {
    message.split_once(" for column '")?.1.split_once("' in table ").map(|(column, _)| column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_time_zone_shows_as_a_multiple_of_a_quarter_of_an_hour() {
        for (ages_s, expected) in [
            (&[][..], None),
            (&[3, 40, 300], None),
            (&[-5, 0], None),
            (&[8 * 3_600 + 3, 8 * 3_600 + 70], Some(8 * 3_600)),
            (&[-8 * 3_600 - 2, -8 * 3_600 + 500], Some(-8 * 3_600)),
            (&[-8 * 3_600 + 45], Some(-8 * 3_600)),
            (&[20_700 + 12], Some(20_700)),
            (&[5_000], None),
            (&[40 * 86_400], None),
        ] {
            assert_eq!(offset_s(ages_s), expected, "{ages_s:?}");
        }
    }

    #[test]
    fn the_column_of_a_refusal_is_found_in_its_message() {
        let message = "SELECT command denied to user 'ob'@'localhost' for column 'deleted_at' in table 'async_bill'";
        assert_eq!(denied_column(message), Some("deleted_at"));
        assert!(is_denied(message, Some("1143")));
        assert_eq!(denied_column("You have an error in your SQL syntax"), None);
    }
}
