//! Settle: writes back what came of the attempts, and keeps the holds.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;
use tracing::{error, info, warn};

use super::{Event, Relay, route::Pause};
use crate::{
    decision::Trouble,
    store::{Hold, Settlement, StoreError},
};

/// Bills that one transaction settles at most.
const BATCH: usize = 1_000;
/// The wait between two tries to settle a bill whose row is locked: each may hold up the others for as long as a lock is
/// waited for.
const BUSY_WAIT: Duration = Duration::from_secs(5);
/// How often the holds are read while a route is held: how soon `outbill release` works.
const HOLDS_WHILE_HELD: Duration = Duration::from_secs(2);
/// How often otherwise, for holds that another process set.
const HOLDS_ELSE: Duration = Duration::from_secs(15);

/// Whose a settlement is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) route: usize,
    pub(super) line: usize,
}

/// What has to be written, and when.
#[derive(Debug)]
pub(super) struct Books {
    settlements: Vec<Settlement>,
    owners: Vec<Owner>,
    /// Settlements at the front that are written one by one, because their batch was refused.
    one_by_one: usize,
    /// Settlements of rows that somebody else has locked. One of them is tried now and then, alone.
    busy: VecDeque<(Settlement, Owner)>,
    busy_until: Instant,
    writing: bool,
    pause: Pause,
    holds_due: Instant,
    reading_holds: bool,
    /// Whether the holds have been read at least once.
    holds_known: bool,
}

#[derive(Debug)]
pub(super) struct Settled {
    settlements: Vec<Settlement>,
    owners: Vec<Owner>,
    result: Result<u64, StoreError>,
}

#[derive(Debug)]
pub(super) struct HoldsRead {
    /// Holds that were written before the reading, by route.
    saved: Vec<usize>,
    result: Result<HashMap<String, Hold>, StoreError>,
}

impl Books {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            settlements: Vec::new(),
            owners: Vec::new(),
            one_by_one: 0,
            busy: VecDeque::new(),
            busy_until: now,
            writing: false,
            pause: Pause::default(),
            holds_due: now,
            reading_holds: false,
            holds_known: false,
        }
    }

    pub(super) fn add(&mut self, settlement: Settlement, owner: Owner) {
        self.settlements.push(settlement);
        self.owners.push(owner);
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.writing && self.settlements.is_empty() && self.busy.is_empty()
    }

    /// Until then nothing may be delivered: any route may be held since an earlier run.
    pub(super) fn knows_the_holds(&self) -> bool {
        self.holds_known
    }

    /// A hold waits to be written.
    pub(super) fn hold_soon(&mut self) {
        self.holds_due = Instant::now();
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        if self.writing {
            return None;
        }
        if self.settlements.is_empty() {
            return (!self.busy.is_empty()).then_some(self.busy_until);
        }
        self.pause.until()
    }

    pub(super) fn holds_due_at(&self) -> Option<Instant> {
        (!self.reading_holds).then_some(self.holds_due)
    }

    /// Lets one settlement of a locked row be tried again, if it is time and no others are written one by one.
    fn readmit(&mut self, now: Instant) {
        if self.one_by_one > 0 || self.busy_until > now {
            return;
        }
        if let Some((settlement, owner)) = self.busy.pop_front() {
            self.give_back(vec![settlement], vec![owner]);
            self.one_by_one = 1;
        }
    }

    /// The next batch, in the order in which the settlements came.
    fn take(&mut self) -> (Vec<Settlement>, Vec<Owner>) {
        let count = if self.one_by_one > 0 { 1 } else { self.settlements.len().min(BATCH) };
        self.one_by_one = self.one_by_one.saturating_sub(1);
        let rest = self.settlements.split_off(count);
        let rest_owners = self.owners.split_off(count);
        (std::mem::replace(&mut self.settlements, rest), std::mem::replace(&mut self.owners, rest_owners))
    }

    fn give_back(&mut self, mut settlements: Vec<Settlement>, mut owners: Vec<Owner>) {
        settlements.append(&mut self.settlements);
        owners.append(&mut self.owners);
        self.settlements = settlements;
        self.owners = owners;
    }
}

impl Relay {
    pub(super) fn start_settle(&mut self, now: Instant) {
        if self.books.writing {
            return;
        }
        self.books.readmit(now);
        if self.books.settlements.is_empty() || !self.books.pause.is_over(now) {
            return;
        }
        self.books.writing = true;
        let (settlements, owners) = self.books.take();
        let store = Arc::clone(&self.store);
        self.tasks.spawn(async move {
            let result = store.settle(&settlements).await;
            Event::Settled(Settled { settlements, owners, result })
        });
    }

    pub(super) fn take_settled(&mut self, Settled { settlements, owners, result }: Settled) {
        let now = Instant::now();
        self.books.writing = false;
        match result {
            Ok(changed) => {
                if self.books.pause.was_begun() {
                    info!("the store takes settlements again");
                    self.books.pause.reset();
                }
                let asked = u64::try_from(settlements.len()).unwrap_or(u64::MAX);
                if changed < asked {
                    self.quiet.note(now, "settle", || {
                        info!(
                            asked,
                            changed, "the application changed bills while they were delivered: its word stands"
                        );
                    });
                }
                self.land(settlements, &owners);
            }
            Err(StoreError::Unavailable(reason)) => {
                self.books.give_back(settlements, owners);
                self.books.pause.begin(now, &mut self.chance);
                self.quiet.outage(now, "store", &reason);
            }
            Err(StoreError::Busy(_)) if settlements.len() == 1 => {
                self.quiet.note(now, "settle busy", || {
                    warn!(
                        bill = settlements.first().map(|settlement| settlement.id.to_string()),
                        "the row of a delivered bill is locked by another transaction: it is settled later"
                    );
                });
                self.books.busy.extend(settlements.into_iter().zip(owners));
                self.books.busy_until = now + BUSY_WAIT;
            }
            Err(_) if settlements.len() > 1 => {
                self.books.one_by_one += settlements.len();
                self.books.give_back(settlements, owners);
            }
            Err(error) => {
                for (settlement, owner) in settlements.iter().zip(&owners) {
                    error!(bill = %settlement.id, %error, "a bill cannot be settled and will be delivered again");
                    let error = format!("bill {} cannot be settled: {error}", settlement.id);
                    self.hold_route(owner.route, &Trouble::new("settle_refused", error));
                }
                self.land(settlements, &owners);
            }
        }
    }

    fn land(&mut self, settlements: Vec<Settlement>, owners: &[Owner]) {
        for (settlement, owner) in settlements.into_iter().zip(owners) {
            self.flights.land(settlement.id);
            if let Some(line) = self.lines.get_mut(owner.line) {
                line.dismiss();
            }
        }
    }

    /// Whether a hold has not been written yet. Without it, the next run would fail as many bills again.
    pub(super) fn has_unsaved_hold(&self) -> bool {
        self.states.iter().any(|state| state.unsaved_hold().is_some())
    }

    /// Writes new holds and reads which there are, so that a release by a person is noticed.
    pub(super) fn start_reading_holds(&mut self, now: Instant) {
        if self.books.reading_holds || self.books.holds_due > now {
            return;
        }
        self.books.reading_holds = true;
        let unsaved: Vec<(usize, String, Hold)> = self
            .states
            .iter()
            .zip(&self.routes)
            .enumerate()
            .filter_map(|(index, (state, route))| {
                state.unsaved_hold().map(|hold| (index, route.name.as_ref().to_owned(), hold.clone()))
            })
            .collect();
        let store = Arc::clone(&self.store);
        self.tasks.spawn(async move {
            let mut saved = Vec::new();
            for (index, route, hold) in unsaved {
                match store.hold(&route, &hold).await {
                    Ok(()) => saved.push(index),
                    Err(error) => return Event::Holds(HoldsRead { saved, result: Err(error) }),
                }
            }
            Event::Holds(HoldsRead { saved, result: store.holds().await })
        });
    }

    pub(super) fn take_holds(&mut self, HoldsRead { saved, result }: HoldsRead) {
        let now = Instant::now();
        self.books.reading_holds = false;
        for route in saved {
            if let Some(state) = self.states.get_mut(route) {
                state.hold_saved();
            }
        }
        let was_read = result.is_ok();
        let mut newly_held = Vec::new();
        match result {
            Ok(mut holds) => {
                self.books.holds_known = true;
                for (index, (state, route)) in self.states.iter_mut().zip(&self.routes).enumerate() {
                    match holds.remove(route.name.as_ref()) {
                        Some(hold) => {
                            let reason = hold.reason.clone();
                            if state.hold(hold, true) {
                                newly_held.push(index);
                                error!(route = %route.name, %reason, "route is held since an earlier run or by another process");
                            }
                        }
                        None if state.release() => {
                            self.stale.insert(index);
                            info!(route = %route.name, "route released");
                        }
                        None => {}
                    }
                }
            }
            Err(error) => self.quiet.outage(now, "store", &error.to_string()),
        }
        for route in newly_held {
            self.recall(route);
        }
        let is_any_held = self.states.iter().any(super::route::RouteState::is_held);
        if was_read && self.has_unsaved_hold() {
            // Held while they were read.
            self.books.holds_due = now;
            return;
        }
        self.books.holds_due = now + if is_any_held || !self.books.holds_known { HOLDS_WHILE_HELD } else { HOLDS_ELSE };
    }
}
