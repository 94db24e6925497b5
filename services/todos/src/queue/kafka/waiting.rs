//! How many commands of the topic are not applied.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::producer::client_config;
use super::{GROUP, KafkaSettings};
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
    let topic = &settings.topic;
    let failed = |why: String| QueueError::new(format!("Kafka at {}: {why}", settings.brokers));
    let of_kafka = |error: KafkaError| failed(error.to_string());
    let client: BaseConsumer =
        client_config(settings).set("group.id", GROUP).create().map_err(of_kafka)?;
    let metadata = client.fetch_metadata(Some(topic.as_str()), ANSWER).map_err(of_kafka)?;
    let found = metadata.topics().first().map_or(0, |topic| topic.partitions().len());
    let partitions = i32::try_from(found).unwrap_or(i32::MAX);
    if partitions == 0 {
        return Err(failed(format!("topic {topic} is missing")));
    }
    let mut asked = TopicPartitionList::new();
    asked.add_partition_range(topic, 0, partitions - 1);
    let committed = client.committed_offsets(asked, ANSWER).map_err(of_kafka)?;
    let mut commands = 0;
    for partition in 0..partitions {
        let (low, end) = client.fetch_watermarks(topic, partition, ANSWER).map_err(of_kafka)?;
        let applied = match committed.find_partition(topic, partition).map(|found| found.offset()) {
            Some(Offset::Offset(next)) => next.max(low),
            _ => low,
        };
        commands += u64::try_from(end - applied).unwrap_or(0);
    }
    Ok(Waiting { partitions: u32::try_from(found).unwrap_or(u32::MAX), commands })
}
