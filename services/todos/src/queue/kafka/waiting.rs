//! How many commands of the topic are not applied.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::producer::client_config;
use super::{GROUP, KafkaSettings, topics};
use crate::queue::QueueError;

/// How long the cluster may take for each answer.
const ANSWER: Duration = Duration::from_secs(10);

/// What a topic holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// How many partitions it has.
    pub partitions: u32,
    /// How many commands the workers have not committed yet.
    pub commands: u64,
}

/// Asks the cluster what the topic holds. Workers commit a second after they have applied.
///
/// # Errors
///
/// If the cluster does not answer, or has no such topic.
pub fn waiting(settings: &KafkaSettings) -> Result<Waiting, QueueError> {
    let partitions = Watcher::new(settings)?.look(ANSWER)?;
    let left =
        |partition: &Partition| u64::try_from(partition.end - partition.applied).unwrap_or(0);
    Ok(Waiting {
        partitions: u32::try_from(partitions.len()).unwrap_or(u32::MAX),
        commands: partitions.iter().map(left).sum(),
    })
}

/// How far the workers are in a partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Partition {
    /// Everything with a lower offset is committed, or was removed.
    pub(super) applied: i64,
    /// The offset behind the last command.
    pub(super) end: i64,
}

/// A client that asks how far the workers are. It does not join them.
pub(super) struct Watcher {
    client: BaseConsumer,
    settings: KafkaSettings,
}

impl Watcher {
    pub(super) fn new(settings: &KafkaSettings) -> Result<Watcher, QueueError> {
        let mut config = client_config(settings);
        let client = config.set("group.id", GROUP).create().map_err(|error: KafkaError| {
            QueueError::new(format!("Kafka at {}: {error}", settings.brokers))
        })?;
        Ok(Watcher { client, settings: settings.clone() })
    }

    /// All partitions of the topic, in order. The cluster may take `answer` for each question.
    pub(super) fn look(&self, answer: Duration) -> Result<Vec<Partition>, QueueError> {
        let Watcher { client, settings: KafkaSettings { topic, brokers, .. } } = self;
        let failed = |why: String| QueueError::new(format!("Kafka at {brokers}: {why}"));
        let of_kafka = |error: KafkaError| failed(error.to_string());
        let metadata = client.fetch_metadata(Some(topic.as_str()), answer).map_err(of_kafka)?;
        let found = metadata.topics().first().map_or(0, |topic| topic.partitions().len());
        let partitions = i32::try_from(found).unwrap_or(i32::MAX);
        if partitions == 0 {
            return Err(failed(topics::missing(topic)));
        }
        let mut asked = TopicPartitionList::new();
        asked.add_partition_range(topic, 0, partitions - 1);
        let committed = client.committed_offsets(asked, answer).map_err(of_kafka)?;
        let partition = |partition| {
            let (low, end) = client.fetch_watermarks(topic, partition, answer).map_err(of_kafka)?;
            let committed = committed.find_partition(topic, partition);
            let applied = match committed.map(|found| found.offset()) {
                Some(Offset::Offset(next)) => next.max(low),
                _ => low,
            };
            Ok(Partition { applied, end })
        };
        (0..partitions).map(partition).collect()
    }
}
