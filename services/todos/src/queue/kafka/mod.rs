//! The queue in Kafka: several instances send, the workers of one group apply.
//!
//! | file | what |
//! |---|---|
//! | `producer.rs` | messages on their way, and who waits for them |
//! | `source.rs` | commands out of Kafka, as a member of the group |
//! | `readable.rs` | whether commands can be read |
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
mod readable;
mod source;
mod topics;
mod waiting;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use highwater::batcher::sink::kafka::{Settings, Taken, batch_bytes_of_topic, partition_of_key};
use highwater::logging::{rate_limited, tracing};

pub use self::dead::WithDeadTopic;
pub use self::division::Division;
use self::lag::Lag;
use self::producer::{Batches, Message, Producer, Undelivered};
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

/// How often a command is tried while commands are refused because the last ones did not get through.
const TRY_EVERY: Duration = Duration::from_secs(1);

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
    /// The cluster answers, and its topic is the one that it was.
    answers: AtomicBool,
    trials: Trials,
    stop: AtomicBool,
}

impl KafkaQueue {
    /// Begins to connect and to create missing topics; does not wait for the cluster.
    ///
    /// It asks the store how commands are divided, so that commands are taken from the first request on, and wait for the
    /// cluster: a proxy may send some before this instance is ready.
    ///
    /// # Errors
    ///
    /// If a setting is wrong.
    pub fn new(settings: &KafkaSettings, division: Division) -> Result<KafkaQueue, QueueError> {
        let shared = Arc::new(Shared::new(settings)?);
        // Otherwise the watch asks again.
        if let Ok(Some(divided)) = division.stored(None) {
            shared.divide(divided);
        }
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

    fn has_settled(&self, at: Instant) -> bool {
        self.lag.has_settled(at)
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
    fn new(settings: &KafkaSettings) -> Result<Shared, QueueError> {
        let (part, taken) = (Part::new("queue"), Arc::<Taken>::default());
        let producer =
            Producer::new(settings, part.clone(), Arc::clone(&taken), Batches::default())?;
        part.is_down(format!("Kafka at {}: not reached yet", settings.brokers));
        Ok(Shared {
            settings: settings.clone(),
            producer: ArcSwap::from_pointee(producer),
            part,
            taken,
            divided_by: AtomicU32::new(0),
            refusing: AtomicBool::new(false),
            answers: AtomicBool::new(false),
            trials: Trials::default(),
            stop: AtomicBool::new(false),
        })
    }

    /// Finds out when the cluster is back, makes the topics, compares the number of partitions, and replaces a producer
    /// that can send no more.
    fn watch(&self, mut division: Division) {
        let (mut is_made, mut is_sized, mut is_for_good) = (false, false, false);
        let mut down_since = None;
        let mut looked: Option<Instant> = None;
        while !self.stop.load(Ordering::Relaxed) {
            let fatal = self.producer.load().fatal();
            if let Some(reason) = fatal {
                rate_limited!(WARN, reason = %reason, "Kafka's client gave up; it is replaced");
                let batches = self.producer.load().batches();
                self.replace(batches);
            }
            let was_up = self.part.down().is_none();
            if !was_up || looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY) {
                looked = Some(Instant::now());
                let reached = self.reach(&mut is_made, &mut division);
                let answers = reached.as_ref().map_or_else(|unusable| unusable.answers, |()| true);
                self.answers.store(answers, Ordering::Relaxed);
                if answers {
                    is_sized = self.size(is_sized);
                }
                match reached {
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
            // The cluster needs a moment to inform its brokers; the next look will find the topic.
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
        compared.map_err(|why| Unusable { why, for_good: true, answers: false })?;
        let settings = Settings::new(&self.settings.brokers, topic, found);
        match self.taken.look(&settings, PROBE_WAIT) {
            None => Ok(()),
            Some(why) => Err(Unusable { why, for_good: false, answers: true }),
        }
    }

    /// Finds out how large the topic's batches may be, unless that is known and the topic has refused none since. Whether it
    /// is known now.
    fn size(&self, is_known: bool) -> bool {
        let (has_refused, batches) = {
            let producer = self.producer.load();
            (producer.has_refused(), producer.batches())
        };
        if is_known && !has_refused {
            return true;
        }
        let settings = Settings::new(&self.settings.brokers, &self.settings.topic, 1);
        match batch_bytes_of_topic(&settings, PROBE_WAIT) {
            Ok(bytes) => {
                let right = Batches::up_to(bytes);
                if right != batches {
                    tracing::info!(bytes, "batches of commands are as large as the topic takes");
                    self.replace(right);
                }
                true
            }
            // Commands are sent all the same; a batch that is too large is refused as if Kafka was down.
            Err(error) => {
                rate_limited!(WARN, error = %error, "how much the topic takes is not known");
                false
            }
        }
    }

    fn divide(&self, by: u32) {
        self.divided_by.store(by, Ordering::Relaxed);
    }

    /// What is on its way fails.
    fn replace(&self, batches: Batches) {
        match Producer::new(&self.settings, self.part.clone(), Arc::clone(&self.taken), batches) {
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
    /// The cluster answers, and takes nothing as far as is known: only a command can show that it does again.
    answers: bool,
}

impl Unusable {
    fn now(why: impl fmt::Display) -> Unusable {
        Unusable { why: why.to_string(), for_good: false, answers: false }
    }
}

/// When commands were tried.
#[derive(Debug, Default)]
struct Trials(Mutex<Option<Instant>>);

impl Trials {
    /// Whether it is time for one, which begins now.
    fn begin(&self, now: Instant) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| now.saturating_duration_since(last) >= TRY_EVERY);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

/// A worker's way in.
struct KafkaSender(Arc<Shared>);

impl Sender for KafkaSender {
    fn send(&self, command: &Command) -> Result<Durable, Refusal> {
        let Shared { settings, producer, part, divided_by, refusing, answers, trials, .. } =
            &*self.0;
        let divided_by = divided_by.load(Ordering::Relaxed);
        let may_try = || answers.load(Ordering::Relaxed) && trials.begin(Instant::now());
        if divided_by == 0 || (refusing.load(Ordering::Relaxed) && !may_try()) {
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
            "the command is larger than Kafka takes (max.message.bytes and segment.bytes of its topic); send less"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Action;
    use crate::store::sqlite::Sqlite;
    use crate::store::{Store, StoreError};
    use uuid::Uuid;

    /// Nobody listens there: what is sent waits.
    fn settings() -> KafkaSettings {
        KafkaSettings {
            brokers: "127.0.0.1:1".to_owned(),
            topic: "todos".to_owned(),
            partitions: 1,
            ack_timeout: Duration::from_secs(60),
        }
    }

    fn command() -> Command {
        Command {
            id: Uuid::from_u128(1),
            todo: Uuid::from_u128(2),
            user_id: "somebody".to_owned(),
            requested_us: 0,
            action: Action::Delete,
        }
    }

    /// Purpose: an instance that has just started takes commands, which wait for the cluster: behind a proxy that does not know yet
    /// whether it is ready, each restart of an instance refused some writes.
    #[test]
    fn the_first_command_waits() {
        let data = tempfile::tempdir().expect("a temporary directory");
        let mut store = Sqlite::open(data.path()).expect("it is empty");
        store.divided_by(&source_name("todos"), Some(1)).expect("it works");
        let path = data.path().to_owned();
        let open = move || match thread::current().name() {
            Some("todos-kafka") => Err(StoreError::new("the watch comes later")),
            _ => Ok(Box::new(Sqlite::open_to_note(&path)?) as Box<dyn Store>),
        };
        let queue = KafkaQueue::new(&settings(), Division::new("todos", Box::new(open)));
        let sender = queue.expect("the settings are right").sender().expect("there are few");
        assert!(sender.send(&command()).is_ok());
    }

    /// Purpose: while a cluster that answers takes nothing, a command is tried now and then, as only that shows when it takes
    /// some again; none is while it does not answer.
    #[test]
    fn one_is_tried() {
        let shared = Arc::new(Shared::new(&settings()).expect("the settings are right"));
        shared.divide(1);
        let sender = KafkaSender(Arc::clone(&shared));
        let is_sent = || sender.send(&command()).is_ok();
        assert!(is_sent() && is_sent());
        shared.refusing.store(true, Ordering::Relaxed);
        assert!(!is_sent());
        shared.answers.store(true, Ordering::Relaxed);
        assert!(is_sent());
        let trials = Trials::default();
        let now = Instant::now();
        assert!(trials.begin(now) && !trials.begin(now + TRY_EVERY / 2));
        assert!(trials.begin(now + TRY_EVERY) && !trials.begin(now + TRY_EVERY));
    }
}
