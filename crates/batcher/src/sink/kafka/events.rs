//! The client's callbacks: deliveries, errors, and its log.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::message::DeliveryResult;
use rdkafka::producer::ProducerContext;
use rdkafka::util::IntoOpaque;

/// Receives each message's outcome.
pub(crate) trait OnEvent: Send + Sync + 'static {
    /// A tag that identifies a message.
    type Tag: IntoOpaque;

    /// A message was acknowledged, or it will not be.
    fn delivered(&self, result: &DeliveryResult<'_>, tag: Self::Tag);
}

/// For a client that sends nothing.
pub(crate) struct Quiet;

impl OnEvent for Quiet {
    type Tag = ();

    fn delivered(&self, _: &DeliveryResult<'_>, (): ()) {}
}

/// The callbacks of a Kafka client.
pub(crate) struct Events<T> {
    pub(crate) to: T,
    pub(crate) trouble: Trouble,
}

/// A connection's last error, worded for operators.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    text: Mutex<Option<String>>,
    /// So that an acknowledged message costs no lock.
    is_any: AtomicBool,
}

impl Trouble {
    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, text: String) {
        *self.lock() = Some(text);
        self.is_any.store(true, Ordering::Release);
    }

    /// There was an answer.
    pub(crate) fn has_passed(&self) {
        if self.is_any.load(Ordering::Relaxed) {
            self.is_any.store(false, Ordering::Relaxed);
            self.lock().take();
        }
    }

    pub(crate) fn get(&self) -> Option<String> {
        self.lock().clone()
    }
}

impl<T> Events<T> {
    pub(crate) fn new(to: T) -> Events<T> {
        Events { to, trouble: Trouble::default() }
    }
}

impl<T: Send + Sync + 'static> ClientContext for Events<T> {
    /// The client logs an error with each attempt. We log states and their reasons once.
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(?level, facility, "librdkafka: {message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // "All brokers are down" follows the actual reason, and says less.
        let code = error.rdkafka_error_code();
        let is_summary = code == Some(rdkafka::types::RDKafkaErrorCode::AllBrokersDown);
        if !is_summary || self.trouble.get().is_none() {
            self.trouble.set(reason.to_owned());
        }
    }
}

impl<T: OnEvent> ProducerContext for Events<T> {
    type DeliveryOpaque = T::Tag;

    fn delivery(&self, result: &DeliveryResult<'_>, tag: T::Tag) {
        if result.is_ok() {
            self.trouble.has_passed();
        }
        self.to.delivered(result, tag);
    }
}
