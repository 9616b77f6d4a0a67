//! The life of the process: owns every task, notices when one breaks, and stops all of them in order.
//!
//! A stop has two phases. The soft one cancels [`Lifecycle::stopping`]: tasks fetch nothing more, settle what is in flight and
//! end. The hard one comes with a second signal or when the time is over: tasks are dropped where they stand, which costs at
//! most duplicates of what was in flight.

use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    future::Future,
    io::{self, Write},
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::FutureExt;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{Level, error, info, warn};

use crate::units::Span;

/// Owns the tasks of a process. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Lifecycle {
    tracker: TaskTracker,
    stopping: CancellationToken,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Names of the tasks that run, by the order in which they were started.
    running: BTreeMap<u64, String>,
    started: u64,
    /// The first thing that went wrong: what comes after it is mostly its consequence.
    fault: Option<String>,
}

/// How the process came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All tasks came to their end.
    Finished,
    /// A task panicked or ended with an error.
    Fault(String),
    /// Tasks were still running when the time was over; these.
    TimedOut(Vec<String>),
    /// A second signal asked for the end at once.
    Aborted(Signal),
}

/// What asks the process to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Interrupt,
    Terminate,
}

impl Signal {
    /// The number that shells add to 128 for a process that a signal ended.
    pub fn number(self) -> u8 {
        match self {
            Self::Interrupt => 2,
            Self::Terminate => 15,
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        })
    }
}

/// The signals that arrive. Tests make their own.
pub type Signals = mpsc::UnboundedReceiver<Signal>;

/// Starts to listen for SIGTERM and SIGINT. From here on neither ends the process by itself, not even as process 1, to which
/// the kernel delivers only signals that it listens for.
///
/// # Errors
/// The system refuses the handlers.
pub fn listen() -> io::Result<Signals> {
    let (sender, signals) = mpsc::unbounded_channel();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let forward = async move {
        loop {
            let signal = tokio::select! {
                Some(()) = terminate.recv() => Signal::Terminate,
                Some(()) = interrupt.recv() => Signal::Interrupt,
                else => return,
            };
            if sender.send(signal).is_err() {
                return;
            }
        }
    };
    #[expect(clippy::disallowed_methods, reason = "the module that owns all tasks; this one has nothing to settle")]
    drop(tokio::spawn(forward));
    Ok(signals)
}

impl Lifecycle {
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancelled when tasks should come to their end.
    pub fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// Asks all tasks to come to their end.
    pub fn stop(&self) {
        self.stopping.cancel();
    }

    /// Starts a task. If it panics or ends with an error, the whole process stops in order and the fault is what
    /// [`Lifecycle::finish`] returns.
    pub fn spawn(&self, name: impl Into<String>, task: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
        let name = name.into();
        let number = self.enter(&name);
        let life = self.clone();
        self.tracker.spawn(async move {
            let fault = match AssertUnwindSafe(task).catch_unwind().await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(format!("{name}: {error:#}")),
                Err(panic) => Some(format!("{name} panicked: {}", panic_words(panic.as_ref()))),
            };
            life.leave(number, fault);
        });
    }

    /// Waits until all tasks have ended, by themselves, after [`Lifecycle::stop`], a fault or a signal; from the moment of
    /// the stop for `shutdown_timeout` at most. No task may be started from outside after this.
    pub async fn finish(&self, signals: &mut Signals, shutdown_timeout: Span) -> Ending {
        self.tracker.close();
        tokio::select! {
            () = self.tracker.wait() => return self.ended(),
            () = self.stopping.cancelled() => {}
            Some(signal) = signals.recv() => {
                info!(%signal, timeout = %shutdown_timeout, "stopping: settling what is in flight");
                self.stop();
            }
        }
        tokio::select! {
            // A task that ends at the last moment has ended in time.
            biased;
            () = self.tracker.wait() => self.ended(),
            Some(signal) = signals.recv() => {
                warn!(%signal, "second signal: stopping at once");
                Ending::Aborted(signal)
            }
            () = sleep(shutdown_timeout.0) => {
                let tasks: Vec<String> = self.state().running.values().cloned().collect();
                warn!(timeout = %shutdown_timeout, tasks = tasks.join(", "), "the time to stop is over");
                self.state().fault.clone().map_or(Ending::TimedOut(tasks), Ending::Fault)
            }
        }
    }

    fn ended(&self) -> Ending {
        self.state().fault.clone().map_or(Ending::Finished, Ending::Fault)
    }

    fn enter(&self, name: &str) -> u64 {
        let mut state = self.state();
        state.started += 1;
        let number = state.started;
        state.running.insert(number, name.to_owned());
        number
    }

    fn leave(&self, number: u64, fault: Option<String>) {
        let mut state = self.state();
        state.running.remove(&number);
        if let Some(fault) = fault {
            error!(%fault, "a task broke: stopping");
            state.fault.get_or_insert(fault);
            self.stop();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets a panic be a line of the log like any other: where it happened, and what it says as far as that can hold no data.
pub fn log_panics() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let words = panic_words(info.payload());
        if tracing::enabled!(Level::ERROR) {
            error!(place, panic = words, "a panic");
        } else {
            // Before logging has begun. That it cannot be written can be said nowhere.
            drop(writeln!(io::stderr(), "outbill: a panic at {place}: {words}"));
        }
    }));
}

/// What a panic says, as far as it is safe to repeat: a formatted message may hold row data (slicing a text prints it).
fn panic_words(panic: &(dyn Any + Send)) -> &'static str {
    panic.downcast_ref::<&'static str>().copied().unwrap_or("(the message is not shown, it may hold data)")
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use tokio::sync::oneshot;

    use super::*;

    const TIMEOUT: Span = Span(Duration::from_secs(25));

    fn life() -> (Lifecycle, mpsc::UnboundedSender<Signal>, Signals) {
        let (sender, signals) = mpsc::unbounded_channel();
        (Lifecycle::new(), sender, signals)
    }

    #[tokio::test(start_paused = true)]
    async fn it_finishes_when_the_last_task_has_ended_by_itself() {
        let (life, _sender, mut signals) = life();
        life.spawn("short", async { Ok(()) });
        life.spawn("long", async {
            sleep(Duration::from_hours(1)).await;
            Ok(())
        });
        assert_eq!(life.finish(&mut signals, TIMEOUT).await, Ending::Finished);
    }

    #[tokio::test(start_paused = true)]
    async fn a_signal_lets_tasks_settle_what_they_have() {
        let (life, sender, mut signals) = life();
        let stopping = life.stopping();
        let (settled, was_settled) = oneshot::channel();
        life.spawn("relay", async move {
            stopping.cancelled().await;
            sleep(Duration::from_secs(24)).await;
            settled.send(()).map_err(|()| anyhow::anyhow!("nobody asked"))
        });
        sender.send(Signal::Terminate).unwrap();
        assert_eq!(life.finish(&mut signals, TIMEOUT).await, Ending::Finished);
        was_settled.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_does_not_stop_is_named_when_the_time_is_over() {
        let (life, sender, mut signals) = life();
        life.spawn("sink rabbit", pending());
        life.spawn("relay", async { Ok(()) });
        sender.send(Signal::Terminate).unwrap();
        let begun = tokio::time::Instant::now();
        assert_eq!(life.finish(&mut signals, TIMEOUT).await, Ending::TimedOut(vec!["sink rabbit".to_owned()]));
        assert_eq!(begun.elapsed(), TIMEOUT.0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_ends_it_at_once() {
        let (life, sender, mut signals) = life();
        life.spawn("stuck", pending());
        sender.send(Signal::Interrupt).unwrap();
        sender.send(Signal::Terminate).unwrap();
        let begun = tokio::time::Instant::now();
        assert_eq!(life.finish(&mut signals, TIMEOUT).await, Ending::Aborted(Signal::Terminate));
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_or_an_error_stops_the_others_in_order() {
        for (name, expected) in [("panics", "panics panicked: on purpose"), ("fails", "fails: cannot: reason")] {
            let (life, _sender, mut signals) = life();
            let stopping = life.stopping();
            life.spawn("other", async move {
                stopping.cancelled().await;
                sleep(Duration::from_secs(1)).await;
                Ok(())
            });
            life.spawn(name, async move {
                assert!(name != "panics", "on purpose");
                Err(anyhow::anyhow!("reason").context("cannot"))
            });
            let begun = tokio::time::Instant::now();
            assert_eq!(life.finish(&mut signals, TIMEOUT).await, Ending::Fault(expected.to_owned()));
            assert_eq!(begun.elapsed(), Duration::from_secs(1), "the other task settled first");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_formatted_panic_message_is_not_repeated() {
        let (life, _sender, mut signals) = life();
        let payload = "row-data-é".to_owned();
        life.spawn("task", async move {
            anyhow::ensure!(!payload[..10].is_empty(), "cut inside a character");
            Ok(())
        });
        let Ending::Fault(fault) = life.finish(&mut signals, TIMEOUT).await else { panic!("no fault") };
        assert!(!fault.contains("row-data"), "{fault}");
    }
}
