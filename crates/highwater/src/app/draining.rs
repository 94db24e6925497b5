//! How does an endless handler learn that its server drains?

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use tokio::sync::Notify;

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
#[derive(Debug, Default)]
pub(super) struct Drain {
    has_begun: AtomicBool,
    begun: Notify,
}

impl Drain {
    /// Begins the drain.
    pub(super) fn begin(&self) {
        if !self.has_begun.swap(true, SeqCst) {
            self.begun.notify_waiters();
        }
    }
}

impl Draining {
    /// A signal that [`Draining::begin`] gives.
    pub(crate) fn new() -> Self {
        Draining(Arc::default())
    }

    /// Begins the drain.
    pub(crate) fn begin(&self) {
        self.0.begin();
    }

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
        // Before the look, so that a drain that begins in between wakes it.
        let begun = self.0.begun.notified();
        if !self.has_begun() {
            begun.await;
        }
    }
}

impl fmt::Debug for Draining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draining").field("has_begun", &self.has_begun()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Wake, Waker};

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    /// Purpose: every waiting future is woken once, later ones need not wait, and dropped ones are not.
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
        }
        draining.0.begin();
        draining.0.begin();
        assert_eq!(count.0.load(SeqCst), 1);
        assert!(draining.has_begun() && first.poll(&mut context).is_ready());
        assert!(pin!(draining.begun()).poll(&mut context).is_ready());
    }
}
