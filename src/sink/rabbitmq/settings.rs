//! The options of a RabbitMQ sink.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::endpoint::Endpoint;
use crate::{
    secret::Secret,
    units::{Size, Span},
};

/// A RabbitMQ broker.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// `amqp://user:password@host:5672/vhost`, or `amqps://…`. No path means the vhost `/`, as `%2f` does.
    /// Instead of it, the separate keys below, whose values need no encoding.
    pub url: Option<Secret>,
    /// The broker's name or address.
    pub host: Option<String>,
    /// 5672 by default, 5671 with TLS.
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// `guest` by default, with the password `guest`.
    pub user: Option<String>,
    pub password: Option<Secret>,
    /// A file with the password, read again on every connect. May complete a `url` that has a user and no password.
    pub password_file: Option<PathBuf>,
    /// `/` by default.
    pub vhost: Option<String>,
    /// Present: encrypts, and checks authority and host name. Implied by `amqps://`.
    pub tls: Option<Tls>,
    /// Messages in flight at most: sent, and not yet confirmed and settled. A crash repeats no more than these.
    #[serde(default = "default_in_flight")]
    #[schemars(range(min = 1, max = 65_535))]
    pub in_flight: u32,
    /// A message that is not confirmed after this long counts as a transient failure. The time does not run while the
    /// broker asks us to wait (memory or disk alarm).
    #[serde(default = "default_confirm_timeout")]
    pub confirm_timeout: Span,
    #[serde(default = "default_connect_timeout")]
    pub connect_timeout: Span,
    /// A longer body is rejected before it is sent. RabbitMQ's own limit is 16 MiB since 4.0.
    #[serde(default = "default_max_message")]
    pub max_message: Size,
    /// The heartbeat asked of the broker, in whole seconds; a silent broker is given up after two of them.
    #[serde(default = "default_heartbeat")]
    pub heartbeat: Span,
}

impl Settings {
    /// Whether the keys agree and the URL is one, without connecting.
    ///
    /// # Errors
    /// One sentence that quotes nothing of the URL.
    pub fn validate(&self) -> Result<(), String> {
        Endpoint::resolve(self).map(drop).map_err(|error| format!("{error:#}"))
    }
}

/// Encryption of the connection to the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// A file with the certificates of a private authority (PEM), instead of the system's.
    pub ca: Option<PathBuf>,
    /// A client certificate (PEM), with `key`.
    pub cert: Option<PathBuf>,
    /// The client certificate's private key (PEM, without a password).
    pub key: Option<PathBuf>,
}

fn default_in_flight() -> u32 {
    1_000
}

fn default_confirm_timeout() -> Span {
    Span(std::time::Duration::from_secs(30))
}

fn default_connect_timeout() -> Span {
    Span(std::time::Duration::from_secs(10))
}

fn default_max_message() -> Size {
    Size(16 << 20)
}

fn default_heartbeat() -> Span {
    Span(std::time::Duration::from_secs(10))
}
