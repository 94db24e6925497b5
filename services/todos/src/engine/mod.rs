//! Chooses the parts of this process.
//!
//! | setting | absent | given |
//! |---|---|---|
//! | `--database-url` | SQLite in `--data` | Postgres |
//! | `--kafka-brokers` | the journal in `--data` | Kafka |
//! | `--redis-url` | lists from this process's memory | lists shared through Redis, near cache in memory |
//!
//! Everything else in the service knows traits only.

mod embedded;
pub mod full;
mod start;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::applier::{Applier, Stats};
use crate::args::{EngineArgs, SeedArgs};
use crate::command::{Action, Command};
use crate::health::Part;
use crate::model::Model;
use crate::queue::{Delivery, Queue};
use crate::reads::Reads;
use crate::store::Store;
use crate::todo::now_us;
use highwater_kit::ending::Failure;

/// How many todos are seeded in one transaction.
const SEED_BATCH: usize = 500;

/// The parts of a serving process.
pub struct Engine {
    /// What clients read.
    pub reads: Arc<dyn Reads>,
    /// Where commands go.
    pub queue: Arc<dyn Queue>,
    /// The parts that `/ready` checks, besides the queue.
    pub parts: Vec<Part>,
    /// The todos in memory, if they are there.
    pub model: Option<Arc<Model>>,
    /// What the applier in this process has done, if there is one.
    pub stats: Option<Arc<Stats>>,
    /// Applies commands in this process.
    pub applier: Option<Applier>,
    /// Values that must live as long, and end when dropped.
    pub rest: Vec<Box<dyn Any + Send>>,
}

impl Engine {
    /// Applies queued commands for at most `patience`, and ends all parts. Call it when no request is in flight any
    /// more.
    pub fn close(self, patience: Duration) {
        if let Some(applier) = self.applier {
            applier.drain(patience);
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("parts", &self.parts).finish_non_exhaustive()
    }
}

/// Chooses and starts the parts, and waits until everything that was acknowledged is visible.
///
/// # Errors
///
/// Which part cannot be used, and what to do about it.
pub fn build(args: &EngineArgs, embedded_worker: bool) -> Result<Engine, Failure> {
    if args.is_embedded() { embedded::build(args) } else { full::build(args, embedded_worker) }
}

/// Starts only an applier of commands from Kafka: the subcommand `worker`.
///
/// # Errors
///
/// Which part cannot be used, and what to do about it.
pub fn worker(args: &EngineArgs) -> Result<full::Worker, Failure> {
    full::worker(args)
}

/// From now on commands are divided by as many partitions as the topic has: the subcommand `repartition`. Returns that
/// number, and the one before if there was one.
///
/// # Errors
///
/// Commands in the topic are not applied yet; or which part cannot be used, and what to do about it.
pub fn repartition(args: &EngineArgs) -> Result<(u32, Option<u32>), Failure> {
    full::repartition(args)
}

/// Fills the store with todos to try the service with. A service that runs on the same data must be stopped
/// first if the store is embedded.
///
/// # Errors
///
/// Which part cannot be used, and what to do about it.
pub fn seed(args: &SeedArgs) -> Result<(), Failure> {
    let (mut store, _held) = match &args.engine.database_url {
        Some(url) => full::store(url)?,
        None => embedded::store(&args.engine)?,
    };
    let (count, now_us) = (args.count as usize, now_us());
    let mut random = fastrand::Rng::new();
    let mut id = |us: i64| {
        let mut bytes = [0; 10];
        random.fill(&mut bytes);
        uuid::Builder::from_unix_timestamp_millis((us / 1000).unsigned_abs(), &bytes).into_uuid()
    };
    let numbers: Vec<usize> = (1..=count).collect();
    for batch in numbers.chunks(SEED_BATCH) {
        let made = batch.iter().map(|&number| {
            // The last one is the newest, and none is from the future.
            let requested_us = now_us - (count - number) as i64;
            let action = Action::Create {
                title: format!("Todo {number}"),
                description: format!("Description for todo {number}"),
            };
            let (command, todo): (Uuid, Uuid) = (id(requested_us), id(requested_us));
            let user_id = args.subject.clone();
            Delivery {
                position: None,
                content: Ok(Command { id: command, todo, user_id, requested_us, action }),
            }
        });
        store.apply("seed", &made.collect::<Vec<_>>())?;
    }
    store.sync()?;
    Ok(())
}

/// A store, and what must be held while it is used.
type Held = (Box<dyn Store>, Box<dyn Any + Send>);
