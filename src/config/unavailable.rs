//! Keys and values that are part of the design and not built yet. They are refused by name, so that nobody believes that
//! they work; the schema does not have them.

/// Whether `key` of the mapping at `path` (indices left out: `routes[]`) is known and not available.
pub(super) fn key(path: &str, key: &str) -> bool {
    let keys: &[&str] = match path {
        "" => &["alerts", "archive", "health", "admin"],
        "store" => &["tail", "lanes"],
        "store.columns" => &["order_key", "expires_at"],
        "routes[]" | "defaults" => {
            &["order", "after_failure", "receipt_timeout", "expire_after", "skip_when", "dead_letter"]
        }
        _ => &[],
    };
    keys.contains(&key)
}

/// Whether `value` of the text at `path` is known and not available.
pub(super) fn value(path: &str, value: &str) -> bool {
    let values: &[&str] = match path {
        "routes[].done_on" | "defaults.done_on" => &["receipt"],
        _ if path.starts_with("sinks.") && path.rsplit('.').next() == Some("type") => {
            &["kafka", "redis", "http", "nats"]
        }
        _ => &[],
    };
    values.contains(&value)
}

/// Schemes of `store.url` that the design has and this version has not.
pub(super) const STORE_SCHEMES: [&str; 2] = ["postgres", "postgresql"];
