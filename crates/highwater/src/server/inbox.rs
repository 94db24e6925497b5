//! What reaches a worker from elsewhere: "this task can go on", "this job is done".
//!
//! Wakers are used from any thread at any time; the worker looks once a turn. A wake costs a system
//! call only if the worker waits, and only the first one does. How the worker is woken, wherever it
//! waits, is the subject of `handover.rs`.

use std::sync::Arc;
use std::task::{Wake, Waker};

use super::handover::{Bell, HandOver};
use crate::app::{Guarded, Panic, Response};

/// Names one use of a slot: slot index in the low half, generation in the high half. A token never
/// comes back, so a late wake-up cannot reach a connection that is not its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Token(pub(crate) u64);

impl Token {
    pub(crate) fn new(index: usize, generation: u32) -> Self {
        Token(u64::from(generation) << 32 | index as u64)
    }

    pub(crate) fn index(self) -> usize {
        self.0 as u32 as usize
    }
}

/// The result of a job that ran elsewhere.
pub(crate) struct Done {
    /// The connection it is for.
    pub(crate) token: Token,
    /// Which of the worker's jobs it was: the connection may have another request by now.
    pub(crate) job: u64,
    /// `Err` if the job panicked; `None` if it did outside of the handler.
    pub(crate) response: Option<Guarded<Result<Response, Panic>>>,
}

/// The mailbox of one worker.
pub(crate) struct Inbox {
    handover: HandOver<Mail>,
}

#[derive(Default)]
struct Mail {
    woken: Vec<Token>,
    done: Vec<Done>,
}

impl Inbox {
    /// An empty one. `bell` ends a wait in the worker's driver.
    pub(crate) fn new(bell: Bell) -> Arc<Self> {
        Arc::new(Inbox { handover: HandOver::new(bell) })
    }

    /// Reports the result of a job that ran elsewhere.
    pub(crate) fn deliver(&self, done: Done) {
        self.handover.put(|mail| mail.done.push(done));
    }

    fn wake(&self, token: Token) {
        self.handover.put(|mail| mail.woken.push(token));
    }

    /// Makes the worker look up: something it looks at once a turn has changed.
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

    /// Takes all mail, into vectors that are reused.
    pub(crate) fn take(&self, woken: &mut Vec<Token>, done: &mut Vec<Done>) {
        self.handover.take(|mail| {
            if !mail.woken.is_empty() {
                std::mem::swap(&mut mail.woken, woken);
            }
            if !mail.done.is_empty() {
                std::mem::swap(&mut mail.done, done);
            }
        });
    }

    /// A waker for the task of `token`.
    pub(crate) fn waker(self: &Arc<Self>, token: Token) -> Waker {
        Waker::from(Arc::new(TaskWaker { inbox: Arc::clone(self), token }))
    }
}

struct TaskWaker {
    inbox: Arc<Inbox>,
    token: Token,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.inbox.wake(self.token);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.inbox.wake(self.token);
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
        let rings = Arc::new(Count::default());
        let counter = Arc::clone(&rings);
        (Inbox::new(Box::new(move || Arc::clone(&counter).wake())), rings)
    }

    /// Purpose: the bell rings once for many wakes, and only while the worker is parked.
    #[test]
    fn one_ring_per_park() {
        let (inbox, rings) = inbox();
        let (mut woken, mut done) = (Vec::new(), Vec::new());
        inbox.waker(Token::new(1, 7)).wake();
        assert!(!inbox.park_in_driver(), "mail is waiting: parking must be refused");
        inbox.take(&mut woken, &mut done);
        assert_eq!(woken, [Token::new(1, 7)]);
        woken.clear();
        assert!(inbox.park_in_driver());
        inbox.waker(Token::new(2, 7)).wake();
        inbox.waker(Token::new(3, 7)).wake();
        assert_eq!(rings.get(), 1);
        inbox.take(&mut woken, &mut done);
        assert_eq!(woken.len(), 2);
        assert!(inbox.park_in_driver());
        inbox.resume();
        inbox.waker(Token::new(4, 7)).wake();
        assert_eq!(rings.get(), 1, "it is awake: nobody has to wake it");
        assert!(!inbox.park_in_driver());
    }

    /// Purpose: a wake-up goes to the place where the worker waits now. It once went to where the worker
    /// had waited before: after a client hung up on an async handler, whatever other threads reported was
    /// told to a runtime that slept inside its driver, and heard seconds later.
    #[test]
    fn the_place_is_never_an_old_one() {
        let (inbox, rings) = inbox();
        let task = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&task));
        let (mut woken, mut done) = (Vec::new(), Vec::new());
        assert!(inbox.park_in_runtime(&waker));
        // The client hangs up: the worker looks up, and nothing is left to wait for in the runtime.
        inbox.take(&mut woken, &mut done);
        assert!(inbox.park_in_driver());
        inbox.waker(Token::new(1, 1)).wake();
        assert_eq!((rings.get(), task.0.load(Ordering::SeqCst)), (1, 0));
        inbox.take(&mut woken, &mut done);
        assert!(inbox.park_in_runtime(&waker) && inbox.park_in_runtime(&waker));
        inbox.nudge();
        assert_eq!((rings.get(), task.0.load(Ordering::SeqCst)), (1, 1));
        assert!(!inbox.park_in_runtime(&waker));
    }
}
