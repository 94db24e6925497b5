//! A session: the life of one producer.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use highwater_journal::{Record, Stored};
use rdkafka::config::FromClientConfigAndContext as _;
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::{BaseProducer, Producer as _};
use rdkafka::types::RDKafkaErrorCode as Code;

use crate::sink::kafka::{
    Error, ErrorKind, Events, OnEvent, Settings, Topic, message, unavailable,
};

/// Why a session ends.
pub(super) enum End {
    /// It was stopped.
    Stopped,
    /// A temporary problem.
    Trouble(Error),
    /// The next session starts at once.
    Again,
}

impl From<Error> for End {
    fn from(error: Error) -> End {
        End::Trouble(error)
    }
}

/// What the client reports of a message: its number, and its offset or why it failed.
pub(super) type DeliveryReport = (usize, Result<i64, KafkaError>);

/// Collects the delivery reports. Only the delivery's thread polls, so the lock is uncontended.
#[derive(Debug, Default)]
pub(super) struct DeliveryReports(Mutex<Vec<DeliveryReport>>);

impl OnEvent for DeliveryReports {
    type Tag = usize;

    fn delivered(&self, result: &DeliveryResult<'_>, number: usize) {
        let outcome = match result {
            Ok(message) => Ok(message.offset()),
            Err((error, _)) => Err(error.clone()),
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((number, outcome));
    }
}

/// A producer, and its topic's limits.
pub(super) struct Session {
    producer: BaseProducer<Events<DeliveryReports>>,
    pub(super) topic: Topic,
    /// One message at a time, to find the one that Kafka refuses.
    pub(super) is_single: bool,
}

impl Session {
    pub(super) fn begin(
        settings: &Settings,
        topic: Topic,
        is_single: bool,
    ) -> Result<Session, Error> {
        let mut config = settings.producer_config(topic.message_bytes_max, topic.batch_bytes_max);
        // Never time out: records wait in the journal for as long as it takes.
        config.set("message.timeout.ms", "0");
        if is_single {
            // Only one message fails, and the producer continues. Without idempotence, a retried message could arrive
            // twice: so there are no retries, and the next session looks for it.
            config.set("enable.idempotence", "false").set("linger.ms", "0").set("retries", "0");
        } else {
            // If a message fails permanently, no later one of its partition may overtake it.
            config.set("enable.gapless.guarantee", "true");
        }
        let producer =
            BaseProducer::from_config_and_context(&config, Events::new(DeliveryReports::default()));
        let failed = |error: KafkaError| Error::new(ErrorKind::Setting, format!("Kafka: {error}"));
        Ok(Session { producer: producer.map_err(failed)?, topic, is_single })
    }

    /// Sends a record, and never waits.
    pub(super) fn send(
        &self,
        settings: &Settings,
        record: &Stored<'_>,
        number: usize,
    ) -> Result<(), Error> {
        let Stored { partition, time_us, id, body, .. } = *record;
        let record = Record { partition, time_us, id, body };
        let message = message(&settings.topic, settings.partitions, &record, number);
        self.producer.send(message).map_err(|(error, _)| unavailable(format!("Kafka: {error}")))
    }

    /// The outcomes since the last call. It does not wait: with a timeout, the client asks its queue again and again through
    /// the timeout's last millisecond, and takes a core for that.
    pub(super) fn reports(&self) -> Vec<DeliveryReport> {
        let mut reports = Vec::new();
        let mut empty_polls = 0;
        // Each poll handles one event: the answer to one request, or an error; it does not return whether there was one.
        for _ in 0..EVENTS_MAX {
            self.producer.poll(Duration::ZERO);
            let received = &self.producer.context().to;
            let mut received = received.0.lock().unwrap_or_else(PoisonError::into_inner);
            empty_polls = if received.is_empty() { empty_polls + 1 } else { 0 };
            if empty_polls == EMPTY_POLLS_MAX {
                break;
            }
            reports.append(&mut received);
        }
        reports
    }

    /// The connection's last error since the last answer.
    pub(super) fn trouble(&self) -> Option<String> {
        self.producer.context().trouble.get()
    }

    /// Why no message will be sent any more.
    pub(super) fn fatal(&self) -> Option<String> {
        self.producer.client().fatal_error().map(|(_, reason)| reason)
    }

    /// Abandons messages in flight, and returns their outcomes until then.
    pub(super) fn end(self) -> Vec<DeliveryReport> {
        use rdkafka::producer::PurgeConfig;
        self.producer.purge(PurgeConfig::default().queue().inflight());
        // The delivery reports show what it could not deliver.
        let _ = self.producer.flush(Duration::from_millis(500));
        self.reports()
    }
}

/// The most answers handled before more is read and sent.
const EVENTS_MAX: usize = 64;
/// After so many polls without a report there is none: errors may come before one.
const EMPTY_POLLS_MAX: usize = 16;

/// Whether Kafka refused this message, or one sent together with it.
pub(super) fn is_refused(error: &KafkaError) -> bool {
    let code = error.rdkafka_error_code();
    let codes = [
        Code::MessageSizeTooLarge,
        Code::InvalidMessageSize,
        // A request larger than the topic's segments (segment.bytes).
        Code::MessageBatchTooLarge,
        Code::InvalidRecord,
        Code::InvalidTimestamp,
    ];
    code.is_some_and(|code| codes.contains(&code))
}
