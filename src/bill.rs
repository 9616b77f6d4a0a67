//! The bill: one row of the application's table, as the relay sees it.

use std::{fmt, sync::Arc};

use bytes::Bytes;

/// The primary key of a bill. Its form is the column's; nothing is assumed about how values are spread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BillId {
    /// An integer column. Wide enough for `BIGINT` and `BIGINT UNSIGNED` alike.
    Integer(i128),
    /// A character column (`CHAR(36)`, `VARCHAR`, MariaDB's `UUID`).
    Text(Arc<str>),
    /// A binary column (`BINARY(16)`), shown as lower-case hexadecimal digits.
    Binary(Arc<[u8]>),
}

impl BillId {
    /// The value of an integer id; `None` where ids do not grow with time and a cursor would mean nothing.
    pub fn as_integer(&self) -> Option<i128> {
        match self {
            Self::Integer(value) => Some(*value),
            Self::Text(_) | Self::Binary(_) => None,
        }
    }
}

impl fmt::Display for BillId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => write!(f, "{value}"),
            Self::Text(text) => f.write_str(text),
            Self::Binary(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

/// What a row looked like when it was read. A settle compares it, so that whoever changed the row meanwhile wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// `retry_count` as stored; `None` where the column is NULL.
    pub retry_count: Option<i64>,
    /// `next_retry_time` in the database's own text form, never interpreted here.
    pub next_retry_time: Option<String>,
    /// The `version` column as text, where one is mapped.
    pub version: Option<String>,
}

impl Seen {
    /// How many attempts have been counted so far: NULL and negative values count as 0.
    pub fn attempts(&self) -> u32 {
        u32::try_from(self.retry_count.unwrap_or(0).max(0)).unwrap_or(u32::MAX)
    }
}

/// How message ids are made where the row brings none. Fixed at `init`, so that an id never changes between attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageIdForm {
    /// `"{type}:{key}"`, where the two have a unique index.
    TypeAndKey,
    /// `"{table}:{id}"`; the name of the table without its schema.
    TableAndId(Arc<str>),
}

impl fmt::Display for MessageIdForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TypeAndKey => f.write_str("type and key"),
            Self::TableAndId(_) => f.write_str("table and id"),
        }
    }
}

/// Work that must happen because its transaction committed.
#[derive(Clone, PartialEq, Eq)]
pub struct Bill {
    pub id: BillId,
    /// The `type` column (`order.paid`); routes match it by bytes.
    pub bill_type: String,
    /// The business key (`biz_id`); `None` where the column is NULL or not mapped.
    pub key: Option<String>,
    /// The payload's bytes exactly as the database gives them; `None` for NULL.
    pub payload: Option<Bytes>,
    /// The row's own headers, a JSON object as text, where mapped and not NULL.
    pub headers: Option<String>,
    /// The row's own message id, where mapped and not NULL.
    pub message_id: Option<String>,
    /// `created_at` as seconds since 1970-01-01 UTC, where it is mapped, set and not before that day.
    pub created_at_s: Option<u64>,
    /// Values of `columns.extra`, in the order of the configuration.
    pub extra: Vec<Option<String>>,
    pub seen: Seen,
}

impl fmt::Debug for Bill {
    /// What identifies the bill; never its payload or headers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bill").field("id", &self.id).field("bill_type", &self.bill_type).finish_non_exhaustive()
    }
}

impl Bill {
    /// Bytes that the bill keeps in memory, roughly: what the limits on memory count.
    pub fn weight(&self) -> usize {
        let texts = self.bill_type.len() + self.key.as_ref().map_or(0, String::len);
        let payload = self.payload.as_ref().map_or(0, Bytes::len);
        texts + payload + self.headers.as_ref().map_or(0, String::len) + 256
    }
}
