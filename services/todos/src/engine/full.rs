//! Postgres, Kafka and Redis, each where its setting is given.
//!
//! ```text
//!  instance ──send──▶ Kafka ──▶ worker ──apply──▶ Postgres ──notify──▶ every instance's model
//!      ▲                          └──────advance──▶ Redis ──tracking──▶ every instance's near cache
//!      └── reads: near cache, Redis, model
//! ```
//!
//! Without Kafka each instance has a journal and applies what is in it; without Postgres there can be one instance.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::applier::{Applier, Stats};
use crate::args::EngineArgs;
use crate::beyond::Beyond;
use crate::feed::{Feed, News, follow};
use crate::health::Part;
use crate::model::Model;
use crate::near::{Forwarded, Link, Near};
use crate::queue::journal::JournalQueue;
use crate::queue::{Queue, Source};
use crate::reads::Reads;
use crate::store::postgres::{Postgres, PostgresFeed, Timeouts, parse_url};
use crate::store::sqlite::Sqlite;
use crate::store::{Changes, Loaded, Store, StoreError};
use highwater_kit::ending::Failure;

use super::embedded::{self, check_count};
use super::start::catch_up;
use super::{Engine, Held};

/// How long the first load may take, attempts included: this allows for a server that starts at the same time.
const LOAD_WITHIN: Duration = Duration::from_secs(30);

/// The pause between attempts to load.
const LOAD_PAUSE: Duration = Duration::from_millis(100);

/// A waiting client has no use for a late answer.
const BEYOND: Timeouts =
    Timeouts { connect: Duration::from_secs(1), operation: Duration::from_secs(5) };

/// How long an applier waits for this process's model to show what it has applied.
const SHOWN_WITHIN: Duration = Duration::from_secs(1);

/// Opens a store.
type Open = Box<dyn Fn() -> Result<Box<dyn Store>, StoreError> + Send>;

/// The two ends of an applier.
type Halves = (Box<dyn Source>, Box<dyn Store>);

/// The two ends of an applier of commands from Kafka, and whether they can be read.
type OfKafka = (Halves, Part);

/// A worker process.
pub struct Worker {
    /// Applies commands.
    pub applier: Applier,
    /// What it has done.
    pub stats: Arc<Stats>,
    /// Parts that can be unavailable.
    pub parts: Vec<Part>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("parts", &self.parts).finish_non_exhaustive()
    }
}

/// The store by itself.
pub(super) fn store(url: &str) -> Result<Held, Failure> {
    Ok((Box::new(postgres(url)?), Box::new(())))
}

fn postgres(url: &str) -> Result<Postgres, Failure> {
    let timeouts = Timeouts { connect: Duration::from_secs(10), ..Timeouts::default() };
    Ok(Postgres::connect(&parse_url(url)?, timeouts)?)
}

/// For a look beside the store's own connection.
fn open_to_note(url: &str) -> Result<Box<dyn Store>, StoreError> {
    Ok(Box::new(Postgres::connect(&parse_url(url)?, BEYOND)?))
}

fn link(args: &EngineArgs) -> Result<Option<Arc<Link>>, Failure> {
    let link = args.redis_url.as_deref().map(Link::new).transpose();
    Ok(link.map_err(Failure::from)?.map(Arc::new))
}

/// Starts an applier of commands from Kafka.
pub(super) fn worker(args: &EngineArgs) -> Result<Worker, Failure> {
    let (Some(url), Some(_)) = (&args.database_url, &args.kafka_brokers) else {
        return Err(Failure::from(
            "a worker needs --database-url and --kafka-brokers (DATABASE_URL, KAFKA_BROKERS): \
             without them the server applies writes by itself",
        ));
    };
    let (store, link) = (Box::new(postgres(url)?), link(args)?);
    let ((source, store), reader) = kafka::source(args, store)?;
    let (part, stats) = (Part::new("store"), Arc::<Stats>::default());
    let mut parts = vec![part.clone(), reader];
    parts.extend(link.as_ref().map(|link| link.part()));
    let on_applied = move |changes: Changes| {
        if let Some(link) = &link {
            advance(link, &changes);
        }
    };
    let applier = Applier::start(source, store, part, Arc::clone(&stats), on_applied)?;
    Ok(Worker { applier, stats, parts })
}

/// Lists are only as old as the last change of a todo.
fn advance(link: &Link, changes: &Changes) {
    if !changes.todos.is_empty() {
        link.advance(changes.revision);
    }
}

/// From now on commands are divided by as many partitions as the topic has.
pub(super) fn repartition(args: &EngineArgs) -> Result<(u32, Option<u32>), Failure> {
    let (mut store, _held) = match &args.database_url {
        Some(url) => store(url)?,
        None => embedded::store(args)?,
    };
    kafka::repartition(args, &mut *store)
}

/// Chooses and starts the parts of a server.
pub(super) fn build(args: &EngineArgs, embedded_worker: bool) -> Result<Engine, Failure> {
    let link = link(args)?;
    let mut engine = match &args.database_url {
        Some(url) => with_postgres(args, url, link.as_ref(), embedded_worker)?,
        None => with_sqlite(args, link.as_ref())?,
    };
    if let (Some(link), Some(model)) = (link, &engine.model) {
        let keep = Duration::from_secs(args.cache_ttl_sec.into());
        engine.parts.push(link.part());
        engine.reads = Arc::new(Near::new(Arc::clone(model), link, keep));
    }
    Ok(engine)
}

/// Todos in Postgres: this process learns of applied changes from there, whichever process applied them.
fn with_postgres(
    args: &EngineArgs,
    url: &str,
    link: Option<&Arc<Link>>,
    embedded_worker: bool,
) -> Result<Engine, Failure> {
    let bytes_max = args.cache_bytes().unwrap_or(usize::MAX);
    let feed = PostgresFeed::new(&parse_url(url)?, bytes_max / 2)?;
    let (model, follower, feed_part) = match link {
        Some(link) => followed(Forwarded::new(feed, Arc::clone(link)), args, url)?,
        None => followed(feed, args, url)?,
    };
    let rest: Vec<Box<dyn Any + Send>> = vec![Box::new(follower)];
    let mut parts = vec![feed_part];
    let store_part = Part::new("store");
    let (mut stats, mut applier, mut reader) = (None, None, None);
    let mut start = |source, store| -> Result<(), Failure> {
        let part = store_part.clone();
        parts.push(part.clone());
        let counted = Arc::<Stats>::default();
        let shown = Arc::clone(&model);
        let on_applied = move |changes| await_shown(&shown, &changes);
        applier = Some(Applier::start(source, store, part, Arc::clone(&counted), on_applied)?);
        stats = Some(counted);
        Ok(())
    };
    let queue: Arc<dyn Queue> = if args.kafka_brokers.is_some() {
        if embedded_worker {
            let ((source, store), part) = kafka::source(args, Box::new(postgres(url)?))?;
            reader = Some(part);
            start(source, store)?;
        }
        let url = url.to_owned();
        kafka::queue(args, Box::new(move || open_to_note(&url)))?
    } else {
        // Positions in Postgres are not this journal's alone: other instances have journals too.
        let queue = JournalQueue::open(&args.data, args.queue_bytes_max, None)?;
        tracing::info!(
            "the queue is this instance's own: with several instances on this store, writes to one todo through different ones \
             may be applied in another order, or not find it yet; give --kafka-brokers, or send all writes to one instance"
        );
        let mut store = postgres(url)?;
        let stored = store.positions(queue.name())?;
        queue.compare(stored.first().map(|(_, next)| *next))?;
        start(Box::new(queue.source()?), Box::new(store))?;
        Arc::new(queue)
    };
    if let Some(applier) = &applier {
        catch_up(&*queue, applier, &store_part)?;
    }
    parts.extend(reader);
    let reads: Arc<dyn Reads> = Arc::clone(&model) as _;
    Ok(Engine { reads, queue, parts, model: Some(model), stats, applier, rest })
}

/// Todos in this process's own file: only it can apply.
fn with_sqlite(args: &EngineArgs, link: Option<&Arc<Link>>) -> Result<Engine, Failure> {
    let (mut store, journal) = embedded::open(args)?;
    let loaded =
        store.newest(usize::MAX, args.cache_bytes().map_or(usize::MAX, |bytes| bytes / 2))?;
    check_count(loaded.count, args.todos_max);
    if let Some(link) = link {
        link.advance(loaded.revision);
    }
    let model = Arc::new(embedded::model(args, loaded)?);
    let mut rest: Vec<Box<dyn Any + Send>> = Vec::new();
    let mut parts = Vec::new();
    let ((source, store), queue): (Halves, Arc<dyn Queue>) = if args.kafka_brokers.is_some() {
        let (halves, reader) = kafka::source(args, Box::new(store))?;
        parts.push(reader);
        // It locks the directory, so that no other process uses the same data.
        rest.push(Box::new(journal));
        let data = args.data.clone();
        let open = move || Ok(Box::new(Sqlite::open_to_note(&data)?) as Box<dyn Store>);
        (halves, kafka::queue(args, Box::new(open))?)
    } else {
        ((Box::new(journal.source()?), Box::new(store)), Arc::new(journal))
    };
    let (part, stats) = (Part::new("store"), Arc::<Stats>::default());
    let (shown, link) = (Arc::clone(&model), link.cloned());
    let on_applied = move |changes: Changes| {
        if let Some(link) = &link {
            advance(link, &changes);
        }
        shown.apply(changes);
    };
    let applier = Applier::start(source, store, part.clone(), Arc::clone(&stats), on_applied)?;
    catch_up(&*queue, &applier, &part)?;
    parts.push(part);
    Ok(Engine {
        reads: Arc::clone(&model) as _,
        queue,
        parts,
        model: Some(model),
        stats: Some(stats),
        applier: Some(applier),
        rest,
    })
}

/// A model of everything that a feed says first, which it then follows.
fn followed<F: Feed + 'static>(
    mut feed: F,
    args: &EngineArgs,
    url: &str,
) -> Result<(Arc<Model>, crate::feed::Follower, Part), Failure> {
    let loaded = load(&mut feed)?;
    check_count(loaded.count, args.todos_max);
    let part = feed.part();
    let config = parse_url(url)?;
    let bytes_max = args.cache_bytes().unwrap_or(usize::MAX);
    let beyond = Beyond::new(move || {
        let store = Postgres::connect(&config, BEYOND)?;
        Ok(Box::new(store) as Box<dyn Store>)
    })?;
    let model = Arc::new(Model::bounded(loaded, bytes_max, beyond));
    let follower = follow(feed, Arc::clone(&model))?;
    Ok((model, follower, part))
}

/// Waits until the store says what it has.
fn load(feed: &mut impl Feed) -> Result<Loaded, Failure> {
    let until = Instant::now() + LOAD_WITHIN;
    let mut logged = None;
    loop {
        match feed.next(LOAD_PAUSE) {
            Ok(News::Everything(loaded)) => return Ok(loaded),
            Ok(_) => {}
            Err(error) if error.is_permanent() || Instant::now() >= until => {
                return Err(error.into());
            }
            Err(error) => {
                if logged.as_ref() != Some(&error) {
                    tracing::warn!(
                        "the start waits for the store, {LOAD_WITHIN:?} at most: {error}"
                    );
                    logged = Some(error);
                }
                thread::sleep(LOAD_PAUSE);
            }
        }
    }
}

/// Waits until the model shows the applied changes, so that a client that learns that its command is applied also sees
/// the effect. An unavailable feed does not delay the queue for long.
fn await_shown(model: &Model, changes: &Changes) {
    let until = Instant::now() + SHOWN_WITHIN;
    while !changes.todos.is_empty()
        && model.snapshot().revision() < changes.revision
        && Instant::now() < until
    {
        thread::sleep(Duration::from_micros(200));
    }
}

#[cfg(feature = "kafka")]
mod kafka {
    use super::{Arc, EngineArgs, Failure, OfKafka, Open, Queue, Store};
    use crate::queue::kafka::{
        Division, KafkaQueue, KafkaSettings, KafkaSource, Waiting, WithDeadTopic, source_name,
        waiting,
    };

    fn settings(args: &EngineArgs) -> KafkaSettings {
        KafkaSettings {
            brokers: args.kafka_brokers.clone().unwrap_or_default(),
            topic: args.kafka_todo_topic.clone(),
            partitions: args.kafka_partitions,
            ack_timeout: args.ack_timeout,
        }
    }

    /// `open` opens the store that knows by how many partitions commands are divided.
    pub(super) fn queue(args: &EngineArgs, open: Open) -> Result<Arc<dyn Queue>, Failure> {
        let settings = settings(args);
        let division = Division::new(&settings.topic, open);
        Ok(Arc::new(KafkaQueue::new(&settings, division)?))
    }

    /// From now on commands are divided by as many partitions as the topic has. Returns that number, and the one before.
    pub(super) fn repartition(
        args: &EngineArgs,
        store: &mut dyn Store,
    ) -> Result<(u32, Option<u32>), Failure> {
        let settings = settings(args);
        let (topic, source) = (&settings.topic, source_name(&settings.topic));
        let Waiting { partitions, commands } = waiting(&settings)?;
        if commands > 0 {
            return Err(Failure::from(format!(
                "{commands} commands in topic {topic} are not applied yet; stop all instances, let a worker run until this \
                 says 0, and try again"
            )));
        }
        let before = store.divided_by(&source, None)?;
        store.divide_by(&source, partitions)?;
        Ok((partitions, before))
    }

    /// What Kafka delivers, and a store whose dead letters Kafka gets as well.
    pub(super) fn source(args: &EngineArgs, store: Box<dyn Store>) -> Result<OfKafka, Failure> {
        let settings = settings(args);
        let store = WithDeadTopic::new(store, &settings)?;
        let source = KafkaSource::new(&settings)?;
        let part = source.part();
        Ok(((Box::new(source), Box::new(store)), part))
    }
}

#[cfg(not(feature = "kafka"))]
mod kafka {
    use super::{Arc, EngineArgs, Failure, OfKafka, Open, Queue, Store};

    const MISSING: &str =
        "--kafka-brokers: this program was built without Kafka; build it with the feature `kafka`";

    pub(super) fn queue(_: &EngineArgs, _: Open) -> Result<Arc<dyn Queue>, Failure> {
        Err(Failure::from(MISSING))
    }

    pub(super) fn repartition(
        _: &EngineArgs,
        _: &mut dyn Store,
    ) -> Result<(u32, Option<u32>), Failure> {
        Err(Failure::from(MISSING))
    }

    pub(super) fn source(_: &EngineArgs, _: Box<dyn Store>) -> Result<OfKafka, Failure> {
        Err(Failure::from(MISSING))
    }
}
