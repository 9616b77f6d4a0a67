//! Shared servers, given by the environment, and private ones, which a test may stop, kill and reconfigure.

use std::{path::Path, process::Stdio};

use tempfile::TempDir;
use tokio::process::Command;

/// The two databases that the main job must work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    MariaDb,
    MySql,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb",
            Self::MySql => "mysql",
        }
    }

    /// The administrator's URL of the shared server, ending in `/`.
    pub(crate) fn url(self) -> Option<String> {
        shared(match self {
            Self::MariaDb => "OUTBILL_TEST_MARIADB_URL",
            Self::MySql => "OUTBILL_TEST_MYSQL_URL",
        })
        .map(|url| format!("{}/", url.trim_end_matches('/')))
    }
}

pub(crate) fn broker_url() -> Option<String> {
    shared("OUTBILL_TEST_RABBITMQ_URL")
}

fn shared(variable: &str) -> Option<String> {
    let url = std::env::var(variable).ok().filter(|url| !url.is_empty());
    if url.is_none() {
        skip(&format!("{variable} is not set"));
    }
    url
}

/// # Panics
/// Where `CI` is set: there, nothing may be left out.
fn skip(reason: &str) {
    assert!(std::env::var("CI").is_err(), "cannot be tested: {reason}");
    eprintln!("SKIPPED, NOT TESTED: {reason}");
}

/// A server of this test's own, killed with it.
#[derive(Debug)]
pub(crate) struct Private {
    dir: TempDir,
    kind: &'static str,
    pub(crate) url: String,
}

pub(crate) async fn start_database(kind: Kind, options: &[&str]) -> Option<Private> {
    Private::start(kind.name(), options).await
}

pub(crate) async fn start_broker() -> Option<Private> {
    Private::start("rabbitmq", &[]).await
}

impl Private {
    async fn start(kind: &'static str, options: &[&str]) -> Option<Self> {
        let dir = tempfile::Builder::new().prefix("outbill-e2e-").tempdir().unwrap();
        let path = dir.path().to_str().unwrap().to_owned();
        let arguments: Vec<&str> = ["start", kind, &path].into_iter().chain(options.iter().copied()).collect();
        let started = script(&arguments).await;
        match started {
            Ok(env) => {
                let url = env.lines().find_map(|line| line.strip_prefix("URL=")).unwrap();
                Some(Self { dir, kind, url: url.to_owned() })
            }
            Err(reason) => {
                skip(&format!("no private {kind}: {reason}"));
                None
            }
        }
    }

    pub(crate) async fn stop(&self) {
        script(&["stop", self.path()]).await.unwrap();
    }

    /// As when memory or power is gone.
    pub(crate) async fn kill(&self) {
        script(&["kill", self.path()]).await.unwrap();
    }

    /// Comes back with its data, on its port.
    pub(crate) async fn start_again(&self) {
        script(&["start", self.kind, self.path()]).await.unwrap();
    }

    /// `rabbitmqctl`, or SQL on the standard input of the database's client.
    pub(crate) async fn ctl(&self, arguments: &[&str]) -> String {
        let arguments: Vec<&str> = ["ctl", self.path()].into_iter().chain(arguments.iter().copied()).collect();
        script(&arguments).await.unwrap()
    }

    fn path(&self) -> &str {
        self.dir.path().to_str().unwrap()
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let killed = std::process::Command::new(path_of_script()).args(["kill", self.path()]).status();
        if !killed.is_ok_and(|status| status.success()) {
            eprintln!("the private server in {} may still be there", self.path());
        }
    }
}

fn path_of_script() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/servers")
}

async fn script(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(path_of_script()).args(arguments).stdin(Stdio::null()).output().await;
    let output = output.map_err(|error| format!("scripts/servers: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(format!("{}{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout)))
    }
}
