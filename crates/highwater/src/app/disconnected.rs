//! How does a handler learn that its client has disconnected?

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Resolves when the client has finished sending, or its connection has ended: an extractor, and a future
/// that can be cloned and sent anywhere.
///
/// A handler whose client resets the connection is dropped automatically. One whose client only finishes sending
/// (closes its end) continues for `--half-closed-timeout` while its answer makes no progress, since a script may
/// still be waiting for it; a handler that does expensive work can stop earlier. A client that sends its last
/// request and closes its end at once has finished sending before its answer begins: a cheap handler should
/// answer it nevertheless.
///
/// ```
/// use highwater::{Disconnected, Router};
///
/// # async fn chapter(number: u32) -> String { String::new() }
/// async fn report(disconnected: Disconnected) -> String {
///     let mut report = String::new();
///     for number in 0..100 {
///         if disconnected.is_disconnected() {
///             break; // No client reads this.
///         }
///         report += &chapter(number).await;
///     }
///     report
/// }
///
/// let app = Router::new().get("/report", report);
/// # app.build().unwrap();
/// ```
///
/// Awaited alongside other futures (`tokio::select!`), it ends the wait at once.
///
/// Mounted services have it in the extensions of their requests: `axum::Extension<highwater::Disconnected>`.
pub struct Disconnected {
    shared: Arc<Shared>,
    /// The key of this one's waker, once it has one.
    number: Option<u64>,
}

#[derive(Default)]
struct Shared(Mutex<State>);

#[derive(Default)]
struct State {
    is_notified: bool,
    /// By their numbers, which grow.
    wakers: Vec<(u64, Waker)>,
    numbers: u64,
}

impl State {
    fn find(&self, number: u64) -> Result<usize, usize> {
        self.wakers.binary_search_by_key(&number, |(other, _)| *other)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disconnected {
    pub(crate) fn new() -> Self {
        Disconnected { shared: Arc::default(), number: None }
    }

    /// Whether the client has finished sending, or has disconnected.
    pub fn is_disconnected(&self) -> bool {
        self.shared.lock().is_notified
    }

    /// The client has finished sending, or has disconnected.
    pub(crate) fn notify(&self) {
        let wakers = {
            let mut state = self.shared.lock();
            state.is_notified = true;
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl Future for Disconnected {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let mut state = this.shared.lock();
        if state.is_notified {
            return Poll::Ready(());
        }
        let number = *this.number.get_or_insert_with(|| {
            state.numbers += 1;
            state.numbers
        });
        match state.find(number) {
            Ok(index) => state.wakers[index].1.clone_from(context.waker()),
            Err(index) => state.wakers.insert(index, (number, context.waker().clone())),
        }
        Poll::Pending
    }
}

impl Clone for Disconnected {
    fn clone(&self) -> Self {
        Disconnected { shared: Arc::clone(&self.shared), number: None }
    }
}

impl Drop for Disconnected {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let mut state = self.shared.lock();
            let waker = state.find(number).ok().map(|index| state.wakers.remove(index));
            drop(state);
            drop(waker); // Outside of the lock: dropping it may drop a task of the application.
        }
    }
}

impl fmt::Debug for Disconnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Disconnected({})", self.is_disconnected())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Purpose: every clone that waits is woken once, one that was dropped is not, and one that is polled
    /// later is ready at once.
    #[test]
    fn all_waiters_are_notified() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let first = Disconnected::new();
        let mut waiting: Vec<Disconnected> = (0..3).map(|_| first.clone()).collect();
        for one in &mut waiting {
            assert_eq!(Pin::new(&mut *one).poll(&mut context), Poll::Pending);
            assert_eq!(Pin::new(one).poll(&mut context), Poll::Pending);
        }
        waiting.pop();
        first.notify();
        first.notify();
        assert_eq!(count.0.load(Ordering::SeqCst), 2);
        assert!(waiting[0].is_disconnected());
        assert_eq!(Pin::new(&mut first.clone()).poll(&mut context), Poll::Ready(()));
    }
}
