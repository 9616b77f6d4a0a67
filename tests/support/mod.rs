#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "each test binary uses its own part, fails by panicking, and says loudly what it could not test"
)]

pub(crate) mod brokers;
pub(crate) mod databases;
pub(crate) mod proxy;
pub(crate) mod sinks;
