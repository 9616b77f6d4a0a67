//! JSON lines to a file or to standard output.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{sink::AddressKey, units::Size};

/// All lines go to the one file.
pub const ADDRESS_KEYS: &[AddressKey] = &[];

/// A file that gets one JSON object a line.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The file, created where missing and appended to; `-` is standard output.
    pub path: PathBuf,
    /// Messages under way at most.
    #[serde(default = "default_in_flight")]
    #[schemars(range(min = 1, max = 65_535))]
    pub in_flight: u32,
    /// A longer body is rejected.
    #[serde(default = "default_max_message")]
    pub max_message: Size,
}

fn default_in_flight() -> u32 {
    1_000
}

fn default_max_message() -> Size {
    Size(16 << 20)
}
