//! What `check` finds.

/// One point of `check`: fine, or what is wrong and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at: `table shop.async_bill`, `index idx_status_next`.
    pub point: String,
    pub state: FindingState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindingState {
    Good {
        detail: String,
    },
    /// Works, but somebody should know.
    Warning {
        problem: String,
        remedy: String,
    },
    /// `run` would refuse to start.
    Bad {
        problem: String,
        remedy: String,
    },
}

impl Finding {
    pub fn good(point: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { point: point.into(), state: FindingState::Good { detail: detail.into() } }
    }

    pub fn warning(point: impl Into<String>, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { point: point.into(), state: FindingState::Warning { problem: problem.into(), remedy: remedy.into() } }
    }

    pub fn bad(point: impl Into<String>, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { point: point.into(), state: FindingState::Bad { problem: problem.into(), remedy: remedy.into() } }
    }

    /// Whether `run` would refuse to start.
    pub fn is_bad(&self) -> bool {
        matches!(self.state, FindingState::Bad { .. })
    }
}
