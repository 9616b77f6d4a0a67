//! The statements of one table, filled once at start.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use crate::store::{
    dialect::{Dialect, Texts},
    facts::{Facts, IdKind},
    mapping::{Names, quote_name, status_literal},
    settings::{Settings, StatusValue},
};

/// Lengths of IN lists. A list is filled up to the next length with its last id, so that few statements are prepared; MariaDB
/// turns a list of 1,000 or more into a scan.
const LIST_LENGTHS: [usize; 8] = [1, 4, 16, 64, 128, 256, 512, 999];

/// Rows of one INSERT into the attempt log, largest first: any number of rows is made of these.
pub(super) const LOG_LENGTHS: [usize; 3] = [64, 8, 1];

#[derive(Debug)]
pub(super) struct Statements {
    /// Set where one SELECT can answer an unfiltered fetch: one pending status, no `store.where`.
    pub(super) plain: Option<Plain>,
    pub(super) scan_fresh: Scan,
    pub(super) scan_due: Scan,
    pub(super) scan_failed: Scan,
    pub(super) load: List,
    pub(super) find: SqlStr,
    pub(super) settle_done: List,
    pub(super) settle_retry: SqlStr,
    pub(super) settle_failed: SqlStr,
    pub(super) log_attempts: [SqlStr; LOG_LENGTHS.len()],
    pub(super) holds: SqlStr,
    pub(super) hold: SqlStr,
    pub(super) release: SqlStr,
    pub(super) failed_ids: List,
    pub(super) rearm: List,
    pub(super) names: Names,
}

#[derive(Debug)]
pub(super) struct Plain {
    pub(super) fresh: Ranged,
    pub(super) due: Ranged,
}

/// A read of a queue from its start, and from behind a mark.
#[derive(Debug)]
pub(super) struct Ranged {
    pub(super) first: SqlStr,
    pub(super) after: SqlStr,
}

/// A read of index entries. Its values are repeated for each status, and then comes the limit once more.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) ranged: Ranged,
    /// From behind a mark whose time is NULL, where entries with and without a time are one queue.
    pub(super) after_null: Option<SqlStr>,
    /// How many statuses the entries are read from.
    pub(super) branches: usize,
}

/// A statement with an IN list, one for each length.
#[derive(Debug)]
pub(super) struct List([SqlStr; LIST_LENGTHS.len()]);

impl List {
    /// Ids of one statement at most.
    pub(super) const MAX: usize = 999;

    /// The statement for at least `wanted` ids, and how many it takes.
    pub(super) fn fitting(&self, wanted: usize) -> (&SqlStr, usize) {
        let [.., longest] = &self.0;
        let fitting = self.0.iter().zip(LIST_LENGTHS).find(|(_, length)| *length >= wanted);
        fitting.unwrap_or((longest, Self::MAX))
    }
}

impl Statements {
    pub(super) fn new<D: Dialect>(settings: &Settings, facts: &Facts) -> Result<Self, String> {
        let texts = &D::TEXTS;
        let names = names::<D>(settings, facts)?;
        let pending: Vec<String> = settings.statuses.pending.values().iter().map(status_literal).collect();
        let is_plain = pending.len() == 1 && settings.condition.is_none();
        let failed = [status_literal(&settings.statuses.failed)];
        let statement = |text: &str| statement(&names, text);
        let logs = LOG_LENGTHS.map(|rows| {
            let all = vec![names.fill(texts.log_attempt_row); rows].join(", ");
            self::statement(&names.with("rows", all), texts.log_attempts)
        });
        Ok(Self {
            plain: is_plain.then(|| Plain {
                fresh: ranged(&names, texts.fetch_fresh, AFTER_ID),
                due: ranged(&names, texts.fetch_due, AFTER_TIME),
            }),
            scan_fresh: scan(&names, texts, texts.entries_fresh, &pending, AFTER_ID),
            scan_due: scan(&names, texts, texts.entries_due, &pending, AFTER_TIME),
            scan_failed: Scan {
                after_null: Some(scan(&names, texts, texts.entries_failed, &failed, AFTER_NULL).ranged.after),
                ..scan(&names, texts, texts.entries_failed, &failed, AFTER_TIME)
            },
            load: list(&names, texts.load),
            find: statement(texts.find),
            settle_done: list(&names, texts.settle_done),
            settle_retry: statement(texts.settle_retry),
            settle_failed: statement(texts.settle_failed),
            log_attempts: logs,
            holds: statement(texts.holds),
            hold: statement(texts.hold),
            release: statement(texts.release),
            failed_ids: list(&names, texts.failed_ids),
            rearm: list(&names, texts.rearm),
            names,
        })
    }

    /// A question of `overview`, given up by the server after `limit_ms`.
    pub(super) fn question<D: Dialect>(&self, question: &Question<'_>, facts: &Facts, limit_ms: u64) -> SqlStr {
        let range = match question.range {
            Range::All => "",
            Range::Fresh => "AND {next_retry_time} IS NULL",
            Range::Timed => "AND {next_retry_time} IS NOT NULL",
            Range::Due => "AND {next_retry_time} <= {now}",
            Range::Scheduled => "AND {next_retry_time} > {now}",
        };
        // Where all times are NULL, MariaDB would sort the whole range by them before it gives the first entry.
        let order = if matches!(question.range, Range::Fresh) { "{id}" } else { "{next_retry_time}, {id}" };
        let mut names = self.names.with("range", self.names.fill(range));
        names.set("order", self.names.fill(order));
        names.set("value", status_literal(question.status)).set("timed", D::timed_select(facts, limit_ms));
        statement(&names, question.text)
    }
}

/// What `overview` asks about the bills of one status.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) text: &'static str,
    pub(super) status: &'a StatusValue,
    pub(super) range: Range,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Range {
    All,
    Fresh,
    Timed,
    Due,
    Scheduled,
}

const AFTER_ID: &str = "AND {id} > ?";
// Two ranges of the index, where `(time, id) > (?, ?)` would be none.
const AFTER_TIME: &str = "AND ({next_retry_time} > ? OR ({next_retry_time} = ? AND {id} > ?))";
const AFTER_NULL: &str = "AND ({next_retry_time} IS NOT NULL OR ({next_retry_time} IS NULL AND {id} > ?))";

fn names<D: Dialect>(settings: &Settings, facts: &Facts) -> Result<Names, String> {
    let mut names = Names::new(settings, D::QUOTE)?;
    let column = |name: &String| quote_name(name, D::QUOTE);
    let id = column(&settings.columns.id);
    let index = facts.fetch_index.as_ref().map(|name| D::index_hint(&quote_name(name, D::QUOTE)));
    let extra = settings.columns.extra.values().map(|name| format!(", {}", D::text_read(&column(name))));
    let version = settings.columns.version.as_ref().map(|name| D::same(&D::text_read(&column(name))));
    let published = settings.columns.published_at.as_ref().map(|name| format!(", {} = {}", column(name), D::NOW));
    let reason = settings.columns.reason.as_ref().map(column);
    let no_reason = if facts.reason_is_nullable { "NULL" } else { "''" };
    let cleared = reason.as_ref().map(|name| format!(", {name} = {no_reason}")).unwrap_or_default();
    let unit_us = 10_u32.pow(6 - u32::from(facts.retry_time_decimals.min(6)));
    names
        .set("id_read", D::id_read(facts.id, &id))
        .set("entry_id_read", D::id_read(facts.id, "outbill_id"))
        .set("index", index.unwrap_or_default())
        .set("extra", extra.collect::<String>())
        .set("now", D::NOW)
        .set("same_version", version.map(|same| format!("AND {same}")).unwrap_or_default())
        .set("also_done", format!("{}{cleared}", published.unwrap_or_default()))
        .set("also_failed", reason.map(|name| format!(", {name} = ?")).unwrap_or_default())
        .set("also_rearmed", cleared)
        .set("time_unit_us", unit_us.to_string())
        .set("retry_time_decimals", facts.retry_time_decimals.to_string())
        .set("finished_at_decimals", facts.finished_at_decimals.to_string())
        // Integers and bytes are put in order here; only the database knows the order of texts.
        .set("scan_order", if facts.id == IdKind::Text { "ORDER BY outbill_next, outbill_id" } else { "" });
    let columns = names.fill(D::TEXTS.columns);
    names.set("columns", columns);
    Ok(names)
}

fn statement(names: &Names, text: &str) -> SqlStr {
    // Names are quoted and values bound; the statements' own text comes from the files under sql/.
    AssertSqlSafe(Arc::<str>::from(names.fill(text))).into_sql_str()
}

fn ranged(names: &Names, text: &str, after: &str) -> Ranged {
    Ranged {
        first: statement(&names.with("after", ""), text),
        after: statement(&names.with("after", names.fill(after)), text),
    }
}

fn scan(names: &Names, texts: &Texts, entries: &str, statuses: &[String], after: &str) -> Scan {
    let of = |after: String| {
        let branches = statuses.iter().map(|status| {
            let names = names.with("after", after.as_str()).with("pending", status.as_str());
            names.fill(entries)
        });
        let names = names.with("entries", merge(branches.collect()));
        statement(&names, texts.scan)
    };
    Scan {
        ranged: Ranged { first: of(String::new()), after: of(names.fill(after)) },
        after_null: None,
        branches: statuses.len(),
    }
}

/// Several ordered reads as one: each stays bounded and ordered by the index.
fn merge(mut branches: Vec<String>) -> String {
    if branches.len() == 1 {
        return branches.pop().unwrap_or_default();
    }
    let parts = branches.iter().enumerate().map(|(n, branch)| format!("SELECT * FROM ({branch}) AS outbill_{n}"));
    let union = parts.collect::<Vec<_>>().join(" UNION ALL ");
    format!("SELECT outbill_id, outbill_next FROM ({union}) AS outbill_all ORDER BY outbill_next, outbill_id LIMIT ?")
}

fn list(names: &Names, text: &str) -> List {
    List(LIST_LENGTHS.map(|length| statement(&names.with("ids", vec!["?"; length].join(", ")), text)))
}
