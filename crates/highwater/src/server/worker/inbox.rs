//! The mailbox of a worker: other threads report "this task is woken" and "this job is done".
//!
//! Wakers are used from any thread at any time; the worker takes its mail once per turn. Only the first
//! wake-up of a waiting worker costs a system call. `handover.rs` says how the worker is woken, wherever it
//! waits.
//!
//! Wake-ups of one task are merged (`woken.rs`): the mail holds a task at most once, so it is polled at
//! most once per turn, and a storm of wake-ups costs no memory.

use std::sync::Arc;
use std::task::{Wake, Waker};

use super::exchange::ExchangeId;
use super::handover::{DriverWaker, HandOver};
use super::woken::Woken;
use crate::app::{Guarded, Panic, Response};

/// The result of a job that ran elsewhere.
pub(super) struct Done {
    /// The exchange it is for.
    pub(super) exchange: ExchangeId,
    /// Which of the worker's jobs it was: the connection may have another request by now.
    pub(super) job: u64,
    /// Its handler is detached.
    pub(super) is_detached: bool,
    /// It has waited too long for a thread, and was not begun.
    pub(super) is_refused: bool,
    /// `Err` if the job panicked; `None` if it was refused, or panicked outside of the handler.
    pub(super) response: Option<Guarded<Result<Response, Panic>>>,
}

/// The mailbox of one worker.
pub(crate) struct Inbox {
    handover: HandOver<Mail>,
}

#[derive(Default)]
struct Mail {
    woken: Vec<WokenTask>,
    done: Vec<Done>,
}

/// A task out of the mail.
pub(super) struct WokenTask(Arc<TaskWaker>);

impl WokenTask {
    /// The exchange whose task is polled now: a wake-up from here on puts it into the mail again.
    pub(super) fn begin(self) -> ExchangeId {
        self.0.woken.begin();
        self.0.exchange
    }
}

impl Inbox {
    /// An empty mailbox. `driver` wakes a worker that waits in its driver.
    pub(crate) fn new(driver: DriverWaker) -> Arc<Self> {
        Arc::new(Inbox { handover: HandOver::new(driver) })
    }

    /// Reports the result of a job that ran elsewhere.
    pub(super) fn deliver(&self, done: Done) {
        self.handover.put(|mail| mail.done.push(done));
    }

    /// Wakes the worker: a state that it reads once per turn has changed.
    pub(crate) fn nudge(&self) {
        self.handover.nudge();
    }

    /// Announces that the worker is about to wait in its driver. Returns false if mail has come: it must
    /// not wait then.
    pub(crate) fn park_in_driver(&self) -> bool {
        self.handover.park_in_driver()
    }

    /// Announces that the worker is about to wait inside a runtime, as the task of `waker`, or that it goes
    /// on waiting there. Returns false if mail has come: it must not wait then.
    pub(crate) fn park_in_runtime(&self, waker: &Waker) -> bool {
        self.handover.park_in_runtime(waker)
    }

    /// The worker does not wait any more: from now on, a wake costs no system call.
    #[inline]
    pub(crate) fn resume(&self) {
        self.handover.resume();
    }

    /// Takes all mail, into vectors that are reused. Returns whether there was some.
    #[inline]
    pub(super) fn take(&self, woken: &mut Vec<WokenTask>, done: &mut Vec<Done>) -> bool {
        self.handover.take(|mail| {
            if !mail.woken.is_empty() {
                std::mem::swap(&mut mail.woken, woken);
            }
            if !mail.done.is_empty() {
                std::mem::swap(&mut mail.done, done);
            }
        })
    }

    /// A waker that makes the worker have another turn, and nothing else.
    pub(super) fn turn_waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::new(TurnWaker { inbox: Arc::clone(self) }))
    }

    /// A waker for the tasks of an exchange.
    pub(super) fn waker(self: &Arc<Self>, exchange: ExchangeId) -> Waker {
        let inbox = Arc::clone(self);
        Waker::from(Arc::new(TaskWaker { inbox, exchange, woken: Woken::new() }))
    }
}

struct TaskWaker {
    inbox: Arc<Inbox>,
    exchange: ExchangeId,
    woken: Woken,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.woken.wake() {
            let task = WokenTask(Arc::clone(self));
            self.inbox.handover.put(|mail| mail.woken.push(task));
        }
    }
}

struct TurnWaker {
    inbox: Arc<Inbox>,
}

impl Wake for TurnWaker {
    fn wake(self: Arc<Self>) {
        self.inbox.nudge();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.inbox.nudge();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Count {
        fn get(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn inbox() -> (Arc<Inbox>, Arc<Count>) {
        let wakes = Arc::new(Count::default());
        let counter = Arc::clone(&wakes);
        (Inbox::new(Box::new(move || Arc::clone(&counter).wake())), wakes)
    }

    /// The exchanges of the tasks in the mail, which begin.
    fn begun(woken: &mut Vec<WokenTask>) -> Vec<ExchangeId> {
        woken.drain(..).map(WokenTask::begin).collect()
    }

    /// Purpose: a storm of wake-ups puts a task into the mail once, and into the next mail once more if it
    /// goes on after the task began. Each wake-up once was an entry of its own: 20 million of them took
    /// 152 MiB, and as many polls.
    #[test]
    fn wake_ups_of_one_task_are_merged() {
        let (inbox, _) = inbox();
        let (mut woken, mut done) = (Vec::new(), Vec::new());
        let (one, other) = (ExchangeId::new(1, 7), ExchangeId::new(2, 7));
        let (waker, another) = (inbox.waker(one), inbox.waker(other));
        let copy = waker.clone();
        for _ in 0..2 {
            for _ in 0..100_000 {
                waker.wake_by_ref();
                copy.wake_by_ref();
            }
            another.wake_by_ref();
            inbox.take(&mut woken, &mut done);
            waker.wake_by_ref(); // It is in hand, and has not begun: its poll will see this.
            assert!(woken.capacity() < 10, "{}", woken.capacity());
            assert_eq!(begun(&mut woken), [one, other]);
        }
        inbox.take(&mut woken, &mut done);
        assert!(woken.is_empty(), "the last wake-up was before the task began");
    }

    /// Purpose: the driver is woken once for many wake-ups, and only while the worker is parked.
    #[test]
    fn one_wake_up_per_park() {
        let (inbox, wakes) = inbox();
        let (mut woken, mut done) = (Vec::new(), Vec::new());
        inbox.waker(ExchangeId::new(1, 7)).wake();
        assert!(!inbox.park_in_driver(), "mail is waiting: parking must be refused");
        inbox.take(&mut woken, &mut done);
        assert_eq!(begun(&mut woken), [ExchangeId::new(1, 7)]);
        assert!(inbox.park_in_driver());
        inbox.waker(ExchangeId::new(2, 7)).wake();
        inbox.waker(ExchangeId::new(3, 7)).wake();
        assert_eq!(wakes.get(), 1);
        inbox.take(&mut woken, &mut done);
        assert_eq!(woken.len(), 2);
        assert!(inbox.park_in_driver());
        inbox.resume();
        inbox.waker(ExchangeId::new(4, 7)).wake();
        assert_eq!(wakes.get(), 1, "the worker is awake already");
        assert!(!inbox.park_in_driver());
    }

    /// Purpose: a wake-up goes to the place where the worker waits now. It once went to the place where the
    /// worker had waited before: after the client of an async handler disconnected, reports of other threads
    /// woke the runtime while the worker waited in its driver, and were handled seconds later.
    #[test]
    fn the_place_is_never_an_old_one() {
        let (inbox, wakes) = inbox();
        let task = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&task));
        let (mut woken, mut done) = (Vec::new(), Vec::new());
        assert!(inbox.park_in_runtime(&waker));
        // The client disconnects: the worker wakes, and nothing is left to wait for in the runtime.
        inbox.take(&mut woken, &mut done);
        assert!(inbox.park_in_driver());
        inbox.waker(ExchangeId::new(1, 1)).wake();
        assert_eq!((wakes.get(), task.0.load(Ordering::SeqCst)), (1, 0));
        inbox.take(&mut woken, &mut done);
        assert!(inbox.park_in_runtime(&waker) && inbox.park_in_runtime(&waker));
        inbox.nudge();
        assert_eq!((wakes.get(), task.0.load(Ordering::SeqCst)), (1, 1));
        assert!(!inbox.park_in_runtime(&waker));
    }
}
