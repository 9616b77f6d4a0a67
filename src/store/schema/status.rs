//! Whether the status column can hold the configured values. Pure.

use super::{
    columns::{Target, alter, shown},
    table::{Column, Kind, near_miss},
};
use crate::store::{
    mapping::status_literal,
    settings::{StatusValue, Statuses},
};

/// What is wrong with the column, and what would mend it.
pub(super) fn judge(column: &Column, statuses: &Statuses, target: &Target) -> Option<(String, String)> {
    let values = values(statuses);
    let is_number = values.iter().all(|(_, value)| matches!(value, StatusValue::Number(_)));
    let is_text = values.iter().all(|(_, value)| matches!(value, StatusValue::Text(_)));
    let declared = &column.declared;
    match &column.kind {
        Kind::Integer { min, max } if is_number => out_of_range(&values, *min, *max).map(|misfits| {
            let problem = format!("is {declared}, which cannot hold {misfits}");
            (problem, alter(target, &column.name, &definition(statuses, target.is_sqlite)))
        }),
        Kind::Enum(allowed) if is_text => not_among(&values, allowed, statuses, column, target),
        Kind::Text { chars } if is_text => too_long(&values, *chars).map(|misfits| {
            let problem = format!("is {declared}, which cannot hold {misfits}");
            (problem, alter(target, &column.name, &definition(statuses, target.is_sqlite)))
        }),
        Kind::Integer { .. } => {
            Some((format!("is {declared}, but store.statuses are strings"), "give the numbers under store.statuses, such as { pending: 0, done: 1, failed: 2, compensated: 3 }".to_owned()))
        }
        Kind::Enum(allowed) => {
            let allowed = allowed.join("', '");
            Some((format!("is {declared}, but store.statuses are numbers"), format!("give the strings under store.statuses; the column takes '{allowed}'")))
        }
        Kind::Text { .. } => Some((
            format!("is {declared}, but store.statuses are numbers"),
            "give the strings under store.statuses, such as { pending: \"0\", done: \"1\", failed: \"2\", compensated: \"3\" }".to_owned(),
        )),
        _ => {
            let problem = format!("is {declared}, but has to be an integer, ENUM or VARCHAR");
            Some((problem, alter(target, &column.name, &definition(statuses, target.is_sqlite))))
        }
    }
}

/// The column as `CREATE TABLE` defines it, wide enough for the configured values.
pub(super) fn definition(statuses: &Statuses, is_sqlite: bool) -> String {
    let values = values(statuses);
    let default = statuses.pending.values().first().map_or_else(|| "0".to_owned(), status_literal);
    let longest = values.iter().filter_map(|(_, value)| text(value)).map(|text| text.chars().count()).max();
    match longest {
        Some(_) if is_sqlite => format!("text NOT NULL DEFAULT {default}"),
        Some(longest) => format!("varchar({}) NOT NULL DEFAULT {default}", longest.max(16)),
        None if is_sqlite => format!("integer NOT NULL DEFAULT {default}"),
        None if out_of_range(&values, -128, 127).is_none() => format!("tinyint NOT NULL DEFAULT {default}"),
        None if out_of_range(&values, i32::MIN.into(), i32::MAX.into()).is_none() => {
            format!("int NOT NULL DEFAULT {default}")
        }
        None => format!("bigint NOT NULL DEFAULT {default}"),
    }
}

/// Every configured value with its key.
pub(super) fn values(statuses: &Statuses) -> Vec<(&'static str, &StatusValue)> {
    let pending = statuses.pending.values().iter().map(|value| ("pending", value));
    let others = [("done", &statuses.done), ("failed", &statuses.failed), ("compensated", &statuses.compensated)];
    pending.chain(others).collect()
}

fn out_of_range(values: &[(&str, &StatusValue)], min: i128, max: i128) -> Option<String> {
    let misfits = values.iter().filter(|(_, value)| match value {
        StatusValue::Number(number) => !(min..=max).contains(&i128::from(*number)),
        StatusValue::Text(_) => true,
    });
    listed(misfits)
}

fn too_long(values: &[(&str, &StatusValue)], chars: Option<u64>) -> Option<String> {
    let limit = usize::try_from(chars?).ok()?;
    listed(values.iter().filter(|(_, value)| text(value).is_some_and(|text| text.chars().count() > limit)))
}

fn not_among(
    values: &[(&str, &StatusValue)],
    allowed: &[String],
    statuses: &Statuses,
    column: &Column,
    target: &Target,
) -> Option<(String, String)> {
    let missing = |value: &&StatusValue| text(value).is_some_and(|text| !allowed.iter().any(|it| it == text));
    let misfits = listed(values.iter().filter(|(_, value)| missing(value)))?;
    let hints: Vec<String> = values
        .iter()
        .filter(|(_, value)| missing(value))
        .filter_map(|(key, value)| {
            let candidate = near_miss(text(value)?, allowed.iter().map(String::as_str))?;
            Some(format!("; did you mean store.statuses.{key}: {candidate}?"))
        })
        .collect();
    let mut all: Vec<StatusValue> = allowed.iter().cloned().map(StatusValue::Text).collect();
    for (_, value) in values {
        if !all.contains(value) {
            all.push((*value).clone());
        }
    }
    let all: Vec<String> = all.iter().map(status_literal).collect();
    let default = statuses.pending.values().first().map_or_else(|| "NULL".to_owned(), status_literal);
    let remedy = alter(target, &column.name, &format!("enum({}) NOT NULL DEFAULT {default}", all.join(",")));
    Some((format!("is {}, which does not list {misfits}{}", column.declared, hints.concat()), remedy))
}

/// `'done' (store.statuses.done), …`; `None` where there is nothing to list.
fn listed<'a>(values: impl Iterator<Item = &'a (&'a str, &'a StatusValue)>) -> Option<String> {
    let words: Vec<String> = values.map(|(key, value)| format!("{} (store.statuses.{key})", shown(value))).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn text(value: &StatusValue) -> Option<&str> {
    match value {
        StatusValue::Text(text) => Some(text),
        StatusValue::Number(_) => None,
    }
}
