//! Connections that are handed on only in a known state.
//!
//! sqlx's own pool hides why a connection cannot be had behind its timeout, reads no secret anew and hands on a connection
//! whose BEGIN was cancelled. Here a connection goes back only by [`Lease::give_back`]; dropped anywhere else, it is closed.

use std::{
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt;
use sqlx::SqlStr;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, timeout},
};

use crate::store::{
    StoreError,
    dialect::{Dialect, Fault, Value},
};

/// After this long in the pool a connection is asked whether it is still there.
const IDLE_TRUSTED: Duration = Duration::from_millis(500);
const PING_LIMIT: Duration = Duration::from_secs(2);
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// A connection is not kept longer, so that a moved name or a rotated password is noticed.
const LIFETIME: Duration = Duration::from_mins(30);

/// Why a call on a connection failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// Deadlock or lock timeout: worth another try at once.
    Conflict(String),
    /// Not answered in the time allowed.
    TooSlow(String),
    Store(StoreError),
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Conflict(text) => Self::Busy(text),
            Failure::TooSlow(text) => Self::Unavailable(text),
            Failure::Store(error) => error,
        }
    }
}

pub(super) struct Pool<D: Dialect> {
    dialect: D,
    permits: Semaphore,
    idle: Mutex<Vec<Idle<D::Link>>>,
    /// Grows when the server turns out to be gone or read-only: connections from before are not used again.
    epoch: AtomicU64,
    statement_limit: Duration,
}

struct Idle<L> {
    link: L,
    epoch: u64,
    opened_at: Instant,
    since: Instant,
}

impl<D: Dialect> fmt::Debug for Pool<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("dialect", &self.dialect).finish_non_exhaustive()
    }
}

impl<D: Dialect> Pool<D> {
    pub(super) fn new(dialect: D, max_connections: u32, statement_limit: Duration) -> Self {
        Self {
            dialect,
            permits: Semaphore::new(usize::try_from(max_connections.max(1)).unwrap_or(1)),
            idle: Mutex::default(),
            epoch: AtomicU64::new(0),
            statement_limit,
        }
    }

    /// A connection for one caller, from the pool or new.
    pub(super) async fn lease(&self) -> Result<Lease<'_, D>, Failure> {
        let permit = match timeout(self.statement_limit, self.permits.acquire()).await {
            Ok(permit) => permit.map_err(|closed| unavailable(closed.to_string()))?,
            Err(_) => return Err(unavailable("every connection to the database is busy".to_owned())),
        };
        while let Some(mut idle) = self.pop() {
            if idle.since.elapsed() > IDLE_TRUSTED
                && !matches!(timeout(PING_LIMIT, D::ping(&mut idle.link)).await, Ok(Ok(())))
            {
                // Whatever took this one has most likely taken those beside it.
                self.forget_idle();
                continue;
            }
            let Idle { link, epoch, opened_at, .. } = idle;
            return Ok(Lease { pool: self, link, epoch, opened_at, is_sound: true, _permit: permit });
        }
        let epoch = self.epoch.load(Ordering::Relaxed);
        let link = Self::connect(&self.dialect).await.map_err(|fault| self.judge(fault))?;
        Ok(Lease { pool: self, link, epoch, opened_at: Instant::now(), is_sound: true, _permit: permit })
    }

    /// A new connection, within the time allowed.
    pub(super) async fn connect(dialect: &D) -> Result<D::Link, Fault> {
        timeout(CONNECT_LIMIT, dialect.connect()).await.unwrap_or_else(|_| {
            Err(Fault::Other(format!("the database did not answer a connect within {CONNECT_LIMIT:?}")))
        })
    }

    /// The latest usable connection; older ones may age and are dropped here.
    fn pop(&self) -> Option<Idle<D::Link>> {
        let epoch = self.epoch.load(Ordering::Relaxed);
        let mut idle = self.lock();
        idle.retain(|idle| idle.epoch == epoch && idle.opened_at.elapsed() < LIFETIME);
        idle.pop()
    }

    fn forget_idle(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Idle<D::Link>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge(&self, fault: Fault) -> Failure {
        match fault {
            Fault::Conflict(text) => Failure::Conflict(text),
            Fault::TooSlow(text) => Failure::TooSlow(text),
            Fault::Content(text) => Failure::Store(StoreError::Refused(text)),
            Fault::Other(text) => unavailable(text),
            Fault::Away(text) => {
                self.forget_idle();
                unavailable(text)
            }
        }
    }
}

fn unavailable(text: String) -> Failure {
    Failure::Store(StoreError::Unavailable(text))
}

/// A connection in use.
pub(super) struct Lease<'pool, D: Dialect> {
    pool: &'pool Pool<D>,
    link: D::Link,
    epoch: u64,
    opened_at: Instant,
    /// Whether every statement so far was answered to its end.
    is_sound: bool,
    // After `link`, so that the connection is closed before its place is given away.
    _permit: SemaphorePermit<'pool>,
}

impl<D: Dialect> Lease<'_, D> {
    /// Hands the connection on. Only for callers that left nothing open on it.
    pub(super) fn give_back(self) {
        if self.is_sound && self.epoch == self.pool.epoch.load(Ordering::Relaxed) {
            let Self { pool, link, epoch, opened_at, .. } = self;
            pool.lock().push(Idle { link, epoch, opened_at, since: Instant::now() });
        }
    }

    pub(super) async fn run(&mut self, sql: &'static str) -> Result<(), Failure> {
        let answer = timeout(self.pool.statement_limit, D::run(&mut self.link, sql)).await;
        self.judge(answer)
    }

    /// The number of rows that the statement matched.
    pub(super) async fn execute(&mut self, sql: &SqlStr, values: &[Value<'_>]) -> Result<u64, Failure> {
        let answer = timeout(self.pool.statement_limit, D::execute(&mut self.link, sql.clone(), values)).await;
        self.judge(answer)
    }

    /// What `read` makes of each row of a result, all of it.
    pub(super) async fn collect<T>(
        &mut self,
        sql: &SqlStr,
        values: &[Value<'_>],
        mut read: impl FnMut(&D::Row) -> Result<T, sqlx::Error> + Send,
    ) -> Result<Vec<T>, Failure>
    where
        T: Send,
    {
        let mut all = Vec::new();
        self.scan(sql, values, |row| {
            all.push(read(row)?);
            Ok(true)
        })
        .await?;
        Ok(all)
    }

    /// Gives each row of a result to `take`, until it returns `false`. Then the rest is not waited for and the connection
    /// is closed when the lease ends. Returns whether the result was read to its end.
    pub(super) async fn scan(
        &mut self,
        sql: &SqlStr,
        values: &[Value<'_>],
        mut take: impl FnMut(&D::Row) -> Result<bool, sqlx::Error> + Send,
    ) -> Result<bool, Failure> {
        let link = &mut self.link;
        let reading = async {
            let mut rows = D::rows(link, sql.clone(), values);
            while let Some(row) = rows.next().await {
                if !take(&row?)? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let answer = timeout(self.pool.statement_limit, reading).await;
        let is_whole = self.judge(answer)?;
        self.is_sound &= is_whole;
        Ok(is_whole)
    }

    fn judge<T>(&mut self, answer: Result<Result<T, sqlx::Error>, tokio::time::error::Elapsed>) -> Result<T, Failure> {
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                // Only an error that the server reported leaves the two sides in step.
                self.is_sound &= error.as_database_error().is_some();
                Err(self.pool.judge(D::fault(&error)))
            }
            Err(_) => {
                self.is_sound = false;
                let limit = self.pool.statement_limit;
                Err(Failure::TooSlow(format!("the database did not answer a statement within {limit:?}")))
            }
        }
    }
}
