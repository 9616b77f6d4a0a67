//! The one store over SQL, generic over the dialect.

mod fetch;
mod ledger;
mod pool;
mod row;
mod settle;
mod statements;

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError, atomic::AtomicUsize},
};

use anyhow::Context as _;
use async_trait::async_trait;

use self::{pool::Pool, row::Reader, settle::fit, statements::Statements};
use super::{
    FetchRequest, Found, Hold, Ledger, Overview, OverviewLimits, Page, Selection, Settlement, Store, StoreError,
    dialect::{Cells as _, Dialect, Value},
    facts::Facts,
    settings::{Settings, Statuses},
};
use crate::{bill::BillId, clock::Chance};

/// Bills in a table of an SQL database.
#[derive(Debug)]
pub struct SqlStore<D: Dialect> {
    pool: Pool<D>,
    statements: Statements,
    reader: Reader,
    facts: Facts,
    statuses: Statuses,
    /// Whether `store.where` leaves rows out.
    has_condition: bool,
    /// Who writes into the attempt log.
    instance: String,
    chance: Mutex<Chance>,
    /// A running mean of what a row weighs; 0 before the first page.
    row_bytes: AtomicUsize,
}

impl<D: Dialect> SqlStore<D> {
    /// Connects, reads the facts and fills the statements. `instance` names this process in the attempt log.
    pub async fn open(dialect: D, settings: &Settings, instance: &str) -> anyhow::Result<Self> {
        let mut link = Pool::connect(&dialect).await.map_err(|fault| StoreError::Unavailable(fault.into_text()))?;
        let facts =
            D::facts(&mut link, settings).await.context("cannot read what is needed to know about the table")?;
        drop(link);
        Self::new(dialect, settings, facts, instance)
    }

    /// With facts that are known already; does not connect.
    pub fn new(dialect: D, settings: &Settings, facts: Facts, instance: &str) -> anyhow::Result<Self> {
        Ok(Self {
            pool: Pool::new(dialect, settings.max_connections, settings.statement_timeout.0),
            statements: Statements::new::<D>(settings, &facts).map_err(anyhow::Error::msg)?,
            reader: Reader { id: facts.id, columns: settings.columns.clone() },
            facts,
            statuses: settings.statuses.clone(),
            has_condition: settings.condition.is_some(),
            instance: instance.to_owned(),
            chance: Mutex::new(Chance::from_system()),
            row_bytes: AtomicUsize::new(0),
        })
    }

    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    fn chance(&self) -> f64 {
        self.chance.lock().unwrap_or_else(PoisonError::into_inner).uniform()
    }

    /// The ids as values, filled up to `length` with the last one.
    fn padded<'id>(
        &self,
        ids: impl Iterator<Item = &'id BillId> + Clone,
        length: usize,
    ) -> impl Iterator<Item = Value<'id>> {
        let last = ids.clone().last();
        ids.chain(std::iter::repeat_with(move || last).flatten()).take(length).map(|id| self.reader.value(id))
    }
}

#[async_trait]
impl<D: Dialect> Store for SqlStore<D> {
    async fn fetch(&self, request: &FetchRequest) -> Result<Page, StoreError> {
        Ok(self.fetch_page(request).await?)
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<u64, StoreError> {
        if settlements.is_empty() {
            return Ok(0);
        }
        Ok(self.settle_all(settlements).await?)
    }

    async fn holds(&self) -> Result<HashMap<String, Hold>, StoreError> {
        let mut lease = self.pool.lease().await?;
        let read = |cells: &D::Row| {
            let text = |position| Ok::<_, sqlx::Error>(cells.text(position)?.unwrap_or_default());
            Ok((text(0)?, Hold { class: text(1)?, reason: text(2)? }))
        };
        let holds = lease.collect(&self.statements.holds, &[], read).await?;
        lease.give_back();
        Ok(holds.into_iter().collect())
    }

    async fn hold(&self, route: &str, hold: &Hold) -> Result<(), StoreError> {
        let (class, reason) = (fit(&hold.class, 64), fit(&hold.reason, 1_000));
        let values = [route, class, reason, fit(&self.instance, 255)].map(Value::Text);
        let mut lease = self.pool.lease().await?;
        lease.execute(&self.statements.hold, &values).await?;
        lease.give_back();
        Ok(())
    }
}

#[async_trait]
impl<D: Dialect> Ledger for SqlStore<D> {
    async fn overview(&self, limits: &OverviewLimits) -> Result<Overview, StoreError> {
        Ok(self.look_over(limits).await?)
    }

    async fn find(&self, id: &str) -> Result<Option<Found>, StoreError> {
        let id = self.reader.parse_id(id)?;
        Ok(self.find_row(&id).await?)
    }

    async fn retry(&self, selection: &Selection, limit: usize, dry_run: bool) -> Result<Vec<BillId>, StoreError> {
        let ids = match selection {
            Selection::Ids(typed) => {
                typed.iter().take(limit).map(|id| self.reader.parse_id(id)).collect::<Result<Vec<_>, _>>()?
            }
            Selection::Type(bill_type) => self.failed_of_type(bill_type, limit).await?,
        };
        Ok(self.rearm(ids, dry_run).await?)
    }

    async fn release(&self, route: &str) -> Result<bool, StoreError> {
        let mut lease = self.pool.lease().await?;
        let released = lease.execute(&self.statements.release, &[Value::Text(route)]).await?;
        lease.give_back();
        Ok(released > 0)
    }
}
