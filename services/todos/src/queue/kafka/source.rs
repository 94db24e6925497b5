//! Commands out of Kafka, as a member of the group of workers.
//!
//! The cluster divides the partitions among the members of the group. What was applied is committed now and then,
//! when partitions go to another member, and at the end; what is delivered again in between the store drops, by
//! the commands' ids. So a member that was killed, or that does not know yet that it lost a partition, does no
//! harm.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::KafkaSettings;
use super::producer::client_config;
use crate::command::Command;
use crate::queue::{Delivery, Position, QueueError, Source};

/// The group that workers belong to.
pub const GROUP: &str = "todo-workers";

/// How long a batch waits for more once it has something: messages that came together are applied together.
const GATHER: Duration = Duration::from_millis(1);

/// How long a member may be silent until its partitions go to others: the least that brokers allow by default.
const SESSION: Duration = Duration::from_secs(6);

/// A member of the group of workers.
pub struct KafkaSource {
    consumer: BaseConsumer,
    name: String,
    topic: String,
    brokers: String,
    /// Behind what was given out, for each partition.
    given: BTreeMap<i32, i64>,
    /// Behind what was applied, and is not committed.
    applied: BTreeMap<i32, i64>,
}

impl KafkaSource {
    /// Joins the group, once the cluster can be reached.
    ///
    /// # Errors
    ///
    /// If a setting is wrong.
    pub fn new(settings: &KafkaSettings) -> Result<KafkaSource, QueueError> {
        let mut config = client_config(settings);
        config
            .set("group.id", GROUP)
            // A group that is new, or whose positions the cluster has forgotten, begins at the beginning.
            .set("auto.offset.reset", "earliest")
            .set("session.timeout.ms", SESSION.as_millis().to_string())
            .set("heartbeat.interval.ms", (SESSION / 3).as_millis().to_string())
            // Only what `commit` has stored: also when partitions go away, and at the end.
            .set("enable.auto.commit", "true")
            .set("enable.auto.offset.store", "false");
        let failed =
            |error: KafkaError| QueueError::new(format!("Kafka at {}: {error}", settings.brokers));
        let consumer: BaseConsumer = config.create().map_err(failed)?;
        consumer.subscribe(&[&settings.topic]).map_err(failed)?;
        Ok(KafkaSource {
            consumer,
            name: format!("kafka/{}", settings.topic),
            topic: settings.topic.clone(),
            brokers: settings.brokers.clone(),
            given: BTreeMap::new(),
            applied: BTreeMap::new(),
        })
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
        let mut deliveries = Vec::new();
        let until = Instant::now() + wait;
        while deliveries.len() < max {
            let wait = match deliveries.is_empty() {
                true => until.saturating_duration_since(Instant::now()),
                false => GATHER,
            };
            match self.consumer.poll(wait).map(next) {
                None => break,
                Some(Ok(Some((partition, offset, delivery)))) => {
                    self.given.insert(partition, offset + 1);
                    deliveries.push(delivery);
                }
                Some(Ok(None)) => {}
                // What came before it is not lost: it is given, and the error comes again.
                Some(Err(_)) if !deliveries.is_empty() => break,
                Some(Err(error)) => return Err(self.failed(&error)),
            }
        }
        Ok(deliveries)
    }

    fn applied(&mut self) {
        self.applied.append(&mut self.given);
    }

    fn commit(&mut self) -> Result<(), QueueError> {
        let mut positions = TopicPartitionList::new();
        for (&partition, &next) in &self.applied {
            let added =
                positions.add_partition_offset(&self.topic, partition, Offset::Offset(next));
            added.map_err(|error| self.failed(&error))?;
        }
        self.applied.clear();
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

impl fmt::Debug for KafkaSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KafkaSource({} at {})", self.name, self.brokers)
    }
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
