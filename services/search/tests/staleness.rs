//! A stale answer is impossible: tested with requests while the store changes.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use highwater::{Server, ServerConfig};
use highwater_search::catalog::{Catalog, EVENTS_MAX};
use highwater_search::event::Event;
use highwater_search::http::{Search, router};
use highwater_search::store::{Record, Store, StoreError};
use highwater_testkit::Client;
use jiff::civil::datetime;

/// What the clients ask, by turns: the same range in two spellings, and three others.
const TARGETS: [&str; 5] = [
    "/search",
    "/search?",
    "/search?starts_at=2024-06-30",
    "/search?ends_at=2024-06-30",
    "/search?starts_at=2024-06-30T12:00:00Z&ends_at=2024-07-01",
];

const CLIENTS: usize = 4;
/// How often the store changes at least, and how many answers are read at least.
const CHANGES_MIN: u64 = 2000;
const ANSWERS_MIN: usize = 10_000;

/// A store that forgets: this is about what is served.
struct Forgetful;

impl Store for Forgetful {
    fn load(&mut self) -> Result<Vec<Record>, StoreError> {
        Ok(Vec::new())
    }

    fn apply(&mut self, _: &[Event], _: i64) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Twenty events that all carry the number of the change that wrote them.
fn events(change: u64) -> Vec<Event> {
    let start = datetime(2024, 6, 30, 12, 0, 0, 0);
    let event = |plan: u32| Event {
        id: Event::identity("1", &plan.to_string()),
        base_plan_id: "1".into(),
        plan_id: plan.to_string().into(),
        title: format!("change {change}.").into(),
        start,
        end: start,
        sell_from: None,
        sell_to: None,
        sold_out: None,
        min_price: None,
        max_price: None,
    };
    (0..20).map(event).collect()
}

/// The change that an answer shows, after checking that all of it shows the same.
fn change_shown(body: &str) -> u64 {
    let mut shown = body.split("\"change ").skip(1).map(|rest| {
        let number = rest.split('.').next().expect("split yields something");
        number.parse::<u64>().expect("a number")
    });
    let first = shown.next().expect("twenty events");
    assert_eq!(shown.filter(|other| *other == first).count(), 19, "a torn answer");
    first
}

/// Asks until told to stop. Returns how many answers there were.
fn read(
    address: SocketAddr,
    number: usize,
    published: &AtomicU64,
    answered: &AtomicUsize,
    stop: &AtomicBool,
) {
    let mut client = Client::connect(address);
    for turn in number.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let target = TARGETS[turn % TARGETS.len()];
        // From here on the request has begun: what is published by now must be in its answer.
        let at_least = published.load(Ordering::SeqCst);
        let answer = client.get(target);
        let shown = change_shown(answer.text());
        assert!(shown >= at_least, "{target} showed {shown} when {at_least} was published");
        answered.fetch_add(1, Ordering::SeqCst);
    }
}

/// Purpose: while the store changes as fast as it can, no client on any worker ever gets an answer
/// older than what was published when its request began, from whichever layer of the cache.
#[test]
fn no_answer_is_older_than_its_request() {
    let catalog =
        Arc::new(Catalog::open(Box::new(Forgetful), EVENTS_MAX).expect("nothing to load"));
    catalog.apply(events(1), 0).expect("a store that forgets takes everything");
    let config = ServerConfig {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
        metrics: None,
        workers: NonZeroUsize::new(2),
        ..ServerConfig::default()
    };
    let search = Arc::new(Search::new(Arc::clone(&catalog)));
    let running = Server::new(router(Arc::clone(&search))).config(config).start().expect("a port");
    let address = running.address();
    let (published, stop) = (AtomicU64::new(1), AtomicBool::new(false));
    let answered = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (published, answered, stop) = (&published, &answered, &stop);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || read(address, number, published, answered, stop)))
            .collect();
        let total = || answered.load(Ordering::SeqCst);
        // A client that has ended has found something.
        let all_well = || clients.iter().all(|client| !client.is_finished());
        let mut change = 1;
        while all_well() && (change < CHANGES_MIN || total() < ANSWERS_MIN) {
            change += 1;
            catalog.apply(events(change), 0).expect("a store that forgets takes everything");
            published.store(change, Ordering::SeqCst);
            // Rests now and then, so that answers are also found in the cache.
            let enough = if change % 4 == 0 { total() + 3 * TARGETS.len() } else { 0 };
            while all_well() && total() < enough {
                thread::yield_now();
            }
        }
        stop.store(true, Ordering::SeqCst);
    });
    let stats = search.cache();
    assert!(stats.hits > 0 && stats.misses > 0, "{stats:?}");
}
