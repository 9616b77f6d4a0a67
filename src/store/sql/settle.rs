//! Writing back: one transaction, one statement for many finished bills, a compare-and-set for every other.

use std::time::Duration;

use sqlx::SqlStr;
use tokio::time::Instant;

use super::{
    SqlStore,
    pool::{Failure, Lease},
    statements::{LOG_LENGTHS, List},
};
use crate::{
    bill::BillId,
    store::{
        Settlement, StoreError, Verdict,
        dialect::{Delay, Dialect, Value},
    },
};

/// Deadlocks and lock timeouts are tried this often in all.
pub(super) const TRIES: u32 = 5;
/// Who has waited this long for a lock lets the caller try the other rows.
const CONFLICT_PATIENCE: Duration = Duration::from_millis(900);
const FIRST_PAUSE: Duration = Duration::from_millis(10);

// The widths of the attempt log's columns, in characters.
const TEXT_MAX: usize = 255;
const ERROR_MAX: usize = 1_000;
const OUTCOME_MAX: usize = 16;
const CLASS_MAX: usize = 64;

impl<D: Dialect> SqlStore<D> {
    pub(super) async fn settle_all(&self, settlements: &[Settlement]) -> Result<u64, Failure> {
        let mut ordered: Vec<&Settlement> = settlements.iter().collect();
        // Everybody who locks rows in the order of their ids waits in line instead of in a ring.
        ordered.sort_by_key(|settlement| settlement.id.as_integer());
        let (mut tries, began) = (1, Instant::now());
        loop {
            match self.settle_once(&ordered).await {
                Err(Failure::Conflict(_)) if tries < TRIES && began.elapsed() < CONFLICT_PATIENCE => {
                    self.pause(&mut tries).await;
                }
                result => return result,
            }
        }
    }

    async fn settle_once(&self, settlements: &[&Settlement]) -> Result<u64, Failure> {
        let mut lease = self.begin().await?;
        let result = self.write(&mut lease, settlements).await;
        Self::finish(lease, result).await
    }

    /// Begins a transaction, by a plain statement: dropped at any await, the lease closes its connection and the server
    /// rolls back.
    pub(super) async fn begin(&self) -> Result<Lease<'_, D>, Failure> {
        let mut lease = self.pool.lease().await?;
        lease.run(D::BEGIN).await?;
        Ok(lease)
    }

    /// Commits what went well and rolls back the rest.
    pub(super) async fn finish<T>(mut lease: Lease<'_, D>, result: Result<T, Failure>) -> Result<T, Failure> {
        if result.is_ok() {
            lease.run("COMMIT").await?;
        } else if lease.run("ROLLBACK").await.is_err() {
            // The connection is closed instead; the first error is the one to tell.
            return result;
        }
        lease.give_back();
        result
    }

    /// Waits before another try, longer each time and not in step with others.
    pub(super) async fn pause(&self, tries: &mut u32) {
        let pause = FIRST_PAUSE.saturating_mul(1 << (*tries).min(6)).mul_f64(0.5 + self.chance());
        *tries += 1;
        tokio::time::sleep(pause).await;
    }

    async fn write(&self, lease: &mut Lease<'_, D>, settlements: &[&Settlement]) -> Result<u64, Failure> {
        let done: Vec<&BillId> =
            settlements.iter().filter(|settlement| settlement.verdict == Verdict::Done).map(|s| &s.id).collect();
        let mut changed = self.update_many(lease, &self.statements.settle_done, &done).await?;
        for settlement in settlements {
            changed += match &settlement.verdict {
                Verdict::Done => 0,
                Verdict::Retry { delay } => self.put_off(lease, settlement, *delay).await?,
                Verdict::Failed { reason } => self.give_up(lease, settlement, reason).await?,
            };
        }
        self.log_attempts(lease, settlements).await?;
        Ok(changed)
    }

    /// One statement for up to [`List::MAX`] ids, of about equal size where it takes more than one.
    pub(super) async fn update_many(
        &self,
        lease: &mut Lease<'_, D>,
        list: &List,
        ids: &[&BillId],
    ) -> Result<u64, Failure> {
        let mut changed = 0;
        let statements = ids.len().div_ceil(List::MAX).max(1);
        let size = ids.len().div_ceil(statements).max(1);
        for chunk in ids.chunks(size) {
            let (sql, length) = list.fitting(chunk.len());
            let values: Vec<Value<'_>> = self.padded(chunk.iter().copied(), length).collect();
            changed += matched(lease.execute(sql, &values).await?, chunk.len())?;
        }
        Ok(changed)
    }

    async fn put_off(
        &self,
        lease: &mut Lease<'_, D>,
        settlement: &Settlement,
        delay: Duration,
    ) -> Result<u64, Failure> {
        let delay_us = i64::try_from(delay.as_nanos().div_ceil(1_000)).unwrap_or(i64::MAX / 2);
        let [first, second] = D::delay_values(delay_us);
        let mut values = vec![Value::Integer(self.next_retry_count(settlement))];
        values.extend([&first, &second].into_iter().flatten().map(Delay::value));
        self.compare_and_set(lease, &self.statements.settle_retry, values, settlement).await
    }

    async fn give_up(&self, lease: &mut Lease<'_, D>, settlement: &Settlement, reason: &str) -> Result<u64, Failure> {
        let mut values = vec![Value::Integer(self.next_retry_count(settlement))];
        if self.reader.columns.reason.is_some() {
            let max = self.facts.reason_chars_max.and_then(|max| usize::try_from(max).ok()).unwrap_or(ERROR_MAX);
            values.push(Value::Text(fit(reason, max)));
        }
        self.compare_and_set(lease, &self.statements.settle_failed, values, settlement).await
    }

    async fn compare_and_set<'v>(
        &self,
        lease: &mut Lease<'_, D>,
        sql: &SqlStr,
        mut values: Vec<Value<'v>>,
        settlement: &'v Settlement,
    ) -> Result<u64, Failure> {
        let seen = &settlement.seen;
        values.push(self.reader.value(&settlement.id));
        values.push(seen.retry_count.map_or(Value::Null, Value::Integer));
        values.push(Value::text(seen.next_retry_time.as_deref()));
        if self.reader.columns.version.is_some() {
            values.push(Value::text(seen.version.as_deref()));
        }
        matched(lease.execute(sql, &values).await?, 1)
    }

    /// One more than was seen; NULL and negative counts are 0, and the column's largest value stays.
    fn next_retry_count(&self, settlement: &Settlement) -> i64 {
        settlement.seen.retry_count.unwrap_or(0).max(0).saturating_add(1).min(self.facts.retry_count_max)
    }

    async fn log_attempts(&self, lease: &mut Lease<'_, D>, settlements: &[&Settlement]) -> Result<(), Failure> {
        let logged: Vec<(String, &crate::store::Attempt)> = settlements
            .iter()
            .filter_map(|settlement| Some((settlement.id.to_string(), settlement.attempt.as_ref()?)))
            .collect();
        let mut rest = logged.as_slice();
        for (sql, length) in self.statements.log_attempts.iter().zip(LOG_LENGTHS) {
            while let Some((chunk, after)) = rest.split_at_checked(length) {
                let mut values = Vec::with_capacity(length * 11);
                for (id, attempt) in chunk {
                    values.extend([
                        Value::Text(fit(id, TEXT_MAX)),
                        Value::Text(fit(&attempt.bill_type, TEXT_MAX)),
                        Value::Text(fit(&attempt.message_id, TEXT_MAX)),
                        Value::Integer(attempt.number.into()),
                        Value::Text(fit(attempt.outcome, OUTCOME_MAX)),
                        Value::text(attempt.class.map(|class| fit(class, CLASS_MAX))),
                        Value::text(attempt.error.as_deref().map(|error| fit(error, ERROR_MAX))),
                        Value::Text(fit(&attempt.sink, CLASS_MAX)),
                        Value::Text(fit(&attempt.route, TEXT_MAX)),
                        Value::Integer(u32::try_from(attempt.duration.as_millis()).unwrap_or(u32::MAX).into()),
                        Value::Text(fit(&self.instance, TEXT_MAX)),
                    ]);
                }
                lease.execute(sql, &values).await?;
                rest = after;
            }
        }
        Ok(())
    }
}

/// The first `max` characters.
pub(super) fn fit(text: &str, max: usize) -> &str {
    text.char_indices().nth(max).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// Fewer rows than ids: somebody else was faster. More: the id does not name one row.
fn matched(matched: u64, asked: usize) -> Result<u64, Failure> {
    let asked = u64::try_from(asked).unwrap_or(u64::MAX);
    if matched > asked { Err(Failure::Store(StoreError::OverMatched { asked, matched })) } else { Ok(matched) }
}
