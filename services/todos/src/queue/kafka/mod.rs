//! The queue in Kafka: several instances send, the workers of one group apply.
//!
//! | file | what |
//! |---|---|
//! | `producer.rs` | messages on their way, and who waits for them |
//! | `source.rs` | commands out of Kafka, as a member of the group |
//! | `member.rs` | which member, and how long it may be silent |
//! | `topics.rs` | the topics: made where they are missing |
//! | `dead.rs` | dead letters in a topic as well |
//!
//! A message is a command: its value [`Command::encode`], its key the todo's id, so that commands about one todo
//! are in one partition, in order; its header `id` the command's id. The number of partitions must not be changed
//! while commands wait: it decides which partition a key belongs to.

mod dead;
mod member;
mod producer;
mod source;
mod topics;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use highwater::logging::rate_limited;

pub use self::dead::WithDeadTopic;
use self::producer::{Message, Producer, Undelivered};
pub use self::source::{GROUP, KafkaSource};
use super::{Durable, Queue, QueueError, Refusal, Sender};
use crate::command::Command;
use crate::health::Part;

/// How often an unreachable cluster is probed.
const PROBE_EVERY: Duration = Duration::from_millis(250);

/// How long it has to answer.
const PROBE_WAIT: Duration = Duration::from_secs(1);

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
    watch: Option<JoinHandle<()>>,
}

struct Shared {
    settings: KafkaSettings,
    producer: ArcSwap<Producer>,
    part: Part,
    /// Unreachable for so long that commands are refused at once.
    refusing: AtomicBool,
    stop: AtomicBool,
}

impl KafkaQueue {
    /// Begins to connect and to create missing topics; does not wait for the cluster.
    ///
    /// # Errors
    ///
    /// If a setting is wrong.
    pub fn new(settings: &KafkaSettings) -> Result<KafkaQueue, QueueError> {
        let part = Part::new("queue");
        let producer = Producer::new(settings, part.clone())?;
        part.is_away(format!("Kafka at {}: not reached yet", settings.brokers));
        let shared = Arc::new(Shared {
            settings: settings.clone(),
            producer: ArcSwap::from_pointee(producer),
            part,
            refusing: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let watched = Arc::clone(&shared);
        let watch = thread::Builder::new().name("todos-kafka".into());
        let watch = watch.spawn(move || watched.watch());
        let watch =
            watch.map_err(|error| QueueError::new(format!("cannot start a thread: {error}")))?;
        Ok(KafkaQueue { shared, watch: Some(watch) })
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
    /// Finds out when the cluster is back, makes the topics, and replaces a producer that can send no more.
    fn watch(&self) {
        let mut is_made = false;
        let mut away_since = None;
        while !self.stop.load(Ordering::Relaxed) {
            if let Some(reason) = self.producer.load().fatal() {
                self.replace(&reason);
            }
            if self.part.away().is_none() {
                away_since = None;
                self.refusing.store(false, Ordering::Relaxed);
            } else {
                let since = *away_since.get_or_insert_with(Instant::now);
                match self.reach(&mut is_made) {
                    Ok(()) => self.part.is_up(),
                    Err(why) => {
                        rate_limited!(WARN, error = %why, "commands cannot be queued");
                        self.part.is_away(why);
                    }
                }
                let is_long = since.elapsed() >= self.settings.ack_timeout;
                self.refusing.store(is_long && self.part.away().is_some(), Ordering::Relaxed);
            }
            thread::park_timeout(PROBE_EVERY);
        }
    }

    fn reach(&self, is_made: &mut bool) -> Result<(), String> {
        let probe = || self.producer.load().probe(&self.settings.topic, PROBE_WAIT);
        if *is_made {
            let of_brokers = |why| format!("Kafka at {}: {why}", self.settings.brokers);
            return probe().map_err(of_brokers);
        }
        topics::create(&self.settings).map_err(|error| error.to_string())?;
        *is_made = true;
        // The cluster needs a moment to tell its brokers; the next look will find the topic.
        probe()
    }

    fn replace(&self, reason: &str) {
        rate_limited!(WARN, reason = %reason, "Kafka's client gave up; it is replaced");
        match Producer::new(&self.settings, self.part.clone()) {
            Ok(producer) => self.producer.store(Arc::new(producer)),
            Err(error) => self.part.is_away(error.to_string()),
        }
    }
}

/// A worker's way in.
struct KafkaSender(Arc<Shared>);

impl Sender for KafkaSender {
    fn send(&self, command: &Command) -> Result<Durable, Refusal> {
        let Shared { settings, producer, part, refusing, .. } = &*self.0;
        if refusing.load(Ordering::Relaxed) {
            return Err(Refusal::Away(part.away().unwrap_or_else(|| "Kafka is down".to_owned())));
        }
        let (key, id) = (command.todo.to_string(), command.id.to_string());
        let message = Message {
            topic: &settings.topic,
            key: key.as_bytes(),
            value: &command.encode(),
            headers: &[("id", &id)],
        };
        let delivered = producer.load().send(&message)?;
        Ok(Box::pin(async {
            match delivered.await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(Undelivered::Away(why))) => Err(Refusal::Away(why)),
                Ok(Err(Undelivered::TooLarge)) => {
                    Err(Refusal::Full("the command is larger than Kafka takes".to_owned()))
                }
                Err(_) => Err(Refusal::Away("Kafka's client gave up".to_owned())),
            }
        }))
    }
}
