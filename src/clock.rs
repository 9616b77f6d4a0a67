//! Chance, as a parameter. Time comes from the database (`next_retry_time`) or from tokio's clock, which tests can pause.

use rand::{RngExt, SeedableRng, rngs::SmallRng};

/// The one source of random numbers: seeded from the system in production, from a printed number in tests.
#[derive(Debug)]
pub struct Chance(SmallRng);

impl Chance {
    pub fn from_system() -> Self {
        Self(rand::make_rng())
    }

    pub fn from_seed(seed: u64) -> Self {
        Self(SmallRng::seed_from_u64(seed))
    }

    /// A seed for a source of its own.
    pub fn seed(&mut self) -> u64 {
        self.0.random()
    }

    /// A uniform number in `[0, 1)`.
    pub fn uniform(&mut self) -> f64 {
        self.0.random()
    }
}
