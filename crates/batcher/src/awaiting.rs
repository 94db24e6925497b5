//! How a handler learns its record's outcome.
//!
//! All waiters of one batch share a slot, which the batcher fills when the batch's receipt resolves. It lives on the
//! worker's thread, so it needs no lock. Dropping an [`Awaiting`] removes its waker.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::failure::Failure;
use crate::receipt::Outcome;

/// Waits until a record is written. It may be dropped at any time: the record stays in its batch.
#[derive(Debug)]
#[must_use = "a record is only known to be written when this says so"]
pub struct Awaiting {
    place: Rc<Place>,
    /// The record's index in its batch.
    index: u32,
    /// The index of its waker.
    waker: Option<usize>,
}

/// The state shared by all waiters of a batch.
#[derive(Debug, Default)]
pub(crate) struct Place {
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    outcome: Option<Outcome>,
    wakers: Vec<Option<Waker>>,
}

impl Place {
    /// Sets the batch's outcome, and wakes all waiters.
    pub(crate) fn resolve(&self, outcome: Outcome) {
        let mut state = self.state.borrow_mut();
        state.outcome = Some(outcome);
        let wakers = std::mem::take(&mut state.wakers);
        // A waker may run foreign code that calls back here.
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// Waits for the record `index` of the batch.
    pub(crate) fn wait_for(self: Rc<Self>, index: u32) -> Awaiting {
        Awaiting { place: self, index, waker: None }
    }
}

impl Awaiting {
    /// The record's outcome, if it is known.
    pub fn outcome(&self) -> Option<Result<(), Failure>> {
        let state = self.place.state.borrow();
        Some(match state.outcome.as_ref()? {
            Err(failure) => Err(failure.clone()),
            Ok(written) => {
                match written.refused.binary_search_by_key(&self.index, |refusal| refusal.index) {
                    Ok(at) => Err(written.refused[at].failure.clone()),
                    Err(_) => Ok(()),
                }
            }
        })
    }
}

impl Future for Awaiting {
    type Output = Result<(), Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(outcome) = self.outcome() {
            return Poll::Ready(outcome);
        }
        let this = &mut *self;
        let wakers = &mut this.place.state.borrow_mut().wakers;
        match this.waker {
            Some(at) => match &mut wakers[at] {
                Some(waker) => waker.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            },
            None => {
                this.waker = Some(wakers.len());
                wakers.push(Some(context.waker().clone()));
            }
        }
        Poll::Pending
    }
}

impl Drop for Awaiting {
    fn drop(&mut self) {
        let Some(at) = self.waker else { return };
        let waker = self.place.state.borrow_mut().wakers.get_mut(at).and_then(Option::take);
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use crate::failure::FailureKind;
    use crate::receipt::{Refusal, Written};

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll(awaiting: &mut Awaiting, waker: &Waker) -> Poll<Result<(), Failure>> {
        Pin::new(awaiting).poll(&mut Context::from_waker(waker))
    }

    /// Purpose: each waiter of a batch is woken once; one that has stopped waiting is not, whether the outcome came
    /// before or after.
    #[test]
    fn everybody_who_still_waits_is_woken() {
        let place = Rc::<Place>::default();
        let counts = [(); 4].map(|()| Arc::<Count>::default());
        let mut waiting: Vec<Option<Awaiting>> =
            (0..4).map(|index| Some(Rc::clone(&place).wait_for(index))).collect();
        for (awaiting, count) in waiting.iter_mut().flatten().zip(&counts) {
            let waker = Waker::from(Arc::clone(count));
            assert!(poll(awaiting, &waker).is_pending());
            assert!(poll(awaiting, &waker).is_pending(), "twice is once");
        }
        waiting[1] = None;
        place.resolve(Ok(Written::default()));
        let woken = counts.each_ref().map(|count| count.0.load(Ordering::Relaxed));
        assert_eq!(woken, [1, 0, 1, 1]);
        for awaiting in waiting.iter_mut().flatten() {
            assert_eq!(poll(awaiting, Waker::noop()), Poll::Ready(Ok(())));
        }
    }

    /// Purpose: a permanent refusal of a record is reported to its own client, and to no other.
    #[test]
    fn a_refusal_reaches_its_own_record() {
        let place = Rc::<Place>::default();
        let failure = Failure::new(FailureKind::TooLarge, "one");
        let refused = [1, 3].map(|index| Refusal { index, failure: failure.clone() }).to_vec();
        place.resolve(Ok(Written { refused }));
        let of = |index| Rc::clone(&place).wait_for(index).outcome();
        let failed = Some(Err(failure));
        assert_eq!(
            (0..5).map(of).collect::<Vec<_>>(),
            [Some(Ok(())), failed.clone(), Some(Ok(())), failed, Some(Ok(()))]
        );
    }
}
