//! Everything in one process: SQLite, the journal, the model in memory.

use std::sync::Arc;

use highwater::logging::tracing;

use super::start::catch_up;
use super::{Engine, Held};
use crate::applier::{Applier, Stats};
use crate::args::EngineArgs;
use crate::beyond::Beyond;
use crate::health::Part;
use crate::model::Model;
use crate::queue::journal::{JournalQueue, NAME};
use crate::store::sqlite::Sqlite;
use crate::store::{Loaded, Store};
use highwater_kit::ending::Failure;

/// Loads the store, and applies commands that were acknowledged and not applied before the last exit: when the port
/// opens, every acknowledged write is visible.
pub(super) fn build(args: &EngineArgs) -> Result<Engine, Failure> {
    let (mut store, queue) = open(args)?;
    let loaded =
        store.newest(usize::MAX, args.cache_bytes().map_or(usize::MAX, |bytes| bytes / 2))?;
    check_count(loaded.count, args.todos_max);
    let model = Arc::new(model(args, loaded)?);
    let (part, stats) = (Part::new("store"), Arc::<Stats>::default());
    let shown = Arc::clone(&model);
    let source = Box::new(queue.source()?);
    let applier = Applier::start(
        source,
        Box::new(store),
        part.clone(),
        Arc::clone(&stats),
        move |changes| {
            shown.apply(changes);
        },
    )?;
    catch_up(&queue, &applier, &part)?;
    Ok(Engine {
        reads: Arc::clone(&model) as _,
        queue: Arc::new(queue),
        parts: vec![part],
        model: Some(model),
        stats: Some(stats),
        applier: Some(applier),
        rest: Vec::new(),
    })
}

/// The model for reads: everything in memory, or as much as `--cache-bytes` allows, with the rest in the file.
pub(super) fn model(args: &EngineArgs, loaded: Loaded) -> Result<Model, Failure> {
    let Some(bytes_max) = args.cache_bytes() else { return Ok(Model::new(loaded)) };
    let data = args.data.clone();
    let beyond = Beyond::new(move || Ok(Box::new(Sqlite::open_to_read(&data)?) as Box<dyn Store>))?;
    Ok(Model::bounded(loaded, bytes_max, beyond))
}

/// The store by itself. The queue is held, so that no service runs on the same data.
pub(super) fn store(args: &EngineArgs) -> Result<Held, Failure> {
    let (store, queue) = open(args)?;
    Ok((Box::new(store), Box::new(queue)))
}

pub(super) fn open(args: &EngineArgs) -> Result<(Sqlite, JournalQueue), Failure> {
    let mut store = Sqlite::open(&args.data)?;
    let applied = store.positions(NAME)?.first().map_or(0, |(_, next)| *next);
    let queue = JournalQueue::open(&args.data, args.queue_bytes_max, Some(applied))?;
    Ok((store, queue))
}

/// Warns if there are more todos than the limit: it applies to creations, and must not prevent reads.
pub(super) fn check_count(count: u64, max: u32) {
    if count > u64::from(max) {
        tracing::warn!(
            todos = count,
            todos_max = max,
            "there are more todos than --todos-max: creations are refused until some are deleted; give a higher --todos-max"
        );
    }
}
