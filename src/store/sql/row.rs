//! From the columns of a result to a [`Row`], in the order of `columns.sql`.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    bill::{Bill, BillId, Seen},
    store::{
        Row, StoreError,
        dialect::{Cells, Value},
        facts::IdKind,
        settings::Columns,
    },
};

const ID: usize = 0;
const TYPE: usize = 1;
const KEY: usize = 2;
const RETRY_COUNT: usize = 3;
const NEXT_RETRY_TIME: usize = 4;
const CREATED_AT: usize = 5;
const MESSAGE_ID: usize = 6;
const VERSION: usize = 7;
const PAYLOAD_LENGTH: usize = 8;
const PAYLOAD: usize = 9;
const HEADERS_LENGTH: usize = 10;
const HEADERS: usize = 11;
const EXTRA: usize = 12;

/// What a row weighs beside its texts, as [`Bill::weight`] has it.
const ROW_BYTES: usize = 256;

/// How to read the rows of one table.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) id: IdKind,
    pub(super) columns: Columns,
}

/// Why a row is no bill.
struct Invalid {
    class: &'static str,
    problem: String,
}

impl Reader {
    /// The position behind the last column of `columns.sql`.
    pub(super) fn width(&self) -> usize {
        EXTRA + self.columns.extra.len()
    }

    /// # Errors
    /// The id cannot be read: without it there is nothing to say about the row.
    pub(super) fn row(&self, cells: &impl Cells, max_payload: usize) -> Result<Row, sqlx::Error> {
        let id = self.id(cells, ID)?;
        // What a settle compares has no character beyond ASCII, but for a version, whose row is then not settled.
        let seen = Seen {
            retry_count: cells.integer(RETRY_COUNT)?,
            next_retry_time: cells.text(NEXT_RETRY_TIME)?,
            version: cells.text(VERSION).ok().flatten(),
        };
        Ok(match self.bill(cells, max_payload, id.clone(), seen.clone()) {
            Ok(bill) => Row::Bill(bill),
            Err(Invalid { class, problem }) => {
                Row::Invalid { id, bill_type: cells.text(TYPE).ok().flatten(), seen, class, problem }
            }
        })
    }

    fn bill(&self, cells: &impl Cells, max_payload: usize, id: BillId, seen: Seen) -> Result<Bill, Invalid> {
        let columns = &self.columns;
        let bill_type = text(cells, TYPE, &columns.bill_type)?.ok_or_else(|| invalid(&columns.bill_type, "is NULL"))?;
        check_length(cells, PAYLOAD_LENGTH, "payload", max_payload)?;
        check_length(cells, HEADERS_LENGTH, "headers", max_payload)?;
        let payload = cells.bytes(PAYLOAD).map_err(|error| invalid(&columns.payload, &error.to_string()))?;
        let extra = columns.extra.values().zip(EXTRA..).map(|(column, position)| text(cells, position, column));
        Ok(Bill {
            id,
            bill_type,
            key: text(cells, KEY, &columns.key)?,
            payload: payload.map(Bytes::copy_from_slice),
            headers: optional(cells, HEADERS, columns.headers.as_ref())?,
            message_id: optional(cells, MESSAGE_ID, columns.message_id.as_ref())?,
            created_at_s: cells
                .integer(CREATED_AT)
                .ok()
                .flatten()
                .and_then(|s| u64::try_from(s).ok())
                .filter(|s| *s > 0),
            extra: extra.collect::<Result<_, _>>()?,
            seen,
        })
    }

    pub(super) fn id(&self, cells: &impl Cells, position: usize) -> Result<BillId, sqlx::Error> {
        let id = match self.id {
            IdKind::Signed => cells.integer(position)?.map(|id| BillId::Integer(id.into())),
            IdKind::Unsigned => cells.unsigned(position)?.map(|id| BillId::Integer(id.into())),
            IdKind::Text => cells.text(position)?.map(|id| BillId::Text(id.into())),
            IdKind::Binary => cells.bytes(position)?.map(|id| BillId::Binary(id.into())),
        };
        id.ok_or_else(|| sqlx::Error::Decode(format!("the id column {} is NULL", self.columns.id).into()))
    }

    /// An id as a value for a statement, of the same type for the same column, so that no comparison is converted.
    pub(super) fn value<'id>(&self, id: &'id BillId) -> Value<'id> {
        match id {
            BillId::Integer(id) if self.id == IdKind::Unsigned => Value::Unsigned(u64::try_from(*id).unwrap_or(0)),
            BillId::Integer(id) => Value::Integer(i64::try_from(*id).unwrap_or(i64::MAX)),
            BillId::Text(id) => Value::Text(id),
            BillId::Binary(id) => Value::Bytes(id),
        }
    }

    /// An id as a person types it.
    pub(super) fn parse_id(&self, typed: &str) -> Result<BillId, StoreError> {
        let wrong = |what: &str| StoreError::Invalid(format!("{typed:?} is no id of this table: {what}"));
        match self.id {
            IdKind::Text => Ok(BillId::Text(typed.into())),
            IdKind::Binary => unhex(typed)
                .map(BillId::Binary)
                .ok_or_else(|| wrong("its ids are bytes, written as hexadecimal digits")),
            IdKind::Signed => {
                typed.parse::<i64>().map(|id| BillId::Integer(id.into())).map_err(|error| wrong(&error.to_string()))
            }
            IdKind::Unsigned => {
                typed.parse::<u64>().map(|id| BillId::Integer(id.into())).map_err(|error| wrong(&error.to_string()))
            }
        }
    }
}

/// Pairs of hexadecimal digits as bytes; dashes between them are left out, as UUIDs have them.
fn unhex(text: &str) -> Option<Arc<[u8]>> {
    let digits: Vec<u32> = text
        .chars()
        .filter(|character| *character != '-')
        .map(|character| character.to_digit(16))
        .collect::<Option<_>>()?;
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(high * 16 + low).ok(),
        _ => None,
    });
    pairs.collect()
}

/// The weight of a row against a page's limit of bytes.
pub(super) fn weight(row: &Row) -> usize {
    match row {
        Row::Bill(bill) => bill.weight(),
        Row::Invalid { problem, .. } => ROW_BYTES + problem.len(),
    }
}

pub(super) fn id_and_seen(row: &Row) -> (&BillId, &Seen) {
    match row {
        Row::Bill(bill) => (&bill.id, &bill.seen),
        Row::Invalid { id, seen, .. } => (id, seen),
    }
}

fn text(cells: &impl Cells, position: usize, column: &str) -> Result<Option<String>, Invalid> {
    cells.text(position).map_err(|error| {
        let sqlx::Error::Decode(reason) = error else { return invalid(column, &error.to_string()) };
        invalid(column, &format!("is no UTF-8: {reason}"))
    })
}

fn optional(cells: &impl Cells, position: usize, column: Option<&String>) -> Result<Option<String>, Invalid> {
    column.map_or(Ok(None), |column| text(cells, position, column))
}

fn check_length(cells: &impl Cells, position: usize, what: &str, max: usize) -> Result<(), Invalid> {
    match cells.integer(position).ok().flatten().and_then(|length| usize::try_from(length).ok()) {
        Some(length) if length > max => Err(Invalid {
            class: "payload_too_large",
            problem: format!("the {what} has {length} bytes, the limit is {max}"),
        }),
        _ => Ok(()),
    }
}

fn invalid(column: &str, problem: &str) -> Invalid {
    Invalid { class: "invalid_row", problem: format!("the column {column} {problem}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_typed_as_hexadecimal_digits_with_or_without_dashes() {
        assert_eq!(unhex("00-fF").as_deref(), Some([0, 255].as_slice()));
        assert_eq!(unhex("0"), None);
        assert_eq!(unhex("zz"), None);
    }

    #[test]
    fn an_id_out_of_the_columns_range_is_refused_before_it_is_asked_for() {
        let reader = |id| Reader { id, columns: Columns::default() };
        assert!(reader(IdKind::Unsigned).parse_id("18446744073709551615").is_ok());
        assert!(reader(IdKind::Unsigned).parse_id("-1").is_err());
        assert!(reader(IdKind::Signed).parse_id("18446744073709551615").is_err());
        assert!(reader(IdKind::Signed).parse_id("12 ").is_err());
    }
}
