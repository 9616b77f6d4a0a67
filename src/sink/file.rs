//! JSON lines to a file or to standard output.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::{
    fs::{File, OpenOptions},
    io::{AsyncWriteExt, Stdout},
    sync::{mpsc, watch},
};

use crate::{
    clock::Chance,
    decision::{Exposure, Outcome, Trouble},
    finding::Finding,
    sink::{
        Address, AddressKey, Delivery, Health, Message, Report, Sink, Ticket,
        outlet::Outlet,
        pace::{Pace, Voice},
    },
    units::Size,
};

/// A file that gets one JSON object a line.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The file, created where missing and appended to; `-` is standard output.
    pub path: PathBuf,
    /// Messages in flight at most: a crash repeats no more than these.
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

/// A file has no addresses.
pub const ADDRESS_KEYS: &[AddressKey] = &[];

/// Messages written and flushed to the disk together.
const BATCH: usize = 256;

/// Appends one line for each message: `message_id`, `type`, `id`, `attempt`, `created_at_s`, `content_type`, `headers`,
/// and `body` as a string (`body_base64` where it is no UTF-8). A message is delivered when its line is on the disk.
#[derive(Debug)]
pub struct FileSink {
    name: Arc<str>,
    settings: Settings,
    health: watch::Sender<Health>,
}

impl FileSink {
    pub fn new(name: &str, settings: Settings) -> Self {
        let down = Health::Down(Trouble::new("starting", "not opened yet"));
        Self { name: name.into(), settings, health: watch::Sender::new(down) }
    }
}

#[async_trait]
impl Sink for FileSink {
    fn admit(&self, message: &Message) -> Result<(), Trouble> {
        let (body, limit) = (u64::try_from(message.body.len()).unwrap_or(u64::MAX), self.settings.max_message.0);
        if body <= limit {
            return Ok(());
        }
        let text = format!("the payload has {body} bytes; the sink's max_message is {limit}");
        Err(Trouble::new("too_large", text))
    }

    async fn run(&self, inbox: mpsc::Receiver<Delivery>, reports: mpsc::Sender<Report>) {
        let mut outlet = Outlet::new(inbox, reports, &self.health);
        let (mut pace, mut voice) = (Pace::new(Chance::from_system()), Voice::default());
        let mut trouble = Trouble::new("starting", "not opened yet");
        let mut is_torn = false;
        loop {
            trouble = match outlet.meanwhile(Target::open(&self.settings.path, is_torn), Some(&trouble)).await {
                None => return,
                Some(Err(error)) => trouble_of(&self.settings.path, &error),
                Some(Ok(target)) => {
                    if voice.may_rejoice() {
                        tracing::info!(sink = &*self.name, "writing");
                    }
                    pace.reset();
                    match append(target, &mut outlet, &self.settings.path).await {
                        None => return,
                        Some(trouble) => {
                            is_torn = true;
                            trouble
                        }
                    }
                }
            };
            if voice.may_complain() {
                tracing::warn!(
                    sink = &*self.name,
                    class = trouble.class,
                    error = trouble.error,
                    "cannot write; trying again"
                );
            }
            outlet.set_health(Health::Down(trouble.clone()));
            let wait = pace.after_failure(false);
            if outlet.meanwhile(tokio::time::sleep(wait), Some(&trouble)).await.is_none() {
                return;
            }
        }
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    async fn check(&self, _addresses: &[Address]) -> Vec<Finding> {
        let point = format!("sink {}", self.name);
        let path = &self.settings.path;
        if is_stdout(path) {
            return vec![Finding::good(point, "standard output")];
        }
        // What is missing is not created: its folder has to be there.
        let opened = match OpenOptions::new().append(true).open(path).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => folder_of(path).metadata().map(drop),
            opened => opened.map(drop),
        };
        vec![match opened {
            Ok(()) => Finding::good(point, path.display().to_string()),
            Err(error) => Finding::bad(
                point,
                trouble_of(path, &error).error,
                "create the folder, or correct path or its permissions",
            ),
        }]
    }
}

/// Writes what comes in; the trouble that ended it, or `None` when the work is over.
async fn append(mut target: Target, outlet: &mut Outlet<'_>, path: &Path) -> Option<Trouble> {
    outlet.set_health(Health::Up);
    let mut batch = Vec::with_capacity(BATCH);
    let mut lines = Vec::new();
    loop {
        tokio::select! {
            biased;
            () = outlet.reports.closed() => return None,
            count = outlet.inbox.recv_many(&mut batch, BATCH) => if count == 0 { return None },
        }
        lines.clear();
        let written = match serialize(&batch, &mut lines) {
            Ok(()) => target.write(&lines).await,
            Err(error) => Err(error),
        };
        let trouble = written.err().map(|error| trouble_of(path, &error));
        for ticket in batch.drain(..).map(|delivery| delivery.ticket) {
            report(outlet, ticket, trouble.as_ref());
        }
        let is_heard = outlet.flush().await;
        if trouble.is_some() || !is_heard {
            return trouble.filter(|_| is_heard);
        }
    }
}

fn report(outlet: &mut Outlet<'_>, ticket: Ticket, trouble: Option<&Trouble>) {
    let outcome = match trouble {
        None => Outcome::Delivered,
        // Part of the batch may be on the disk, and it is the disk that fails, never a message.
        Some(trouble) => Outcome::Unavailable(trouble.clone(), Exposure::Innocent),
    };
    outlet.report(ticket, outcome);
}

fn serialize(batch: &[Delivery], lines: &mut Vec<u8>) -> io::Result<()> {
    for delivery in batch {
        serde_json::to_writer(&mut *lines, &delivery.message.shown(ADDRESS_KEYS))?;
        lines.push(b'\n');
    }
    Ok(())
}

fn trouble_of(path: &Path, error: &io::Error) -> Trouble {
    Trouble::new("file", format!("cannot write {}: {error}", path.display()))
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

enum Target {
    File(File),
    Stdout(Stdout),
}

impl Target {
    /// `is_torn`: a write has failed before, and may have left half a line, which is ended first.
    async fn open(path: &Path, is_torn: bool) -> io::Result<Self> {
        let mut target = if is_stdout(path) {
            Self::Stdout(tokio::io::stdout())
        } else {
            Self::File(OpenOptions::new().append(true).create(true).open(path).await?)
        };
        if is_torn {
            target.write(b"\n").await?;
        }
        Ok(target)
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => {
                file.write_all(bytes).await?;
                file.flush().await?;
                sync(file).await
            }
            Self::Stdout(stdout) => {
                stdout.write_all(bytes).await?;
                stdout.flush().await
            }
        }
    }
}

/// Pipes and devices cannot be synchronized, and need not be.
async fn sync(file: &File) -> io::Result<()> {
    match file.sync_data().await {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use serde_json::{Value, json};

    use super::*;

    fn sink(path: &Path) -> FileSink {
        FileSink::new("log", Settings { path: path.to_owned(), in_flight: 10, max_message: Size(100) })
    }

    fn delivery(number: u64, body: &'static [u8]) -> Delivery {
        let message = Message {
            message_id: format!("order.paid:{number}").into(),
            bill_type: "order.paid".into(),
            bill_id: number.to_string().into(),
            attempt: 1,
            created_at_s: None,
            content_type: "application/json".into(),
            address: Box::default(),
            headers: vec![("tenant".to_owned(), json!("t1"))],
            body: Bytes::from_static(body),
        };
        Delivery { ticket: Ticket(number), message }
    }

    /// Runs the sink on `deliveries`, once it is up or at once, waits for as many reports, and lets it end.
    async fn outcomes(sink: &FileSink, is_up: bool, deliveries: Vec<Delivery>) -> Vec<(Ticket, Outcome)> {
        let (to_sink, inbox) = mpsc::channel(10);
        let (reports, mut from_sink) = mpsc::channel(10);
        let run = sink.run(inbox, reports);
        let feed = async {
            let count = deliveries.len();
            sink.health().wait_for(|health| !is_up || *health == Health::Up).await.unwrap();
            for delivery in deliveries {
                to_sink.send(delivery).await.unwrap();
            }
            let mut outcomes = Vec::new();
            while outcomes.len() < count {
                let report = from_sink.recv().await.unwrap();
                outcomes.push((report.ticket, report.outcome));
            }
            drop(to_sink);
            outcomes
        };
        let both = async { tokio::join!(run, feed).1 };
        tokio::time::timeout(Duration::from_secs(20), both).await.expect("the sink ends with its inbox")
    }

    #[tokio::test]
    async fn each_message_is_a_line_with_its_body_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let bodies: [&'static [u8]; 3] = [br#"{"b":1,"a":12345678901234567890,"p":1.10}"#, b"", b"\xff"];
        let deliveries = (1..).zip(bodies).map(|(number, body)| delivery(number, body)).collect();
        let outcomes = outcomes(&sink(&path), true, deliveries).await;
        assert!(outcomes.iter().all(|(_, outcome)| *outcome == Outcome::Delivered), "{outcomes:?}");
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["message_id"], "order.paid:1");
        assert_eq!(lines[0]["headers"], json!({ "tenant": "t1" }));
        assert_eq!(lines[0]["body"].as_str().unwrap().as_bytes(), bodies[0]);
        assert_eq!(lines[1]["body"], "");
        assert_eq!(lines[2]["body_base64"], "/w==");
    }

    #[tokio::test]
    async fn a_full_disk_is_the_sinks_trouble_not_the_messages() {
        let outcomes = outcomes(&sink(Path::new("/dev/full")), true, vec![delivery(1, b"{}")]).await;
        let [(Ticket(1), Outcome::Unavailable(trouble, _))] = outcomes.as_slice() else { panic!("{outcomes:?}") };
        assert_eq!(trouble.class, "file");
    }

    #[tokio::test]
    async fn a_missing_folder_is_unavailable_until_it_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("later");
        let sink = sink(&inner.join("out.jsonl"));
        let outcomes = outcomes(&sink, false, vec![delivery(1, b"{}")]).await;
        assert!(matches!(outcomes[0].1, Outcome::Unavailable(_, Exposure::Unsent)), "{outcomes:?}");
        assert!(sink.check(&[]).await[0].is_bad());

        let (_to_sink, inbox) = mpsc::channel(1);
        let (reports, _from_sink) = mpsc::channel(1);
        let mut health = sink.health();
        let opened = async {
            std::fs::create_dir(&inner).unwrap();
            health.wait_for(|health| *health == Health::Up).await.unwrap();
        };
        tokio::time::timeout(Duration::from_secs(20), async {
            tokio::select! {
                () = sink.run(inbox, reports) => panic!("the sink ended"),
                () = opened => {}
            }
        })
        .await
        .expect("the sink opens the file once it can");
        assert!(!sink.check(&[]).await[0].is_bad());
    }

    #[test]
    fn a_body_over_the_limit_is_refused_with_its_size() {
        let mut message = delivery(1, b"").message;
        message.body = vec![0; 101].into();
        let trouble = sink(Path::new("-")).admit(&message).unwrap_err();
        assert_eq!(trouble.error, "the payload has 101 bytes; the sink's max_message is 100");
    }
}
