pub(crate) mod brokers;
pub(crate) mod databases;
pub(crate) mod proxy;
pub(crate) mod sinks;
