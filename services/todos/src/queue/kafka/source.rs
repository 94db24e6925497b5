//! Commands out of Kafka, as a member of the group of workers.
//!
//! The cluster divides the partitions among the members of the group. Applied commands are committed periodically, when
//! partitions move to another member, and at the end; the store drops repeated deliveries by the commands' ids. So a
//! member that was killed, or that does not know yet that it lost a partition, does no harm.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use highwater::logging::{rate_limited, tracing};
use rdkafka::ClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::member::{self, MemberId, SESSION, SESSION_BROKERS};
use super::producer::client_config;
use super::readable::Readable;
use super::{KafkaSettings, topics};
use crate::command::Command;
use crate::health::Part;
use crate::queue::{Delivery, Position, QueueError, Source};

/// The group that workers belong to.
pub const GROUP: &str = "todo-workers";

/// How long a batch waits for more once it has something: messages that came together are applied together. Beyond it only
/// what is there already is taken.
const GATHER: Duration = Duration::from_millis(1);

/// How often a member records that it is alive.
const TOUCH: Duration = Duration::from_secs(1);

/// The most time that an ending member takes to leave the group.
const LEAVE: Duration = Duration::from_secs(1);

/// A member of the group of workers.
pub struct KafkaSource {
    consumer: BaseConsumer<Revoked>,
    settings: KafkaSettings,
    session: Duration,
    member: Option<MemberId>,
    /// When it was said last that this member lives.
    touched: Instant,
    name: String,
    topic: String,
    brokers: String,
    positions: Positions,
    readable: Readable,
}

/// How long the cluster may take for each answer while it is not known whether commands can be read: nothing else is to be done.
const ANSWER: Duration = Duration::from_millis(500);

/// How far a member is in its partitions.
#[derive(Debug, Default)]
struct Positions {
    /// Behind what was given out, for each partition.
    given: BTreeMap<i32, i64>,
    /// Behind what was applied, and is not committed.
    applied: BTreeMap<i32, i64>,
}

impl Positions {
    /// These partitions are others' to commit: with what this member knows, it could only take them back.
    fn forget(&mut self, partitions: &[i32]) {
        for partition in partitions {
            self.given.remove(partition);
            self.applied.remove(partition);
        }
    }

    /// What was given is applied.
    fn are_applied(&mut self) {
        self.applied.append(&mut self.given);
    }
}

/// Partitions that were taken from this member since it looked last.
#[derive(Debug, Default)]
struct Revoked(Mutex<Vec<i32>>);

impl Revoked {
    fn take(&self) -> Vec<i32> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ClientContext for Revoked {}

impl ConsumerContext for Revoked {
    /// Called within `poll`.
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Revoke(partitions) = rebalance {
            let partitions = partitions.elements().into_iter().map(|one| one.partition());
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(partitions);
        }
    }
}

impl KafkaSource {
    /// Joins the group, once the cluster can be reached.
    ///
    /// # Errors
    ///
    /// If a setting is wrong.
    pub fn new(settings: &KafkaSettings) -> Result<KafkaSource, QueueError> {
        let member = member::take(&settings.topic);
        let consumer = consumer(settings, SESSION, member.as_ref())?;
        Ok(KafkaSource {
            consumer,
            settings: settings.clone(),
            session: SESSION,
            member,
            touched: Instant::now(),
            name: source_name(&settings.topic),
            topic: settings.topic.clone(),
            brokers: settings.brokers.clone(),
            positions: Positions::default(),
            readable: Readable::new(),
        })
    }

    /// Whether commands can be read.
    pub fn part(&self) -> Part {
        self.readable.part()
    }

    /// Asks whether the topic is there, and the coordinator of the group answers.
    fn look(&self) -> Result<(), String> {
        let of_kafka = |error: KafkaError| self.failed(&error).to_string();
        let topic = self.topic.as_str();
        let metadata = self.consumer.fetch_metadata(Some(topic), ANSWER).map_err(of_kafka)?;
        let partitions = metadata.topics().first().map_or(0, |topic| topic.partitions().len());
        if partitions == 0 {
            return Err(self.missing());
        }
        let mut first = TopicPartitionList::new();
        first.add_partition(topic, 0);
        self.consumer.committed_offsets(first, ANSWER).map(drop).map_err(of_kafka)
    }

    /// What `next` has come to, for the part.
    fn note(&mut self, has_read: bool, failure: Option<String>) {
        let now = Instant::now();
        if let Some(why) = failure {
            self.readable.failed(now, &why);
        }
        if has_read {
            self.readable.works();
        } else if self.readable.begins_look(now) {
            match self.look() {
                Ok(()) => self.readable.works(),
                Err(why) => self.readable.failed(Instant::now(), &why),
            }
        }
    }

    /// Joins the group in another way, if that is why it cannot go on. Then nothing is wrong any more.
    fn join_otherwise(&mut self, error: &KafkaError) -> bool {
        let fatal = self.consumer.client().fatal_error().map(|(code, _)| code);
        match fatal.or(error.rdkafka_error_code()) {
            Some(RDKafkaErrorCode::InvalidSessionTimeout) if self.session != SESSION_BROKERS => {
                tracing::warn!(
                    wanted = ?SESSION,
                    session = ?SESSION_BROKERS,
                    "the brokers allow no shorter session: if a worker is killed and not started again, its writes wait \
                     that long; set group.min.session.timeout.ms=1000 on the brokers"
                );
                self.session = SESSION_BROKERS;
            }
            Some(RDKafkaErrorCode::FencedInstanceId) if self.member.is_some() => {
                let id = self.member.take().map_or_else(String::new, |member| member.id);
                tracing::warn!(
                    id,
                    "another worker has this machine's name; this one goes on without an id"
                );
            }
            _ if fatal.is_some() => {
                rate_limited!(WARN, error = %error, "Kafka's client gave up; it is replaced");
            }
            _ => return false,
        }
        // What was given and is not committed comes again, and is known then.
        match consumer(&self.settings, self.session, self.member.as_ref()) {
            Ok(consumer) => self.consumer = consumer,
            Err(error) => rate_limited!(WARN, error = %error, "the group cannot be joined"),
        }
        self.positions = Positions::default();
        true
    }

    fn missing(&self) -> String {
        format!("Kafka at {}: {}", self.brokers, topics::missing(&self.topic))
    }

    fn failed(&self, error: &KafkaError) -> QueueError {
        QueueError::new(format!("Kafka at {}: {error}", self.brokers))
    }
}

impl Source for KafkaSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn next(&mut self, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        if self.touched.elapsed() >= TOUCH {
            self.touched = Instant::now();
            self.member.iter().for_each(MemberId::touch);
        }
        let mut deliveries = Vec::new();
        let mut until = Instant::now() + wait;
        let (mut failure, mut missing) = (None, None);
        while deliveries.len() < max {
            let left = until.saturating_duration_since(Instant::now());
            let polled = self.consumer.poll(left).map(next);
            self.positions.forget(&self.consumer.context().take());
            match polled {
                None => break,
                Some(Ok(Some((partition, offset, delivery)))) => {
                    if deliveries.is_empty() {
                        until = Instant::now() + GATHER;
                    }
                    self.positions.given.insert(partition, offset + 1);
                    deliveries.push(delivery);
                }
                Some(Ok(None)) => missing = Some(self.missing()),
                // The client goes on by itself, and says something several times a second while the cluster is down. The
                // news that it is back stands in the same line: code that takes these one by one, with a pause after each,
                // would learn it minutes later.
                Some(Err(error)) if self.join_otherwise(&error) => {}
                Some(Err(error)) => failure = Some(self.failed(&error)),
            }
        }
        let why = failure.as_ref().map(ToString::to_string).or(missing);
        self.note(!deliveries.is_empty(), why);
        match failure {
            Some(error) if deliveries.is_empty() => Err(error),
            _ => Ok(deliveries),
        }
    }

    fn applied(&mut self) {
        self.positions.are_applied();
    }

    fn commit(&mut self) -> Result<(), QueueError> {
        let applied = std::mem::take(&mut self.positions.applied);
        if applied.is_empty() {
            return Ok(());
        }
        let mut positions = TopicPartitionList::new();
        for (&partition, &next) in &applied {
            let added =
                positions.add_partition_offset(&self.topic, partition, Offset::Offset(next));
            added.map_err(|error| self.failed(&error))?;
        }
        let committed = self
            .consumer
            .store_offsets(&positions)
            .and_then(|()| self.consumer.commit(&positions, CommitMode::Async));
        match committed {
            // A partition that went to another member: it is that one's to commit.
            Err(KafkaError::StoreOffset(
                RDKafkaErrorCode::State | RDKafkaErrorCode::UnknownPartition,
            )) => Ok(()),
            outcome => outcome.map_err(|error| self.failed(&error)),
        }
    }
}

/// Leaves the group: its partitions go to others at once. A member with an id would otherwise be waited for.
impl Drop for KafkaSource {
    fn drop(&mut self) {
        self.consumer.unsubscribe();
        let until = Instant::now() + LEAVE;
        while Instant::now() < until
            && self.consumer.assignment().is_ok_and(|assigned| assigned.count() > 0)
        {
            // Whatever comes is not applied any more.
            drop(self.consumer.poll(Duration::from_millis(10)));
        }
    }
}

impl fmt::Debug for KafkaSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KafkaSource({} at {})", self.name, self.brokers)
    }
}

/// The name under which a store knows what comes out of this topic.
pub fn source_name(topic: &str) -> String {
    format!("kafka/{topic}")
}

/// A consumer that joins the group once the cluster can be reached.
fn consumer(
    settings: &KafkaSettings,
    session: Duration,
    member: Option<&MemberId>,
) -> Result<BaseConsumer<Revoked>, QueueError> {
    let mut config = client_config(settings);
    config
        .set("group.id", GROUP)
        // A group that is new, or whose positions the cluster has forgotten, begins at the beginning.
        .set("auto.offset.reset", "earliest")
        .set("session.timeout.ms", session.as_millis().to_string())
        .set("heartbeat.interval.ms", (session / 4).as_millis().to_string())
        // Only what `commit` has stored: also when partitions are taken back, and at the end.
        .set("enable.auto.commit", "true")
        .set("enable.auto.offset.store", "false");
    if let Some(member) = member {
        config.set("group.instance.id", &member.id);
    }
    let failed =
        |error: KafkaError| QueueError::new(format!("Kafka at {}: {error}", settings.brokers));
    let consumer: BaseConsumer<Revoked> =
        config.create_with_context(Revoked::default()).map_err(failed)?;
    consumer.subscribe(&[&settings.topic]).map_err(failed)?;
    Ok(consumer)
}

/// A message as a delivery; `None` for what is to be waited out.
fn next(message: KafkaResult<BorrowedMessage<'_>>) -> KafkaResult<Option<(i32, i64, Delivery)>> {
    let message = match message {
        Ok(message) => message,
        // The topic may be made any moment.
        Err(KafkaError::MessageConsumption(RDKafkaErrorCode::UnknownTopicOrPartition)) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let (partition, offset) = (message.partition(), message.offset());
    let position = Position {
        partition: u32::try_from(partition).unwrap_or(0),
        offset: u64::try_from(offset).unwrap_or(0),
    };
    let content = Command::decode(message.payload().unwrap_or_default());
    Ok(Some((partition, offset, Delivery { position: Some(position), content })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::kafka::KafkaSettings;

    /// Purpose: of partitions that went to another member nothing is committed, neither what was applied nor what is being
    /// applied: the other one may be further.
    #[test]
    fn what_was_taken_is_not_committed() {
        let mut positions = Positions::default();
        positions.given.extend([(0, 10), (1, 10)]);
        positions.are_applied();
        positions.given.extend([(0, 20), (2, 20)]);
        positions.forget(&[0, 2]);
        positions.are_applied();
        assert_eq!(positions.applied, BTreeMap::from([(1, 10)]));
        positions.given.insert(0, 50);
        positions.are_applied();
        assert_eq!(positions.applied, BTreeMap::from([(0, 50), (1, 10)]));
    }

    /// Purpose: what the client says of a cluster that is down does not pile up. It says something several times a
    /// second, and the applier pauses after each error; errors that were returned one by one delayed the news of a
    /// cluster that had been back for minutes. So an error is returned only when its time is up, and is the last of them.
    #[test]
    fn errors_do_not_pile_up() {
        let settings = KafkaSettings {
            // Nothing listens there: it is reserved.
            brokers: "127.0.0.1:1".into(),
            topic: "t".into(),
            partitions: 1,
            ack_timeout: KafkaSettings::ACK_TIMEOUT,
        };
        let mut source = KafkaSource::new(&settings).expect("the settings are right");
        let wait = Duration::from_millis(300);
        let mut errors = 0;
        let until = Instant::now() + Duration::from_secs(60);
        while errors < 5 {
            assert!(Instant::now() < until, "a client that reaches nobody says so");
            // So that there is more than one.
            std::thread::sleep(Duration::from_millis(300));
            let began = Instant::now();
            if source.next(1, wait).is_err() {
                errors += 1;
                assert!(began.elapsed() >= wait, "returned after {:?}", began.elapsed());
            }
        }
    }
}
