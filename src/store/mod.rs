//! The store: the database that holds the bills. This is the contract; each sibling file is one part of keeping it.

mod connect;
pub mod dialect;
pub mod facts;
pub mod mapping;
pub mod memory;
pub mod schema;
pub mod settings;
pub mod shop;
mod sql;

use std::{collections::HashMap, fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;

pub use self::{
    connect::{Database, Opened, open},
    sql::SqlStore,
};
use crate::bill::{Bill, BillId, Seen};

/// What the relay needs of a store. Every call may be repeated, and every error leaves the rows as they were or as
/// asked, never half. Calls run at once on several connections; none holds a transaction or lock after it returns.
/// Deadlocks and lock timeouts (1213, 1205) are retried inside, a bounded number of times and for a bounded time.
///
/// A returned future may be dropped at any await: a connection in an unknown state is closed, never handed on.
#[async_trait]
pub trait Store: Debug + Send + Sync {
    /// Reads the next page of one queue. A plain, non-locking, bounded read.
    async fn fetch(&self, request: &FetchRequest) -> Result<Page, StoreError>;

    /// Writes back what came of attempts, all in one transaction with their rows of the attempt log.
    ///
    /// Each settlement is a compare-and-set on what was `seen` (a `Done` compares the status alone): a row that the
    /// application changed meanwhile is left as it is. `Ok` is the number of rows that were changed.
    async fn settle(&self, settlements: &[Settlement]) -> Result<u64, StoreError>;

    /// The routes that are held, by name.
    async fn holds(&self) -> Result<HashMap<String, Hold>, StoreError>;

    /// Holds a route until a person releases it. Holding a held route keeps the first reason.
    async fn hold(&self, route: &str, hold: &Hold) -> Result<(), StoreError>;
}

/// What a person's commands need of a store. No call scans the table: counts are capped and bounded in time.
#[async_trait]
pub trait Ledger: Debug + Send + Sync {
    /// The state of the open bills, within `limits`.
    async fn overview(&self, limits: &OverviewLimits) -> Result<Overview, StoreError>;

    /// One row by its id as a person types it; `None` where there is none.
    async fn find(&self, id: &str) -> Result<Option<Found>, StoreError>;

    /// Failed bills back to pending (`retry_count` 0, due now), at most `limit` of them. Returns the ids that were (or, with
    /// `dry_run`, would be) changed, in id order.
    async fn retry(&self, selection: &Selection, limit: usize, dry_run: bool) -> Result<Vec<BillId>, StoreError>;

    /// Removes a hold; `false` where the route was not held.
    async fn release(&self, route: &str) -> Result<bool, StoreError>;
}

/// Which of the two index ranges of pending bills to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Queue {
    /// Never tried: `next_retry_time IS NULL`, by id.
    Fresh,
    /// Scheduled, and the time has come by the database's clock: by `next_retry_time`, then id.
    Due,
}

/// A place in a queue: the page after it begins behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// In the database's own text form; `None` in [`Queue::Fresh`].
    pub next_retry_time: Option<String>,
    pub id: BillId,
}

/// Chooses by type, in Rust and by bytes, never by the database's collation.
pub type Filter = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// A request for one page, bounded in every direction.
#[derive(Clone)]
pub struct FetchRequest {
    pub queue: Queue,
    /// Where to go on; `None` begins at the start of the queue.
    pub after: Option<Mark>,
    /// Rows that come back at most; at least 1.
    pub rows: usize,
    /// The page ends with the first row that brings it to this many bytes.
    pub bytes: usize,
    /// A longer payload is not transferred: the row comes back as [`Row::Invalid`] with its size.
    pub max_payload: usize,
    /// Only bills of these types come back; `None` means all. A filtered page examines at most
    /// [`FetchRequest::WINDOW`] index entries, and its end moves over what was passed.
    pub wanted: Option<Filter>,
}

impl FetchRequest {
    /// Index entries that one filtered page examines at most: 3–8 ms on a table of a million rows.
    pub const WINDOW: usize = 10_000;
}

impl Debug for FetchRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FetchRequest")
            .field("queue", &self.queue)
            .field("after", &self.after)
            .field("rows", &self.rows)
            .field("filtered", &self.wanted.is_some())
            .finish_non_exhaustive()
    }
}

/// What a fetch found, in the queue's order.
#[derive(Debug, Default)]
pub struct Page {
    pub rows: Vec<Row>,
    /// The last entry examined, whether or not it came back; `None` for an empty page.
    pub end: Option<Mark>,
    /// Whether the queue had nothing behind `end` when it was read.
    pub exhausted: bool,
}

/// A row that came back. One bad row never costs its page.
#[derive(Debug)]
pub enum Row {
    Bill(Bill),
    /// A row that cannot become a message, and why. `class` is `invalid_row` or `payload_too_large`.
    Invalid {
        id: BillId,
        bill_type: Option<String>,
        seen: Seen,
        class: &'static str,
        problem: String,
    },
}

/// What to write back to one row.
#[derive(Clone, Debug)]
pub struct Settlement {
    pub id: BillId,
    pub seen: Seen,
    pub verdict: Verdict,
    /// A row for the attempt log, where the route wants one.
    pub attempt: Option<Attempt>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// `status = done`, `finished_at = now`.
    Done,
    /// `retry_count + 1` (saturating at the column's maximum), `next_retry_time = now + delay`, rounded up to the
    /// column's precision, by the database's clock.
    Retry { delay: Duration },
    /// `status = failed`, `retry_count + 1`, `finished_at = now`, `reason` where mapped.
    Failed { reason: String },
}

/// A line of the attempt log.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub bill_type: String,
    pub message_id: String,
    /// Counts from 1.
    pub number: u32,
    /// `delivered`, `transient` or `rejected`.
    pub outcome: &'static str,
    pub class: Option<&'static str>,
    pub error: Option<String>,
    pub sink: Arc<str>,
    pub route: Arc<str>,
    pub duration: Duration,
}

/// Why a route is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub class: String,
    pub reason: String,
}

#[derive(Clone, Copy, Debug)]
pub struct OverviewLimits {
    /// Counting stops here, and the count is shown as "≥ cap".
    pub cap: u64,
    /// Each question to the database is given up after this long, and its answer shown as unknown.
    pub time: Duration,
}

impl Default for OverviewLimits {
    fn default() -> Self {
        Self { cap: 10_000, time: Duration::from_millis(200) }
    }
}

/// A count that may have been stopped at its cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    pub value: u64,
    pub capped: bool,
}

/// The open bills at a glance. `None` means: not known within the time allowed.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    pub pending: Option<Count>,
    pub due_retries: Option<Count>,
    pub scheduled: Option<Count>,
    pub failed: Option<Count>,
    /// Pending bills by type among the first `cap` entries of the index, most first.
    pub pending_by_type: Option<Vec<(String, Count)>>,
    pub failed_by_type: Option<Vec<(String, Count)>>,
    /// Seconds since the oldest pending bill (lowest in the index) was created.
    pub oldest_pending_s: Option<i64>,
    pub holds: HashMap<String, Hold>,
}

/// A row as `preview` shows it.
#[derive(Debug)]
pub struct Found {
    pub row: Row,
    /// The status as stored, and its word where the map has one.
    pub status: String,
}

/// Which failed bills a person means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    Ids(Vec<String>),
    /// All failed bills of exactly this type.
    Type(String),
}

/// What can go wrong with a store, by what the caller does about it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Away, read-only, out of connections, timed out, refusing us, or its schema changed under us: try again later.
    #[error("{0}")]
    Unavailable(String),
    /// A row is locked by somebody else, or in a deadlock: others need not wait for it.
    #[error("{0}")]
    Busy(String),
    /// The database refuses what was asked because of its content (a trigger, a constraint): asking again as a whole is
    /// in vain; one by one shows which row it is.
    #[error("the database refuses the change: {0}")]
    Refused(String),
    /// A statement matched more rows than there are ids: the id is not unique. It was rolled back.
    #[error("an update of {asked} bills matched {matched} rows: the id column does not identify one row")]
    OverMatched { asked: u64, matched: u64 },
    /// A request that makes no sense for this table (an id that is no number), or settings that name none.
    #[error("{0}")]
    Invalid(String),
}
