//! Receipts: has the sink stored the batch yet?
//!
//! A receipt is a future that needs no runtime. Resolving it, on any thread, wakes the task that polled it last.
//! Invariant: it resolves exactly once, at the latest when its [`Answer`] is dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use highwater_journal::Committed;

use crate::failure::{Failure, FailureKind};

/// The outcome of a batch.
pub type Outcome = Result<Written, Failure>;

/// A batch that the sink has stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The records that it will never accept, by increasing index. All others are written. Almost always empty.
    pub refused: Vec<Refusal>,
}

/// A record of a batch that the sink will never accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its index in the batch.
    pub index: u32,
    /// Why.
    pub failure: Failure,
}

/// The answer to a batch, once it is known.
#[derive(Debug)]
#[must_use = "only its receipt reports a batch's outcome"]
pub struct Receipt(State);

#[derive(Debug)]
enum State {
    Known(Option<Outcome>),
    Expected(Arc<Slot>),
    Journal(highwater_journal::Receipt),
}

/// The other end of a receipt. Dropped without an outcome, it answers [`FailureKind::Closed`].
#[derive(Debug)]
pub struct Answer {
    /// `None`: it has resolved.
    slot: Option<Arc<Slot>>,
}

#[derive(Debug, Default)]
struct Slot {
    state: Mutex<Expected>,
    resolved: Condvar,
}

#[derive(Debug, Default)]
struct Expected {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Expected> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resolve(&self, outcome: Outcome) {
        let mut state = self.lock();
        state.outcome = Some(outcome);
        let waker = state.waker.take();
        drop(state);
        self.resolved.notify_all();
        // Woken outside the lock: a waker may be foreign code.
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Receipt {
    /// A receipt, and what resolves it: for sinks that work on another thread or in a task.
    pub fn pair() -> (Answer, Receipt) {
        let slot = Arc::<Slot>::default();
        (Answer { slot: Some(Arc::clone(&slot)) }, Receipt(State::Expected(slot)))
    }

    /// A receipt whose outcome is known: for sinks that finish immediately.
    pub fn ready(outcome: Outcome) -> Receipt {
        Receipt(State::Known(Some(outcome)))
    }

    /// The receipt of a batch that was appended to a journal: written means durable.
    pub(crate) fn of_journal(receipt: highwater_journal::Receipt) -> Receipt {
        Receipt(State::Journal(receipt))
    }

    /// Blocks until the outcome is known.
    ///
    /// # Errors
    ///
    /// If the batch is not known to be written; the kind says why.
    pub fn wait(self) -> Outcome {
        match self.0 {
            State::Known(outcome) => outcome.unwrap_or_else(|| Err(taken())),
            State::Journal(receipt) => of_commit(receipt.wait()),
            State::Expected(slot) => {
                let waiting = |state: &mut Expected| state.outcome.is_none();
                let state = slot.resolved.wait_while(slot.lock(), waiting);
                let outcome = state.unwrap_or_else(PoisonError::into_inner).outcome.take();
                outcome.unwrap_or_else(|| Err(taken()))
            }
        }
    }
}

/// Maps a journal's answer.
fn of_commit(answer: Result<Committed, highwater_journal::Error>) -> Outcome {
    answer.map(|_| Written::default()).map_err(|error| Failure::from(&error))
}

/// The failure of a receipt that is polled after it has resolved.
fn taken() -> Failure {
    Failure::new(FailureKind::Closed, "the outcome was taken before")
}

impl Future for Receipt {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        match &mut self.0 {
            State::Known(outcome) => Poll::Ready(outcome.take().unwrap_or_else(|| Err(taken()))),
            State::Journal(receipt) => Pin::new(receipt).poll(context).map(of_commit),
            State::Expected(slot) => {
                let mut state = slot.lock();
                if let Some(outcome) = state.outcome.take() {
                    drop(state);
                    self.0 = State::Known(None);
                    return Poll::Ready(outcome);
                }
                match &mut state.waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    none => *none = Some(context.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}

impl Answer {
    /// Sets the batch's outcome. Drop the sink's references to the batch first: its memory is reused.
    pub fn resolve(mut self, outcome: Outcome) {
        if let Some(slot) = self.slot.take() {
            slot.resolve(outcome);
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let text = "the sink ended before it reported the records' outcome";
        if let Some(slot) = self.slot.take() {
            slot.resolve(Err(Failure::new(FailureKind::Closed, text)));
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

    /// Purpose: a batch's waiter is woken once, by its latest waker; else a handler would wait for ever for written
    /// records.
    #[test]
    fn a_receipt_wakes_who_polled_last() {
        let (answer, mut receipt) = Receipt::pair();
        let [first, last] = [(); 2].map(|()| Arc::<Count>::default());
        for count in [&first, &last] {
            let waker = Waker::from(Arc::clone(count));
            assert!(Pin::new(&mut receipt).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        answer.resolve(Ok(Written::default()));
        assert_eq!([&first, &last].map(|count| count.0.load(Ordering::Relaxed)), [0, 1]);
        let polled = Pin::new(&mut receipt).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(Ok(Written::default())));
    }

    /// Purpose: a sink whose thread ends, or that forgets a batch, answers all the same.
    #[test]
    fn a_dropped_answer_is_an_answer() {
        let (answer, receipt) = Receipt::pair();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| receipt.wait());
            drop(answer);
            let failure = waits.join().expect("it does not panic").expect_err("it was dropped");
            assert_eq!(failure.kind(), FailureKind::Closed);
        });
    }

    /// Purpose: an outcome that is known at once can be waited for and polled like any other.
    #[test]
    fn a_known_outcome_is_there() {
        let failure = Failure::new(FailureKind::Full, "no room");
        assert_eq!(Receipt::ready(Err(failure.clone())).wait(), Err(failure.clone()));
        let mut receipt = Receipt::ready(Err(failure.clone()));
        let polled = Pin::new(&mut receipt).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(Err(failure)));
    }
}
