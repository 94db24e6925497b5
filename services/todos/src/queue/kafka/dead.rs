//! Dead letters in a topic as well, so that senders of commands can watch for them.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use highwater::logging::{rate_limited, tracing};
use tokio::sync::oneshot::error::TryRecvError;
use uuid::Uuid;

use super::KafkaSettings;
use super::producer::{Batches, Delivered, Message, Producer, Undelivered};
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

/// How long the end waits for Kafka's answers, and how often it looks for them.
const END_MAX: Duration = Duration::from_secs(1);
const END_LOOK: Duration = Duration::from_millis(5);

/// A store that also sends dead letters to their topic: the bytes unchanged, with the headers `reason` and `origin`.
///
/// The store marks what was sent. So each dead letter is sent once, whichever worker applied it and whenever Kafka takes
/// it; only one whose worker ends between Kafka's acknowledgement and the mark is sent again, with the same origin.
pub struct WithDeadTopic {
    store: Box<dyn Store>,
    producer: Producer,
    settings: KafkaSettings,
    topic: String,
    /// The source whose dead letters are sent.
    source: String,
    /// When it is looked for unsent ones.
    due: Instant,
    /// Those on their way.
    sending: Option<Sending>,
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
        Ok(WithDeadTopic { store, producer, settings, topic, source, due, sending: None })
    }

    /// Sends what was not sent yet, if it is time, and waits for nobody: Kafka's answers are taken later. What it does not take
    /// now is sent again later.
    fn forward(&mut self) {
        if Instant::now() < self.due {
            return;
        }
        let pause = match self.step() {
            Ok(Some(pause)) => pause,
            Ok(None) => return,
            Err(error) => {
                rate_limited!(WARN, error = %error, "dead letters wait in the store");
                PAUSE
            }
        };
        self.due = Instant::now() + pause;
    }

    /// How long to wait until it is looked for more; `None` while Kafka has not answered for all.
    fn step(&mut self) -> Result<Option<Duration>, StoreError> {
        if self.sending.is_none() {
            // First: from `unsent` until `were_sent` no other worker can send.
            self.renew()?;
            let letters = self.store.unsent(&self.source, LETTERS_MAX)?;
            if letters.is_empty() {
                return Ok(Some(LOOK));
            }
            self.sending = Some(self.hand_over(&letters));
        }
        let Some(sending) = &mut self.sending else { return Ok(None) };
        if !sending.is_answered() {
            return Ok(None);
        }
        // Also if there are none: others may try then.
        self.store.were_sent(&sending.sent)?;
        let pause = if sending.may_be_more { Duration::ZERO } else { LOOK };
        let failure = self.sending.take().and_then(|sending| sending.failure);
        match failure {
            None => Ok(Some(pause)),
            Some(why) => Err(StoreError::new(format!("dead letters to {}: {why}", self.topic))),
        }
    }

    /// Replaces a producer that would refuse every later message as well.
    fn renew(&mut self) -> Result<(), StoreError> {
        let topic = &self.topic;
        let Some(reason) = self.producer.fatal() else { return Ok(()) };
        tracing::warn!(%topic, %reason, "the producer of dead letters is replaced");
        let failed = |error| StoreError::new(format!("dead letters to {topic}: {error}"));
        self.producer = producer(&self.settings).map_err(failed)?;
        Ok(())
    }

    fn hand_over(&self, letters: &[DeadLetter]) -> Sending {
        let mut sending = Sending {
            may_be_more: letters.len() == LETTERS_MAX,
            topic: self.topic.clone(),
            ..Sending::default()
        };
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
                Ok(delivered) => sending.waiting.push((*number, delivered)),
                Err(undelivered) => sending.answered(*number, Err(undelivered)),
            }
        }
        sending
    }
}

/// Dead letters that are on their way to Kafka.
#[derive(Default)]
struct Sending {
    topic: String,
    waiting: Vec<(i64, Delivered)>,
    /// The numbers of those that need not be sent any more.
    sent: Vec<i64>,
    /// Why one is not there.
    failure: Option<String>,
    /// There were as many as are sent together.
    may_be_more: bool,
}

impl Sending {
    /// Takes the answers that are there. Whether all are.
    fn is_answered(&mut self) -> bool {
        for (number, mut delivered) in mem::take(&mut self.waiting) {
            match delivered.try_recv() {
                Ok(outcome) => self.answered(number, outcome),
                Err(TryRecvError::Empty) => self.waiting.push((number, delivered)),
                Err(TryRecvError::Closed) => self.failure = Some("not acknowledged".to_owned()),
            }
        }
        self.waiting.is_empty()
    }

    fn answered(&mut self, number: i64, outcome: Result<(), Undelivered>) {
        match outcome {
            Ok(()) => self.sent.push(number),
            // It is in the table. To try again would hold up those behind it for ever.
            Err(Undelivered::TooLarge) => {
                tracing::warn!(topic = %self.topic, number, "a dead letter is too large for its topic");
                self.sent.push(number);
            }
            Err(undelivered) => self.failure = Some(undelivered.to_string()),
        }
    }
}

/// What Kafka acknowledges now is marked, so that the next worker does not send it again.
impl Drop for WithDeadTopic {
    fn drop(&mut self) {
        let until = Instant::now() + END_MAX;
        while self.sending.is_some() && Instant::now() < until {
            // The next worker reports the failure.
            if self.step().is_err() {
                return;
            }
            thread::sleep(END_LOOK);
        }
    }
}

fn producer(settings: &KafkaSettings) -> Result<Producer, QueueError> {
    // Nobody asks what their topic takes: none is refused for another one.
    Producer::new(settings, Part::new("queue"), Arc::default(), Batches::Alone)
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
        self.store.idle();
        self.forward();
    }
}

impl fmt::Debug for WithDeadTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithDeadTopic").field("topic", &self.topic).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Poison;
    use crate::queue::Position;
    use crate::store::sqlite::Sqlite;

    /// Purpose: while the topic of dead letters takes nothing, commands are applied as fast as ever, and the letters are
    /// kept; one that is larger than any message is not tried for ever.
    #[test]
    fn a_topic_that_is_away_holds_up_nobody() {
        let data = tempfile::tempdir().expect("a temporary directory");
        let store = Box::new(Sqlite::open(data.path()).expect("it is empty"));
        let settings = KafkaSettings {
            // Nobody listens there.
            brokers: "127.0.0.1:1".to_owned(),
            topic: "todos".to_owned(),
            partitions: 1,
            ack_timeout: Duration::from_secs(60),
        };
        let mut store = WithDeadTopic::new(store, &settings).expect("the settings are right");
        let source = source_name(&settings.topic);
        let poison = |offset, bytes| {
            let content = Err(Poison { bytes, reason: "poison".to_owned() });
            Delivery { position: Some(Position { partition: 0, offset }), content }
        };
        let began = Instant::now();
        for (offset, bytes) in [(0, vec![0; 2_000_000]), (1, b"small".to_vec())] {
            let applied = store.apply(&source, &[poison(offset, bytes)]).expect("it works");
            assert_eq!(applied.dead, 1);
        }
        store.idle();
        let took = began.elapsed();
        assert!(took < Duration::from_secs(20), "it waited for Kafka: {took:?}");
        let unsent = store.unsent(&source, 10).expect("it works");
        let unsent: Vec<&[u8]> = unsent.iter().map(|letter| &letter.bytes[..]).collect();
        assert_eq!(unsent, [b"small"]);
    }
}
