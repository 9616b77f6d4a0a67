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
