//! What a route wants done with its bills: which ones are its own, and how often and how late they are tried again.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When a failed attempt is repeated: `min(base · factor^retries, cap) · uniform(1 − jitter, 1 + jitter)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    pub base: Duration,
    /// At least 1.
    pub factor: f64,
    pub cap: Duration,
    /// Between 0 and 1.
    pub jitter: f64,
    /// Counts the first attempt; at least 1.
    pub max_attempts: u32,
}

impl Default for Retry {
    fn default() -> Self {
        Self { base: Duration::from_secs(2), factor: 2.0, cap: Duration::from_mins(5), jitter: 0.2, max_attempts: 16 }
    }
}

impl Retry {
    /// The wait after `retries` counted attempts. `chance` is a uniform number in `[0, 1)`.
    pub fn backoff(&self, retries: u32, chance: f64) -> Duration {
        self.nominal(retries).mul_f64(1.0 - self.jitter + 2.0 * self.jitter * chance)
    }

    /// How long a bill is tried before it is given up, jitter aside and with attempts that take no time.
    pub fn horizon(&self) -> Duration {
        // Beyond this many steps every wait is the cap; adding them up one by one would only take time.
        const STEPS: u32 = 4096;
        let waits = self.max_attempts.saturating_sub(1);
        let stepped: Duration = (0..waits.min(STEPS)).map(|retries| self.nominal(retries)).sum();
        stepped.saturating_add(self.cap.saturating_mul(waits.saturating_sub(STEPS)))
    }

    fn nominal(&self, retries: u32) -> Duration {
        let power = i32::try_from(retries).unwrap_or(i32::MAX);
        let seconds = self.base.as_secs_f64() * self.factor.powi(power);
        // The power overflows to infinity long before retries do; `min` brings it back.
        Duration::from_secs_f64(seconds.min(self.cap.as_secs_f64()))
    }
}

/// A pattern over bill types, by bytes: `*` stands for any run of bytes, everything else for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    pub fn new(pattern: impl Into<String>) -> Self {
        Self(pattern.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn matches(&self, bill_type: &str) -> bool {
        let mut parts = self.0.as_bytes().split(|byte| *byte == b'*');
        let mut rest = bill_type.as_bytes();
        let Some(first) = parts.next() else { return rest.is_empty() };
        let Some(after) = rest.strip_prefix(first) else { return false };
        let Some(last) = parts.next_back() else { return after.is_empty() };
        rest = after;
        for part in parts {
            match find(rest, part) {
                Some(end) => rest = rest.get(end..).unwrap_or_default(),
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

/// Where the first `needle` in `haystack` ends.
fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    if needle.is_empty() {
        return Some(0);
    }
    haystack.windows(needle.len()).position(|window| window == needle).map(|start| start + needle.len())
}

/// The types a route takes: any of `include`, none of `except`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    pub include: Vec<Pattern>,
    pub except: Vec<Pattern>,
}

impl Selector {
    pub fn takes(&self, bill_type: &str) -> bool {
        self.include.iter().any(|pattern| pattern.matches(bill_type))
            && !self.except.iter().any(|pattern| pattern.matches(bill_type))
    }
}

/// Which attempts leave a row in the attempt log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AttemptLog {
    /// All but plain first successes.
    #[default]
    Failures,
    All,
    Off,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_by_bytes_with_stars_for_any_run() {
        for (pattern, bill_type, expected) in [
            ("order.*", "order.paid", true),
            ("order.*", "order.", true),
            ("order.*", "Order.paid", false),
            ("order.*", "reorder.paid", false),
            ("*", "", true),
            ("*.paid", "order.paid", true),
            ("*.paid", "order.paid ", false),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "acb", false),
            ("ab*ba", "aba", false),
            ("exact", "exact", true),
            ("exact", "exactly", false),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(Pattern::new(pattern).matches(bill_type), expected, "{pattern:?} on {bill_type:?}");
        }
    }

    #[test]
    fn backoff_grows_to_the_cap_and_stays_within_the_jitter() {
        let retry = Retry::default();
        assert_eq!(retry.backoff(0, 0.5), Duration::from_secs(2));
        assert_eq!(retry.backoff(3, 0.5), Duration::from_secs(16));
        assert_eq!(retry.backoff(200, 0.5), Duration::from_mins(5));
        assert_eq!(retry.backoff(u32::MAX, 0.0), Duration::from_mins(4));
        assert!(retry.backoff(0, 0.999_999) < Duration::from_millis(2_401));
    }

    #[test]
    fn the_horizon_adds_up_the_waits_between_attempts() {
        let retry = Retry { max_attempts: 4, ..Retry::default() };
        assert_eq!(retry.horizon(), Duration::from_secs(2 + 4 + 8));
        assert_eq!(Retry { max_attempts: 1, ..retry }.horizon(), Duration::ZERO);
    }
}
