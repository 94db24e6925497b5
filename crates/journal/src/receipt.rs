//! Is it durable yet?
//!
//! A receipt is a future that needs no runtime: the committing thread wakes the task that polls it. A thread can also
//! block on it. Ignoring a receipt has no effect on its batch.
//!
//! Invariant: every receipt is resolved, at the latest when the committing thread ends.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::error::{Error, ErrorKind};

/// A batch's place in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The offset of its first record.
    pub first_offset: u64,
    /// How many consecutive records it has.
    pub records: u64,
}

/// The answer to an append, once it is known.
#[derive(Debug)]
#[must_use = "only its receipt says whether a batch is durable"]
pub struct Receipt {
    slot: Arc<Slot>,
}

/// The other end of a receipt. Dropped without an answer, it answers [`ErrorKind::Closed`].
#[derive(Debug)]
pub(crate) struct Answer {
    slot: Arc<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    state: Mutex<State>,
    resolved: Condvar,
}

#[derive(Debug, Default)]
struct State {
    answer: Option<Result<Committed, Error>>,
    waker: Option<Waker>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn resolve(&self, answer: Result<Committed, Error>) {
        let mut state = self.lock();
        if state.answer.is_some() {
            return;
        }
        state.answer = Some(answer);
        let waker = state.waker.take();
        drop(state);
        self.resolved.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Receipt {
    /// A receipt, and what resolves it.
    pub(crate) fn pair() -> (Answer, Receipt) {
        let slot = Arc::<Slot>::default();
        (Answer { slot: Arc::clone(&slot) }, Receipt { slot })
    }

    /// The answer, if it is known already.
    pub fn answer(&self) -> Option<Result<Committed, Error>> {
        self.slot.lock().answer.clone()
    }

    /// Blocks until the answer is known.
    ///
    /// # Errors
    ///
    /// If the batch is not known to be durable; the kind says why.
    pub fn wait(&self) -> Result<Committed, Error> {
        let mut state = self.slot.lock();
        loop {
            if let Some(answer) = &state.answer {
                return answer.clone();
            }
            state =
                self.slot.resolved.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// Blocks until the answer is known, for at most `timeout`. The batch stays appended after that.
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Result<Committed, Error>> {
        let state = self.slot.lock();
        let waiting = |state: &mut State| state.answer.is_none();
        let (state, _) = self
            .slot
            .resolved
            .wait_timeout_while(state, timeout, waiting)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        state.answer.clone()
    }
}

impl Future for Receipt {
    type Output = Result<Committed, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.slot.lock();
        if let Some(answer) = &state.answer {
            return Poll::Ready(answer.clone());
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl Answer {
    pub(crate) fn resolve(self, answer: Result<Committed, Error>) {
        self.slot.resolve(answer);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let text = "the journal ended before the records were durable";
        // Made only when it is needed: most answers are resolved.
        if self.slot.lock().answer.is_none() {
            self.slot.resolve(Err(Error::new(ErrorKind::Closed, text)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    const DONE: Committed = Committed { first_offset: 3, records: 2 };

    /// Purpose: a task that waits for a receipt is woken once, by the last waker that it gave.
    #[test]
    fn a_receipt_wakes_who_polled_last() {
        let (answer, mut receipt) = Receipt::pair();
        let [first, last] = [(); 2].map(|()| Arc::<Count>::default());
        for count in [&first, &last] {
            let waker = Waker::from(Arc::clone(count));
            let polled = Pin::new(&mut receipt).poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
        assert!(receipt.answer().is_none());
        answer.resolve(Ok(DONE));
        assert_eq!([&first, &last].map(|count| count.0.load(Ordering::Relaxed)), [0, 1]);
        let polled = Pin::new(&mut receipt).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Ok(DONE))));
    }

    /// Purpose: no one waits for ever for a journal that has ended.
    #[test]
    fn a_dropped_answer_is_an_answer() {
        let (answer, receipt) = Receipt::pair();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| receipt.wait());
            drop(answer);
            let error = waits.join().expect("it does not panic").expect_err("it was dropped");
            assert_eq!(error.kind(), ErrorKind::Closed);
        });
        assert!(receipt.wait_timeout(Duration::ZERO).is_some());
    }

    /// Purpose: a wait with a timeout ends even without an answer.
    #[test]
    fn waiting_times_out() {
        let (answer, receipt) = Receipt::pair();
        assert!(receipt.wait_timeout(Duration::ZERO).is_none());
        answer.resolve(Ok(DONE));
        assert_eq!(receipt.wait_timeout(Duration::ZERO).map(Result::ok), Some(Some(DONE)));
    }
}
