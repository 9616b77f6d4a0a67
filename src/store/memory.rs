//! A store in memory, with the semantics of the real ones, for simulations: time is tokio's clock, which can be paused,
//! and faults come when they are asked for.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::{Instant, sleep};

use crate::{
    bill::{Bill, BillId, Seen},
    store::{
        Attempt, Count, FetchRequest, Found, Hold, Ledger, Mark, Overview, OverviewLimits, Page, Queue, Row, Selection,
        Settlement, Store, StoreError, Verdict,
    },
};

/// Where a bill stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Pending,
    Done,
    Failed,
    Compensated,
}

/// One row.
#[derive(Clone, Debug)]
pub struct MemoryBill {
    pub bill_type: String,
    pub key: String,
    pub payload: Option<Bytes>,
    pub status: Status,
    pub retry_count: i64,
    /// Milliseconds since the store was made.
    pub next_retry_ms: Option<u64>,
}

/// How long the store takes and when it fails.
#[derive(Clone, Debug, Default)]
pub struct Weather {
    /// What a fetch waits between its snapshot and its answer.
    pub fetch_takes: Duration,
    /// What a settle waits before it commits, and again before it answers.
    pub settle_takes: Duration,
    /// Answers of the next calls, in order: `true` fails, `false` works. A settle takes two: one before it commits and
    /// one for its answer.
    pub next_calls_fail: VecDeque<bool>,
    /// Everything fails.
    pub is_away: bool,
}

#[derive(Debug, Default)]
struct Tables {
    bills: BTreeMap<i128, MemoryBill>,
    attempts: Vec<(i128, Attempt)>,
    holds: HashMap<String, Hold>,
    weather: Weather,
}

/// See the module.
#[derive(Debug)]
pub struct MemoryStore {
    began: Instant,
    tables: Mutex<Tables>,
}

impl MemoryStore {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { began: Instant::now(), tables: Mutex::default() })
    }

    /// Commits a bill under an id, which need not be the highest: transactions commit out of order.
    pub fn commit(&self, id: i128, bill_type: &str, payload: Option<&'static [u8]>) {
        let bill = MemoryBill {
            bill_type: bill_type.to_owned(),
            key: id.to_string(),
            payload: payload.map(Bytes::from_static),
            status: Status::Pending,
            retry_count: 0,
            next_retry_ms: None,
        };
        self.lock().bills.insert(id, bill);
    }

    /// The application changes a row.
    pub fn change(&self, id: i128, change: impl FnOnce(&mut MemoryBill)) {
        if let Some(bill) = self.lock().bills.get_mut(&id) {
            change(bill);
        }
    }

    pub fn bill(&self, id: i128) -> Option<MemoryBill> {
        self.lock().bills.get(&id).cloned()
    }

    pub fn count(&self, status: Status) -> usize {
        self.lock().bills.values().filter(|bill| bill.status == status).count()
    }

    pub fn attempts(&self) -> Vec<(i128, Attempt)> {
        self.lock().attempts.clone()
    }

    pub fn set_weather(&self, change: impl FnOnce(&mut Weather)) {
        change(&mut self.lock().weather);
    }

    /// Milliseconds since the store was made, by its own clock.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fails(&self) -> Result<(), StoreError> {
        let mut tables = self.lock();
        let fails = tables.weather.next_calls_fail.pop_front().unwrap_or(false);
        if fails || tables.weather.is_away {
            return Err(StoreError::Unavailable("the store is away".to_owned()));
        }
        Ok(())
    }

    fn snapshot(&self, request: &FetchRequest) -> Page {
        let now_ms = self.now_ms();
        let tables = self.lock();
        let after = request.after.as_ref().map(|mark| (retry_ms(mark.next_retry_time.as_deref()), integer(&mark.id)));
        let mut queue: Vec<(Option<u64>, i128, &MemoryBill)> = tables
            .bills
            .iter()
            .filter(|(_, bill)| bill.status == Status::Pending)
            .filter(|(_, bill)| match request.queue {
                Queue::Fresh => bill.next_retry_ms.is_none(),
                Queue::Due => bill.next_retry_ms.is_some_and(|due| due <= now_ms),
            })
            .map(|(id, bill)| (bill.next_retry_ms, *id, bill))
            .filter(|(due, id, _)| after.is_none_or(|after| (*due, *id) > after))
            .collect();
        queue.sort_by_key(|(due, id, _)| (*due, *id));

        let (mut page, mut examined, mut bytes) = (Page { exhausted: true, ..Page::default() }, 0, 0);
        for (_, id, bill) in queue {
            let is_filtered = request.wanted.is_some();
            if page.rows.len() >= request.rows
                || bytes >= request.bytes
                || (is_filtered && examined >= FetchRequest::WINDOW)
            {
                page.exhausted = false;
                break;
            }
            examined += 1;
            let row = row(id, bill, request.max_payload);
            page.end =
                Some(Mark { next_retry_time: bill.next_retry_ms.map(|ms| ms.to_string()), id: BillId::Integer(id) });
            if request.wanted.as_ref().is_none_or(|wanted| wanted(&bill.bill_type)) {
                bytes += bill.payload.as_ref().map_or(0, Bytes::len);
                page.rows.push(row);
            }
        }
        page
    }

    fn apply(&self, settlements: &[Settlement]) -> u64 {
        let now_ms = self.now_ms();
        let mut tables = self.lock();
        let mut changed = 0;
        for settlement in settlements {
            let id = integer(&settlement.id);
            let Some(bill) = tables.bills.get_mut(&id).filter(|bill| bill.status == Status::Pending) else { continue };
            let is_as_seen = Some(bill.retry_count) == settlement.seen.retry_count
                && bill.next_retry_ms == retry_ms(settlement.seen.next_retry_time.as_deref());
            match settlement.verdict {
                Verdict::Done => bill.status = Status::Done,
                Verdict::Retry { delay } if is_as_seen => {
                    bill.retry_count += 1;
                    bill.next_retry_ms = Some(now_ms + u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
                }
                Verdict::Failed { .. } if is_as_seen => {
                    bill.retry_count += 1;
                    bill.status = Status::Failed;
                }
                Verdict::Retry { .. } | Verdict::Failed { .. } => continue,
            }
            changed += 1;
            tables.attempts.extend(settlement.attempt.clone().map(|attempt| (id, attempt)));
        }
        changed
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn fetch(&self, request: &FetchRequest) -> Result<Page, StoreError> {
        self.fails()?;
        let page = self.snapshot(request);
        let takes = self.lock().weather.fetch_takes;
        sleep(takes).await;
        Ok(page)
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<u64, StoreError> {
        let takes = self.lock().weather.settle_takes;
        sleep(takes).await;
        self.fails()?;
        let changed = self.apply(settlements);
        sleep(takes).await;
        // The commit may have worked although its answer was lost.
        self.fails()?;
        Ok(changed)
    }

    async fn holds(&self) -> Result<HashMap<String, Hold>, StoreError> {
        self.fails()?;
        Ok(self.lock().holds.clone())
    }

    async fn hold(&self, route: &str, hold: &Hold) -> Result<(), StoreError> {
        self.fails()?;
        self.lock().holds.entry(route.to_owned()).or_insert_with(|| hold.clone());
        Ok(())
    }
}

#[async_trait]
impl Ledger for MemoryStore {
    async fn overview(&self, _limits: &OverviewLimits) -> Result<Overview, StoreError> {
        self.fails()?;
        let count = |status| Some(Count { value: self.count(status) as u64, capped: false });
        let holds = self.lock().holds.clone();
        Ok(Overview { pending: count(Status::Pending), failed: count(Status::Failed), holds, ..Overview::default() })
    }

    async fn find(&self, id: &str) -> Result<Option<Found>, StoreError> {
        self.fails()?;
        let Ok(id) = id.parse::<i128>() else {
            return Err(StoreError::Invalid(format!("{id:?} is no number, as the ids of this table are")));
        };
        let found = self.bill(id);
        Ok(found
            .map(|bill| Found { row: row(id, &bill, usize::MAX), status: format!("{:?}", bill.status).to_lowercase() }))
    }

    async fn retry(&self, selection: &Selection, limit: usize, dry_run: bool) -> Result<Vec<BillId>, StoreError> {
        self.fails()?;
        let now_ms = self.now_ms();
        let mut tables = self.lock();
        let chosen = tables.bills.iter_mut().filter(|(id, bill)| {
            bill.status == Status::Failed
                && match selection {
                    Selection::Ids(ids) => ids.contains(&id.to_string()),
                    Selection::Type(bill_type) => bill.bill_type == *bill_type,
                }
        });
        let mut ids = Vec::new();
        for (id, bill) in chosen.take(limit) {
            if !dry_run {
                (bill.status, bill.retry_count, bill.next_retry_ms) = (Status::Pending, 0, Some(now_ms));
            }
            ids.push(BillId::Integer(*id));
        }
        Ok(ids)
    }

    async fn release(&self, route: &str) -> Result<bool, StoreError> {
        self.fails()?;
        Ok(self.lock().holds.remove(route).is_some())
    }
}

fn row(id: i128, bill: &MemoryBill, max_payload: usize) -> Row {
    let seen = Seen {
        retry_count: Some(bill.retry_count),
        next_retry_time: bill.next_retry_ms.map(|ms| ms.to_string()),
        version: None,
    };
    let size = bill.payload.as_ref().map_or(0, Bytes::len);
    if size > max_payload {
        return Row::Invalid {
            id: BillId::Integer(id),
            bill_type: Some(bill.bill_type.clone()),
            seen,
            class: "payload_too_large",
            problem: format!("the payload has {size} bytes, over the limit of {max_payload}"),
        };
    }
    Row::Bill(Bill {
        id: BillId::Integer(id),
        bill_type: bill.bill_type.clone(),
        key: Some(bill.key.clone()),
        payload: bill.payload.clone(),
        headers: None,
        message_id: None,
        created_at_s: None,
        extra: Vec::new(),
        seen,
    })
}

fn integer(id: &BillId) -> i128 {
    id.as_integer().unwrap_or(i128::MIN)
}

fn retry_ms(text: Option<&str>) -> Option<u64> {
    text.and_then(|text| text.parse().ok())
}
