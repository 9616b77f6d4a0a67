//! How long to wait before the next try to connect, and how often to speak of it.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Chance;

/// A wait that grows with every failure, up to a cap.
#[derive(Debug)]
pub(super) struct Pace {
    failures: u32,
    chance: Chance,
}

impl Pace {
    const BASE: Duration = Duration::from_millis(200);
    /// Where the broker is only away: it must be found again soon.
    const CAP: Duration = Duration::from_secs(5);
    /// Where a person has to change something first.
    const STUBBORN_CAP: Duration = Duration::from_secs(30);
    /// Replicas that lost the broker together should not come back together.
    const JITTER: f64 = 0.2;

    pub(super) fn new(chance: Chance) -> Self {
        Self { failures: 0, chance }
    }

    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// The wait after one more failure.
    pub(super) fn after_failure(&mut self, is_stubborn: bool) -> Duration {
        let cap = if is_stubborn { Self::STUBBORN_CAP } else { Self::CAP };
        let nominal = Self::BASE.saturating_mul(2_u32.saturating_pow(self.failures)).min(cap);
        self.failures = self.failures.saturating_add(1);
        nominal.mul_f64(1.0 - Self::JITTER + 2.0 * Self::JITTER * self.chance.uniform())
    }
}

/// Says a trouble once, and again only after a while, so that an outage is a few lines a minute.
#[derive(Debug)]
pub(super) struct Voice {
    last: Option<Instant>,
    owes_good_news: bool,
}

impl Default for Voice {
    /// The first success is news too.
    fn default() -> Self {
        Self { last: None, owes_good_news: true }
    }
}

impl Voice {
    const SILENCE: Duration = Duration::from_secs(20);

    /// Whether to speak of a trouble now.
    pub(super) fn may_complain(&mut self) -> bool {
        let may = self.last.is_none_or(|last| last.elapsed() >= Self::SILENCE);
        if may {
            self.last = Some(Instant::now());
            self.owes_good_news = true;
        }
        may
    }

    /// Whether to speak of a success: of the first, and once for each trouble that was spoken of.
    pub(super) fn may_rejoice(&mut self) -> bool {
        std::mem::take(&mut self.owes_good_news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_grows_to_its_cap_with_jitter() {
        let mut pace = Pace::new(Chance::from_seed(1));
        let waits: Vec<_> = (0..40).map(|_| pace.after_failure(false)).collect();
        assert!(waits[0] >= Duration::from_millis(160) && waits[0] <= Duration::from_millis(240), "{waits:?}");
        assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(6)), "{waits:?}");
        assert!(waits[39] >= Duration::from_secs(4), "{waits:?}");
        assert!(pace.after_failure(true) >= Duration::from_secs(24));
        pace.reset();
        assert!(pace.after_failure(true) <= Duration::from_millis(240));
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_outage_is_three_lines_a_minute_and_its_end_one() {
        let mut voice = Voice { last: None, owes_good_news: false };
        let mut lines = 0;
        for _ in 0..60 {
            lines += u32::from(voice.may_complain());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(lines, 3);
        assert!(voice.may_rejoice());
        assert!(!voice.may_rejoice());
    }
}
