//! Requests to the service with fakes behind it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use highwater::testing::{Client, Response};
use uuid::Uuid;

use super::{Bounds, Counts, Missing, Service, router};
use crate::auth::{issue, tokens};
use crate::command::Command;
use crate::health::Part;
use crate::queue::{Durable, Queue, QueueError, Refusal, Sender};
use crate::reads::{Limit, Read, Reads, Shown, Waiting};
use crate::todo::now_us;

const DAY_US: i64 = 24 * 3_600_000_000;

const SECRET: &str = "a secret of some length, as there should be";

/// A queue whose workers elsewhere apply what was acknowledged before a request by the time it is asked that often.
struct Elsewhere {
    looks: AtomicU32,
    asked: Mutex<Vec<Instant>>,
}

impl Queue for Elsewhere {
    fn sender(&self) -> Result<Box<dyn Sender>, QueueError> {
        Ok(Box::new(Refusing))
    }

    fn part(&self) -> Part {
        Part::new("queue")
    }

    fn depth(&self) -> u64 {
        0
    }

    fn mark(&self) -> Option<u64> {
        None
    }

    fn reached(&self, _: u64) -> bool {
        unreachable!("there is no mark")
    }

    fn settles_after(&self) -> Option<Duration> {
        Some(Duration::from_secs(60))
    }

    fn has_settled(&self, at: Instant) -> bool {
        self.asked.lock().expect("no test panics with it").push(at);
        let left = self.looks.load(Ordering::Relaxed);
        self.looks.store(left.saturating_sub(1), Ordering::Relaxed);
        left == 0
    }
}

struct Refusing;

impl Sender for Refusing {
    fn send(&self, _: &Command) -> Result<Durable, Refusal> {
        Err(Refusal::Full("it takes nothing".into()))
    }
}

/// A store without todos.
struct Empty;

impl Reads for Empty {
    fn list(&self, _: Limit) -> Read<Bytes> {
        Read::Ready(Bytes::from_static(b"[]"))
    }

    fn todo(&self, _: Uuid) -> Read<Option<Shown>> {
        Read::Ready(None)
    }

    fn wait_for(&self, _: Uuid) -> Waiting {
        Box::pin(std::future::pending())
    }

    fn reserve(&self, _: Uuid, _: usize) -> bool {
        true
    }

    fn release(&self, _: Uuid) {}

    fn is_in_memory(&self) -> bool {
        true
    }
}

/// Purpose: a todo that is not there is 404 also if its id says that it was made a moment ago, or will be made tomorrow, as
/// after a clock went back: once the workers have applied everything that was acknowledged before the request, whatever the
/// clocks say. While that or what was applied is not known, it is 503.
#[test]
fn a_missing_todo_with_an_id_of_tomorrow() {
    let cases = [
        (-DAY_US, u32::MAX, false, 404),
        (0, 3, false, 404),
        (DAY_US, 3, false, 404),
        (DAY_US, u32::MAX, false, 503),
        (DAY_US, 3, true, 503),
    ];
    for (later_us, looks, is_deaf, status) in cases {
        let queue = Arc::new(Elsewhere { looks: AtomicU32::new(looks), asked: Mutex::default() });
        let store = Part::new("store");
        if is_deaf {
            store.is_down("it does not say what was applied");
        }
        let client = client(&queue, store, Duration::from_secs(5));
        let answer = put(&client, "me", id(later_us, 1));
        assert_eq!(answer.status, status, "{later_us}, {looks}, {is_deaf}: {}", answer.text());
        let asked = queue.asked.lock().expect("no test panics with it").clone();
        assert!(asked.windows(2).all(|pair| pair[0] == pair[1]), "the bound moves with the time");
    }
}

/// Purpose: where each request waits for less than it takes to learn what was applied, one that is repeated gets 404 in the
/// end: what counts is when its client first asked. Once it got 503 until the time in the id had passed.
#[test]
fn a_missing_todo_is_asked_for_again() {
    let queue = Arc::new(Elsewhere { looks: AtomicU32::new(2), asked: Mutex::default() });
    let client = client(&queue, Part::new("store"), Duration::ZERO);
    let (todo, other) = (id(DAY_US, 1), id(DAY_US, 2));
    let requests = [("me", todo), ("me", todo), ("you", todo), ("me", other), ("me", todo)];
    let statuses = requests.map(|(user, todo)| put(&client, user, todo).status);
    assert_eq!(statuses, [503, 503, 404, 404, 404]);
    let asked = queue.asked.lock().expect("no test panics with it").clone();
    let is_first = [0, 1, 4].map(|index| asked[index] == asked[0]);
    assert_eq!(is_first, [true; 3], "{asked:?}");
    assert!(
        asked[2] > asked[0] && asked[3] > asked[2],
        "neither another user's, nor for another todo"
    );
}

/// The service before a queue, with a store that is empty.
fn client(queue: &Arc<Elsewhere>, store: Part, wait_max: Duration) -> Client {
    let bounds = Bounds { title_max: 10, description_max: 10, todos_max: 10, wait_max };
    let service = Service {
        reads: Arc::new(Empty),
        queue: Arc::clone(queue) as _,
        tokens: tokens(SECRET),
        bounds,
        parts: vec![store],
        counts: Counts::default(),
        missing: Missing::default(),
    };
    Client::new(router(&Arc::new(service)))
}

/// An id of so much later than now.
fn id(later_us: i64, random: u8) -> Uuid {
    let made_ms = u64::try_from((now_us() + later_us) / 1000).expect("after 1970");
    uuid::Builder::from_unix_timestamp_millis(made_ms, &[random; 10]).into_uuid()
}

/// The answer to a user's change of a todo.
fn put(client: &Client, user: &str, todo: Uuid) -> Response {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let token = issue(SECRET, user, now.as_secs_f64(), 3600.0);
    client.set_header("authorization", &format!("Bearer {token}"));
    client.put(&format!("/todos/{todo}"), r#"{"completed":true}"#)
}
