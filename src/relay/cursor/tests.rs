use super::*;
use crate::bill::BillId;

const INTERVAL: Duration = Duration::from_millis(200);

fn mark(id: i128) -> Mark {
    Mark { next_retry_time: None, id: BillId::Integer(id) }
}

fn page(end: i128, exhausted: bool) -> Found {
    Found { end: Some(mark(end)), exhausted, ..Found::default() }
}

fn all() -> RouteSet {
    RouteSet::from([0, 1])
}

/// The next fresh step; due steps are answered with an empty queue.
fn fresh(cursors: &mut Cursors, now: Instant, ready: &RouteSet) -> Option<Step> {
    loop {
        let step = cursors.next(now, ready)?;
        if matches!(step.source, Source::Fresh(_)) {
            return Some(step);
        }
        cursors.found(&step, Found { exhausted: true, ..Found::default() }, now);
    }
}

#[tokio::test(start_paused = true)]
async fn a_route_that_falls_behind_reads_on_from_its_place_and_meets_the_others_at_the_end() {
    let now = Instant::now();
    let mut cursors = Cursors::new(2, INTERVAL, now);
    let step = fresh(&mut cursors, now, &all()).unwrap();
    assert_eq!((&step.after, &step.routes), (&None, &all()));
    let behind = vec![(1, Some(mark(4)))];
    cursors.found(&step, Found { behind, ..page(10, false) }, now);

    let ready = RouteSet::from([0]);
    let step = fresh(&mut cursors, now, &ready).unwrap();
    assert_eq!((&step.after, &step.routes), (&Some(mark(10)), &ready));
    cursors.found(&step, page(20, true), now);
    assert!(fresh(&mut cursors, now, &ready).is_none(), "the end rests for an interval");

    let step = fresh(&mut cursors, now, &all()).unwrap();
    assert_eq!((&step.after, &step.routes), (&Some(mark(4)), &RouteSet::from([1])));
    cursors.found(&step, page(22, true), now);
    tokio::time::advance(INTERVAL).await;
    let step = fresh(&mut cursors, Instant::now(), &all()).unwrap();
    assert_eq!(step.routes, all());
    assert_eq!(cursors.fresh.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_route_that_is_not_ready_stays_at_its_place_while_others_read_on() {
    let now = Instant::now();
    let mut cursors = Cursors::new(2, INTERVAL, now);
    let ready = RouteSet::from([0]);
    for round in 1..=3 {
        let step = fresh(&mut cursors, now, &ready).unwrap();
        assert_eq!(step.routes, ready);
        cursors.found(&step, page(10 * round, false), now);
    }
    let steps = [fresh(&mut cursors, now, &all()).unwrap(), fresh(&mut cursors, now, &all()).unwrap()];
    assert!(
        steps.iter().any(|step| step.after.is_none() && step.routes == RouteSet::from([1])),
        "nobody has read for route 1 yet: {steps:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_route_that_restarts_while_a_page_is_read_does_not_miss_that_page() {
    let now = Instant::now();
    let mut cursors = Cursors::new(2, INTERVAL, now);
    cursors.restart(RouteSet::from([0]));
    let ready = RouteSet::from([0]);
    let step = fresh(&mut cursors, now, &ready).unwrap();
    assert_eq!((&step.after, &step.routes), (&None, &ready));
    cursors.restart(RouteSet::from([1]));
    cursors.found(&step, page(10, false), now);
    let steps = [fresh(&mut cursors, now, &all()).unwrap(), fresh(&mut cursors, now, &all()).unwrap()];
    assert!(
        steps.iter().any(|step| step.after.is_none() && step.routes == RouteSet::from([1])),
        "the page was read for route 0 alone: {steps:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn reading_at_the_end_begins_where_the_end_was_a_short_while_ago() {
    let mut now = Instant::now();
    let mut cursors = Cursors::new(2, INTERVAL, now);
    let mut starts = Vec::new();
    for round in 1..=40 {
        let step = fresh(&mut cursors, now, &all()).unwrap();
        starts.push(step.after.as_ref().map(|mark| mark.id.as_integer().unwrap()));
        cursors.found(&step, page(round * 100, true), now);
        tokio::time::advance(INTERVAL).await;
        now = Instant::now();
    }
    assert_eq!(starts[0], None);
    assert!(starts[1..15].iter().all(|start| *start == Some(100)), "not before the end was first reached: {starts:?}");
    let last = starts.last().unwrap().unwrap();
    let rounds_back = 40 - last / 100;
    assert!((15..=18).contains(&rounds_back), "{rounds_back} rounds of 200 ms make about three seconds");
}

#[tokio::test(start_paused = true)]
async fn the_sweep_goes_over_what_was_passed_and_then_rests() {
    let mut now = Instant::now();
    let mut cursors = Cursors::new(1, INTERVAL, now);
    let step = fresh(&mut cursors, now, &RouteSet::from([0])).unwrap();
    cursors.found(&step, page(1_000, true), now);
    tokio::time::advance(SWEEP_WAIT).await;
    now = Instant::now();
    let mut sweeps = Vec::new();
    for _ in 0..60 {
        while let Some(step) = cursors.next(now, &RouteSet::from([0])) {
            let found = match step.source {
                Source::Sweep => {
                    sweeps.push(step.after.clone());
                    let end = 400 * i128::try_from(sweeps.len()).unwrap();
                    page(end, false)
                }
                Source::Fresh(_) => page(1_000, true),
                Source::Due => Found { exhausted: true, ..Found::default() },
            };
            cursors.found(&step, found, now);
        }
        tokio::time::advance(INTERVAL).await;
        now = Instant::now();
        if sweeps.len() == 3 {
            break;
        }
    }
    assert_eq!(sweeps, [None, Some(mark(400)), Some(mark(800))]);
    let next = cursors.sweep.next.saturating_duration_since(now);
    assert!(next + 2 * INTERVAL > SWEEP_WAIT, "passed 1000: the round is over, {next:?}");
}

#[tokio::test(start_paused = true)]
async fn ids_that_do_not_grow_with_time_are_read_from_the_start_each_round() {
    let now = Instant::now();
    let mut cursors = Cursors::new(1, INTERVAL, now);
    let ready = RouteSet::from([0]);
    let text = |id: &str| Mark { next_retry_time: None, id: BillId::Text(id.into()) };
    let step = fresh(&mut cursors, now, &ready).unwrap();
    cursors.found(&step, Found { end: Some(text("m")), ..Found::default() }, now);
    let step = fresh(&mut cursors, now, &ready).unwrap();
    assert_eq!(step.after, Some(text("m")), "within a round the place counts");
    cursors.found(&step, Found { end: Some(text("z")), exhausted: true, ..Found::default() }, now);
    tokio::time::advance(INTERVAL).await;
    let step = fresh(&mut cursors, Instant::now(), &ready).unwrap();
    assert_eq!(step.after, None);
}

#[tokio::test(start_paused = true)]
async fn a_queue_full_of_others_bills_is_not_gone_over_all_the_time() {
    let mut now = Instant::now();
    let began = now;
    let mut cursors = Cursors::new(1, INTERVAL, now);
    let ready = RouteSet::from([0]);
    let (mut busy, mut rounds) = (Duration::ZERO, 0);
    while now < began + Duration::from_mins(1) {
        if let Some(step) = cursors.next(now, &ready) {
            let is_due = step.queue == Queue::Due;
            // A hundred pages of a million due bills of others; nothing is fresh.
            let takes = if is_due { Duration::from_millis(10) } else { Duration::ZERO };
            busy += takes;
            tokio::time::advance(takes).await;
            now = Instant::now();
            let end = step.after.as_ref().and_then(|mark| mark.id.as_integer()).unwrap_or(0) + 1;
            let exhausted = !is_due || end == 100;
            rounds += u32::from(is_due && exhausted);
            let end = is_due.then(|| mark(end));
            cursors.found(&step, Found { end, exhausted, foreign: is_due, ..Found::default() }, now);
        } else {
            tokio::time::advance(Duration::from_millis(10)).await;
            now = Instant::now();
        }
    }
    assert!(busy < Duration::from_secs(25), "busy for {busy:?} of a minute");
    assert!(rounds >= 15, "{rounds} rounds: due bills behind them are still found soon");
}

#[tokio::test(start_paused = true)]
async fn fresh_and_due_bills_take_turns() {
    let now = Instant::now();
    let mut cursors = Cursors::new(1, INTERVAL, now);
    let ready = RouteSet::from([0]);
    let mut queues = Vec::new();
    for round in 1..=6 {
        let step = cursors.next(now, &ready).unwrap();
        queues.push(step.queue);
        cursors.found(&step, page(round, false), now);
    }
    assert_eq!(queues.iter().filter(|queue| **queue == Queue::Due).count(), 3);
}
