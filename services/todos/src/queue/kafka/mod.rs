//! The queue in Kafka: several instances send, the workers of one group apply.
//!
//! | file | what |
//! |---|---|
//! | `producer.rs` | messages on their way, and who waits for them |
//! | `source.rs` | commands out of Kafka, as a member of the group |
//! | `member.rs` | which member, and how long it may be silent |
//! | `topics.rs` | the topics: made where they are missing |
//! | `division.rs` | by how many partitions commands are divided, whatever number the topic has |
//! | `waiting.rs` | how many commands of the topic are not applied |
//! | `lag.rs` | until when everything that was acknowledged is applied |
//! | `dead.rs` | dead letters in a topic as well |
//!
//! A message is a command: its value [`Command::encode`], its key the todo's id, which decides the partition, so that
//! commands about one todo are in order; its header `id` the command's id.

mod dead;
mod division;
mod lag;
mod member;
mod producer;
mod source;
mod topics;
mod waiting;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use highwater::batcher::sink::kafka::{Settings, Taken, partition_of_key};
use highwater::logging::rate_limited;

pub use self::dead::WithDeadTopic;
pub use self::division::Division;
use self::lag::Lag;
use self::producer::{Message, Producer, Undelivered};
pub use self::source::{GROUP, KafkaSource, source_name};
pub use self::waiting::{Waiting, waiting};
use super::{Durable, Queue, QueueError, Refusal, Sender};
use crate::command::Command;
use crate::health::Part;

/// How often an unreachable cluster is probed.
const PROBE_EVERY: Duration = Duration::from_millis(250);

/// How often a reachable cluster is asked how many partitions the topic has.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How long it has to answer.
const PROBE_WAIT: Duration = Duration::from_secs(1);

/// How long it takes from an acknowledgement to every instance's memory, at most, beside the lag of the workers: clocks that
/// differ, and stores that are slow.
const SETTLED: Duration = Duration::from_secs(60);

/// Where the cluster is, and what is in it.
#[derive(Clone, Debug)]
pub struct KafkaSettings {
    /// `host:port`, several with commas.
    pub brokers: String,
    /// The topic of commands.
    pub topic: String,
    /// How many partitions it gets if it is missing.
    pub partitions: i32,
    /// How long a command may wait to be acknowledged by all replicas. Beyond it: 503.
    pub ack_timeout: Duration,
}

impl KafkaSettings {
    /// The default of `partitions`.
    pub const PARTITIONS: i32 = 32;

    /// The default of `ack_timeout`.
    pub const ACK_TIMEOUT: Duration = Duration::from_secs(5);

    /// Where dead letters go.
    pub fn dead_topic(&self) -> String {
        format!("{}-dead", self.topic)
    }
}

/// The queue in Kafka.
pub struct KafkaQueue {
    shared: Arc<Shared>,
    lag: Lag,
    watch: Option<JoinHandle<()>>,
}

struct Shared {
    settings: KafkaSettings,
    producer: ArcSwap<Producer>,
    part: Part,
    /// Whether commands get through, which a cluster that answers does not say.
    taken: Arc<Taken>,
    /// By how many partitions commands are divided; 0 while that is not known.
    divided_by: AtomicU32,
    /// Commands are refused at once: it has been unreachable for long, or its topic is not the one that it was.
    refusing: AtomicBool,
    stop: AtomicBool,
}

impl KafkaQueue {
    /// Begins to connect and to create missing topics; does not wait for the cluster.
    ///
    /// # Errors
    ///
    /// If a setting is wrong.
    pub fn new(settings: &KafkaSettings, division: Division) -> Result<KafkaQueue, QueueError> {
        let part = Part::new("queue");
        let taken = Arc::<Taken>::default();
        let producer = Producer::new(settings, part.clone(), Arc::clone(&taken))?;
        part.is_down(format!("Kafka at {}: not reached yet", settings.brokers));
        let shared = Arc::new(Shared {
            settings: settings.clone(),
            producer: ArcSwap::from_pointee(producer),
            part,
            taken,
            divided_by: AtomicU32::new(0),
            refusing: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let watched = Arc::clone(&shared);
        let watch = thread::Builder::new().name("todos-kafka".into());
        let watch = watch.spawn(move || watched.watch(division));
        let watch =
            watch.map_err(|error| QueueError::new(format!("cannot start a thread: {error}")))?;
        Ok(KafkaQueue { shared, lag: Lag::watch(settings)?, watch: Some(watch) })
    }
}

impl Queue for KafkaQueue {
    fn sender(&self) -> Result<Box<dyn Sender>, QueueError> {
        Ok(Box::new(KafkaSender(Arc::clone(&self.shared))))
    }

    fn part(&self) -> Part {
        self.shared.part.clone()
    }

    fn depth(&self) -> u64 {
        self.shared.producer.load().waiting()
    }

    fn mark(&self) -> Option<u64> {
        None
    }

    fn reached(&self, _mark: u64) -> bool {
        true
    }

    fn settles_after(&self) -> Option<Duration> {
        self.lag.get().map(|lag| lag + SETTLED)
    }
}

impl Drop for KafkaQueue {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(watch) = self.watch.take() {
            watch.thread().unpark();
            // If it panicked, the panic was reported already.
            let _ = watch.join();
        }
    }
}

impl fmt::Debug for KafkaQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KafkaQueue").field(&self.shared.settings).finish()
    }
}

impl Shared {
    /// Finds out when the cluster is back, makes the topics, compares the number of partitions, and replaces a producer
    /// that can send no more.
    fn watch(&self, mut division: Division) {
        let (mut is_made, mut is_for_good) = (false, false);
        let mut down_since = None;
        let mut looked: Option<Instant> = None;
        while !self.stop.load(Ordering::Relaxed) {
            if let Some(reason) = self.producer.load().fatal() {
                self.replace(&reason);
            }
            let was_up = self.part.down().is_none();
            if !was_up || looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY) {
                looked = Some(Instant::now());
                match self.reach(&mut is_made, &mut division) {
                    Ok(()) => {
                        is_for_good = false;
                        self.part.is_up();
                    }
                    // Whether commands get through is known better from the commands.
                    Err(unusable) if was_up && !unusable.for_good => {}
                    Err(unusable) => {
                        is_for_good = unusable.for_good;
                        rate_limited!(WARN, error = %unusable.why, "commands cannot be queued");
                        self.part.is_down(unusable.why);
                    }
                }
            }
            let is_refusing = match self.part.down() {
                None => {
                    down_since = None;
                    false
                }
                Some(_) => {
                    let since = down_since.get_or_insert_with(Instant::now);
                    is_for_good || since.elapsed() >= self.settings.ack_timeout
                }
            };
            self.refusing.store(is_refusing, Ordering::Relaxed);
            thread::park_timeout(PROBE_EVERY);
        }
    }

    /// Whether the cluster answers, and has the topic as it should be.
    fn reach(&self, is_made: &mut bool, division: &mut Division) -> Result<(), Unusable> {
        let divided_by = match self.divided_by.load(Ordering::Relaxed) {
            0 => division
                .stored(None)
                .map_err(Unusable::now)?
                .inspect(|divided| self.divide(*divided)),
            divided => Some(divided),
        };
        let topic = &self.settings.topic;
        let probe = || self.producer.load().probe(topic, PROBE_WAIT);
        if !*is_made {
            topics::create(&self.settings).map_err(Unusable::now)?;
            *is_made = true;
            // The cluster needs a moment to tell its brokers; the next look will find the topic.
        }
        let of_brokers = |why| format!("Kafka at {}: {why}", self.settings.brokers);
        let found = probe().map_err(of_brokers).map_err(Unusable::now)?;
        let divided_by = match divided_by {
            Some(divided) => divided,
            None => {
                let divided = division.stored(Some(found)).map_err(Unusable::now)?;
                divided.inspect(|divided| self.divide(*divided)).unwrap_or(found)
            }
        };
        let compared = division.compare(topic, divided_by, found);
        compared.map_err(|why| Unusable { why, for_good: true })?;
        let settings = Settings::new(&self.settings.brokers, topic, found);
        self.taken.look(&settings, PROBE_WAIT).map_or(Ok(()), |why| Err(Unusable::now(why)))
    }

    fn divide(&self, by: u32) {
        self.divided_by.store(by, Ordering::Relaxed);
    }

    fn replace(&self, reason: &str) {
        rate_limited!(WARN, reason = %reason, "Kafka's client gave up; it is replaced");
        match Producer::new(&self.settings, self.part.clone(), Arc::clone(&self.taken)) {
            Ok(producer) => self.producer.store(Arc::new(producer)),
            Err(error) => self.part.is_down(error.to_string()),
        }
    }
}

/// Why no commands can be sent.
struct Unusable {
    why: String,
    /// Waiting does not help: commands are refused at once.
    for_good: bool,
}

impl Unusable {
    fn now(why: impl fmt::Display) -> Unusable {
        Unusable { why: why.to_string(), for_good: false }
    }
}

/// A worker's way in.
struct KafkaSender(Arc<Shared>);

impl Sender for KafkaSender {
    fn send(&self, command: &Command) -> Result<Durable, Refusal> {
        let Shared { settings, producer, part, divided_by, refusing, .. } = &*self.0;
        let divided_by = divided_by.load(Ordering::Relaxed);
        if refusing.load(Ordering::Relaxed) || divided_by == 0 {
            return Err(Refusal::Down(part.down().unwrap_or_else(|| "Kafka is down".to_owned())));
        }
        let (key, id) = (command.todo.to_string(), command.id.to_string());
        let message = Message {
            topic: &settings.topic,
            partition: Some(partition_of_key(key.as_bytes(), divided_by)),
            key: key.as_bytes(),
            value: &command.encode(),
            headers: &[("id", &id)],
        };
        let delivered = producer.load().send(&message).map_err(refusal)?;
        Ok(Box::pin(async {
            match delivered.await {
                Ok(outcome) => outcome.map_err(refusal),
                Err(_) => Err(Refusal::Down("Kafka's client gave up".to_owned())),
            }
        }))
    }
}

fn refusal(undelivered: Undelivered) -> Refusal {
    match undelivered {
        Undelivered::Full(why) => Refusal::Full(why),
        Undelivered::Down(why) => Refusal::Down(why),
        Undelivered::TooLarge => Refusal::TooLarge(
            "the command is larger than Kafka takes (max.message.bytes of its topic); send less"
                .to_owned(),
        ),
    }
}
