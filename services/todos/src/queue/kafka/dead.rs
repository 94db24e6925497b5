//! Dead letters in a topic as well, so that senders of commands can watch for them.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use highwater::logging::{rate_limited, tracing};
use uuid::Uuid;

use super::KafkaSettings;
use super::producer::{Message, Producer, Undelivered};
use super::source::source_name;
use crate::health::Part;
use crate::queue::{Delivery, QueueError};
use crate::store::{Applied, DeadLetter, Loaded, Store, StoreError};
use crate::todo::Todo;

/// The most dead letters that are sent together.
const LETTERS_MAX: usize = 256;

/// How long to wait after Kafka did not take one.
const PAUSE: Duration = Duration::from_secs(1);

/// How often to look for dead letters that another worker left behind.
const LOOK: Duration = Duration::from_secs(5);

/// A store that also sends dead letters to their topic: the bytes unchanged, with the headers `reason` and `origin`.
///
/// The store marks what was sent. So each dead letter is sent once, whichever worker applied it and whenever Kafka takes
/// it; only one whose worker is killed between Kafka's acknowledgement and the mark is sent again, with the same origin.
pub struct WithDeadTopic {
    store: Box<dyn Store>,
    producer: Producer,
    settings: KafkaSettings,
    topic: String,
    /// The source whose dead letters are sent.
    source: String,
    /// When it is looked for unsent ones.
    due: Instant,
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
        let (settings, source) = (settings.clone(), source_name(&settings.topic));
        // An earlier process may have left some.
        let due = Instant::now();
        Ok(WithDeadTopic { store, producer, settings, topic, source, due })
    }

    /// Sends what was not sent yet, if it is time. What Kafka does not take now is sent later.
    fn forward(&mut self) {
        if Instant::now() < self.due {
            return;
        }
        let pause = match self.send_unsent() {
            Ok(true) => Duration::ZERO,
            Ok(false) => LOOK,
            Err(error) => {
                rate_limited!(WARN, error = %error, "dead letters wait in the store");
                PAUSE
            }
        };
        self.due = Instant::now() + pause;
    }

    /// Whether there may be more.
    fn send_unsent(&mut self) -> Result<bool, StoreError> {
        let letters = self.store.unsent(&self.source, LETTERS_MAX)?;
        if letters.is_empty() {
            return Ok(false);
        }
        let mut sent = Vec::new();
        let outcome = self.send(&letters, &mut sent);
        // Also if there are none: others may try then.
        self.store.were_sent(&sent)?;
        outcome.map(|()| letters.len() == LETTERS_MAX)
    }

    /// Sends letters; `sent` gets the numbers of those that Kafka has.
    fn send(&mut self, letters: &[DeadLetter], sent: &mut Vec<i64>) -> Result<(), StoreError> {
        let topic = &self.topic;
        let failed = |why: String| StoreError::new(format!("dead letters to {topic}: {why}"));
        // Every later message would be refused as well.
        if let Some(reason) = self.producer.fatal() {
            tracing::warn!(%topic, %reason, "the producer of dead letters is replaced");
            self.producer = producer(&self.settings).map_err(|error| failed(error.to_string()))?;
        }
        let (mut waiting, mut failure) = (Vec::new(), None);
        for DeadLetter { number, origin, bytes, reason, .. } in letters {
            let headers = [("reason", &**reason), ("origin", &**origin)];
            let message = Message {
                topic: &self.topic,
                partition: None,
                key: &[],
                value: bytes,
                headers: &headers,
            };
            match self.producer.send(&message) {
                Ok(delivered) => waiting.push((*number, delivered)),
                Err(refusal) => failure = Some(failed(refusal.to_string())),
            }
        }
        for (number, delivered) in waiting {
            match delivered.blocking_recv() {
                Ok(Ok(())) => sent.push(number),
                // It is in the table. To try again would hold up those behind it for ever.
                Ok(Err(Undelivered::TooLarge)) => {
                    tracing::warn!(topic = %self.topic, number, "a dead letter is too large for its topic");
                    sent.push(number);
                }
                Ok(Err(Undelivered::Down(why))) => failure = Some(failed(why)),
                Err(_) => failure = Some(failed("not acknowledged".to_owned())),
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

fn producer(settings: &KafkaSettings) -> Result<Producer, QueueError> {
    Producer::new(settings, Part::new("queue"), Arc::default())
}

impl Store for WithDeadTopic {
    fn newest(&mut self, rows_max: usize, bytes_max: usize) -> Result<Loaded, StoreError> {
        self.store.newest(rows_max, bytes_max)
    }

    fn find(&mut self, id: Uuid) -> Result<Option<Todo>, StoreError> {
        self.store.find(id)
    }

    fn apply(&mut self, source: &str, deliveries: &[Delivery]) -> Result<Applied, StoreError> {
        let applied = self.store.apply(source, deliveries)?;
        if applied.dead > 0 {
            self.due = self.due.min(Instant::now());
        }
        self.forward();
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

    fn unsent(&mut self, source: &str, max: usize) -> Result<Vec<DeadLetter>, StoreError> {
        self.store.unsent(source, max)
    }

    fn were_sent(&mut self, numbers: &[i64]) -> Result<(), StoreError> {
        self.store.were_sent(numbers)
    }

    fn divided_by(&mut self, source: &str, found: Option<u32>) -> Result<Option<u32>, StoreError> {
        self.store.divided_by(source, found)
    }

    fn divide_by(&mut self, source: &str, partitions: u32) -> Result<(), StoreError> {
        self.store.divide_by(source, partitions)
    }

    fn idle(&mut self) {
        self.forward();
    }
}

impl fmt::Debug for WithDeadTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithDeadTopic").field("topic", &self.topic).finish_non_exhaustive()
    }
}
