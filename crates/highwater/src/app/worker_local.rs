//! Values that each worker owns: made on its thread, they need be neither `Send` nor `Sync`.
//!
//! A worker makes them before it accepts, and drops them when it has ended. While it is in a turn they are
//! its thread's current ones ([`WorkerContext::enter`]), so that extractors, layers, futures and mounted
//! services find them without being handed anything. Between turns there are none: several workers may
//! share a thread, as test clients do, and each finds its own.
//!
//! An application without such values pays nothing: its workers enter nothing.

use std::any::{Any, TypeId, type_name};
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use super::draining::Draining;
use super::error::{BoxError, Error};
use super::extract::{FromRequest, Requirements};
use super::guard::{drop_guarded, guarded};
use super::job::Submit;
use super::request::Request;

thread_local! {
    /// That of the worker which is in a turn on this thread.
    static CURRENT: RefCell<Option<Rc<WorkerContext>>> = const { RefCell::new(None) };
    /// Those of all workers of this thread.
    static ALL: RefCell<Vec<Weak<WorkerContext>>> = const { RefCell::new(Vec::new()) };
}

/// The worker that a value is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// Its number, from 0.
    pub index: usize,
    /// How many workers there are.
    pub workers: usize,
}

impl WorkerInfo {
    pub(crate) fn new(index: usize, workers: usize) -> Self {
        WorkerInfo { index, workers }
    }
}

/// How to make a value that each worker owns, such as a connection to a database, a buffer for a batch, or a cache.
/// For [`Router::per_worker`](super::Router::per_worker); handlers take it as [`WorkerLocal`].
///
/// The value is made on the worker's own thread before it accepts connections, used only there, and dropped there when the
/// worker has ended. So it needs no lock: a `Cell` or a `RefCell` is enough.
///
/// ```
/// use std::cell::RefCell;
/// use highwater::{Bytes, PerWorker, Router, StatusCode, WorkerLocal};
///
/// #[derive(Default)]
/// struct Batch(RefCell<Vec<Bytes>>);
///
/// impl Batch {
///     fn send(&self) {
///         let records = self.0.take();
///         // … all that came in this turn, at once
/// #       drop(records);
///     }
/// }
///
/// fn accept(batch: WorkerLocal<Batch>, record: Bytes) -> StatusCode {
///     batch.0.borrow_mut().push(record);
///     StatusCode::ACCEPTED
/// }
///
/// let app = Router::new()
///     .per_worker(PerWorker::new(|_worker| Batch::default()).at_turn_end(Batch::send))
///     .post("/records", accept);
/// # app.build().unwrap();
/// ```
pub struct PerWorker<T> {
    make: Make<T>,
    at_turn_end: Option<Hook<T>>,
    is_async: bool,
}

type Hook<T> = Arc<dyn Fn(&T, &Waker) -> Option<Duration> + Send + Sync>;
type BoundHook = Box<dyn Fn(&Waker) -> Option<Duration>>;
type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;
type Make<T> = Arc<dyn Fn(WorkerInfo) -> LocalFuture<Result<T, BoxError>> + Send + Sync>;

impl<T: 'static> PerWorker<T> {
    /// Gives each worker the value that `make` returns.
    pub fn new(make: impl Fn(WorkerInfo) -> T + Send + Sync + 'static) -> Self {
        PerWorker::fallible(move |worker| Ok::<T, BoxError>(make(worker)))
    }

    /// Gives each worker the value that `make` returns; the server does not start if it fails.
    pub fn fallible<E: Into<BoxError>>(
        make: impl Fn(WorkerInfo) -> Result<T, E> + Send + Sync + 'static,
    ) -> Self {
        let make = move |worker| {
            let made = make(worker).map_err(Into::into);
            Box::pin(async move { made }) as LocalFuture<Result<T, BoxError>>
        };
        PerWorker { make: Arc::new(make), at_turn_end: None, is_async: false }
    }

    /// Gives each worker the output of the future that `make` returns, awaited inside the worker's Tokio runtime:
    /// for connections. The server does not start if it fails, or takes longer than [`HOOK_TIME_MAX`](crate::HOOK_TIME_MAX).
    ///
    /// ```no_run
    /// use highwater::{PerWorker, Router, WorkerLocal};
    /// use tokio::net::UdpSocket;
    ///
    /// async fn socket() -> std::io::Result<UdpSocket> {
    ///     let socket = UdpSocket::bind("127.0.0.1:0").await?;
    ///     socket.connect("127.0.0.1:8125").await?;
    ///     Ok(socket)
    /// }
    ///
    /// async fn count(statsd: WorkerLocal<UdpSocket>) -> &'static str {
    ///     let _ = statsd.send(b"visits:1|c").await;
    ///     "counted"
    /// }
    ///
    /// let app = Router::new()
    ///     .per_worker(PerWorker::with_future(|_worker| socket()))
    ///     .get("/count", count);
    /// # app.build().unwrap();
    /// ```
    pub fn with_future<F, E>(make: impl Fn(WorkerInfo) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<T, E>> + 'static,
        E: Into<BoxError>,
    {
        let make = move |worker| {
            let made = make(worker);
            Box::pin(async move { made.await.map_err(Into::into) })
                as LocalFuture<Result<T, BoxError>>
        };
        PerWorker { make: Arc::new(make), at_turn_end: None, is_async: true }
    }

    /// Calls `hook` at the end of each turn of the worker: after all requests that arrived together were looked at,
    /// and their answers handed to the kernel. For work that is done once for many requests. It must be quick; a
    /// panic in it is only logged.
    #[must_use]
    pub fn at_turn_end(self, hook: impl Fn(&T) + Send + Sync + 'static) -> Self {
        self.poll_at_turn_end(move |value, _waker| {
            hook(value);
            None
        })
    }

    /// Like [`at_turn_end`](PerWorker::at_turn_end), for a hook that waits for something. Waking the waker, from any
    /// thread, gives the worker another turn, and so calls the hook again; likewise when as much time has passed as the
    /// hook returns. Otherwise an idle worker has no turns.
    ///
    /// ```
    /// use std::cell::Cell;
    /// use std::time::Duration;
    /// use highwater::{PerWorker, Router, WorkerLocal};
    ///
    /// #[derive(Default)]
    /// struct Gathered(Cell<u32>);
    ///
    /// let app = Router::new()
    ///     .per_worker(PerWorker::new(|_worker| Gathered::default()).poll_at_turn_end(|gathered, _waker| {
    ///         // Nothing is sent before there are ten, or a millisecond has passed without a request.
    ///         match gathered.0.replace(0) {
    ///             0 => None,
    ///             10.. => { /* … send them */ None }
    ///             few => { gathered.0.set(few); Some(Duration::from_millis(1)) }
    ///         }
    ///     }))
    ///     .post("/", |gathered: WorkerLocal<Gathered>| gathered.0.set(gathered.0.get() + 1));
    /// # app.build().unwrap();
    /// ```
    #[must_use]
    pub fn poll_at_turn_end(
        mut self,
        hook: impl Fn(&T, &Waker) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.at_turn_end = Some(Arc::new(hook));
        self
    }

    /// Erases the type.
    pub(super) fn erase(self) -> GivenLocal {
        let PerWorker { make, at_turn_end, is_async } = self;
        let make = move |worker| {
            let (made, at_turn_end) = (make(worker), at_turn_end.clone());
            Box::pin(async move {
                let value = Rc::new(made.await?);
                let hooked = value.clone();
                let at_turn_end = at_turn_end
                    .map(|hook| Box::new(move |waker: &Waker| hook(&hooked, waker)) as _);
                Ok(Made { value, at_turn_end })
            }) as LocalFuture<Result<Made, BoxError>>
        };
        let (id, name) = (TypeId::of::<T>(), type_name::<T>());
        GivenLocal { id, name, make: Box::new(make), is_async }
    }
}

impl<T> fmt::Debug for PerWorker<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PerWorker<{}>", type_name::<T>())
    }
}

/// A type-erased value that each worker has.
pub(super) struct GivenLocal {
    pub(super) id: TypeId,
    pub(super) name: &'static str,
    make: Box<dyn Fn(WorkerInfo) -> LocalFuture<Result<Made, BoxError>> + Send + Sync>,
    pub(super) is_async: bool,
}

impl GivenLocal {
    /// Makes the value of one worker.
    ///
    /// # Errors
    /// Its type, and why it could not be made.
    pub(super) async fn make_for(
        &self,
        worker: WorkerInfo,
        time_max: Duration,
    ) -> Result<MadeLocal, String> {
        let making = (self.make)(worker);
        let made = match self.is_async && time_max != Duration::MAX {
            true => tokio::time::timeout(time_max, making)
                .await
                .unwrap_or_else(|_| Err(format!("it takes longer than {time_max:?}").into())),
            false => making.await,
        };
        let failed = |error| format!("the `{}` of a worker cannot be made: {error}", self.name);
        made.map(|made| MadeLocal { id: self.id, made }).map_err(failed)
    }
}

/// A worker's value that was made, and its type.
pub(super) struct MadeLocal {
    id: TypeId,
    made: Made,
}

struct Made {
    value: Rc<dyn Any>,
    at_turn_end: Option<BoundHook>,
}

/// This worker's own value: see [`PerWorker`]. An extractor for handlers that run on the worker; a `blocking`
/// handler runs elsewhere, so the compiler refuses it there.
///
/// A route whose value is missing is found when the application is built.
pub struct WorkerLocal<T>(Rc<T>);

impl<T: 'static> WorkerLocal<T> {
    /// The value of the worker that this is called on. `None` outside of a worker's turn (on another thread, or
    /// in a task that was spawned), and where there is no such value.
    pub fn current() -> Option<Self> {
        let value = WorkerContext::current()?.value(TypeId::of::<T>())?;
        value.downcast().ok().map(WorkerLocal)
    }
}

impl<T> Deref for WorkerLocal<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Clone for WorkerLocal<T> {
    fn clone(&self) -> Self {
        WorkerLocal(Rc::clone(&self.0))
    }
}

impl<T: fmt::Debug> fmt::Debug for WorkerLocal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkerLocal").field(&self.0).finish()
    }
}

impl<T: 'static> FromRequest for WorkerLocal<T> {
    fn from_request(_request: &Request<'_>) -> Result<Self, Error> {
        let missing = || format!("no value of type `{}` on this worker", type_name::<T>());
        WorkerLocal::current().ok_or_else(|| Error::internal(missing()))
    }

    fn is_present(_request: &Request<'_>) -> bool {
        WorkerLocal::<T>::current().is_some()
    }

    fn requires(requirements: &mut Requirements) {
        requirements.worker_local::<T>();
    }
}

/// Identifies a layer that has values per worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LayerKey(u64);

impl LayerKey {
    /// A key that no other layer of the process has.
    pub(super) fn next() -> Self {
        static KEYS: AtomicU64 = AtomicU64::new(0);
        LayerKey(KEYS.fetch_add(1, Ordering::Relaxed))
    }
}

/// A layer's value on one worker.
pub(super) struct LayerLocal {
    key: LayerKey,
    value: Rc<dyn Any>,
}

impl LayerLocal {
    pub(super) fn new<T: 'static>(key: LayerKey, value: T) -> Self {
        LayerLocal { key, value: Rc::new(value) }
    }
}

impl fmt::Debug for LayerLocal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LayerLocal({})", self.key.0)
    }
}

/// The values that a worker owns.
pub(crate) struct WorkerContext {
    values: Vec<(TypeId, Rc<dyn Any>)>,
    layers: Vec<LayerLocal>,
    at_turn_end: Vec<BoundHook>,
    submit: Submit,
    draining: Draining,
}

/// The values are the application's, and a panic in their `Drop` is not a failure of the worker that has ended.
impl Drop for WorkerContext {
    fn drop(&mut self) {
        self.at_turn_end.drain(..).for_each(drop_guarded);
        self.values.drain(..).for_each(drop_guarded);
        self.layers.drain(..).for_each(drop_guarded);
    }
}

/// While it lives, a context is its thread's current one.
pub(crate) struct Entered {
    before: Option<Rc<WorkerContext>>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        // On a thread that is about to end there is none to restore.
        let _ = CURRENT.try_with(|current| current.replace(self.before.take()));
    }
}

impl WorkerContext {
    /// The context of a worker that owns these values.
    pub(super) fn new(
        made: Vec<MadeLocal>,
        layers: Vec<LayerLocal>,
        (submit, draining): (Submit, Draining),
    ) -> Rc<Self> {
        let (mut values, mut at_turn_end) = (Vec::new(), Vec::new());
        for MadeLocal { id, made } in made {
            values.push((id, made.value));
            at_turn_end.extend(made.at_turn_end);
        }
        let context = Rc::new(WorkerContext { values, layers, at_turn_end, submit, draining });
        let _ = ALL.try_with(|all| {
            let mut all = all.borrow_mut();
            all.retain(|other| other.strong_count() > 0);
            all.push(Rc::downgrade(&context));
        });
        context
    }

    /// The context of the worker that is in a turn on this thread.
    pub(super) fn current() -> Option<Rc<WorkerContext>> {
        CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
    }

    /// The signal of the server whose worker is in a turn on this thread: for content that layers have wrapped, so that its
    /// worker does not know it.
    pub(crate) fn draining() -> Option<Draining> {
        WorkerContext::current().map(|context| context.draining.clone())
    }

    /// A clone of the value of the layer `key` on this worker. Tasks that the application has spawned run between
    /// turns: they find it, too.
    pub(super) fn of_layer<T: Clone + 'static>(key: LayerKey) -> Option<T> {
        let find = |context: &WorkerContext| {
            let local = context.layers.iter().find(|local| local.key == key)?;
            local.value.downcast_ref::<T>().cloned()
        };
        if let Some(found) = WorkerContext::current().and_then(|current| find(&current)) {
            return Some(found);
        }
        let all = ALL.try_with(|all| all.borrow().clone()).unwrap_or_default();
        all.iter().filter_map(Weak::upgrade).find_map(|context| find(&context))
    }

    /// Makes it the thread's current one.
    pub(crate) fn enter(self: &Rc<Self>) -> Entered {
        Entered { before: CURRENT.replace(Some(Rc::clone(self))) }
    }

    /// The way to the pool.
    pub(super) fn submit(&self) -> &Submit {
        &self.submit
    }

    fn value(&self, id: TypeId) -> Option<Rc<dyn Any>> {
        self.values.iter().find(|(other, _)| *other == id).map(|(_, value)| Rc::clone(value))
    }

    /// Calls the hooks for the end of a turn. Returns the time after which to call them again, if no turn ends
    /// before.
    pub(crate) fn end_turn(&self, waker: &Waker) -> Option<Duration> {
        // A panic is noted.
        let call = |hook: &BoundHook| guarded(|| hook(waker)).ok().flatten();
        self.at_turn_end.iter().filter_map(call).min()
    }
}
