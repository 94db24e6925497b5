//! Dead letters in a topic as well, so that whoever sends commands can watch for them.

use std::fmt;

use super::KafkaSettings;
use super::producer::{Message, Producer, Undelivered};
use crate::health::Part;
use crate::queue::{Delivery, QueueError};
use crate::store::{Applied, DeadLetter, Loaded, Store, StoreError, origin};

/// A store that also sends what becomes a dead letter to the topic of dead letters: the bytes unchanged, with the
/// headers `reason` and `origin`.
///
/// Bytes that are no command are sent before they are applied, so none is missing there; after a crash in
/// between they are sent twice, with the same origin.
pub struct WithDeadTopic {
    store: Box<dyn Store>,
    producer: Producer,
    settings: KafkaSettings,
    topic: String,
}

impl WithDeadTopic {
    /// `store`, and the topic of `settings`.
    ///
    /// # Errors
    ///
    /// If a setting is wrong.
    pub fn new(
        store: Box<dyn Store>,
        settings: &KafkaSettings,
    ) -> Result<WithDeadTopic, QueueError> {
        let (producer, topic) = (producer(settings)?, settings.dead_topic());
        Ok(WithDeadTopic { store, producer, settings: settings.clone(), topic })
    }

    fn send<'l>(
        &mut self,
        letters: impl Iterator<Item = (&'l str, &'l [u8], &'l str)>,
    ) -> Result<(), StoreError> {
        let topic = &self.topic;
        let failed = |why: String| StoreError::new(format!("dead letters to {topic}: {why}"));
        // Every later message would be refused as well, and the queue would stand still.
        if let Some(reason) = self.producer.fatal() {
            tracing::warn!(%topic, %reason, "the producer of dead letters is replaced");
            self.producer = producer(&self.settings).map_err(|error| failed(error.to_string()))?;
        }
        let mut sent = Vec::new();
        for (origin, value, reason) in letters {
            let headers = [("reason", reason), ("origin", origin)];
            let message = Message { topic: &self.topic, key: &[], value, headers: &headers };
            sent.push(self.producer.send(&message).map_err(|refusal| failed(refusal.to_string()))?);
        }
        for delivered in sent {
            match delivered.blocking_recv() {
                Ok(Ok(())) => {}
                // It is in the table. To try again would hold up the queue for ever.
                Ok(Err(Undelivered::TooLarge)) => {
                    tracing::warn!(topic = %self.topic, "a dead letter is too large for its topic");
                }
                Ok(Err(Undelivered::Away(why))) => return Err(failed(why)),
                Err(_) => return Err(failed("not acknowledged".to_owned())),
            }
        }
        Ok(())
    }
}

fn producer(settings: &KafkaSettings) -> Result<Producer, QueueError> {
    Producer::new(settings, Part::new("queue"))
}

impl Store for WithDeadTopic {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        self.store.load()
    }

    fn apply(&mut self, source: &str, deliveries: &[Delivery]) -> Result<Applied, StoreError> {
        let poison = |delivery: &'_ Delivery| {
            let poison = delivery.content.as_ref().err()?.clone();
            Some((origin(source, delivery), poison.bytes, poison.reason))
        };
        let poison: Vec<_> = deliveries.iter().filter_map(poison).collect();
        self.send(poison.iter().map(|(origin, bytes, reason)| (&**origin, &**bytes, &**reason)))?;
        let applied = self.store.apply(source, deliveries)?;
        if applied.dead > 0 {
            let dead = usize::try_from(applied.dead).unwrap_or(usize::MAX);
            let letters = self.store.dead_letters(dead)?;
            let is_sent = |letter: &DeadLetter| {
                poison
                    .iter()
                    .any(|(origin, bytes, _)| *origin == letter.origin && *bytes == letter.bytes)
            };
            let rest = letters.iter().rev().filter(|letter| !is_sent(letter));
            self.send(rest.map(|letter| (&*letter.origin, &*letter.bytes, &*letter.reason)))?;
        }
        Ok(applied)
    }

    fn positions(&mut self, source: &str) -> Result<Vec<(u32, u64)>, StoreError> {
        self.store.positions(source)
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.store.sync()
    }

    fn dead_letters(&mut self, max: usize) -> Result<Vec<DeadLetter>, StoreError> {
        self.store.dead_letters(max)
    }
}

impl fmt::Debug for WithDeadTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithDeadTopic").field("topic", &self.topic).finish_non_exhaustive()
    }
}
