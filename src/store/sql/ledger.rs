//! What a person asks: every question is bounded by a count and by time.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::{join, join3, try_join_all};

use super::{
    SqlStore,
    pool::{Failure, Lease},
    settle::TRIES,
    statements::{List, Question, Range},
};
use crate::{
    bill::BillId,
    store::{
        Count, FetchRequest, Found, Overview, OverviewLimits,
        dialect::{Cells as _, Dialect, Value},
        settings::StatusValue,
    },
};

/// What the client waits beyond the time that the server is given.
const ANSWER_MARGIN: Duration = Duration::from_millis(50);

/// Entries that `retry --type` looks through at most.
const FAILED_MAX: usize = 100 * FetchRequest::WINDOW;

impl<D: Dialect> SqlStore<D> {
    pub(super) async fn look_over(&self, limits: &OverviewLimits) -> Result<Overview, Failure> {
        let pending = self.statuses.pending.values();
        let failed = std::slice::from_ref(&self.statuses.failed);
        let counts = join(
            join3(
                self.count(pending, Range::All, limits),
                self.count(pending, Range::Due, limits),
                self.count(pending, Range::Scheduled, limits),
            ),
            self.count(failed, Range::All, limits),
        );
        let types = join(self.count_types(pending, limits), self.count_types(failed, limits));
        let ages = try_join_all([Range::Fresh, Range::Timed].map(|range| self.oldest(pending, range, limits)));
        let (((pending, due_retries, scheduled), failed), (pending_by_type, failed_by_type), ages) =
            join3(counts, types, ages).await;
        Ok(Overview {
            pending: pending?,
            due_retries: due_retries?,
            scheduled: scheduled?,
            failed: failed?,
            pending_by_type: pending_by_type?,
            failed_by_type: failed_by_type?,
            oldest_pending_s: ages?.into_iter().flatten().max(),
            holds: crate::store::Store::holds(self).await.map_err(Failure::Store)?,
        })
    }

    async fn count(&self, of: &[StatusValue], range: Range, limits: &OverviewLimits) -> Result<Option<Count>, Failure> {
        let mut value = 0;
        for status in of {
            let question = Question { text: D::TEXTS.count, status, range };
            let Some(rows) = self.ask(&question, Some(limits.cap + 1), limits, |row| row.integer(0)).await? else {
                return Ok(None);
            };
            value += rows.into_iter().flatten().filter_map(|count| u64::try_from(count).ok()).sum::<u64>();
        }
        Ok(Some(Count { value: value.min(limits.cap), capped: value > limits.cap }))
    }

    /// By type among the first entries of the index, most first. Counted here, because the database's collation may take
    /// two types for one.
    async fn count_types(
        &self,
        of: &[StatusValue],
        limits: &OverviewLimits,
    ) -> Result<Option<Vec<(String, Count)>>, Failure> {
        let mut counts = BTreeMap::<String, u64>::new();
        let mut capped = false;
        for status in of {
            let question = Question { text: D::TEXTS.types, status, range: Range::All };
            let read = |row: &D::Row| Ok(String::from_utf8_lossy(row.bytes(0)?.unwrap_or_default()).into_owned());
            let Some(types) = self.ask(&question, Some(limits.cap), limits, read).await? else { return Ok(None) };
            capped |= u64::try_from(types.len()).unwrap_or(u64::MAX) >= limits.cap;
            for bill_type in types {
                *counts.entry(bill_type).or_default() += 1;
            }
        }
        let mut counts: Vec<_> = counts.into_iter().map(|(name, value)| (name, Count { value, capped })).collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(count.value));
        Ok(Some(counts))
    }

    /// The age in seconds of the first entry of a range.
    async fn oldest(&self, of: &[StatusValue], range: Range, limits: &OverviewLimits) -> Result<Option<i64>, Failure> {
        let mut oldest = None;
        for status in of {
            let question = Question { text: D::TEXTS.oldest, status, range };
            let ages = self.ask(&question, None, limits, |row| row.integer(0)).await?;
            oldest = oldest.max(ages.into_iter().flatten().flatten().max());
        }
        Ok(oldest)
    }

    /// The answer, or `None` where it took too long.
    async fn ask<T: Send>(
        &self,
        question: &Question<'_>,
        cap: Option<u64>,
        limits: &OverviewLimits,
        read: impl FnMut(&D::Row) -> Result<T, sqlx::Error> + Send,
    ) -> Result<Option<Vec<T>>, Failure> {
        let limit_ms = u64::try_from(limits.time.as_millis()).unwrap_or(u64::MAX).max(1);
        let sql = self.statements.question::<D>(question, &self.facts, limit_ms);
        let values: Vec<Value<'_>> =
            cap.map(|cap| Value::Integer(i64::try_from(cap).unwrap_or(i64::MAX))).into_iter().collect();
        let mut lease = self.pool.lease().await?;
        // A lease that is dropped by the time limit closes its connection.
        match tokio::time::timeout(limits.time + ANSWER_MARGIN, lease.collect(&sql, &values, read)).await {
            Ok(Ok(rows)) => {
                lease.give_back();
                Ok(Some(rows))
            }
            Ok(Err(Failure::TooSlow(_))) | Err(_) => Ok(None),
            Ok(Err(failure)) => Err(failure),
        }
    }

    pub(super) async fn find_row(&self, id: &BillId) -> Result<Option<Found>, Failure> {
        // Of a single row a person may see everything.
        let max = i64::MAX.unsigned_abs().try_into().unwrap_or(usize::MAX);
        let values = [Value::count(max), Value::count(max), self.reader.value(id)];
        let mut lease = self.pool.lease().await?;
        let status = self.reader.width();
        let read = |cells: &D::Row| {
            let row = self.reader.row(cells, max)?;
            Ok(Found { row, status: self.word(cells.text(status)?.unwrap_or_else(|| "NULL".to_owned())) })
        };
        let mut found = lease.collect(&self.statements.find, &values, read).await?;
        lease.give_back();
        Ok(found.pop())
    }

    /// A status as stored, with its word where the map has one.
    fn word(&self, stored: String) -> String {
        let is = |value: &StatusValue| match value {
            StatusValue::Number(number) => number.to_string() == stored,
            StatusValue::Text(text) => *text == stored,
        };
        let statuses = &self.statuses;
        let mapped = [(&statuses.done, "done"), (&statuses.failed, "failed"), (&statuses.compensated, "compensated")];
        let pending = statuses.pending.values().iter().map(|value| (value, "pending"));
        match mapped.into_iter().chain(pending).find(|(value, _)| is(value)) {
            Some((_, word)) if word != stored => format!("{stored} ({word})"),
            _ => stored,
        }
    }

    /// Failed bills of exactly this type, at most `limit`, among the first [`FAILED_MAX`] failed ones.
    pub(super) async fn failed_of_type(&self, bill_type: &str, limit: usize) -> Result<Vec<BillId>, Failure> {
        let mut lease = self.pool.lease().await?;
        let mut ids = Vec::new();
        let mut after = None;
        let mut examined = 0;
        while examined < FAILED_MAX && ids.len() < limit {
            let entries =
                self.entries(&mut lease, &self.statements.scan_failed, after.as_ref(), FetchRequest::WINDOW).await?;
            examined += entries.len();
            let is_last = entries.len() < FetchRequest::WINDOW;
            after = entries.last().map(|entry| entry.mark.clone());
            let of_type = entries.into_iter().filter(|entry| entry.bill_type.as_deref() == Some(bill_type));
            ids.extend(of_type.map(|entry| entry.mark.id).take(limit - ids.len()));
            if is_last {
                break;
            }
        }
        lease.give_back();
        Ok(ids)
    }

    /// Sets failed bills back to pending, a transaction for each [`List::MAX`] of them. Returns those that were failed.
    pub(super) async fn rearm(&self, mut ids: Vec<BillId>, dry_run: bool) -> Result<Vec<BillId>, Failure> {
        ids.sort_by(|left, right| {
            left.as_integer().cmp(&right.as_integer()).then_with(|| left.to_string().cmp(&right.to_string()))
        });
        ids.dedup();
        let mut changed = Vec::new();
        for chunk in ids.chunks(List::MAX) {
            let mut tries = 1;
            let mut rearmed = loop {
                match self.rearm_chunk(chunk, dry_run).await {
                    Err(Failure::Conflict(_)) if tries < TRIES => self.pause(&mut tries).await,
                    result => break result?,
                }
            };
            changed.append(&mut rearmed);
        }
        Ok(changed)
    }

    async fn rearm_chunk(&self, chunk: &[BillId], dry_run: bool) -> Result<Vec<BillId>, Failure> {
        let mut lease = self.begin().await?;
        let result = self.rearm_failed(&mut lease, chunk, dry_run).await;
        Self::finish(lease, result).await
    }

    async fn rearm_failed(
        &self,
        lease: &mut Lease<'_, D>,
        ids: &[BillId],
        dry_run: bool,
    ) -> Result<Vec<BillId>, Failure> {
        let (sql, length) = self.statements.failed_ids.fitting(ids.len());
        let values: Vec<Value<'_>> = self.padded(ids.iter(), length).collect();
        let mut failed = lease.collect(sql, &values, |row| self.reader.id(row, 0)).await?;
        failed.sort_by_key(|id| ids.iter().position(|other| other == id));
        if !dry_run {
            self.update_many(lease, &self.statements.rearm, &failed.iter().collect::<Vec<_>>()).await?;
        }
        Ok(failed)
    }
}
