//! The configuration: from a YAML file and the environment to one usable value, or to all mistakes at once.
//!
//! Text → [`parse`] → [`tree`] (every value with its place) → [`expand`] (`${NAME}`) → [`walk`] (against the schema, which is
//! made from the types of [`mod@file`]) → types → [`rules`] (what a schema cannot say). Nothing else reads the environment.

mod expand;
mod file;
mod parse;
mod problem;
mod routes;
mod rules;
mod schema;
mod tree;
mod unavailable;
mod walk;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;

use crate::{store, telemetry::LogSettings, units::Span};
use tree::Node;

pub use file::{DoneOn, SinkSettings};
pub use problem::{Problem, Problems};
pub use routes::RouteSettings;
pub use schema::schema;

/// Reads an environment variable; `None` where it is not set.
pub type Environment<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Everything a user can set, checked as far as that is possible without connecting to anything.
#[derive(Debug)]
pub struct Config {
    pub store: store::settings::Settings,
    pub sinks: BTreeMap<String, SinkSettings>,
    /// At least one, in the order in which they are asked; names are unique, and each `sink` is in `sinks`.
    pub routes: Vec<RouteSettings>,
    pub log: LogSettings,
    pub shutdown_timeout: Span,
    pub instance: String,
    /// What works and is probably not meant.
    pub warnings: Vec<Problem>,
}

/// A larger file is no configuration.
const MAX_FILE_B: u64 = 1 << 20;

/// The file that is read where neither the command line nor `OUTBILL_CONFIG` names one.
pub const DEFAULT_FILE: &str = "outbill.yaml";

/// The process's own environment.
pub fn environment(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    std::env::var(name).ok()
}

/// The file to read: what the command line says, else `OUTBILL_CONFIG`, else `outbill.yaml`.
pub fn file(given: Option<PathBuf>, env: &Environment<'_>) -> PathBuf {
    given
        .or_else(|| env("OUTBILL_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from))
        .unwrap_or_else(|| PathBuf::from(DEFAULT_FILE))
}

/// Reads and checks a configuration file.
///
/// # Errors
/// All mistakes that can be found without connecting to anything.
pub fn load(path: &Path, env: &Environment<'_>) -> Result<Config, Problems> {
    let text = read_file(path).map_err(|problem| vec![problem]);
    text.and_then(|text| read(&text, env)).map_err(|problems| Problems::new(path.display().to_string(), problems))
}

fn read_file(path: &Path) -> Result<String, Problem> {
    let failed = |error: io::Error| {
        let remedy = if error.kind() == io::ErrorKind::NotFound {
            "; name the file with `-c FILE` or OUTBILL_CONFIG"
        } else {
            ""
        };
        Problem::of_file(format!("cannot be read: {error}{remedy}"))
    };
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(MAX_FILE_B + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_B {
        return Err(Problem::of_file("is larger than 1 MiB, which no configuration is"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes().iter().take(error.utf8_error().valid_up_to()).filter(|b| **b == b'\n').count() + 1;
        Problem::of_file(format!("is not UTF-8 (line {line})"))
    })
}

fn read(text: &str, env: &Environment<'_>) -> Result<Config, Vec<Problem>> {
    let (mut root, mut problems) = parse::parse(text.strip_prefix('\u{feff}').unwrap_or(text))?;
    expand::expand(&mut root, env, &mut problems);
    routes::apply_defaults(&mut root);
    walk::check(&mut root, schema(), &mut problems);

    let mut warnings = Vec::new();
    let config = resolve(&root, env, &mut problems, &mut warnings);
    match config {
        Some(config) if problems.is_empty() => Ok(Config { warnings, ..config }),
        None if problems.is_empty() => Err(vec![Problem::of_file("is valid by the schema and yet cannot be read")]),
        _ => Err(problems),
    }
}

/// From the checked tree to types, part by part: a mistake in one part hides none in another.
fn resolve(
    root: &Node,
    env: &Environment<'_>,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Problem>,
) -> Option<Config> {
    let store = read_part(root.get("store")).inspect(|(node, settings)| rules::store::check(settings, node, problems));
    let sinks = rules::sinks::read(root, problems);
    let routes = routes::resolve(root, problems, warnings);
    let log = match root.get("log") {
        None => Some(LogSettings::default()),
        Some(node) => read_part(Some(node)).map(|(node, log)| rules::checked_log(log, node, problems)),
    };
    let shutdown_timeout = match root.get("shutdown_timeout") {
        None => Some(file::default_shutdown_timeout()),
        Some(node) => read_part(Some(node)).map(|(node, span)| rules::checked_shutdown(span, node, problems)),
    };
    let instance = match root.get("instance") {
        None => Some(default_instance(env)),
        Some(node) => read_part(Some(node)).map(|(node, name)| rules::checked_instance(name, node, problems)),
    };
    Some(Config {
        store: store?.1,
        sinks: sinks?,
        routes: routes?,
        log: log?,
        shutdown_timeout: shutdown_timeout?,
        instance: instance?,
        warnings: Vec::new(),
    })
}

/// A part as its type, without what is broken in it; `None` where the walker has already said what is wrong with it.
fn read_part<T: DeserializeOwned>(node: Option<&Node>) -> Option<(&Node, T)> {
    let node = node.filter(|node| !node.broken)?;
    // The error is dropped on purpose: it repeats what the walker said, and would show the value.
    serde_json::from_value(node.to_json()).ok().map(|part| (node, part))
}

/// Host name and process id: unique enough to find the process, and new after a restart.
fn default_instance(env: &Environment<'_>) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| env("HOSTNAME"));
    let host = host.as_deref().map(str::trim).filter(|host| !host.is_empty()).unwrap_or("localhost");
    format!("{host}:{}", std::process::id())
}
