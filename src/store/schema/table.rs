//! A table as its database describes it, in words that hold for every dialect. Pure.

use std::fmt;

/// What is known of one table.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) indexes: Vec<Index>,
    /// `InnoDB`; `None` for a view and where there are no engines.
    pub(super) engine: Option<String>,
    pub(super) is_view: bool,
    pub(super) is_partitioned: bool,
    /// Those the account can see.
    pub(super) triggers: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    /// The type as the database writes it: `bigint unsigned`, `enum('a','b')`.
    pub(super) declared: String,
    pub(super) kind: Kind,
    pub(super) nullable: bool,
    /// Computed by the database, and so not to be written.
    pub(super) generated: bool,
    /// Set to the present time by every UPDATE that does not name it.
    pub(super) touched_on_update: bool,
}

/// What a column can hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Integer {
        min: i128,
        max: i128,
    },
    /// At most so many characters; `None` where the limit is far away.
    Text {
        chars: Option<u64>,
    },
    Bytes {
        bytes: Option<u64>,
    },
    Enum(Vec<String>),
    Json,
    Uuid,
    /// A date with a time. `zoned` values (`TIMESTAMP`) do not depend on the session's time zone.
    Moment {
        decimals: u8,
        zoned: bool,
    },
    Other,
}

#[derive(Clone, Debug)]
pub(super) struct Index {
    pub(super) name: String,
    pub(super) unique: bool,
    pub(super) primary: bool,
    /// Sorted, and not hidden from the optimizer.
    pub(super) usable: bool,
    pub(super) parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// `None` for an expression, or for a column that the account may not see.
    pub(super) column: Option<String>,
    /// Not a prefix of the value.
    pub(super) whole: bool,
    pub(super) descending: bool,
}

impl Table {
    /// A column by its name; databases do not distinguish case in names of columns.
    pub(super) fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| same(&column.name, name))
    }

    /// The index that leads a read of the queues: by `status`, then `next_retry_time`, then `id`, and whole, ascending,
    /// usable.
    pub(super) fn queue_index(&self, columns: [&str; 3]) -> Option<&Index> {
        self.fitting(columns).find(|index| index.usable)
    }

    /// An index that would do, were it not hidden from the optimizer.
    pub(super) fn hidden_queue_index(&self, columns: [&str; 3]) -> Option<&Index> {
        self.fitting(columns).find(|index| !index.usable)
    }

    /// The indexes whose columns are these, counting those of the key that the database appends.
    fn fitting(&self, columns: [&str; 3]) -> impl Iterator<Item = &Index> {
        let appended = self.appended();
        // Without any key the id is about to become it: that it is not yet is a mistake of its own.
        let needed = if appended.is_empty() { columns.len() - 1 } else { columns.len() };
        self.indexes.iter().filter(move |index| {
            let appended = appended.iter().filter(|part| !index.parts.contains(part));
            let mut parts = index.parts.iter().chain(appended);
            !index.primary
                && index.parts.len() <= columns.len()
                && columns.iter().take(needed).all(|name| parts.next().is_some_and(|part| part.is_plain(name)))
        })
    }

    /// Whether exactly these columns, in any order, are unique together.
    pub(super) fn is_unique(&self, columns: &[&str]) -> bool {
        self.indexes.iter().any(|index| {
            index.unique
                && index.parts.len() == columns.len()
                && columns.iter().all(|name| index.parts.iter().any(|part| part.is_whole(name)))
        })
    }

    /// A column that is unique by itself, the primary key first.
    pub(super) fn lone_unique_column(&self) -> Option<&str> {
        let lone = |index: &&Index| index.unique && index.parts.len() == 1;
        let mut indexes: Vec<&Index> = self.indexes.iter().filter(lone).collect();
        indexes.sort_by_key(|index| !index.primary);
        indexes.first()?.parts.first()?.column.as_deref()
    }

    /// The columns that the database appends to every index.
    pub(super) fn appended(&self) -> &[Part] {
        let primary = self.indexes.iter().find(|index| index.primary);
        // Without a primary key InnoDB takes the first unique index over columns that are not NULL.
        let chosen = primary.or_else(|| self.indexes.iter().find(|index| index.unique && self.is_never_null(index)));
        chosen.map_or(&[], |index| &index.parts)
    }

    fn is_never_null(&self, index: &Index) -> bool {
        let is_null =
            |part: &Part| part.column.as_deref().and_then(|name| self.column(name)).is_none_or(|it| it.nullable);
        !index.parts.iter().any(is_null)
    }
}

impl Part {
    fn is_plain(&self, name: &str) -> bool {
        self.is_whole(name) && !self.descending
    }

    pub(super) fn is_whole(&self, name: &str) -> bool {
        self.whole && self.column.as_deref().is_some_and(|column| same(column, name))
    }
}

/// `(status, next_retry_time DESC)`, as an index is spoken of.
impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self
            .parts
            .iter()
            .map(|part| {
                let name = part.column.as_deref().unwrap_or("an expression");
                let prefix = if part.whole { "" } else { " (prefix)" };
                let order = if part.descending { " DESC" } else { "" };
                format!("{name}{prefix}{order}")
            })
            .collect();
        write!(f, "{} ({})", self.name, parts.join(", "))
    }
}

/// Whether two names of columns mean the same one.
pub(super) fn same(left: &str, right: &str) -> bool {
    left == right || left.to_lowercase() == right.to_lowercase()
}

/// The candidate that `name` was probably meant to be: few letters changed, or the same without separators.
pub(super) fn near_miss<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace(['_', '-'], "");
    let wanted = plain(name);
    let limit = wanted.chars().count().div_ceil(3).min(3);
    candidates
        .map(|candidate| (distance(&wanted, &plain(candidate)), candidate))
        .filter(|(steps, _)| *steps <= limit)
        .min_by_key(|(steps, _)| *steps)
        .map(|(_, candidate)| candidate)
}

/// How many letters have to be changed, added or left out (Levenshtein).
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        next.push(i + 1);
        for (pair, b) in row.windows(2).zip(&right) {
            if let [diagonal, above] = *pair {
                let beside = next.last().copied().unwrap_or(usize::MAX - 1);
                next.push((diagonal + usize::from(a != *b)).min(above + 1).min(beside + 1));
            }
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(name: &str, columns: &[&str]) -> Index {
        let parts = columns
            .iter()
            .map(|text| {
                let (column, descending) = match text.strip_suffix(" DESC") {
                    Some(column) => (column, true),
                    None => (*text, false),
                };
                let (column, whole) = match column.strip_suffix("(8)") {
                    Some(column) => (column, false),
                    None => (column, true),
                };
                Part { column: Some(column.to_owned()), whole, descending }
            })
            .collect();
        Index { name: name.to_owned(), unique: name.starts_with("uk"), primary: false, usable: true, parts }
    }

    fn with_primary(primary: &[&str], columns: &[&str]) -> Table {
        let key = Index { primary: true, unique: true, ..index("PRIMARY", primary) };
        let keys = if primary.is_empty() { vec![] } else { vec![key] };
        Table { indexes: keys.into_iter().chain([index("idx", columns)]).collect(), ..Table::default() }
    }

    #[test]
    fn the_queue_index_is_found_by_its_columns_and_those_of_the_primary_key() {
        for (primary, columns, expected) in [
            (&["id"][..], &["status", "next_retry_time"][..], true),
            (&["id"], &["Status", "NEXT_RETRY_TIME", "id"], true),
            (&["tenant", "id"], &["status", "next_retry_time"], false),
            (&["tenant", "id"], &["status", "next_retry_time", "id"], true),
            (&["id", "created_at"], &["status", "next_retry_time"], true),
            (&[], &["status", "next_retry_time"], true),
            (&[], &["status", "biz_type"], false),
            (&["id"], &["status"], false),
            (&["id"], &["next_retry_time", "status"], false),
            (&["id"], &["status", "next_retry_time", "biz_type"], false),
            (&["id"], &["status", "next_retry_time DESC"], false),
            (&["id"], &["status(8)", "next_retry_time"], false),
        ] {
            let table = with_primary(primary, columns);
            let found = table.queue_index(["status", "next_retry_time", "id"]);
            assert_eq!(found.is_some(), expected, "{primary:?} {columns:?}");
        }
        let mut hidden = with_primary(&["id"], &["status", "next_retry_time"]);
        hidden.indexes[1].usable = false;
        assert!(hidden.queue_index(["status", "next_retry_time", "id"]).is_none());
    }

    #[test]
    fn columns_are_unique_together_only_by_a_whole_index_of_exactly_them() {
        let table = Table { indexes: vec![index("uk", &["biz_id", "biz_type"])], ..Table::default() };
        assert!(table.is_unique(&["biz_type", "biz_id"]));
        assert!(!table.is_unique(&["biz_type"]));
        let prefix = Table { indexes: vec![index("uk", &["biz_type", "biz_id(8)"])], ..Table::default() };
        assert!(!prefix.is_unique(&["biz_type", "biz_id"]));
    }

    #[test]
    fn a_near_miss_is_a_name_a_few_letters_away() {
        let columns = ["id", "biz_no", "bizType", "state", "payload", "nextretrytime"];
        for (name, expected) in [
            ("biz_type", Some("bizType")),
            ("biz_id", Some("biz_no")),
            ("payloads", Some("payload")),
            ("next_retry_time", Some("nextretrytime")),
            ("status", Some("state")),
            ("retry_count", None),
            ("ix", Some("id")),
        ] {
            assert_eq!(near_miss(name, columns.into_iter()), expected, "{name}");
        }
    }
}
