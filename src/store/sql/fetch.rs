//! Reading a page: at one go where every row is wanted, else index entries first and then the chosen rows.

use std::{collections::HashMap, ops::ControlFlow, sync::atomic::Ordering};

use super::{
    SqlStore,
    pool::{Failure, Lease},
    row::{id_and_seen, weight},
    statements::{List, Ranged, Scan},
};
use crate::{
    bill::BillId,
    store::{
        FetchRequest, Mark, Page, Queue, Row,
        dialect::{Cells, Dialect, Value},
    },
};

/// An entry of the index, and what is known of its row.
pub(super) struct Entry {
    pub(super) mark: Mark,
    /// `None` where the row is gone or `store.where` leaves it out. Lossy: only for choosing.
    pub(super) bill_type: Option<String>,
}

impl<D: Dialect> SqlStore<D> {
    pub(super) async fn fetch_page(&self, request: &FetchRequest) -> Result<Page, Failure> {
        let mut lease = self.pool.lease().await?;
        let page = match (&self.statements.plain, &request.wanted) {
            (Some(plain), None) => match request.queue {
                Queue::Fresh => self.fetch_plain(&mut lease, &plain.fresh, request).await?,
                Queue::Due => self.fetch_plain(&mut lease, &plain.due, request).await?,
            },
            _ => self.fetch_chosen(&mut lease, request).await?,
        };
        lease.give_back();
        Ok(page)
    }

    async fn fetch_plain(
        &self,
        lease: &mut Lease<'_, D>,
        statement: &Ranged,
        request: &FetchRequest,
    ) -> Result<Page, Failure> {
        let limit = self.rows_that_fit(request);
        let mut values = vec![Value::count(request.max_payload), Value::count(request.max_payload)];
        let sql = self.start_after(statement, request.after.as_ref(), &mut values);
        values.push(Value::count(limit));
        let mut rows = Vec::with_capacity(limit);
        let mut bytes = 0;
        let is_whole = lease
            .scan(sql, &values, |cells| {
                let row = self.reader.row(cells, request.max_payload)?;
                bytes += weight(&row);
                rows.push(row);
                // The last row is read to the end of the result, which costs nothing and keeps the connection.
                Ok(bytes < request.bytes || rows.len() >= limit)
            })
            .await?;
        self.learn_weight(rows.len(), bytes);
        let end = rows.last().map(|row| mark(row, request.queue));
        Ok(Page { exhausted: is_whole && rows.len() < limit, end, rows })
    }

    async fn fetch_chosen(&self, lease: &mut Lease<'_, D>, request: &FetchRequest) -> Result<Page, Failure> {
        let scan = match request.queue {
            Queue::Fresh => &self.statements.scan_fresh,
            Queue::Due => &self.statements.scan_due,
        };
        let is_choosing = request.wanted.is_some() || self.has_condition;
        let window = if is_choosing { FetchRequest::WINDOW } else { self.rows_that_fit(request) };
        let entries = self.entries(lease, scan, request.after.as_ref(), window).await?;
        let (chosen, examined) = choose(&entries, request);
        let loaded = self.load(lease, &chosen, request).await?;
        let kept = loaded.len();
        // Of the chosen rows those that were not loaded begin the next page.
        let examined = chosen.get(kept).map_or(examined, |(position, _)| *position);
        let end = examined.checked_sub(1).and_then(|last| entries.get(last)).map(|entry| entry.mark.clone());
        Ok(Page {
            rows: loaded.into_iter().flatten().collect(),
            end,
            exhausted: examined == entries.len() && entries.len() < window,
        })
    }

    /// The next entries of an index range, in the queue's order.
    pub(super) async fn entries(
        &self,
        lease: &mut Lease<'_, D>,
        scan: &Scan,
        after: Option<&Mark>,
        limit: usize,
    ) -> Result<Vec<Entry>, Failure> {
        let mut branch = Vec::new();
        let sql = match (&scan.after_null, after) {
            (Some(after_null), Some(Mark { next_retry_time: None, id })) => {
                branch.push(self.reader.value(id));
                after_null
            }
            _ => self.start_after(&scan.ranged, after, &mut branch),
        };
        branch.push(Value::count(limit));
        let mut values = branch.repeat(scan.branches);
        if scan.branches > 1 {
            values.push(Value::count(limit));
        }
        let mut entries = lease
            .collect(sql, &values, |cells| {
                let is_there = cells.integer(2)? == Some(1);
                let bill_type = cells.bytes(3)?.unwrap_or_default();
                Ok(Entry {
                    mark: Mark { id: self.reader.id(cells, 0)?, next_retry_time: cells.text(1)? },
                    bill_type: is_there.then(|| String::from_utf8_lossy(bill_type).into_owned()),
                })
            })
            .await?;
        sort(&mut entries);
        Ok(entries)
    }

    /// Loads the chosen rows in order, until the page has its bytes. An entry stays `None` where the row has left the
    /// queue since it was scanned.
    async fn load(
        &self,
        lease: &mut Lease<'_, D>,
        chosen: &[(usize, &BillId)],
        request: &FetchRequest,
    ) -> Result<Vec<Option<Row>>, Failure> {
        let mut loaded = Vec::with_capacity(chosen.len());
        let mut bytes = 0;
        while loaded.len() < chosen.len() && bytes < request.bytes {
            let rest = chosen.get(loaded.len()..).unwrap_or_default();
            let fitting = self.rows_that_fit(&FetchRequest { bytes: request.bytes - bytes, ..request.clone() });
            let chunk = rest.get(..fitting.min(List::MAX).min(rest.len())).unwrap_or_default();
            match self.load_chunk(lease, chunk, request, &mut bytes).await? {
                ControlFlow::Continue(rows) => loaded.extend(rows),
                ControlFlow::Break(rows) => {
                    loaded.extend(rows);
                    break;
                }
            }
        }
        Ok(loaded)
    }

    /// Rows come in the order of the primary key, and stop with the page's bytes: then only those are kept before which
    /// none is missing. The first of the queue is waited for, past all others, so that every page gets on.
    async fn load_chunk(
        &self,
        lease: &mut Lease<'_, D>,
        chunk: &[(usize, &BillId)],
        request: &FetchRequest,
        bytes: &mut usize,
    ) -> Result<ControlFlow<Vec<Option<Row>>, Vec<Option<Row>>>, Failure> {
        let places: HashMap<&BillId, usize> = chunk.iter().enumerate().map(|(place, (_, id))| (*id, place)).collect();
        let mut rows: Vec<Option<Row>> = chunk.iter().map(|_| None).collect();
        let (sql, length) = self.statements.load.fitting(chunk.len());
        let mut values = vec![Value::count(request.max_payload), Value::count(request.max_payload)];
        values.extend(self.padded(chunk.iter().map(|(_, id)| *id), length));
        let first = chunk.first().map(|(_, id)| *id);
        let (mut read, mut read_bytes, mut is_full) = (0, 0, false);
        lease
            .scan(sql, &values, |cells| {
                if is_full && Some(&self.reader.id(cells, 0)?) != first {
                    return Ok(true);
                }
                let row = self.reader.row(cells, request.max_payload)?;
                read += 1;
                read_bytes += weight(&row);
                if let Some(place) = places.get(id_and_seen(&row).0).and_then(|place| rows.get_mut(*place)) {
                    *place = Some(row);
                }
                is_full |= *bytes + read_bytes >= request.bytes && read < chunk.len();
                Ok(!is_full || rows.first().is_some_and(Option::is_none))
            })
            .await?;
        self.learn_weight(read, read_bytes);
        *bytes += read_bytes;
        if !is_full {
            return Ok(ControlFlow::Continue(rows));
        }
        // Where the first did not come at all, it has left the queue.
        let complete = rows.iter().take_while(|row| row.is_some()).count();
        rows.truncate(complete.max(1));
        Ok(ControlFlow::Break(rows))
    }

    fn start_after<'a>(
        &self,
        statement: &'a Ranged,
        after: Option<&'a Mark>,
        values: &mut Vec<Value<'a>>,
    ) -> &'a sqlx::SqlStr {
        let Some(mark) = after else { return &statement.first };
        if let Some(time) = &mark.next_retry_time {
            // A zero date cannot be compared with: every real one is behind it.
            let time = if time.starts_with("0000") { "1000-01-01 00:00:00" } else { time };
            values.extend([Value::Text(time), Value::Text(time)]);
        }
        values.push(self.reader.value(&mark.id));
        &statement.after
    }

    /// As many rows as are likely to fit the page's bytes, so that a result is seldom cut off.
    fn rows_that_fit(&self, request: &FetchRequest) -> usize {
        let usual_bytes = self.row_bytes.load(Ordering::Relaxed).max(1);
        (request.bytes / usual_bytes).saturating_add(1).clamp(1, request.rows.max(1))
    }

    /// A running mean of what rows weigh. Only a guess for [`Self::rows_that_fit`], so that races do no harm.
    fn learn_weight(&self, rows: usize, bytes: usize) {
        if let Some(mean) = bytes.checked_div(rows) {
            let usual = self.row_bytes.load(Ordering::Relaxed);
            self.row_bytes.store(if usual == 0 { mean } else { usual.midpoint(mean) }, Ordering::Relaxed);
        }
    }
}

/// The wanted entries with their positions, and how many entries were looked at for them.
fn choose<'a>(entries: &'a [Entry], request: &FetchRequest) -> (Vec<(usize, &'a BillId)>, usize) {
    let mut chosen = Vec::new();
    for (position, entry) in entries.iter().enumerate() {
        if chosen.len() >= request.rows.max(1) {
            return (chosen, position);
        }
        let Some(bill_type) = &entry.bill_type else { continue };
        if request.wanted.as_ref().is_none_or(|wanted| wanted(bill_type)) {
            chosen.push((position, &entry.mark.id));
        }
    }
    (chosen, entries.len())
}

/// Puts entries in the queue's order. Texts come ordered, because only the database knows their order.
fn sort(entries: &mut [Entry]) {
    entries.sort_by(|left, right| {
        let by_time = left.mark.next_retry_time.cmp(&right.mark.next_retry_time);
        by_time.then_with(|| match (&left.mark.id, &right.mark.id) {
            (BillId::Integer(left), BillId::Integer(right)) => left.cmp(right),
            (BillId::Binary(left), BillId::Binary(right)) => left.cmp(right),
            _ => std::cmp::Ordering::Equal,
        })
    });
}

fn mark(row: &Row, queue: Queue) -> Mark {
    let (id, seen) = id_and_seen(row);
    let next_retry_time = match queue {
        Queue::Fresh => None,
        Queue::Due => seen.next_retry_time.clone(),
    };
    Mark { next_retry_time, id: id.clone() }
}
