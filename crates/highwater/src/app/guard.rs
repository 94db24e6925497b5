//! Where does a panic end?
//!
//! In this module: no other code catches panics. Application values that are run, polled or dropped outside
//! of a handler's own call are wrapped in a type of this module, so that the type makes new code correct: a
//! [`Guarded`] value is dropped guarded wherever it is dropped, a [`GuardedFuture`] is polled guarded, a
//! [`Job`](super::job::Job) is run guarded.
//!
//! Invariants: a panic that is caught here is noted on its thread, and `App::report_panics` logs and counts
//! it once; dropping the payload of a panic does not panic, whatever the payload does.
//!
//! One panic cannot be caught: that of a destructor which runs because another panic unwinds through its
//! owner. Rust ends the process then. A value behind [`Guarded`] is safe even so, but the local variables of
//! a handler are not: their `Drop` must not panic while [`std::thread::panicking`].

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::request_id;

/// How many payloads in a chain are dropped, if dropping each one panics with another; the next one is
/// leaked.
const PAYLOAD_DROPS_MAX: usize = 8;

/// How many panics a thread remembers until they are reported; further ones are only counted.
const NOTES_MAX: usize = 16;

/// A panic that was caught, for the operator.
#[derive(Clone, Debug, Default)]
pub struct Panic {
    pub(super) message: String,
    /// The id of the request that it ended, unless the client has sent one.
    pub(super) request_id: String,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panicked: {}", self.message)
    }
}

impl std::error::Error for Panic {}

/// The panics of a thread that are not reported yet.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) panics: Vec<Panic>,
    /// How many there were beyond [`NOTES_MAX`].
    pub(super) more: u64,
}

thread_local! {
    static NOTES: RefCell<Notes> = const { RefCell::new(Notes { panics: Vec::new(), more: 0 }) };
}

/// Whether a panic was caught on this thread that was not reported yet.
#[inline]
pub(crate) fn has_notes() -> bool {
    NOTES.try_with(|notes| !notes.borrow().panics.is_empty()).unwrap_or(false)
}

/// Takes the panics that were caught on this thread.
pub(super) fn take_notes() -> Notes {
    NOTES.try_with(RefCell::take).unwrap_or_default()
}

/// Calls `f`, and returns the panic's payload if it panics.
pub(crate) fn guarded<R>(f: impl FnOnce() -> R) -> Result<R, Panic> {
    catch_unwind(AssertUnwindSafe(f)).map_err(note)
}

/// Drops `value`; a panic in its `Drop` ends here.
pub(crate) fn drop_guarded<T>(value: T) {
    if std::mem::needs_drop::<T>() {
        // It is noted; there is no caller to return it to.
        let _ = guarded(|| drop(value));
    }
}

/// Remembers a panic until it is reported.
#[cold]
fn note(payload: Box<dyn Any + Send>) -> Panic {
    let message = match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(payload) => {
            let message = payload.downcast_ref::<&'static str>().copied();
            discard_payload(payload);
            String::from(message.unwrap_or("no message"))
        }
    };
    let panic = Panic { message, request_id: request_id::fresh() };
    // A thread that is about to end no longer reports.
    let _ = NOTES.try_with(|notes| {
        let mut notes = notes.borrow_mut();
        match notes.panics.len() < NOTES_MAX {
            true => notes.panics.push(panic.clone()),
            false => notes.more += 1,
        }
    });
    panic
}

/// Drops the payload of a panic, then the payload of a panic in that drop, and so on.
fn discard_payload(mut payload: Box<dyn Any + Send>) {
    for _ in 0..PAYLOAD_DROPS_MAX {
        match catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            Ok(()) => return,
            Err(next) => payload = next,
        }
    }
    // The chain may be endless, and a leak is the lesser harm.
    std::mem::forget(payload);
}

/// A value of the application, whose `Drop` may panic. Dropping it here does not.
#[derive(Debug)]
pub(crate) struct Guarded<T>(Option<T>);

impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Guarded(Some(value))
    }

    /// The value, which is no longer guarded.
    pub(crate) fn into_inner(mut self) -> T {
        self.0.take().expect("only this takes it, and only once")
    }
}

impl<T> Drop for Guarded<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            drop_guarded(value);
        }
    }
}

impl<T> Deref for Guarded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_ref().expect("only into_inner takes it")
    }
}

impl<T> DerefMut for Guarded<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("only into_inner takes it")
    }
}

/// Bytes that can be shared; their owner is dropped guarded, on whichever thread that happens.
impl AsRef<[u8]> for Guarded<bytes::Bytes> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// A future of the application. It never leaves its worker, so it need not be `Send`.
pub struct GuardedFuture<T>(Guarded<Pin<Box<dyn Future<Output = T>>>>);

impl<T> GuardedFuture<T> {
    pub(crate) fn new(future: impl Future<Output = T> + 'static) -> Self {
        GuardedFuture::of(Box::pin(future))
    }

    pub(crate) fn of(future: Pin<Box<dyn Future<Output = T>>>) -> Self {
        GuardedFuture(Guarded::new(future))
    }

    /// Polls it. After it panicked, it must not be polled again.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<T, Panic>> {
        match guarded(|| self.0.as_mut().poll(context)) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

impl<T> Future for GuardedFuture<T> {
    type Output = Result<T, Panic>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        GuardedFuture::poll(&mut self, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::panic::panic_any;

    thread_local! {
        static DROPS: Cell<usize> = const { Cell::new(0) };
    }

    /// Panics with another of its kind when it is dropped.
    struct Endless;

    impl Drop for Endless {
        fn drop(&mut self) {
            DROPS.set(DROPS.get() + 1);
            panic_any(Endless);
        }
    }

    /// Purpose: a payload that panics when dropped, with one that does as well, and so on, ends
    /// neither the thread nor in an endless loop.
    #[test]
    fn endless_payloads() {
        let caught = guarded(|| panic_any(Endless)).map_err(|panic| panic.message);
        assert_eq!(caught, Err::<(), _>("no message".into()));
        assert_eq!(DROPS.get(), PAYLOAD_DROPS_MAX);
        take_notes();
    }

    /// Purpose: a guarded value that panics when dropped does no harm, not even when it is dropped
    /// because another panic unwinds.
    #[test]
    fn guarded_drops() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }
        drop(Guarded::new(Bomb));
        let outer = guarded(|| {
            let _guarded = Guarded::new(Bomb);
            panic!("outer");
        });
        assert_eq!(outer.map_err(|panic| panic.message), Err::<(), _>("outer".into()));
        drop(bytes::Bytes::from_owner(Guarded::new(bytes::Bytes::from_static(b"x"))));
        let dropped: Vec<String> =
            take_notes().panics.into_iter().map(|panic| panic.message).collect();
        assert_eq!(dropped, ["dropped", "dropped", "outer"]);
        assert!(!has_notes());
    }

    /// Purpose: the number of notes is bounded, and further panics are counted.
    #[test]
    fn notes_are_bounded() {
        for _ in 0..NOTES_MAX + 3 {
            let _ = guarded(|| panic!("again"));
        }
        let notes = take_notes();
        assert_eq!((notes.panics.len(), notes.more), (NOTES_MAX, 3));
    }
}
