//! How is a worker woken, wherever it waits?
//!
//! Other threads put mail into the worker's mailbox; the worker takes it once per turn. While the worker waits,
//! the first mail wakes it at the place where it waits, and only there: a wake-up at another place is lost,
//! and nothing would repeat it.
//!
//! ```text
//!               park_in_driver                       park_in_runtime
//!   IN_DRIVER ◀──────────────── RUNNING ────────────────▶ IN_RUNTIME
//!       │  └──────────────────▶  ▲  ◀──────────────────────┘  │
//!       │        resume, take    │    resume, take            │
//!       │                        │ take                       │
//!       │ put: wake the          │                            │ put: wake the
//!       │ driver                 │   put                      │ runtime's task
//!       └──────────────────▶   MAIL   ◀───────────────────────┘
//! ```
//!
//! One atomic holds the state, and each arrow is one atomic step, so all threads agree on the order:
//!
//! * `put` stores the mail first and then makes the state `MAIL`. The previous state says where the worker
//!   waits, so exactly one sender wakes it, at the right place.
//! * Parking fails if there is mail: the worker must not wait then.
//! * A nudge is mail without contents. So the worker must read the state that the nudge is about after it
//!   takes the mail and before it parks: in the other order it takes the nudge, parks, and misses the change.
//! * The task to wake stays registered. A sender may be slow between its step and the wake-up; the worker may
//!   have run and parked again meanwhile, and is then woken once without need. If the slow sender *took* the
//!   task away, the next sender would find none, and the worker would sleep until the slow one continues.

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

/// Wakes a worker that waits in its driver.
pub(crate) type DriverWaker = Box<dyn Fn() + Send + Sync>;

/// The mailbox of one worker, with mail of type `M`.
pub(crate) struct HandOver<M> {
    state: AtomicU8,
    contents: Mutex<Contents<M>>,
    driver: DriverWaker,
}

#[derive(Default)]
struct Contents<M> {
    mail: M,
    /// The worker's own task, once it has waited inside a runtime.
    task: Option<Waker>,
}

impl<M: Default> HandOver<M> {
    pub(crate) fn new(driver: DriverWaker) -> Self {
        HandOver {
            state: AtomicU8::new(RUNNING),
            contents: Mutex::new(Contents::default()),
            driver,
        }
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

    /// Wakes the worker as if there were mail: a state that it reads once per turn has changed.
    pub(crate) fn nudge(&self) {
        match self.state.swap(MAIL, AcqRel) {
            IN_DRIVER => (self.driver)(),
            IN_RUNTIME => {
                // Woken outside of the lock, since a waker may be foreign code.
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
            // If this fails, mail has come, and `take` resets the state.
            let _ = self.state.compare_exchange(state, RUNNING, AcqRel, Relaxed);
        }
    }

    /// Takes the mail, if there is some, and returns whether there was. The worker does not wait any more.
    #[inline]
    pub(crate) fn take(&self, take: impl FnOnce(&mut M)) -> bool {
        let has_mail =
            self.state.load(Relaxed) != RUNNING && self.state.swap(RUNNING, AcqRel) == MAIL;
        if has_mail {
            take(&mut self.contents().mail);
        }
        has_mail
    }
}
