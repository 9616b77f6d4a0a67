//! From a bill to the neutral message that every kind of sink sends.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::sink::Address;

/// A message as every kind of sink gets it. Rendering it twice from the same row gives the same message, but for
/// `attempt`.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Stable over attempts, restarts and replicas: consumers drop duplicates by it.
    pub message_id: Arc<str>,
    pub bill_type: Arc<str>,
    pub bill_id: Arc<str>,
    /// Counts from 1.
    pub attempt: u32,
    /// Seconds since 1970-01-01 UTC.
    pub created_at_s: Option<u64>,
    pub content_type: Arc<str>,
    pub address: Address,
    /// The row's own headers, in their order. Reserved names are refused by the sink's `admit`.
    pub headers: Vec<(String, Value)>,
    pub body: Bytes,
}
