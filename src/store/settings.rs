//! The options of a store, as the configuration gives them.

use std::{collections::BTreeMap, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    secret::Secret,
    units::{Size, Span},
};

/// The database that holds the bills, and how its table reads.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// `mysql://user:password@host:3306/database` (special characters percent-encoded) or `sqlite:///path/shop.db`.
    /// Instead of it, the separate keys below, whose values need no encoding.
    pub url: Option<Secret>,
    /// The server's name or address.
    pub host: Option<String>,
    /// 3306 by default.
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// Who Outbill is there; `outbill init --example` prints the least privileges.
    pub user: Option<String>,
    pub password: Option<Secret>,
    /// A file with the password, read again on every connect.
    pub password_file: Option<PathBuf>,
    /// The database that holds the application's table.
    pub database: Option<String>,
    /// A Unix socket, instead of host and port.
    pub socket: Option<PathBuf>,
    #[serde(default)]
    pub tls: Tls,
    /// The application's table: `async_bill`, or `database.table`. Quote parts that hold a dot with backticks.
    #[serde(default = "default_table")]
    pub table: String,
    #[serde(default)]
    pub columns: Columns,
    #[serde(default)]
    pub statuses: Statuses,
    /// A condition that every bill must meet, in SQL over the table's columns: `deleted_at IS NULL`.
    #[serde(rename = "where")]
    pub condition: Option<String>,
    #[serde(default)]
    pub poll: Poll,
    /// The session time zone of Outbill's connections (`+08:00`, `Europe/Berlin`); the server's own by default.
    pub time_zone: Option<String>,
    /// The schema (database) of Outbill's own tables; the application's by default.
    pub own_schema: Option<String>,
    /// The first part of the names of Outbill's own tables.
    #[serde(default = "default_own_prefix")]
    pub own_prefix: String,
    /// Connections to the database at most.
    #[serde(default = "default_max_connections")]
    #[schemars(range(min = 2, max = 64))]
    pub max_connections: u32,
    /// Any one statement is given up after this long.
    #[serde(default = "default_statement_timeout")]
    pub statement_timeout: Span,
}

fn default_table() -> String {
    "async_bill".to_owned()
}

fn default_own_prefix() -> String {
    "outbill_".to_owned()
}

fn default_max_connections() -> u32 {
    4
}

fn default_statement_timeout() -> Span {
    Span(std::time::Duration::from_secs(30))
}

/// Encryption of the connection to the database.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// How much is encrypted and checked.
    #[serde(default)]
    pub mode: TlsMode,
    /// A file with the certificates of a private authority (PEM); the system's by default.
    pub ca: Option<PathBuf>,
    /// A client certificate (PEM), with `key`.
    pub cert: Option<PathBuf>,
    /// The client certificate's private key (PEM).
    pub key: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TlsMode {
    Disabled,
    /// Encrypts where the server can, without checking who it is.
    #[default]
    Preferred,
    /// Encrypts or fails, without checking who the server is.
    Required,
    /// Encrypts and checks the certificate's authority.
    VerifyCa,
    /// Encrypts and checks the authority and the host name.
    VerifyFull,
}

/// The names of the table's columns; only what differs from the default table need be said.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Columns {
    /// The primary key.
    pub id: String,
    /// The type, which routes match.
    #[serde(rename = "type")]
    pub bill_type: String,
    /// The business key: an order number, …
    pub key: String,
    /// The state, as `statuses` maps it.
    pub status: String,
    /// What the message carries.
    pub payload: String,
    /// How many attempts have been counted.
    pub retry_count: String,
    /// Not before this time; NULL means now.
    pub next_retry_time: String,
    /// When the bill was finished.
    pub finished_at: String,
    /// When the bill was written; becomes the message's timestamp.
    pub created_at: String,
    /// A JSON object whose members become message headers.
    pub headers: Option<String>,
    /// Where the reason of a failure is written.
    pub reason: Option<String>,
    /// Where the time of the confirmation is written.
    pub published_at: Option<String>,
    /// The application's own message id.
    pub message_id: Option<String>,
    /// A number that the application raises when it re-arms a row; compared by every settle.
    pub version: Option<String>,
    /// Further columns for templates: `{ region: region_code }` makes `{region}` stand for the column `region_code`.
    pub extra: BTreeMap<String, String>,
}

impl Default for Columns {
    fn default() -> Self {
        Self {
            id: "id".to_owned(),
            bill_type: "biz_type".to_owned(),
            key: "biz_id".to_owned(),
            status: "status".to_owned(),
            payload: "payload".to_owned(),
            retry_count: "retry_count".to_owned(),
            next_retry_time: "next_retry_time".to_owned(),
            finished_at: "finished_at".to_owned(),
            created_at: "created_at".to_owned(),
            headers: None,
            reason: None,
            published_at: None,
            message_id: None,
            version: None,
            extra: BTreeMap::new(),
        }
    }
}

/// How the states of a bill are stored: numbers or strings, all of one kind, no value twice.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Statuses {
    /// One value, or a list of which the first is written.
    pub pending: OneOrMany,
    /// Delivered.
    pub done: StatusValue,
    /// Given up; a person must look.
    pub failed: StatusValue,
    /// Closed, nothing to do; never written in this version.
    pub compensated: StatusValue,
}

impl Default for Statuses {
    fn default() -> Self {
        Self {
            pending: OneOrMany::One(StatusValue::Number(0)),
            done: StatusValue::Number(1),
            failed: StatusValue::Number(2),
            compensated: StatusValue::Number(3),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    One(StatusValue),
    Many(Vec<StatusValue>),
}

impl OneOrMany {
    pub fn values(&self) -> &[StatusValue] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum StatusValue {
    Number(i64),
    Text(String),
}

/// How the table is read.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Poll {
    /// The wait between two looks at an idle table.
    pub interval: Span,
    /// Rows of a page at most.
    #[schemars(range(min = 1, max = 10_000))]
    pub batch: u32,
    /// Bytes of a page at most, and of all bills in memory twice that.
    pub batch_bytes: Size,
}

impl Default for Poll {
    fn default() -> Self {
        Self { interval: Span(std::time::Duration::from_millis(200)), batch: 1_000, batch_bytes: Size(16 << 20) }
    }
}
