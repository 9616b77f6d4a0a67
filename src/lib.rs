//! Outbill, a transactional outbox sidecar. `ARCHITECTURE.md` has the picture, the code map and the invariants.

pub mod app;
pub mod bill;
pub mod cli;
pub mod clock;
pub mod command;
pub mod config;
pub mod decision;
pub mod finding;
pub mod lifecycle;
pub mod policy;
pub mod relay;
pub mod secret;
pub mod sink;
pub mod store;
pub mod telemetry;
pub mod units;
