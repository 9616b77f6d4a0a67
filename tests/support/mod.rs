pub(crate) mod databases;
pub(crate) mod proxy;
