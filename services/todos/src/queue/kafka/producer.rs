//! Messages in flight to Kafka, each with its waiter.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use highwater::batcher::sink::kafka::{Taken, batch_bytes};
use highwater::logging::rate_limited;
use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Header, Headers as _, Message as _, OwnedHeaders};
use rdkafka::producer::{
    BaseRecord, DeliveryResult, Producer as _, ProducerContext, ThreadedProducer,
};
use tokio::sync::oneshot;

use super::{KafkaSettings, topics};
use crate::health::Part;
use crate::queue::QueueError;

/// The most messages that wait to be acknowledged, and their bytes in KiB. Beyond it: 503.
const MESSAGES_MAX: u32 = 100_000;
const KIBIBYTES_MAX: u32 = 64 * 1024;

/// The remedy where no answer comes.
const LOOK_AT_BROKERS: &str = "check KAFKA_BROKERS and that the brokers run";

/// How long a message waits for others in its batch.
const LINGER: Duration = Duration::from_millis(1);

/// The most bytes of a batch, unless its topic takes less: the client's default. A message that is larger is not sent.
const BATCH_BYTES_MAX: usize = 1_000_000;

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

/// Which messages share a batch. Kafka refuses a batch that is too large as a whole, so this is also how to tell whether a
/// message is to blame for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Batches {
    /// None: for a few messages, to a topic of which nothing is known.
    Alone,
    /// As many as have this many bytes together.
    UpTo(usize),
}

impl Batches {
    /// Up to this many bytes, and no more than the client sends.
    pub(super) fn up_to(bytes: usize) -> Batches {
        Batches::UpTo(bytes.clamp(1, BATCH_BYTES_MAX))
    }
}

impl Default for Batches {
    fn default() -> Batches {
        Batches::UpTo(BATCH_BYTES_MAX)
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
        batches: Batches,
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
        match batches {
            Batches::Alone => config.set("batch.num.messages", "1"),
            Batches::UpTo(bytes) => config.set("batch.size", bytes.to_string()),
        };
        let (brokers, has_refused) = (settings.brokers.clone(), AtomicBool::new(false));
        let ack_timeout = settings.ack_timeout;
        let context = Context { part, taken, brokers, ack_timeout, batches, has_refused };
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

    /// Which messages share a batch.
    pub(super) fn batches(&self) -> Batches {
        self.inner.context().batches
    }

    /// Whether the topic has refused a batch as too large since this was asked last.
    pub(super) fn has_refused(&self) -> bool {
        self.inner.context().has_refused.swap(false, Ordering::Relaxed)
    }

    /// The fatal error after which it must be replaced, if any.
    pub(super) fn fatal(&self) -> Option<String> {
        self.inner.client().fatal_error().map(|(_, reason)| reason)
    }

    /// How many partitions the topic has, if a broker answers and has it.
    pub(super) fn probe(&self, topic: &str, wait: Duration) -> Result<u32, String> {
        let metadata = self.inner.client().fetch_metadata(Some(topic), wait);
        let metadata = metadata.map_err(|error| format!("{error}; {LOOK_AT_BROKERS}"))?;
        match metadata.topics().first().map(|topic| (topic.error(), topic.partitions().len())) {
            Some((None, partitions)) if partitions > 0 => {
                u32::try_from(partitions).map_err(|error| error.to_string())
            }
            _ => Err(topics::missing(topic)),
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

/// What the client's own thread reports.
struct Context {
    part: Part,
    taken: Arc<Taken>,
    brokers: String,
    ack_timeout: Duration,
    batches: Batches,
    has_refused: AtomicBool,
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
            Err((error, message)) => Err(self.undelivered(error, || bytes_alone(message))),
        };
        // The waiter may be gone.
        let _ = report.send(outcome);
    }
}

impl Context {
    /// What the error means for a message that has so many bytes when it is alone in its batch.
    fn undelivered(&self, error: &KafkaError, bytes: impl FnOnce() -> usize) -> Undelivered {
        use RDKafkaErrorCode as Code;
        let Context { brokers, ack_timeout, .. } = self;
        let reason = match error.rdkafka_error_code() {
            Some(Code::MessageTimedOut) => format!(
                "Kafka at {brokers}: not acknowledged within {ack_timeout:?} (--ack-timeout); {LOOK_AT_BROKERS}"
            ),
            _ => format!("Kafka at {brokers}: {error}"),
        };
        match error.rdkafka_error_code() {
            Some(Code::MessageSizeTooLarge | Code::MessageBatchTooLarge) => {
                self.has_refused.store(true, Ordering::Relaxed);
                let is_to_blame = match self.batches {
                    Batches::Alone => true,
                    Batches::UpTo(max) => bytes() > max,
                };
                if is_to_blame {
                    return Undelivered::TooLarge;
                }
            }
            // It, or another one in its batch, is not taken; which says nothing about others. Or we have given it up.
            Some(
                Code::InvalidMessageSize
                | Code::InvalidRecord
                | Code::InvalidTimestamp
                | Code::InvalidDifferentRecord
                | Code::PurgeQueue
                | Code::PurgeInflight,
            ) => {}
            _ => {
                self.taken.failed(reason.clone());
                self.part.is_down(reason.clone());
            }
        }
        Undelivered::Down(reason)
    }
}

/// The size of a batch that holds this message and nothing else: compared with what its topic takes.
fn bytes_alone(message: &BorrowedMessage<'_>) -> usize {
    let lengths =
        |header: Header<'_, &[u8]>| (header.key.len(), header.value.map_or(0, <[u8]>::len));
    let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
    batch_bytes(message.key_len(), message.payload_len(), headers.map(lengths))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a message is too large only if it, and not its batch, is; and what is refused for itself does not make the
    /// queue unavailable.
    #[test]
    fn who_is_to_blame() {
        let context = |batches| Context {
            part: Part::new("queue"),
            taken: Arc::default(),
            brokers: "k:1".to_owned(),
            ack_timeout: Duration::from_secs(5),
            batches,
            has_refused: AtomicBool::new(false),
        };
        let (shared, alone) = (context(Batches::up_to(1000)), context(Batches::Alone));
        let is_too_large = |context: &Context, code, bytes| {
            let error = KafkaError::MessageProduction(code);
            matches!(context.undelivered(&error, || bytes), Undelivered::TooLarge)
        };
        for code in [RDKafkaErrorCode::MessageSizeTooLarge, RDKafkaErrorCode::MessageBatchTooLarge]
        {
            assert!(is_too_large(&shared, code, 1001) && !is_too_large(&shared, code, 1000));
            assert!(is_too_large(&alone, code, 1));
            assert!(shared.has_refused.swap(false, Ordering::Relaxed));
        }
        assert!(!is_too_large(&alone, RDKafkaErrorCode::InvalidTimestamp, 5000));
        assert_eq!((shared.taken.trouble(), shared.part.down()), (None, None));
        assert!(!is_too_large(&shared, RDKafkaErrorCode::NotEnoughReplicas, 5000));
        assert!(shared.taken.trouble().is_some() && shared.part.down().is_some());
        let late = KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut);
        let late = shared.undelivered(&late, || 1).to_string();
        assert!(late.contains("5s (--ack-timeout); check KAFKA_BROKERS"), "{late}");
    }
}
