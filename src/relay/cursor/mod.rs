//! Where reading goes on. Cursors are hints that make reading cheap; the status alone decides what is delivered.
//!
//! *Fresh* bills are read forward by id. Routes that fall behind, because their sink is full, read on from where they
//! stopped by a cursor of their own, so that none waits for another; at the end of the queue they meet again. Ids
//! commit out of order: reading at the end begins a little earlier ([`TRAIL`]), and a slow *sweep* over everything
//! that was passed finds the rest. *Due* bills are read from the start of their index range again and again.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use crate::{
    relay::route::RouteSet,
    store::{Mark, Queue},
};

/// A bill that commits within this time after a higher id was read is found by the next poll; a later one by the sweep.
const TRAIL: Duration = Duration::from_secs(3);
/// The wait between two rounds of the sweep, at least; a long round is followed by a wait of four times its length.
const SWEEP_WAIT: Duration = Duration::from_secs(5);
/// A queue whose reading passed many bills of others (of a held route, of no route) rests this many times as long as that
/// took: going over them again and again would keep the database busy for nothing.
const REST_FOR_PASSING: u32 = 2;

/// One page to read, by whom and from where.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    source: Source,
    asked_at: Instant,
    pub(crate) queue: Queue,
    pub(crate) after: Option<Mark>,
    pub(crate) routes: RouteSet,
    /// Whether the last page of this source held mostly bills of other routes, so that filtering pays.
    pub(crate) filtered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// By its number, which is never used again.
    Fresh(u64),
    Due,
    Sweep,
}

/// What a step found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) end: Option<Mark>,
    pub(crate) exhausted: bool,
    /// Whether most of the page belonged to other routes.
    pub(crate) foreign: bool,
    /// Routes that had no room for a row, with the place before the first such row.
    pub(crate) behind: Vec<(usize, Option<Mark>)>,
}

#[derive(Debug)]
struct Cursor {
    number: u64,
    after: Option<Mark>,
    routes: RouteSet,
    filtered: bool,
    /// Not before this time: set when the queue was read to its end.
    rest_until: Option<Instant>,
    /// Time spent on pages that held mostly bills of others, since the end was last reached.
    passing: Duration,
}

impl Cursor {
    fn is_at_the_end(&self) -> bool {
        self.rest_until.is_some()
    }
}

/// The single cursor of the due queue or of the sweep.
#[derive(Debug)]
struct Round {
    after: Option<Mark>,
    filtered: bool,
    next: Instant,
    began: Instant,
    /// Time spent on pages that held mostly bills of others, in this round.
    passing: Duration,
}

/// All cursors of one table.
#[derive(Debug)]
pub(crate) struct Cursors {
    interval: Duration,
    fresh: Vec<Cursor>,
    due: Round,
    sweep: Round,
    trail: VecDeque<(Instant, Mark)>,
    /// The fresh cursor whose page is being read: who joined it now would miss that page.
    reading: Option<u64>,
    next_number: u64,
    /// Whose turn was last, so that fresh, due and sweep take turns.
    turn: usize,
}

impl Cursors {
    pub(crate) fn new(routes: usize, interval: Duration, now: Instant) -> Self {
        let round = |next| Round { after: None, filtered: false, next, began: next, passing: Duration::ZERO };
        let mut cursors = Self {
            interval,
            fresh: Vec::new(),
            due: round(now),
            sweep: round(now + SWEEP_WAIT),
            trail: VecDeque::new(),
            reading: None,
            next_number: 0,
            turn: 0,
        };
        cursors.restart((0..routes).collect());
        cursors
    }

    /// These routes read their fresh bills from the start again: some that were passed may be pending.
    pub(crate) fn restart(&mut self, routes: RouteSet) {
        self.leave(&routes);
        let reading = self.reading;
        self.push(None, routes, |cursor| Some(cursor.number) != reading);
    }

    /// The next page to read for routes that are `ready`, if it is time for one.
    pub(crate) fn next(&mut self, now: Instant, ready: &RouteSet) -> Option<Step> {
        if ready.is_empty() {
            return None;
        }
        self.part_from_the_unready(ready);
        let sources = self.fresh.len() + 2;
        for offset in 1..=sources {
            let turn = (self.turn + offset) % sources;
            if let Some(step) = self.step(turn, now, ready) {
                self.turn = turn;
                self.reading = match step.source {
                    Source::Fresh(number) => Some(number),
                    Source::Due | Source::Sweep => None,
                };
                return Some(step);
            }
        }
        None
    }

    /// When the next page is due for routes that are `ready`; `None` if there is no such time.
    pub(crate) fn next_at(&self, now: Instant, ready: &RouteSet) -> Option<Instant> {
        if ready.is_empty() {
            return None;
        }
        let fresh = self.fresh.iter().filter(|cursor| !cursor.routes.is_disjoint(ready));
        fresh.map(|cursor| cursor.rest_until.unwrap_or(now)).chain([self.due.next, self.sweep.next]).min()
    }

    /// Takes note of what a step found.
    pub(crate) fn found(&mut self, step: &Step, found: Found, now: Instant) {
        self.reading = None;
        let took = now.saturating_duration_since(step.asked_at);
        let passing = if found.foreign { took } else { Duration::ZERO };
        match step.source {
            Source::Fresh(number) => self.found_fresh(number, found, passing, now),
            Source::Due => {
                self.due.filtered = found.foreign;
                let go_on = !found.exhausted && found.end.is_some();
                self.due.after = found.end.filter(|_| go_on);
                self.due.passing += passing;
                self.due.next = if go_on {
                    now
                } else {
                    now + self.interval.max(std::mem::take(&mut self.due.passing) * REST_FOR_PASSING)
                };
            }
            Source::Sweep => self.found_sweep(found, now),
        }
    }

    /// The page could not be read: it is read again from the same place.
    pub(crate) fn failed(&mut self, step: &Step, now: Instant) {
        self.reading = None;
        match step.source {
            Source::Fresh(_) => {}
            Source::Due => self.due.next = now,
            Source::Sweep => self.sweep.next = now,
        }
    }

    fn step(&self, turn: usize, now: Instant, ready: &RouteSet) -> Option<Step> {
        if let Some(cursor) = self.fresh.get(turn) {
            let rests = cursor.rest_until.is_some_and(|rest| rest > now);
            let routes: RouteSet = cursor.routes.intersection(ready).copied().collect();
            return (!rests && !routes.is_empty()).then(|| Step {
                source: Source::Fresh(cursor.number),
                asked_at: now,
                queue: Queue::Fresh,
                after: if cursor.is_at_the_end() { self.trail_of(cursor, now) } else { cursor.after.clone() },
                filtered: cursor.filtered,
                routes,
            });
        }
        let (source, queue, round) = if turn == self.fresh.len() {
            (Source::Due, Queue::Due, &self.due)
        } else {
            (Source::Sweep, Queue::Fresh, &self.sweep)
        };
        (round.next <= now).then(|| Step {
            source,
            asked_at: now,
            queue,
            after: round.after.clone(),
            filtered: round.filtered,
            routes: ready.clone(),
        })
    }

    /// Routes that cannot take bills now stay where they are, while the others of their cursor go on.
    fn part_from_the_unready(&mut self, ready: &RouteSet) {
        let mut parted = Vec::new();
        for cursor in &mut self.fresh {
            if cursor.routes.is_disjoint(ready) {
                continue;
            }
            let unready: RouteSet = cursor.routes.difference(ready).copied().collect();
            if !unready.is_empty() {
                cursor.routes.retain(|route| ready.contains(route));
                parted.push((cursor.after.clone(), unready));
            }
        }
        for (after, routes) in parted {
            // Not the cursor that they have just left, which is at the same place.
            self.push(after, routes, |cursor| cursor.routes.is_disjoint(ready));
        }
    }

    fn found_fresh(&mut self, number: u64, found: Found, passing: Duration, now: Instant) {
        let interval = self.interval;
        // The cursor may be gone: its routes restarted while the page was read.
        let Some(cursor) = self.fresh.iter_mut().find(|cursor| cursor.number == number) else { return };
        let mut stayed = Vec::new();
        for (route, before) in found.behind {
            if cursor.routes.remove(&route) {
                stayed.push((before, RouteSet::from([route])));
            }
        }
        cursor.filtered = found.foreign;
        cursor.passing += passing;
        if found.exhausted {
            let rest = interval.max(std::mem::take(&mut cursor.passing) * REST_FOR_PASSING);
            cursor.rest_until = Some(now + rest);
            cursor.after = furthest(cursor.after.take(), found.end);
        } else {
            cursor.rest_until = None;
            cursor.after = found.end.or(cursor.after.take());
        }
        let (at_the_end, is_empty) = (cursor.is_at_the_end(), cursor.routes.is_empty());
        if is_empty {
            self.fresh.retain(|cursor| cursor.number != number);
        } else if at_the_end {
            self.meet_at_the_end(number, now);
        }
        for (before, routes) in stayed {
            self.push(before, routes, |_| true);
        }
    }

    /// Cursors that have reached the end become one again, at the lower of their places.
    fn meet_at_the_end(&mut self, number: u64, now: Instant) {
        let Some(place) = self.fresh.iter().position(|cursor| cursor.number == number) else { return };
        let arrived = self.fresh.swap_remove(place);
        match self.fresh.iter_mut().find(|cursor| cursor.is_at_the_end()) {
            Some(waiting) => {
                waiting.routes.extend(arrived.routes);
                waiting.after = nearest(waiting.after.take(), arrived.after);
                waiting.rest_until = waiting.rest_until.min(arrived.rest_until);
                waiting.filtered = arrived.filtered;
            }
            None => self.fresh.push(arrived),
        }
        self.remember_the_end(now);
    }

    fn remember_the_end(&mut self, now: Instant) {
        while self.trail.get(1).is_some_and(|(then, _)| *then + TRAIL <= now) {
            self.trail.pop_front();
        }
        let end = self.fresh.iter().find(|cursor| cursor.is_at_the_end()).and_then(|cursor| cursor.after.clone());
        let spacing = TRAIL / 8;
        if let Some(mark) = end
            && self.trail.back().is_none_or(|(then, _)| *then + spacing <= now)
        {
            self.trail.push_back((now, mark));
        }
    }

    /// Where a cursor at the end reads from: its place of a short while ago.
    fn trail_of(&self, cursor: &Cursor, now: Instant) -> Option<Mark> {
        let old_enough = self.trail.iter().rev().find(|(then, _)| *then + TRAIL <= now);
        // Before anything is that old: where the end was first reached. What is below is left to the sweep.
        let then = old_enough.or(self.trail.front());
        nearest(then.map(|(_, mark)| mark.clone()), cursor.after.clone())
    }

    fn found_sweep(&mut self, found: Found, now: Instant) {
        self.sweep.filtered = found.foreign;
        let goal = self.fresh.iter().filter_map(|cursor| integer(cursor.after.as_ref())).max();
        let place = integer(found.end.as_ref());
        let passed_the_goal = place.is_none() || goal.is_none_or(|goal| place >= Some(goal));
        if found.exhausted || passed_the_goal {
            let took = now.saturating_duration_since(self.sweep.began);
            self.sweep.after = None;
            self.sweep.next = now + SWEEP_WAIT.max(took * 4);
            self.sweep.began = self.sweep.next;
        } else {
            self.sweep.after = found.end;
            self.sweep.next = now + self.interval;
        }
    }

    /// Lets routes read from a place: with a cursor that is there and that they may join, else by one of their own.
    fn push(&mut self, after: Option<Mark>, routes: RouteSet, may_join: impl Fn(&Cursor) -> bool) {
        let same = |cursor: &&mut Cursor| !cursor.is_at_the_end() && cursor.after == after && may_join(cursor);
        if let Some(cursor) = self.fresh.iter_mut().find(same) {
            cursor.routes.extend(routes);
        } else {
            let number = self.next_number;
            self.next_number += 1;
            self.fresh.push(Cursor {
                number,
                after,
                routes,
                filtered: false,
                rest_until: None,
                passing: Duration::ZERO,
            });
        }
    }

    fn leave(&mut self, routes: &RouteSet) {
        for cursor in &mut self.fresh {
            cursor.routes.retain(|route| !routes.contains(route));
        }
        self.fresh.retain(|cursor| !cursor.routes.is_empty());
    }
}

fn integer(mark: Option<&Mark>) -> Option<i128> {
    mark.and_then(|mark| mark.id.as_integer())
}

/// The lower of two places; ids that do not grow with time have no order that means anything, so: the start.
fn nearest(one: Option<Mark>, other: Option<Mark>) -> Option<Mark> {
    let (first, second) = (integer(one.as_ref())?, integer(other.as_ref())?);
    if first <= second { one } else { other }
}

/// The higher of two places; the start for ids that do not grow with time.
fn furthest(one: Option<Mark>, other: Option<Mark>) -> Option<Mark> {
    match (integer(one.as_ref()), integer(other.as_ref())) {
        (Some(first), Some(second)) => {
            if first >= second {
                one
            } else {
                other
            }
        }
        (Some(_), None) if other.is_none() => one,
        (None, Some(_)) if one.is_none() => other,
        _ => None,
    }
}

#[cfg(test)]
mod tests;
