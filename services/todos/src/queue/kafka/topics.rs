//! The topics: made where they are missing.

use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::types::RDKafkaErrorCode;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::KafkaSettings;
use super::producer::client_config;
use crate::queue::QueueError;

/// How long the cluster may take to make a topic.
const WAIT: Duration = Duration::from_secs(10);

/// That a topic is missing, why that may be, and the remedy.
pub(super) fn missing(topic: &str) -> String {
    format!(
        "topic {topic} is missing; an instance creates it when it starts. If it existed before, it was deleted, or the brokers \
         have lost their data: acknowledged commands that were not applied are lost with it, so restore that data first if \
         you can"
    )
}

/// Makes the topic of commands and that of dead letters, unless they are there.
///
/// # Errors
///
/// If the cluster does not answer, or refuses.
pub(super) fn create(settings: &KafkaSettings) -> Result<(), QueueError> {
    let failed = |why: String| QueueError::new(format!("Kafka at {}: {why}", settings.brokers));
    let client: AdminClient<DefaultClientContext> =
        client_config(settings).create().map_err(|error| failed(error.to_string()))?;
    let dead = settings.dead_topic();
    let of = |name, partitions| {
        // The cluster's own default of replicas.
        NewTopic::new(name, partitions, TopicReplication::Fixed(-1))
    };
    let topics = [of(&settings.topic, settings.partitions), of(&dead, 1)];
    let options = AdminOptions::new().operation_timeout(Some(WAIT)).request_timeout(Some(WAIT));
    let runtime = Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|error| failed(error.to_string()))?;
    let created = client.create_topics(&topics, &options);
    let created = runtime.block_on(async { timeout(WAIT + Duration::from_secs(1), created).await });
    let created = created.map_err(|_| failed(format!("no answer within {WAIT:?}")))?;
    for outcome in created.map_err(|error| failed(error.to_string()))? {
        match outcome {
            Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((topic, code)) => {
                return Err(failed(format!(
                    "cannot create topic {topic}: {code}; create it by hand"
                )));
            }
        }
    }
    Ok(())
}
