//! The real binary as a child process.

use std::{
    cell::RefCell,
    collections::HashSet,
    fs,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{Child, Command},
    time::timeout,
};

use super::{Config, eventually, unique};

thread_local! {
    /// The processes that this test, which has a thread of its own, expects to run.
    static EXPECTED: RefCell<HashSet<u32>> = RefCell::default();
}

/// Whether every process that this test expects to run does.
pub(super) fn all_alive() -> bool {
    EXPECTED.with_borrow(|pids| pids.iter().copied().all(is_alive))
}

/// One that has ended and that nobody has waited for yet is a zombie.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Lines of a stream as they come.
#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn read(&self, stream: impl AsyncRead + Unpin + Send + 'static) -> tokio::task::JoinHandle<()> {
        let lines = self.clone();
        tokio::spawn(async move {
            let mut reader = BufReader::new(stream).lines();
            while let Ok(Some(line)) = reader.next_line().await {
                lines.0.lock().unwrap().push(line);
            }
        })
    }

    fn text(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }
}

/// A running `outbill`. It is killed when dropped, and whatever it ever said holds no secret.
#[derive(Debug)]
pub(crate) struct Outbill {
    child: Child,
    pid: u32,
    stdout: Lines,
    stderr: Lines,
    readers: Vec<tokio::task::JoinHandle<()>>,
    secrets: Vec<String>,
}

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Finished {
    /// `None` where a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    /// Both streams.
    pub(crate) fn said(&self) -> String {
        format!("{}\n{}", self.stdout, self.stderr)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("not JSON ({error}): {self:?}"))
    }
}

impl Outbill {
    /// Writes the configuration into `dir` and starts a command with it, in an environment with nothing in it.
    pub(crate) fn start(dir: &Path, config: &Config, arguments: &[&str], secrets: &[String]) -> Self {
        let file = dir.join(format!("outbill-{}.yaml", unique()));
        fs::write(&file, config.yaml()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_outbill"));
        command.arg("-c").arg(file).args(arguments).env_clear().env("TZ", "America/New_York").current_dir(dir);
        let pipes = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = pipes.spawn().unwrap();
        let (stdout, stderr) = (Lines::default(), Lines::default());
        let readers = vec![stdout.read(child.stdout.take().unwrap()), stderr.read(child.stderr.take().unwrap())];
        let pid = child.id().unwrap();
        EXPECTED.with_borrow_mut(|pids| pids.insert(pid));
        Self { child, pid, stdout, stderr, readers, secrets: secrets.to_vec() }
    }

    /// Log lines so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.stderr.0.lock().unwrap().clone()
    }

    pub(crate) fn line_count(&self) -> usize {
        self.stderr.0.lock().unwrap().len()
    }

    /// The first log line, from number `from` on, that holds all of these texts.
    pub(crate) async fn wait_for_line(&mut self, from: usize, texts: &[&str], limit: Duration) -> String {
        eventually(&format!("a log line with {texts:?}"), limit, async || {
            let lines = self.lines();
            lines.into_iter().skip(from).find(|line| texts.iter().all(|text| line.contains(text)))
        })
        .await
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = std::process::Command::new("kill").args(["-s", name, &self.pid.to_string()]).status().unwrap();
        assert!(status.success(), "cannot send {name} to {}", self.pid);
    }

    /// SIGKILL, as the kernel does when memory runs out.
    pub(crate) async fn kill(mut self) {
        self.may_end();
        self.child.kill().await.unwrap();
    }

    /// SIGTERM, and the end that has to follow within `limit` with exit code 0.
    pub(crate) async fn terminate(self, limit: Duration) -> Finished {
        self.signal("TERM");
        let finished = self.finish(limit).await;
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        finished
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn finish(mut self, limit: Duration) -> Finished {
        self.may_end();
        let status = match timeout(limit, self.child.wait()).await {
            Ok(status) => status.unwrap(),
            Err(elapsed) => panic!("still running after {limit:?}: {elapsed}"),
        };
        for reader in std::mem::take(&mut self.readers) {
            reader.await.unwrap();
        }
        Finished { code: status.code(), stdout: self.stdout.text(), stderr: self.stderr.text() }
    }

    fn may_end(&self) {
        EXPECTED.with_borrow_mut(|pids| pids.remove(&self.pid));
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Processor time used so far, in milliseconds.
    pub(crate) fn cpu_ms(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap();
        // After the name in parentheses: user and system time are the 12th and 13th, in hundredths of a second.
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        ticks * 10
    }

    /// The most memory that was ever resident, in KiB.
    pub(crate) fn peak_memory_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Outbill {
    fn drop(&mut self) {
        self.may_end();
        let (stdout, stderr) = (self.stdout.text(), self.stderr.text());
        if std::thread::panicking() {
            let tail: Vec<&str> = stderr.lines().rev().take(60).collect();
            eprintln!("---- the end of what outbill {} said ----", self.pid);
            tail.iter().rev().for_each(|line| eprintln!("{}", line.chars().take(600).collect::<String>()));
            return;
        }
        for secret in &self.secrets {
            assert!(
                !stdout.contains(secret.as_str()) && !stderr.contains(secret.as_str()),
                "a secret is in the output"
            );
        }
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}
