//! The hand-over between a worker and other threads, run in every possible interleaving.
//!
//! Loom does that, with its own locks and atomics in place of the standard ones. The module under
//! test imports them from `super::sync`, so it is compiled here once more, with the `sync` below.
#![forbid(unsafe_code)]
#![allow(dead_code, unreachable_pub)] // the module serves more than this test

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}
#[path = "../src/server/worker/handover.rs"]
mod handover;
#[path = "../src/server/worker/woken.rs"]
mod woken;

use handover::HandOver;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use std::task::{Wake, Waker};
use woken::Woken;

/// A place to wait at. A wake-up that comes before the wait ends it, as drivers and runtimes promise.
struct Place {
    is_woken: Mutex<bool>,
    changed: Condvar,
}

impl Place {
    fn new() -> Arc<Self> {
        Arc::new(Place { is_woken: Mutex::new(false), changed: Condvar::new() })
    }

    fn wake(&self) {
        *self.is_woken.lock().expect("no holder panics") = true;
        self.changed.notify_one();
    }

    /// Returns when it was woken, and not before: loom reports a thread that waits for ever.
    fn wait(&self) {
        let mut is_woken = self.is_woken.lock().expect("no holder panics");
        while !*is_woken {
            is_woken = self.changed.wait(is_woken).expect("no holder panics");
        }
        *is_woken = false;
    }

    /// What a wait does that ends for another reason: a byte has come, or a deadline.
    fn look(&self) {
        *self.is_woken.lock().expect("no holder panics") = false;
    }
}

/// Wakes the task that waits at a place. (Reference counts are not what is modelled: they are those of
/// the standard library.)
struct Task(Arc<Place>);

impl Wake for Task {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.wake();
    }
}

/// What the worker does between two looks at its mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Waits in its driver until it is woken.
    InDriver,
    /// Waits in a runtime until it is woken.
    InRuntime,
    /// Parks in its driver, and a byte comes at once.
    ByteInDriver,
    /// The same in a runtime.
    ByteInRuntime,
    /// Has so much to do that it does not wait.
    Busy,
}

use Step::{Busy, ByteInDriver, ByteInRuntime, InDriver, InRuntime};

struct Model {
    handover: HandOver<Vec<u8>>,
    driver: Arc<Place>,
    runtime: Arc<Place>,
    /// What the worker looks at once a turn, and what a nudge makes it look at.
    phase: AtomicBool,
}

impl Model {
    fn new() -> Arc<Self> {
        let (driver, runtime) = (Place::new(), Place::new());
        let waker = Arc::clone(&driver);
        let handover = HandOver::new(Box::new(move || waker.wake()));
        Arc::new(Model { handover, driver, runtime, phase: AtomicBool::new(false) })
    }

    /// The worker, until it has received `letters` and, if `phase`, the new phase. It goes through `steps`
    /// first; then it waits here and there by turns.
    fn work(&self, steps: &[Step], letters: usize, phase: bool) {
        let task = Waker::from(std::sync::Arc::new(Task(Arc::clone(&self.runtime))));
        let later = [InDriver, InRuntime].iter().cycle();
        let mut received = Vec::new();
        for step in steps.iter().chain(later) {
            // In this order, as `handover.rs` demands; the other one, which the worker once had inside a
            // runtime, sleeps on a nudge.
            self.handover.take(|mail| received.append(mail));
            let phase_received = !phase || self.phase.load(Relaxed);
            if received.len() == letters && phase_received {
                return;
            }
            match step {
                InDriver if self.handover.park_in_driver() => self.driver.wait(),
                ByteInDriver if self.handover.park_in_driver() => self.driver.look(),
                InRuntime if self.handover.park_in_runtime(&task) => self.runtime.wait(),
                ByteInRuntime if self.handover.park_in_runtime(&task) => self.runtime.look(),
                _ => {}
            }
            // A worker that was not woken says that it is awake.
            self.handover.resume();
        }
    }
}

/// What another thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Says that a task can go on.
    Wake,
    /// Reports the result of a job.
    Deliver,
    /// Changes what the worker looks at once a turn, and has it look.
    Nudge,
}

use Act::{Deliver, Nudge, Wake as WakeTask};

impl Act {
    fn run(self, model: &Model) {
        match self {
            Act::Wake => model.handover.put(|mail| mail.push(1)),
            Act::Deliver => model.handover.put(|mail| mail.push(2)),
            Act::Nudge => {
                model.phase.store(true, Relaxed);
                model.handover.nudge();
            }
        }
    }
}

/// Runs the worker through `steps` while other threads do `acts`, one each.
fn check(steps: &'static [Step], acts: &'static [Act]) {
    let mut model = loom::model::Builder::new();
    // Beyond these preemptions the orders multiply and hardly ever show anything new.
    model.preemption_bound = Some(if acts.len() == 1 { 3 } else { 2 });
    model.check(move || {
        let model = Model::new();
        let act = |&act: &Act| {
            let model = Arc::clone(&model);
            thread::spawn(move || act.run(&model))
        };
        let others: Vec<_> = acts.iter().map(act).collect();
        let letters = acts.iter().filter(|&&act| act != Nudge).count();
        model.work(steps, letters, acts.contains(&Nudge));
        for other in others {
            other.join().expect("it does not panic");
        }
    });
}

/// Every way to have waited before, and every place to wait at now. All end in a wait that only a
/// wake-up can end.
const HISTORIES: [&[Step]; 10] = [
    &[InDriver],
    &[InRuntime],
    &[ByteInDriver, InDriver],
    &[ByteInDriver, InRuntime],
    &[ByteInRuntime, InDriver],
    &[ByteInRuntime, InRuntime],
    &[ByteInRuntime, ByteInDriver, InDriver],
    &[ByteInRuntime, ByteInDriver, InRuntime],
    &[Busy, InDriver],
    &[ByteInRuntime, Busy, InDriver],
];

/// Purpose: one wake-up is never lost, wherever the worker waits and wherever it has waited before. In
/// the mailbox before this one, a worker that had once waited in the runtime was woken there while it
/// waited in its driver.
#[test]
fn a_wake_up_is_never_lost() {
    for steps in HISTORIES {
        check(steps, &[WakeTask]);
        check(steps, &[Nudge]);
    }
}

/// Purpose: the same for several wake-ups at once: of a task, of a result, and of the worker
/// itself.
#[test]
fn no_wake_up_hides_another() {
    for steps in [HISTORIES[0], HISTORIES[1], HISTORIES[4]] {
        check(steps, &[WakeTask, Deliver]);
        check(steps, &[Deliver, Nudge]);
    }
}

/// Purpose: a waking thread may be slow between two steps. The worker may have been woken by
/// another thread, have run and have parked in the other place in the meantime, and a third thread
/// still wakes it.
#[test]
fn slow_wakers_take_nothing_away() {
    check(&[InRuntime, InRuntime], &[WakeTask, Deliver, Nudge]);
}

/// Purpose: merged wake-ups lose nothing: whatever a thread did before it woke the task is seen by a
/// poll that follows, although most wake-ups put nothing into the mail. The worker has no other reason to
/// poll, so a lost wake-up is a wait without end.
#[test]
fn merged_wake_ups_lose_nothing() {
    for (threads, each, preemptions) in [(1, 2, 3), (2, 1, 3), (2, 2, 2)] {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let model = Model::new();
            let (flag, sent) = (Arc::new(Woken::new()), Arc::new(AtomicUsize::new(0)));
            let senders: Vec<_> = (0..threads)
                .map(|_| {
                    let (model, flag) = (Arc::clone(&model), Arc::clone(&flag));
                    let sent = Arc::clone(&sent);
                    thread::spawn(move || {
                        for _ in 0..each {
                            sent.fetch_add(1, Relaxed);
                            if flag.wake() {
                                model.handover.put(|mail| mail.push(1));
                            }
                        }
                    })
                })
                .collect();
            let (mut mail, mut polls, mut seen) = (Vec::new(), 0, 0);
            while seen < threads * each {
                model.handover.take(|new| mail.append(new));
                assert!(mail.len() <= 1, "one task is in the mail once");
                for _ in mail.drain(..) {
                    flag.begin();
                    seen = sent.load(Relaxed);
                    polls += 1;
                }
                if seen < threads * each && model.handover.park_in_driver() {
                    model.driver.wait();
                }
                model.handover.resume();
            }
            assert!(polls <= threads * each);
            for sender in senders {
                sender.join().expect("it does not panic");
            }
        });
    }
}
