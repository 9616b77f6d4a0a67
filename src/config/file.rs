//! The configuration file's own types: what is read, before routes are resolved. The JSON Schema is made from them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    policy::{AttemptLog, Retry},
    sink, store,
    telemetry::LogSettings,
    units::Span,
};

/// The configuration of Outbill: which bills to read from which store, and which sinks to deliver them to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "stands for the whole file in the schema; its parts are read one by one")]
pub(super) struct File {
    pub(super) store: store::settings::Settings,
    /// The places that bills can go to, by a name of your own.
    #[schemars(extend("minProperties" = 1))]
    pub(super) sinks: BTreeMap<String, SinkSettings>,
    /// Any key of a route, for all routes that do not say otherwise.
    #[serde(default)]
    pub(super) defaults: RouteOptions,
    /// Which bills go where; the first route that matches a bill takes it. A bill that no route matches is left alone
    /// and reported.
    #[schemars(length(min = 1))]
    pub(super) routes: Vec<RouteOptions>,
    #[serde(default)]
    pub(super) log: LogSettings,
    /// How long a stop may take: what is in flight is settled meanwhile. Keep it below the grace period of what
    /// stops Outbill (Kubernetes: 30 s).
    #[serde(default = "default_shutdown_timeout")]
    pub(super) shutdown_timeout: Span,
    /// The name of this process in the attempt log; host name and process id by default.
    pub(super) instance: Option<String>,
}

pub(super) fn default_shutdown_timeout() -> Span {
    Span(std::time::Duration::from_secs(25))
}

/// A sink, by its kind.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum SinkSettings {
    Rabbitmq(Box<sink::rabbitmq::settings::Settings>),
    File(sink::file::Settings),
}

/// A route: which bills, to which sink and address, under which policy. What it leaves out comes from `defaults`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RouteOptions {
    /// The route's name in logs, `status` and `release`; its first pattern by default.
    pub(super) name: Option<String>,
    /// The types of the route's bills: a pattern or a list of them; `*` stands for any run of characters. Compared by
    /// bytes. Has to be said.
    #[serde(rename = "match")]
    pub(super) include: Option<Patterns>,
    /// Types that the route leaves to the routes after it.
    pub(super) except: Option<Patterns>,
    /// The name of a sink. Has to be said.
    pub(super) sink: Option<String>,
    /// Where in the sink: for RabbitMQ `exchange` (the default exchange if left out) and `routing_key`, as templates
    /// over `{type}`, `{key}`, `{id}`, `{payload.path}` and the names of `columns.extra`; nothing for a file.
    pub(super) to: BTreeMap<String, String>,
    /// When a bill is done. Has to be said, in the route or in `defaults`.
    pub(super) done_on: Option<DoneOn>,
    pub(super) retry: RetrySettings,
    /// Which attempts leave a row in the attempt log: `failures` (all but plain first successes), `all` or `off`.
    pub(super) attempt_log: AttemptLog,
    /// The content type of the messages; `application/json` by default.
    pub(super) content_type: Option<String>,
}

/// One pattern or several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Patterns {
    One(String),
    Many(Vec<String>),
}

impl Patterns {
    pub(super) fn values(&self) -> &[String] {
        match self {
            Self::One(pattern) => std::slice::from_ref(pattern),
            Self::Many(patterns) => patterns,
        }
    }
}

/// When a bill is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DoneOn {
    /// As soon as the sink has taken responsibility for the message.
    Publish,
}

/// When a failed attempt is repeated: after `min(base · factorⁿ, cap)`, give or take `jitter`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RetrySettings {
    /// The wait after the first attempt.
    pub(super) base: Span,
    /// By how much each wait is longer than the one before.
    #[schemars(range(min = 1, max = 1000))]
    pub(super) factor: f64,
    /// No wait is longer, jitter aside. At most 30d.
    pub(super) cap: Span,
    /// The share of a wait by which chance shortens or lengthens it.
    #[schemars(range(min = 0, max = 1))]
    pub(super) jitter: f64,
    /// Attempts in all, the first included; after the last one the bill is failed.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) max_attempts: u32,
}

impl Default for RetrySettings {
    fn default() -> Self {
        let Retry { base, factor, cap, jitter, max_attempts } = Retry::default();
        Self { base: Span(base), factor, cap: Span(cap), jitter, max_attempts }
    }
}

impl From<RetrySettings> for Retry {
    fn from(settings: RetrySettings) -> Self {
        let RetrySettings { base, factor, cap, jitter, max_attempts } = settings;
        Self { base: base.0, factor, cap: cap.0, jitter, max_attempts }
    }
}
