//! Messages in flight to Kafka, each with its waiter.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use highwater::batcher::sink::kafka::Taken;
use highwater::logging::rate_limited;
use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{
    BaseRecord, DeliveryResult, Producer as _, ProducerContext, ThreadedProducer,
};
use tokio::sync::oneshot;

use super::KafkaSettings;
use crate::health::Part;
use crate::queue::QueueError;

/// The most messages that wait to be acknowledged, and their bytes in KiB. Beyond it: 503.
const MESSAGES_MAX: u32 = 100_000;
const KIBIBYTES_MAX: u32 = 64 * 1024;

/// How long a message waits for others in its batch.
const LINGER: Duration = Duration::from_millis(1);

/// Resolves once a message is acknowledged by all replicas, or will not be.
pub(super) type Delivered = oneshot::Receiver<Result<(), Undelivered>>;

type Report = oneshot::Sender<Result<(), Undelivered>>;

/// Why a message is not known to be in its topic.
#[derive(Debug)]
pub(super) enum Undelivered {
    /// The cluster takes none of that size.
    TooLarge,
    /// As many wait as may: later there may be room.
    Full(String),
    /// It was not acknowledged in time, for this reason.
    Down(String),
}

impl fmt::Display for Undelivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Undelivered::TooLarge => f.write_str("the message is larger than Kafka takes"),
            Undelivered::Full(why) | Undelivered::Down(why) => f.write_str(why),
        }
    }
}

/// Sends messages. Dropping it loses unacknowledged messages, and their waiters are notified.
pub(super) struct Producer {
    inner: ThreadedProducer<Context>,
}

/// What a message carries.
pub(super) struct Message<'a> {
    pub(super) topic: &'a str,
    /// Where it goes; `None`: anywhere.
    pub(super) partition: Option<u32>,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) headers: &'a [(&'a str, &'a str)],
}

impl Producer {
    /// Starts to connect, and returns.
    pub(super) fn new(
        settings: &KafkaSettings,
        part: Part,
        taken: Arc<Taken>,
    ) -> Result<Producer, QueueError> {
        let mut config = client_config(settings);
        config
            // Written by all replicas, once each, in the order in which they were sent.
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("message.timeout.ms", settings.ack_timeout.as_millis().to_string())
            .set("queue.buffering.max.messages", MESSAGES_MAX.to_string())
            .set("queue.buffering.max.kbytes", KIBIBYTES_MAX.to_string())
            .set("linger.ms", LINGER.as_millis().to_string());
        let context = Context { part, taken, brokers: settings.brokers.clone() };
        let inner = config
            .create_with_context(context)
            .map_err(|error| QueueError::new(format!("Kafka at {}: {error}", settings.brokers)))?;
        Ok(Producer { inner })
    }

    /// Takes a message, or refuses it at once.
    pub(super) fn send(&self, message: &Message<'_>) -> Result<Delivered, Undelivered> {
        let (report, delivered) = oneshot::channel();
        let headers = message.headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
            headers.insert(Header { key, value: Some(*value) })
        });
        let mut record: BaseRecord<'_, [u8], [u8], Box<Report>> =
            BaseRecord::with_opaque_to(message.topic, Box::new(report))
                .key(message.key)
                .payload(message.value)
                .headers(headers);
        record.partition = message.partition.map(|partition| partition as i32);
        match self.inner.send(record) {
            Ok(()) => Ok(delivered),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                Err(Undelivered::Full(format!("{MESSAGES_MAX} messages wait for Kafka")))
            }
            // The client's own bound, before anything is sent.
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge), _)) => {
                Err(Undelivered::TooLarge)
            }
            Err((error, _)) => Err(Undelivered::Down(error.to_string())),
        }
    }

    /// The fatal error after which it must be replaced, if any.
    pub(super) fn fatal(&self) -> Option<String> {
        self.inner.client().fatal_error().map(|(_, reason)| reason)
    }

    /// How many partitions the topic has, if a broker answers and has it.
    pub(super) fn probe(&self, topic: &str, wait: Duration) -> Result<u32, String> {
        let metadata = self.inner.client().fetch_metadata(Some(topic), wait);
        let metadata = metadata.map_err(|error| error.to_string())?;
        match metadata.topics().first().map(|topic| (topic.error(), topic.partitions().len())) {
            Some((None, partitions)) if partitions > 0 => {
                u32::try_from(partitions).map_err(|error| error.to_string())
            }
            _ => Err(format!("topic {topic} is missing")),
        }
    }

    /// How many messages are not acknowledged yet.
    pub(super) fn waiting(&self) -> u64 {
        u64::try_from(self.inner.in_flight_count()).unwrap_or(0)
    }
}

/// What every client of the cluster is set to.
pub(super) fn client_config(settings: &KafkaSettings) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", &settings.brokers)
        .set("client.id", "highwater-todos")
        .set("socket.timeout.ms", "10000")
        .set("socket.nagle.disable", "true")
        // A broker that comes back is found within a second.
        .set("reconnect.backoff.ms", "50")
        .set("reconnect.backoff.max.ms", "1000")
        .set("topic.metadata.refresh.fast.interval.ms", "250");
    config
}

/// What the client's own thread tells.
struct Context {
    part: Part,
    taken: Arc<Taken>,
    brokers: String,
}

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown) {
            self.part.is_down(format!("Kafka at {}: no broker can be reached", self.brokers));
        }
        rate_limited!(WARN, error = %error, reason = %reason, "Kafka");
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<Report>;

    fn delivery(&self, delivery: &DeliveryResult<'_>, report: Box<Report>) {
        let outcome = match delivery {
            Ok(_) => {
                self.taken.arrived();
                self.part.is_up();
                Ok(())
            }
            Err((error, _))
                if error.rdkafka_error_code() == Some(RDKafkaErrorCode::MessageSizeTooLarge) =>
            {
                Err(Undelivered::TooLarge)
            }
            Err((error, _)) => {
                let reason = format!("Kafka at {}: {error}", self.brokers);
                self.taken.failed(reason.clone());
                self.part.is_down(reason.clone());
                Err(Undelivered::Down(reason))
            }
        };
        // The waiter may be gone.
        let _ = report.send(outcome);
    }
}
