//! Todos that are not in memory: reads from the store itself, by an index.
//!
//! ```text
//!  worker ──Request──▶ bounded queue ──▶ threads, each with a connection of its own ──▶ store
//!     ▲                                               │
//!     └───────────────── oneshot ─────────────────────┘
//! ```
//!
//! Invariant: an answer is at least as new as the store was when it was asked for.

use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use bytes::Bytes;
use highwater::logging::rate_limited;
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

use crate::reads::{Limit, Shown};
use crate::store::{Store, StoreError};
use crate::todo::Todo;

/// The most waiting reads; beyond it they are refused: 503.
pub const WAITING_MAX: usize = 1024;

/// How many reads run at a time.
pub const THREADS: usize = 4;

/// Resolves once the store has answered.
pub type Answer<T> = oneshot::Receiver<Result<T, StoreError>>;

/// The same for a list, for which several may wait. It stays `None` until then.
pub type ListAnswer = watch::Receiver<Option<Result<Bytes, StoreError>>>;

/// Reads of the store.
pub struct Beyond {
    requests: SyncSender<Request>,
}

enum Request {
    Todo(Uuid, oneshot::Sender<Result<Option<Shown>, StoreError>>),
    List(Limit, watch::Sender<Option<Result<Bytes, StoreError>>>),
}

impl Beyond {
    /// Reads from stores that `connect` opens on demand, one per thread.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started.
    pub fn new(
        connect: impl Fn() -> Result<Box<dyn Store>, StoreError> + Send + Sync + 'static,
    ) -> std::io::Result<Beyond> {
        let (requests, given) = sync_channel(WAITING_MAX);
        let (given, connect) = (Arc::new(Mutex::new(given)), Arc::new(connect));
        for _ in 0..THREADS {
            let (given, connect) = (Arc::clone(&given), Arc::clone(&connect));
            let run = move || work(&given, &*connect);
            // They end with the last sender.
            thread::Builder::new().name("todos-beyond".into()).spawn(run)?;
        }
        Ok(Beyond { requests })
    }

    /// One todo.
    pub fn todo(&self, id: Uuid) -> Answer<Option<Shown>> {
        let (sender, receiver) = oneshot::channel();
        self.ask(Request::Todo(id, sender));
        receiver
    }

    /// The newest todos as a JSON list.
    pub fn list(&self, limit: Limit) -> ListAnswer {
        let (sender, receiver) = watch::channel(None);
        self.ask(Request::List(limit, sender));
        receiver
    }

    fn ask(&self, request: Request) {
        match self.requests.try_send(request) {
            Ok(()) => {}
            Err(TrySendError::Full(request)) => request
                .refuse(StoreError::new(format!("{WAITING_MAX} reads wait for the store already"))),
            Err(TrySendError::Disconnected(request)) => {
                request.refuse(StoreError::new("reads from the store have ended because of a bug"));
            }
        }
    }
}

impl Request {
    // The requester may be gone.
    fn refuse(self, error: StoreError) {
        match self {
            Request::Todo(_, sender) => drop(sender.send(Err(error))),
            Request::List(_, sender) => drop(sender.send(Some(Err(error)))),
        }
    }

    fn is_wanted(&self) -> bool {
        match self {
            Request::Todo(_, sender) => !sender.is_closed(),
            Request::List(_, sender) => !sender.is_closed(),
        }
    }

    /// Answers it; whether the store works.
    fn answer(self, store: &mut dyn Store) -> bool {
        match self {
            Request::Todo(id, to) => {
                let read = store.find(id).map(|todo| todo.map(|todo| shown(&todo)));
                let works = read.is_ok();
                drop(to.send(read));
                works
            }
            Request::List(limit, to) => {
                let read = store.newest(limit.get(), usize::MAX).map(|read| list(&read.todos));
                let works = read.is_ok();
                drop(to.send(Some(read)));
                works
            }
        }
    }
}

fn work(
    given: &Mutex<Receiver<Request>>,
    connect: &dyn Fn() -> Result<Box<dyn Store>, StoreError>,
) {
    let mut store = None;
    loop {
        // The one that waits holds the lock; the others wait for it.
        let next = given.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(request) = next else { return };
        if !request.is_wanted() {
            continue;
        }
        if store.is_none() {
            match connect() {
                Ok(connected) => store = Some(connected),
                Err(error) => {
                    rate_limited!(WARN, error = %error, "todos that are not in memory cannot be read");
                    request.refuse(error);
                    continue;
                }
            }
        }
        if let Some(connected) = &mut store
            && !request.answer(&mut **connected)
        {
            store = None;
        }
    }
}

/// A todo as clients see it.
pub(crate) fn shown(todo: &Todo) -> Shown {
    let mut json = Vec::new();
    todo.write_json(&mut json);
    Shown { json: json.into(), user_id: todo.user_id.as_str().into() }
}

fn list(todos: &[Todo]) -> Bytes {
    let mut list = vec![b'['];
    for (at, todo) in todos.iter().enumerate() {
        if at > 0 {
            list.push(b',');
        }
        todo.write_json(&mut list);
    }
    list.push(b']');
    list.into()
}

impl fmt::Debug for Beyond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Beyond")
    }
}
