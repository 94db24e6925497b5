//! How does an endless handler learn that its server drains?

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Signals that the server is draining: it was asked to stop, and waits for the requests in flight. An answer that
/// never ends on its own, such as an event stream, should end then; an answer that has not ended at the drain
/// timeout is cut off.
///
/// ```
/// use std::time::Duration;
/// use highwater::{Body, Draining, Response, Router};
///
/// async fn events(draining: Draining) -> Response {
///     let (mut sender, body) = Body::channel();
///     tokio::task::spawn_local(async move {
///         while !draining.has_begun() && sender.send("event: tick\n\n").await.is_ok() {
///             // Until there is something to tell, or the server drains.
///             let _ = tokio::time::timeout(Duration::from_secs(1), draining.begun()).await;
///         }
///         sender.finish();
///     });
///     Response::from(body).with_content_type("text/event-stream")
/// }
///
/// let app = Router::new().get("/events", events);
/// # app.build().unwrap();
/// ```
#[derive(Clone)]
pub struct Draining(Arc<Drain>);

/// Whether an application's server is draining, and the futures that wait for it.
#[derive(Default)]
pub(super) struct Drain {
    has_begun: AtomicBool,
    waiting: Mutex<Waiting>,
}

/// One entry per waiting future, which removes it when it is dropped.
#[derive(Default)]
struct Waiting {
    wakers: BTreeMap<u64, Waker>,
    numbered: u64,
}

impl Drain {
    /// Begins the drain.
    pub(super) fn begin(&self) {
        if !self.has_begun.swap(true, SeqCst) {
            // Woken outside of the lock, since a waker is foreign code.
            let wakers = std::mem::take(&mut self.waiting().wakers);
            wakers.into_values().for_each(Waker::wake);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while it holds the lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Draining {
    /// The signal of one server.
    pub(super) fn of(drain: &Arc<Drain>) -> Self {
        Draining(Arc::clone(drain))
    }

    /// Whether the server is draining.
    pub fn has_begun(&self) -> bool {
        self.0.has_begun.load(SeqCst)
    }

    /// Waits until the server is draining.
    pub async fn begun(&self) {
        Begun { drain: &self.0, number: None }.await;
    }
}

impl fmt::Debug for Draining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draining").field("has_begun", &self.has_begun()).finish()
    }
}

impl fmt::Debug for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain").field("has_begun", &self.has_begun).finish_non_exhaustive()
    }
}

struct Begun<'d> {
    drain: &'d Drain,
    number: Option<u64>,
}

impl Future for Begun<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let drain = self.drain;
        let mut waiting = drain.waiting();
        // Under the lock, so that a drain that begins now finds the waker.
        if drain.has_begun.load(SeqCst) {
            return Poll::Ready(());
        }
        let number = *self.number.get_or_insert_with(|| {
            waiting.numbered += 1;
            waiting.numbered
        });
        waiting.wakers.insert(number, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = self.drain.waiting().wakers.remove(&number);
            drop(waker); // Outside of the lock.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    /// Purpose: every waiting future is woken once, later ones need not wait, and dropped ones leave nothing
    /// behind.
    #[test]
    fn those_who_wait_are_woken() {
        let draining = Draining(Arc::new(Drain::default()));
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let mut first = pin!(draining.begun());
        {
            let mut gone = pin!(draining.begun());
            for _ in 0..2 {
                assert!(first.as_mut().poll(&mut context).is_pending());
                assert!(gone.as_mut().poll(&mut context).is_pending());
            }
            assert_eq!(draining.0.waiting().wakers.len(), 2);
        }
        assert_eq!(draining.0.waiting().wakers.len(), 1);
        draining.0.begin();
        draining.0.begin();
        assert_eq!(count.0.load(SeqCst), 1);
        assert!(draining.has_begun() && first.poll(&mut context).is_ready());
        assert!(pin!(draining.begun()).poll(&mut context).is_ready());
    }
}
