//! Routes: which bills go where, and whether they may go now.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    bill::Bill,
    clock::Chance,
    decision::Trouble,
    policy::{AttemptLog, Retry, Selector},
    sink::Message,
    store::Hold,
};

/// Routes by their index in the configuration.
pub(crate) type RouteSet = BTreeSet<usize>;

/// Makes the message of a bill's next attempt. The message id comes beside it: a bill that makes no message has one too.
pub type Compose = Arc<dyn Fn(&Bill) -> (Arc<str>, Result<Message, Trouble>) + Send + Sync>;

/// One route, ready to use.
#[derive(Clone)]
pub struct Route {
    pub name: Arc<str>,
    pub selector: Selector,
    /// The index of the route's sink.
    pub line: usize,
    pub compose: Compose,
    pub retry: Retry,
    pub attempt_log: AttemptLog,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("name", &self.name).field("selector", &self.selector).finish_non_exhaustive()
    }
}

/// Finds the route of a type: the first that takes it.
#[derive(Debug)]
pub(crate) struct Router(Vec<Selector>);

impl Router {
    pub(crate) fn new(routes: &[Route]) -> Self {
        Self(routes.iter().map(|route| route.selector.clone()).collect())
    }

    pub(crate) fn route(&self, bill_type: &str) -> Option<usize> {
        self.0.iter().position(|selector| selector.takes(bill_type))
    }
}

/// What a route has been through lately.
#[derive(Debug, Default)]
pub(crate) struct RouteState {
    held: Option<Held>,
    pause: Pause,
    streak: Streak,
}

#[derive(Debug)]
struct Held {
    hold: Hold,
    /// Whether the store knows it. Only then does its absence there mean that somebody released the route.
    saved: bool,
}

/// Rejections of one class in a row, with no success between.
#[derive(Debug, Default)]
struct Streak {
    class: &'static str,
    length: u32,
}

impl RouteState {
    /// A lost binding or an expired token rejects everything; after this many in a row a person has to look.
    const STREAK_LIMIT: u32 = 20;

    /// Whether bills of this route may be delivered now.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        self.held.is_none() && self.pause.is_over(now)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// When a pause ends, if it has not ended yet.
    pub(crate) fn opens_at(&self, now: Instant) -> Option<Instant> {
        self.pause.until.filter(|until| *until > now)
    }

    /// A delivery succeeded: whatever was wrong is over.
    pub(crate) fn delivered(&mut self) {
        self.streak.length = 0;
        self.pause.steps = 0;
    }

    /// A bill was rejected. `true` when the route is to be held for it.
    pub(crate) fn rejected(&mut self, class: &'static str) -> bool {
        if self.streak.class != class {
            self.streak = Streak { class, length: 0 };
        }
        self.streak.length += 1;
        self.streak.length >= Self::STREAK_LIMIT
    }

    /// Bills came back untouched: wait a little, longer each time in a row.
    pub(crate) fn pause(&mut self, now: Instant, chance: &mut Chance) {
        self.pause.begin(now, chance);
    }

    /// Holds the route in memory; `false` if it was held already.
    pub(crate) fn hold(&mut self, hold: Hold, saved: bool) -> bool {
        match &mut self.held {
            Some(present) => {
                present.saved |= saved;
                false
            }
            none @ None => {
                *none = Some(Held { hold, saved });
                true
            }
        }
    }

    /// The hold that the store does not know yet.
    pub(crate) fn unsaved_hold(&self) -> Option<&Hold> {
        self.held.as_ref().filter(|held| !held.saved).map(|held| &held.hold)
    }

    pub(crate) fn hold_saved(&mut self) {
        if let Some(held) = &mut self.held {
            held.saved = true;
        }
    }

    /// The store no longer lists a hold that it knew. `true` if that opened the route.
    pub(crate) fn release(&mut self) -> bool {
        if !self.held.as_ref().is_some_and(|held| held.saved) {
            return false;
        }
        *self = Self::default();
        true
    }
}

/// A pause whose length doubles while nothing gets better.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    until: Option<Instant>,
    steps: u32,
}

impl Pause {
    const SHORTEST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(5);

    /// Begins a pause unless one is running: a thousand bills of one lost connection are one event.
    pub(crate) fn begin(&mut self, now: Instant, chance: &mut Chance) {
        if self.is_over(now) {
            let nominal = Self::SHORTEST.saturating_mul(1 << self.steps.min(16)).min(Self::LONGEST);
            self.steps = self.steps.saturating_add(1);
            self.until = Some(now + nominal.mul_f64(0.8 + 0.4 * chance.uniform()));
        }
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }

    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Whether a pause was begun since the last [`Pause::reset`], be it over or not.
    pub(crate) fn was_begun(&self) -> bool {
        self.until.is_some()
    }

    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold() -> Hold {
        Hold { class: "unroutable".to_owned(), reason: "no queue is bound".to_owned() }
    }

    #[test]
    fn the_twentieth_rejection_of_one_class_in_a_row_holds_the_route() {
        let mut route = RouteState::default();
        assert!((1..20).all(|_| !route.rejected("unroutable")));
        route.delivered();
        assert!((1..20).all(|_| !route.rejected("unroutable")));
        assert!(!route.rejected("too_large"), "another class begins a new count");
        assert!((1..20).all(|_| !route.rejected("unroutable")));
        assert!(route.rejected("unroutable"));
    }

    #[test]
    fn a_hold_that_the_store_never_knew_is_not_taken_for_released() {
        let mut route = RouteState::default();
        assert!(route.hold(hold(), false));
        assert!(!route.release(), "the store does not list it because it was never saved");
        assert_eq!(route.unsaved_hold(), Some(&hold()));
        route.hold_saved();
        assert!(route.release());
        assert!(!route.is_held());
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_while_nothing_gets_better_and_one_event_counts_once() {
        let mut chance = Chance::from_seed(1);
        let mut route = RouteState::default();
        let mut longest = Duration::ZERO;
        for _ in 0..10 {
            let now = Instant::now();
            route.pause(now, &mut chance);
            let until = route.opens_at(now).unwrap();
            route.pause(now, &mut chance);
            assert_eq!(route.opens_at(now), Some(until));
            longest = until - now;
            tokio::time::advance(longest).await;
            assert!(route.is_open(Instant::now()));
        }
        assert!(longest > Duration::from_secs(3) && longest <= Duration::from_secs(6), "{longest:?}");
    }
}
