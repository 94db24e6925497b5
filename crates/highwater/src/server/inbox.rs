//! What reaches a worker from elsewhere: "this task can go on", "this job is done".
//!
//! Wakers are used from any thread at any time; the worker looks once a turn. A wake costs a system
//! call only if the worker is parked, and only the first one does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

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
    /// `Err` if the job panicked.
    pub(crate) response: Guarded<Result<Response, Panic>>,
}

/// How a parked worker is woken.
pub(crate) type Bell = Box<dyn Fn() + Send + Sync>;

/// The mailbox of one worker.
pub(crate) struct Inbox {
    mail: Mutex<Mail>,
    /// There may be mail. Set after it was put there, cleared before it is taken.
    has_mail: AtomicBool,
    parked: AtomicBool,
    bell: Bell,
}

#[derive(Default)]
struct Mail {
    woken: Vec<Token>,
    done: Vec<Done>,
    /// The worker's own task, while it is parked inside a runtime instead of its driver.
    parked_in: Option<Waker>,
}

impl Inbox {
    pub(crate) fn new(bell: Bell) -> Arc<Self> {
        Arc::new(Inbox {
            mail: Mutex::default(),
            has_mail: AtomicBool::new(false),
            parked: AtomicBool::new(false),
            bell,
        })
    }

    fn mail(&self) -> MutexGuard<'_, Mail> {
        // Nothing in here panics while it holds the lock.
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports the result of a job that ran elsewhere.
    pub(crate) fn deliver(&self, done: Done) {
        self.mail().done.push(done);
        self.has_mail.store(true, Ordering::SeqCst);
        self.ring();
    }

    fn wake(&self, token: Token) {
        self.mail().woken.push(token);
        self.has_mail.store(true, Ordering::SeqCst);
        self.ring();
    }

    /// Makes the worker look up: something it looks at once a turn has changed.
    pub(crate) fn nudge(&self) {
        // As if there were mail, so that a worker about to park does not.
        self.has_mail.store(true, Ordering::SeqCst);
        self.ring();
    }

    /// Wakes the worker if it is parked.
    fn ring(&self) {
        // Sequentially consistent with `park`: either this sees the flag, or `park` sees the mail.
        if self.parked.swap(false, Ordering::SeqCst) {
            match self.mail().parked_in.take() {
                Some(waker) => waker.wake(),
                None => (self.bell)(),
            }
        }
    }

    /// Announces that the worker is about to wait, through `waker` if it waits inside a runtime.
    /// Returns false if mail has come: it must not wait then.
    pub(crate) fn park(&self, waker: Option<Waker>) -> bool {
        if waker.is_some() {
            self.mail().parked_in = waker;
        }
        self.parked.store(true, Ordering::SeqCst);
        let empty = !self.has_mail.load(Ordering::SeqCst);
        if !empty {
            self.parked.store(false, Ordering::SeqCst);
        }
        empty
    }

    /// Whether the worker is parked and nobody has rung since.
    pub(crate) fn is_parked(&self) -> bool {
        self.parked.load(Ordering::SeqCst)
    }

    /// Takes all mail, into vectors that are reused.
    pub(crate) fn take(&self, woken: &mut Vec<Token>, done: &mut Vec<Done>) {
        self.parked.store(false, Ordering::SeqCst);
        if !self.has_mail.load(Ordering::Relaxed) || !self.has_mail.swap(false, Ordering::SeqCst) {
            return;
        }
        let mut mail = self.mail();
        if !mail.woken.is_empty() {
            std::mem::swap(&mut mail.woken, woken);
        }
        if !mail.done.is_empty() {
            std::mem::swap(&mut mail.done, done);
        }
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
    use std::sync::atomic::AtomicUsize;

    /// Purpose: the bell rings once for many wakes, and only while the worker is parked.
    #[test]
    fn one_ring_per_park() {
        let rings = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&rings);
        let inbox = Inbox::new(Box::new(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        }));
        let (mut woken, mut done) = (Vec::new(), Vec::new());
        inbox.waker(Token::new(1, 7)).wake();
        assert!(!inbox.park(None), "mail is waiting: parking must be refused");
        inbox.take(&mut woken, &mut done);
        assert_eq!(woken, [Token::new(1, 7)]);
        woken.clear();
        assert!(inbox.park(None));
        inbox.waker(Token::new(2, 7)).wake();
        inbox.waker(Token::new(3, 7)).wake();
        assert_eq!(rings.load(Ordering::SeqCst), 1);
        inbox.take(&mut woken, &mut done);
        assert_eq!(woken.len(), 2);
    }
}
