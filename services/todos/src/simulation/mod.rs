//! The Todo service under seeds that decide everything that may happen to it.
//!
//! One seed is one life of a service: instances and workers, a store, a queue (Kafka, or a journal in each instance) and
//! Redis. Workers are killed at any step, lose partitions without knowing it, and get commands again; the store is
//! restored from a backup; the clock jumps by weeks, in both directions; instances start again; Redis is restarted, and
//! caches miss pushes.
//!
//! What decides is the code of the service: [`decide`](crate::store::decision::decide),
//! [`Follower`](crate::store::history::Follower), [`Model`](crate::model::Model),
//! [`judge`](crate::near::judge::judge), [`validity`](crate::near::judge::validity) and
//! [`begins_at`](crate::queue::journal::begins_at). The servers around it are simulated: [`store`] does what the statements
//! of `store/postgres` do, [`redis`] what the scripts of `near` do. The same races between real servers are in `tests/full`.
//!
//! The oracle ([`oracle`]) shares nothing with that code: it applies each acknowledged command once, in order, to a map of
//! its own.
//!
//! * The store always has what the oracle has: nothing lost, nothing twice, nothing back.
//! * A list is that of a state at least as new as the last one that the store reported to the instance.
//! * At rest every acknowledged command was applied, or went with a restore, and every list is the newest.
//!
//! `TODOS_SEEDS=100000 cargo test -p highwater-todos --lib simulation` runs more of them; `TODOS_SEED=42` runs one.

mod instance;
mod oracle;
mod redis;
mod store;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use world::World;

/// Seeds in a normal run.
const SEEDS: u64 = 500;

/// What must happen in a normal run, for the simulation to mean anything.
const EVENTS: [&str; 22] = [
    "acknowledged",
    "repeated",
    "waits",
    "killed",
    "zombie",
    "restore",
    "restore noticed",
    "weeks on",
    "weeks back",
    "ids removed",
    "history removed",
    "positions forgotten",
    "unknown commit",
    "instance starts",
    "redis restarts",
    "push lost",
    "theirs",
    "ours",
    "filled",
    "hit",
    "changes",
    "everything",
];

/// How often each event happened.
pub(crate) type Seen = BTreeMap<&'static str, u64>;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text}; it is a number")))
}

/// Purpose: whatever happens to the service's parts, each acknowledged command is applied once, in order, and no reader
/// sees less than the store has reported.
#[test]
fn seeds() {
    let mut seen = Seen::new();
    let (first, count) = match number("TODOS_SEED") {
        Some(seed) => (seed, 1),
        None => (0, number("TODOS_SEEDS").unwrap_or(SEEDS)),
    };
    for seed in first..first + count {
        match catch_unwind(AssertUnwindSafe(|| World::new(seed).live())) {
            Ok(one) => {
                one.into_iter().for_each(|(event, often)| *seen.entry(event).or_default() += often)
            }
            Err(_) => panic!("seed {seed} failed: TODOS_SEED={seed} runs it alone"),
        }
    }
    eprintln!("{count} seeds: {seen:?}");
    for event in EVENTS {
        assert!(seen.contains_key(event) || count < SEEDS, "{event:?} never happened");
    }
}
