//! The demo's ledger: what the database says beside what the sink has seen.

use anyhow::Context;

use super::sink::DemoSink;
use crate::{
    command::Output,
    store::shop::{Failure, Shop},
};

/// Where every bill went.
#[derive(Debug)]
pub(super) struct Ledger {
    rolled_back: u32,
    committed: u32,
    pending: u32,
    done: u32,
    failed: u32,
    /// Messages that the sink accepted, each counted once.
    accepted: u32,
    /// Messages that the sink accepted more than once.
    doubled: u32,
    /// Messages that no committed bill explains.
    unexplained: u32,
    retried: u32,
    outages: u32,
    failures: Vec<Failure>,
}

impl Ledger {
    pub(super) async fn close(shop: &mut Shop, sink: &DemoSink, rolled_back: u32) -> anyhow::Result<Self> {
        let [pending, done, failed, compensated] = shop.standing().await.context("count the bills")?;
        let committed: std::collections::HashSet<String> =
            shop.committed().await.context("list the bills")?.into_iter().collect();
        let failures = shop.failures().await.context("read the attempt log")?;
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Ok(sink.with_seen(|seen| Self {
            rolled_back,
            committed: pending + done + failed + compensated,
            pending,
            done,
            failed,
            accepted: count(seen.accepted.len()),
            doubled: count(seen.accepted.values().filter(|times| **times > 1).count()),
            unexplained: count(seen.accepted.keys().filter(|id| !committed.contains(*id)).count()),
            retried: count(seen.refused_once.len()),
            outages: seen.outages,
            failures,
        }))
    }

    /// Whether every committed bill is accounted for, and nothing else was delivered.
    pub(super) fn balances(&self) -> bool {
        self.pending == 0
            && self.committed == self.done + self.failed
            && self.accepted == self.done
            && self.doubled == 0
            && self.unexplained == 0
            && self.failures.len() == self.failed as usize
    }

    pub(super) fn print(&self, output: &mut Output) {
        output.line("ledger");
        output.line(format!("  committed     {:>6}", self.committed));
        output.line(format!("  rolled back   {:>6}   of which delivered {}", self.rolled_back, self.unexplained));
        output.line(format!("  delivered     {:>6}   of which twice {}", self.accepted, self.doubled));
        output.line(format!("  retried       {:>6}   refused once, delivered later", self.retried));
        output.line(format!("  outages       {:>6}   no attempt counted against any bill", self.outages));
        output.line(format!("  failed        {:>6}   a person has to look", self.failed));
        for failure in &self.failures {
            output
                .line(format!("                         {}: {}: {}", failure.message_id, failure.class, failure.error));
        }
        if self.pending > 0 {
            output.line(format!("  still pending {:>6}", self.pending));
        }
        output.line("");
        if self.balances() {
            output.line(format!(
                "The ledger balances: {} committed = {} delivered + {} failed.",
                self.committed, self.done, self.failed
            ));
        } else {
            output.line("The ledger does NOT balance.");
        }
    }
}
