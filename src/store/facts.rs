//! What is known about the server and the table before the first bill is read.

/// Facts that statements and values depend on. Read once at start; an `ALTER TABLE` later needs a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub server: Server,
    pub id: IdKind,
    /// Digits after the second that `next_retry_time` keeps: 0 to 6.
    pub retry_time_decimals: u8,
    /// Digits after the second that `finished_at` keeps: 0 to 6.
    pub finished_at_decimals: u8,
    /// The largest value of the `retry_count` column.
    pub retry_count_max: i64,
    /// Characters that fit the `reason` column, where one is mapped.
    pub reason_chars_max: Option<u64>,
    /// Whether the `reason` column takes NULL, where one is mapped.
    pub reason_is_nullable: bool,
    /// The index that begins with status and `next_retry_time`; `None` leaves the choice to the server.
    pub fetch_index: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// As the server gives it: `10.11.6-MariaDB-log`.
    pub version: String,
    pub is_mariadb: bool,
}

/// The form of the id column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdKind {
    Signed,
    Unsigned,
    Text,
    Binary,
}
