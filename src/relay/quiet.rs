//! Keeps the logs quiet: what repeats is said once and then summed up.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;
use tracing::warn;

/// Lines of one kind within [`WINDOW`]; further ones are counted.
const LINES: u32 = 5;
/// The same for bills that failed: each is somebody's work, and more than these are one fault.
const FAILURE_LINES: u32 = 50;
const WINDOW: Duration = Duration::from_mins(1);
/// An outage is mentioned this often while it lasts.
const OUTAGE: Duration = Duration::from_secs(20);
/// Kinds that are kept apart at most; beyond it they share one.
const MAX_KINDS: usize = 200;

#[derive(Debug, Default)]
pub(super) struct Quiet {
    kinds: HashMap<String, Kind>,
    outages: HashMap<&'static str, Instant>,
}

#[derive(Debug)]
struct Kind {
    since: Instant,
    lines: u32,
    unsaid: u64,
}

impl Quiet {
    /// Says it, or counts it where the same kind was said often enough lately.
    pub(super) fn note(&mut self, now: Instant, kind: &str, say: impl FnOnce()) {
        self.note_up_to(LINES, now, kind, say);
    }

    /// The same for a bill that failed.
    pub(super) fn failure(&mut self, now: Instant, kind: &str, say: impl FnOnce()) {
        self.note_up_to(FAILURE_LINES, now, kind, say);
    }

    fn note_up_to(&mut self, lines: u32, now: Instant, kind: &str, say: impl FnOnce()) {
        let kind = if self.kinds.len() >= MAX_KINDS && !self.kinds.contains_key(kind) { "other" } else { kind };
        let entry = match self.kinds.get_mut(kind) {
            Some(entry) => entry,
            None => self.kinds.entry(kind.to_owned()).or_insert(Kind { since: now, lines: 0, unsaid: 0 }),
        };
        if entry.lines < lines {
            entry.lines += 1;
            say();
        } else {
            entry.unsaid += 1;
        }
    }

    /// Says that something is away, a few times a minute at most.
    pub(super) fn outage(&mut self, now: Instant, what: &'static str, reason: &str) {
        if self.outages.get(what).is_none_or(|said| *said + OUTAGE <= now) {
            self.outages.insert(what, now);
            warn!(error = %reason, "the {what} is unavailable, trying again");
        }
    }

    /// Sums up what was not said in windows that have ended.
    pub(super) fn flush(&mut self, now: Instant) {
        if self.next_at().is_none_or(|at| at > now) {
            return;
        }
        self.kinds.retain(|kind, entry| {
            let is_over = entry.since + WINDOW <= now;
            if is_over && entry.unsaid > 0 {
                warn!(kind, count = entry.unsaid, "more of the same, not shown one by one");
            }
            !is_over
        });
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        self.kinds.values().map(|entry| entry.since + WINDOW).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_repeats_is_said_a_few_times_a_minute_and_a_failure_more_often() {
        let mut quiet = Quiet::default();
        let (mut said, mut failures) = (0, 0);
        for _ in 0..2 {
            let now = Instant::now();
            for _ in 0..1_000 {
                quiet.note(now, "orders nack", || said += 1);
                quiet.failure(now, "orders unroutable failed", || failures += 1);
            }
            tokio::time::advance(WINDOW).await;
            assert_eq!(quiet.next_at(), Some(Instant::now()), "the rest is summed up at the end of the minute");
            quiet.flush(Instant::now());
        }
        assert_eq!((said, failures), (2 * LINES, 2 * FAILURE_LINES));
    }
}
