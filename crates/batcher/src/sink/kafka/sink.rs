//! The sink of one worker.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::client::{Client, Shared};
use super::message::{bytes_alone, message};
use super::pending::{Pending, too_large};
use crate::{Batch, Failure, FailureKind, Receipt, Sink};

/// A sink that writes to Kafka; from [`Client::sink`], one per worker.
///
/// A receipt resolves when all in-sync replicas have acknowledged all records of the batch, or when it is known which
/// records failed, at the latest after `ack_timeout`. Records of one partition are in the topic in the order in which
/// they were written here, as long as none fails.
pub struct KafkaSink {
    shared: Arc<Shared>,
}

impl fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSink")
            .field("topic", &self.shared.settings.topic)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A sink for one worker.
    pub fn sink(&self) -> KafkaSink {
        KafkaSink { shared: Arc::clone(&self.shared) }
    }
}

impl Sink for KafkaSink {
    fn write(&mut self, batch: &Arc<Batch>) -> Result<Receipt, Failure> {
        let shared = &*self.shared;
        let live = shared.live();
        let Some(live) = &*live else {
            drop(live);
            let reason = shared.trouble().unwrap_or_else(|| "Kafka is down".to_owned());
            return Err(Failure::new(FailureKind::Unavailable, reason));
        };
        let (answer, receipt) = Receipt::pair();
        let until = Instant::now() + shared.limits.ack_timeout;
        let (on_topic, max) = (live.topic, live.topic.message_bytes_max);
        let size = (batch.records(), batch.body_bytes());
        let pending =
            Pending::begin(&shared.room, size, batch.first_id(), on_topic, (answer, until));
        let Some(pending) = pending else {
            let text = "as much is on its way to Kafka as there may be (records_max, bytes_max)";
            return Err(Failure::new(FailureKind::Busy, text));
        };
        let (topic, partitions) = (&shared.settings.topic, shared.settings.partitions);
        for (index, record) in batch.iter().enumerate() {
            let bytes = bytes_alone(record.body.len());
            if bytes > max {
                pending.refuse(index, too_large(bytes, max));
                continue;
            }
            let message = message(topic, partitions, &record, Arc::clone(&pending));
            if let Err((error, _)) = live.producer.send(message) {
                pending.refuse(index, failure(&error));
            }
        }
        pending.done();
        Ok(receipt)
    }
}

/// Why the client refused a message.
fn failure(error: &KafkaError) -> Failure {
    let kind = match error.rdkafka_error_code() {
        Some(Code::QueueFull) => FailureKind::Busy,
        Some(Code::MessageSizeTooLarge) => FailureKind::TooLarge,
        _ => FailureKind::Unavailable,
    };
    Failure::new(kind, format!("Kafka: {error}"))
}
