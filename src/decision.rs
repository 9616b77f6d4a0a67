//! What came of an attempt, and what is to be done about it: one pure function, asked by nobody but the relay.

use std::time::Duration;

use crate::policy::{AttemptLog, Retry};

/// A failure in words: a stable `class` to group and count by, and the sentence a person reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Short, `snake_case`, from a fixed set: safe as a metric label and in the attempt log.
    pub class: &'static str,
    /// What happened, shortened to [`Trouble::MAX_ERROR`] bytes; never a payload, never a secret.
    pub error: String,
}

impl Trouble {
    /// The width of `outbill_attempt.error`; what a person reads at night need not be longer.
    pub const MAX_ERROR: usize = 1_000;

    pub fn new(class: &'static str, error: impl Into<String>) -> Self {
        let mut error = error.into();
        if error.len() > Self::MAX_ERROR {
            error.truncate(error.floor_char_boundary(Self::MAX_ERROR - '…'.len_utf8()));
            error.push('…');
        }
        Self { class, error }
    }
}

/// What a sink says came of one delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The sink took responsibility for the message.
    Delivered,
    /// The sink is away, blocked or refuses *us*: this bill is not to blame and nothing is counted.
    Unavailable(Trouble, Exposure),
    /// The route itself is wrong (its exchange is missing): nothing is counted, and the route is held for a person.
    Misconfigured(Trouble),
    /// It may work later.
    Transient(Trouble),
    /// It will never work as it is.
    Rejected(Trouble),
}

/// Whether the message of an unavailable sink may have reached it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// Not a byte of it left: it cannot have caused the trouble, nor have been delivered.
    Unsent,
    /// It was under way when the connection broke: perhaps delivered, perhaps the cause.
    InFlight,
    /// It was under way when another message, which is known, made the broker close the channel: perhaps delivered,
    /// certainly not the cause. It need not be suspected, nor its route paused.
    Innocent,
}

/// What to write back to the row, if anything.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// `status = done`.
    Done,
    /// `retry_count + 1`, `next_retry_time = now + delay`.
    Retry { delay: Duration, trouble: Trouble },
    /// `status = failed`; a person is told.
    Fail { trouble: Trouble },
    /// The row stays as it is and the route pauses.
    PutBack { trouble: Trouble },
    /// The row stays as it is and the route is held until a person releases it.
    Hold { trouble: Trouble },
}

/// Decides about one attempt of a bill that has `retries` counted attempts behind it. `chance` is uniform in `[0, 1)`.
pub fn decide(outcome: Outcome, retry: &Retry, retries: u32, chance: f64) -> Decision {
    match outcome {
        Outcome::Delivered => Decision::Done,
        Outcome::Unavailable(trouble, _) => Decision::PutBack { trouble },
        Outcome::Misconfigured(trouble) => Decision::Hold { trouble },
        Outcome::Rejected(trouble) => Decision::Fail { trouble },
        Outcome::Transient(trouble) if retries.saturating_add(1) >= retry.max_attempts => Decision::Fail { trouble },
        Outcome::Transient(trouble) => Decision::Retry { delay: retry.backoff(retries, chance), trouble },
    }
}

impl Decision {
    /// Whether the attempt deserves a row in the attempt log.
    pub fn is_logged(&self, log: AttemptLog, retries: u32) -> bool {
        match (log, self) {
            (AttemptLog::Off, _) | (_, Self::PutBack { .. } | Self::Hold { .. }) => false,
            (AttemptLog::All, _) | (AttemptLog::Failures, Self::Retry { .. } | Self::Fail { .. }) => true,
            (AttemptLog::Failures, Self::Done) => retries > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble() -> Trouble {
        Trouble::new("nack", "the broker refused it")
    }

    #[test]
    fn only_transient_and_rejected_outcomes_are_charged_to_the_bill() {
        let retry = Retry { max_attempts: 3, jitter: 0.0, ..Retry::default() };
        let delay = Duration::from_secs(4);
        for (outcome, retries, expected) in [
            (Outcome::Delivered, 0, Decision::Done),
            (Outcome::Unavailable(trouble(), Exposure::Unsent), 9, Decision::PutBack { trouble: trouble() }),
            (Outcome::Unavailable(trouble(), Exposure::InFlight), 9, Decision::PutBack { trouble: trouble() }),
            (Outcome::Misconfigured(trouble()), 9, Decision::Hold { trouble: trouble() }),
            (Outcome::Rejected(trouble()), 0, Decision::Fail { trouble: trouble() }),
            (Outcome::Transient(trouble()), 1, Decision::Retry { delay, trouble: trouble() }),
            (Outcome::Transient(trouble()), 2, Decision::Fail { trouble: trouble() }),
            (Outcome::Transient(trouble()), u32::MAX, Decision::Fail { trouble: trouble() }),
        ] {
            assert_eq!(decide(outcome.clone(), &retry, retries, 0.5), expected, "{outcome:?} after {retries}");
        }
    }

    #[test]
    fn a_plain_first_success_and_an_outage_leave_no_row_in_the_attempt_log() {
        use AttemptLog::{All, Failures, Off};
        let put_back = Decision::PutBack { trouble: trouble() };
        let fail = Decision::Fail { trouble: trouble() };
        for (decision, log, retries, expected) in [
            (&Decision::Done, Failures, 0, false),
            (&Decision::Done, Failures, 1, true),
            (&Decision::Done, All, 0, true),
            (&fail, Failures, 0, true),
            (&fail, Off, 0, false),
            (&put_back, All, 1, false),
        ] {
            assert_eq!(decision.is_logged(log, retries), expected, "{decision:?} {log:?} {retries}");
        }
    }

    #[test]
    fn a_long_error_is_shortened_between_characters() {
        let trouble = Trouble::new("x", "é".repeat(600));
        assert!(trouble.error.len() <= Trouble::MAX_ERROR);
        assert!(trouble.error.ends_with("é…"));
    }
}
