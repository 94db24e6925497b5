//! How is a worker made to look up, wherever it waits?
//!
//! Other threads put mail into the worker's box; the worker takes it once a turn. While the worker
//! waits, the first mail wakes it at the place where it waits, and only there: a wake-up that goes to
//! another place is lost, and nothing would repeat it.
//!
//! ```text
//!               park_in_driver                       park_in_runtime
//!   IN_DRIVER ◀──────────────── RUNNING ────────────────▶ IN_RUNTIME
//!       │  └──────────────────▶  ▲  ◀──────────────────────┘  │
//!       │        resume, take    │    resume, take            │
//!       │                        │ take                       │
//!       │ put: ring the          │                            │ put: wake the
//!       │ driver's bell          │   put                      │ runtime's task
//!       └──────────────────▶   MAIL   ◀───────────────────────┘
//! ```
//!
//! One atomic holds the state, and each arrow is one atomic step, so all threads agree on the order:
//!
//! * `put` stores the mail first and then makes the state `MAIL`. The state before says where the worker
//!   waits, so exactly one of those who put wakes it, and at the right place.
//! * Parking fails if there is mail: the worker must not wait then.
//! * A nudge is mail without contents. So what it is about has to be looked at after the mail is taken and
//!   before the worker parks: in the other order the worker takes the nudge, and sleeps on it.
//! * The task to wake stays registered. One who puts may be slow between its step and the wake-up; the
//!   worker may have run and parked again meanwhile, and then it is woken once for nothing. If the slow
//!   one *took* the task away, the next one would find none, and the worker would sleep until the slow one
//!   goes on.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::task::Waker;

use super::sync::{AtomicU8, Mutex, MutexGuard};

/// The worker is awake, and there is no mail.
const RUNNING: u8 = 0;
/// There is mail, and the worker is awake or has been woken for it.
const MAIL: u8 = 1;
/// The worker waits in its driver, or is about to.
const IN_DRIVER: u8 = 2;
/// The worker waits inside a runtime, or is about to.
const IN_RUNTIME: u8 = 3;

/// How a worker is woken that waits in its driver.
pub(crate) type Bell = Box<dyn Fn() + Send + Sync>;

/// The box of one worker for mail of type `M`.
pub(crate) struct HandOver<M> {
    state: AtomicU8,
    contents: Mutex<Contents<M>>,
    bell: Bell,
}

#[derive(Default)]
struct Contents<M> {
    mail: M,
    /// The worker's own task, once it has waited inside a runtime.
    task: Option<Waker>,
}

impl<M: Default> HandOver<M> {
    pub(crate) fn new(bell: Bell) -> Self {
        HandOver { state: AtomicU8::new(RUNNING), contents: Mutex::new(Contents::default()), bell }
    }

    fn contents(&self) -> MutexGuard<'_, Contents<M>> {
        // Nothing panics while it holds the lock.
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to the mail, and wakes the worker if it waits.
    pub(crate) fn put(&self, add: impl FnOnce(&mut M)) {
        add(&mut self.contents().mail);
        self.nudge();
    }

    /// Makes the worker look up as if there were mail: something it looks at once a turn has changed.
    pub(crate) fn nudge(&self) {
        match self.state.swap(MAIL, AcqRel) {
            IN_DRIVER => (self.bell)(),
            IN_RUNTIME => {
                // Woken outside of the lock, since a waker is code of others.
                let task = self.contents().task.clone();
                task.expect("a worker registers its task before it parks in a runtime").wake();
            }
            _ => {}
        }
    }

    /// Announces that the worker is about to wait in its driver. Returns false if there is mail: it must
    /// not wait then.
    pub(crate) fn park_in_driver(&self) -> bool {
        self.park(IN_DRIVER)
    }

    /// Announces that the worker is about to wait inside a runtime, as the task of `waker`, or that it goes
    /// on waiting there. Returns false if there is mail: it must not wait then.
    pub(crate) fn park_in_runtime(&self, waker: &Waker) -> bool {
        {
            let mut contents = self.contents();
            match &mut contents.task {
                Some(task) => task.clone_from(waker),
                task => *task = Some(waker.clone()),
            }
        }
        self.park(IN_RUNTIME)
    }

    fn park(&self, place: u8) -> bool {
        let unless_mail = |state| (state != MAIL).then_some(place);
        self.state.fetch_update(AcqRel, Relaxed, unless_mail).is_ok()
    }

    /// The worker does not wait any more. Mail stays where it is until it is taken.
    #[inline]
    pub(crate) fn resume(&self) {
        let state = self.state.load(Relaxed);
        if state == IN_DRIVER || state == IN_RUNTIME {
            // If this fails there is mail by now, which is as good.
            let _ = self.state.compare_exchange(state, RUNNING, AcqRel, Relaxed);
        }
    }

    /// Takes the mail, if there is some. The worker does not wait any more.
    #[inline]
    pub(crate) fn take(&self, take: impl FnOnce(&mut M)) {
        if self.state.load(Relaxed) != RUNNING && self.state.swap(RUNNING, AcqRel) == MAIL {
            take(&mut self.contents().mail);
        }
    }
}
