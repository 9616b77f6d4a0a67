//! The rules of `store`.

use std::{collections::HashMap, time::Duration};

use url::Url;

use crate::{
    config::{
        problem::Problem,
        rules::{Report, condition},
        tree::Node,
        unavailable,
    },
    secret::Secret,
    store::{
        Database,
        mapping::TableName,
        settings::{Columns, Settings, StatusValue, Statuses, Tls, TlsMode},
    },
};

/// The names that templates know without `columns.extra`.
const TEMPLATE_NAMES: [&str; 4] = ["type", "key", "id", "payload"];

pub(in crate::config) fn check(settings: &Settings, node: &Node, problems: &mut Vec<Problem>) {
    let report = &mut Report { node, problems };
    let before = report.problems.len();
    connection(settings, report);
    if let Err(error) = TableName::parse(&settings.table) {
        report.at(&["table"], error);
    }
    columns(&settings.columns, report);
    if report.is_sound("statuses") {
        statuses(&settings.statuses, report);
    }
    if let Some(Err(error)) = settings.condition.as_deref().map(condition::check) {
        report.at(&["where"], error);
    }
    if let Some(Err(error)) = settings.time_zone.as_deref().map(time_zone) {
        report.at(&["time_zone"], error);
    }
    if settings.own_schema.as_deref().is_some_and(|schema| schema.is_empty() || schema.chars().count() > 64) {
        report.at(&["own_schema"], "must be a name of 1 to 64 characters");
    }
    let prefix = settings.own_prefix.as_bytes();
    let in_prefix = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    if !(1..=32).contains(&prefix.len()) || !prefix.iter().all(in_prefix) {
        report.at(&["own_prefix"], "must be 1 to 32 letters, digits or _");
    }
    report.within(&["poll", "interval"], settings.poll.interval, Duration::from_millis(10), Duration::from_hours(1));
    report.within(&["statement_timeout"], settings.statement_timeout, Duration::from_secs(1), Duration::from_hours(1));
    if !(64 << 10..=1 << 30).contains(&settings.poll.batch_bytes.0) {
        report.at(&["poll", "batch_bytes"], "must be between 64KiB and 1GiB");
    }
    if report.problems.len() == before && report.node.is_sound() {
        // What is left is between the parts of the URL, which only the store itself takes apart.
        if let Err(error) = Database::new(settings) {
            report.at(&["url"], error.strip_prefix("store.url ").unwrap_or(&error));
        }
    }
}

fn connection(settings: &Settings, report: &mut Report<'_>) {
    report.one_way_to_connect(&["host", "port", "user", "password", "database", "socket"]);
    if report.is_sound("tls") {
        tls(&settings.tls, report);
    }
    match &settings.url {
        Some(url) => url_form(url, settings, report),
        None if report.has("url") => {}
        None => separate_keys(settings, report),
    }
}

fn tls(tls: &Tls, report: &mut Report<'_>) {
    report.certificate_with_key(tls.cert.as_ref(), tls.key.as_ref());
    if tls.mode == TlsMode::Disabled && (tls.ca.is_some() || tls.cert.is_some()) {
        report.at(&["tls", "mode"], "`disabled` does without the certificates that stand beside it");
    } else if tls.ca.is_some() && !matches!(tls.mode, TlsMode::VerifyCa | TlsMode::VerifyFull) {
        report.at(&["tls", "ca"], "is only looked at with `mode: verify_ca` or `mode: verify_full`");
    }
}

fn separate_keys(settings: &Settings, report: &mut Report<'_>) {
    match (report.has("host"), report.has("socket")) {
        (false, false) => {
            report.at(&[], "says no database: give `url`, or `host` or `socket` with `user` and `database`");
            return;
        }
        (true, true) => report.at(&["socket"], "`socket` and `host` exclude each other"),
        (false, true) if report.has("port") => report.at(&["port"], "a socket has no port"),
        _ => {}
    }
    for (key, value) in [("host", &settings.host), ("user", &settings.user), ("database", &settings.database)] {
        if value.as_deref() == Some("") {
            report.at(&[key], "is empty");
        }
    }
    for key in ["user", "database"] {
        if !report.has(key) {
            report.at(&[], format!("the key `{key}` is missing"));
        }
    }
}

fn url_form(url: &Secret, settings: &Settings, report: &mut Report<'_>) {
    // An unknown scheme is not shown: `password@host` without one looks like a scheme too.
    match url.expose().split_once(':').map(|(scheme, _)| scheme) {
        Some("sqlite") => sqlite_form(url, report),
        Some("mysql" | "mariadb") => {
            // A URL that does not parse is reported by the store's own words.
            let Ok(url) = Url::parse(url.expose()) else { return };
            if url.path().trim_start_matches('/').is_empty() {
                report.at(&["url"], "names no database; write mysql://user:password@host:3306/database");
            }
            if url.password().is_some() && settings.password_file.is_some() {
                report.at(&["password_file"], "the url has a password already; say it in one of the two");
            }
        }
        Some(scheme) if unavailable::STORE_SCHEMES.contains(&scheme) => {
            report
                .at(&["url"], "PostgreSQL is not available in this version; the url begins with mysql:// or sqlite://");
        }
        _ => report.at(&["url"], "begins with no scheme that is known here; known are: mysql, mariadb, sqlite"),
    }
}

fn sqlite_form(url: &Secret, report: &mut Report<'_>) {
    let path = url.expose().strip_prefix("sqlite:").unwrap_or_default();
    let path = path.strip_prefix("//").unwrap_or(path);
    let file = path.split('?').next().unwrap_or_default();
    if file.is_empty() || file == ":memory:" || path.contains("mode=memory") {
        report.at(&["url"], "an SQLite store is a file that the application writes too: sqlite:///path/shop.db");
    }
    for (key, what) in [
        ("tls", "no network"),
        ("password_file", "no passwords"),
        ("time_zone", "no session time zone"),
        ("own_schema", "no schemas"),
    ] {
        if report.has(key) {
            report.at(&[key], format!("does nothing here: SQLite has {what}"));
        }
    }
}

fn columns(columns: &Columns, report: &mut Report<'_>) {
    let named = [
        ("id", Some(&columns.id)),
        ("type", Some(&columns.bill_type)),
        ("key", Some(&columns.key)),
        ("status", Some(&columns.status)),
        ("payload", Some(&columns.payload)),
        ("retry_count", Some(&columns.retry_count)),
        ("next_retry_time", Some(&columns.next_retry_time)),
        ("finished_at", Some(&columns.finished_at)),
        ("created_at", Some(&columns.created_at)),
        ("headers", columns.headers.as_ref()),
        ("reason", columns.reason.as_ref()),
        ("published_at", columns.published_at.as_ref()),
        ("message_id", columns.message_id.as_ref()),
        ("version", columns.version.as_ref()),
    ];
    let mut taken: HashMap<String, &str> = HashMap::new();
    for (key, column) in named.into_iter().filter_map(|(key, column)| column.map(|column| (key, column))) {
        if column.is_empty() {
            report.at(&["columns", key], "is empty");
        } else if let Some(first) = taken.insert(column.to_lowercase(), key) {
            report.at(&["columns", key], format!("is the same column as `{first}`"));
        }
    }
    for (name, column) in &columns.extra {
        let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !name.is_empty();
        if TEMPLATE_NAMES.contains(&name.as_str()) {
            report
                .at(&["columns", "extra", name], format!("`{name}` has a meaning in templates already; take another"));
        } else if !is_word {
            report.at(&["columns", "extra", name], "the name must be of letters, digits and _");
        } else if column.is_empty() {
            report.at(&["columns", "extra", name], "is empty");
        }
    }
}

fn statuses(statuses: &Statuses, report: &mut Report<'_>) {
    let pending = statuses.pending.values();
    if pending.is_empty() {
        report.at(&["statuses", "pending"], "needs at least one value");
    }
    let mut values: Vec<(&str, &StatusValue)> = pending.iter().map(|value| ("pending", value)).collect();
    values.extend([("done", &statuses.done), ("failed", &statuses.failed), ("compensated", &statuses.compensated)]);
    let is_number = |value: &StatusValue| matches!(value, StatusValue::Number(_));
    if values.iter().any(|(_, value)| is_number(value)) && !values.iter().all(|(_, value)| is_number(value)) {
        let message = "numbers and texts do not mix: all four values (also those left at 0 to 3) are of one kind";
        report.at(&["statuses"], message);
        return;
    }
    let mut taken: HashMap<String, &str> = HashMap::new();
    for (key, value) in values {
        let text = match value {
            StatusValue::Number(number) => number.to_string(),
            StatusValue::Text(text) => text.to_lowercase(),
        };
        if text.is_empty() {
            report.at(&["statuses", key], "is empty");
        } else if let Some(first) = taken.insert(text, key) {
            report.at(&["statuses", key], format!("`{key}` and `{first}` have the same value"));
        }
    }
}

/// An offset (`+08:00`) within MySQL's range, or a name as the server's time zone tables have it.
fn time_zone(zone: &str) -> Result<(), &'static str> {
    const FORMS: &str = "is no time zone; write an offset (+08:00) or a name that the server knows (Europe/Berlin)";
    let Some(offset) = zone.strip_prefix(['+', '-']) else {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-' | b'+');
        let is_name = zone.starts_with(|c: char| c.is_ascii_alphabetic()) && zone.bytes().all(is_allowed);
        return if is_name { Ok(()) } else { Err(FORMS) };
    };
    let two_digits = |text: &str| -> Option<u32> {
        (text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
    };
    let parts = offset.split_once(':').and_then(|(hours, minutes)| Some((two_digits(hours)?, two_digits(minutes)?)));
    match parts {
        Some((hours, minutes)) if hours * 60 + minutes <= 14 * 60 && minutes < 60 => Ok(()),
        _ => Err(FORMS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_zone_is_an_offset_or_a_name() {
        for good in ["+08:00", "-03:30", "+14:00", "Europe/Berlin", "UTC", "SYSTEM", "Etc/GMT+8"] {
            assert_eq!(time_zone(good), Ok(()), "{good}");
        }
        for bad in ["", "8", "+8:00", "+08", "+08:60", "+15:00", "Europe Berlin", "'; --", "+0é:00"] {
            assert!(time_zone(bad).is_err(), "{bad}");
        }
    }
}
