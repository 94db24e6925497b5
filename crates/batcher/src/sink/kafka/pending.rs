//! Batches that Kafka has not answered for, and their limits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, DeliveryResult, Message as _};
use rdkafka::types::RDKafkaErrorCode as Code;

use super::events::OnEvent;
use super::message::{bytes_alone, id_of};
use super::taken::Taken;
use super::topic::{Topic, not_taken};
use crate::{Answer, Failure, FailureKind, Outcome, Refusal, Written};

/// A batch in flight. Each of its messages holds a reference; dropping the last one answers.
#[derive(Debug)]
pub(crate) struct Pending {
    room: Arc<Room>,
    records: usize,
    bytes: usize,
    first_id: u128,
    topic: Topic,
    /// Records without an answer, and one for the batch while it is being sent.
    left: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None`: already answered, because its time had passed.
    answer: Option<Answer>,
    refused: Vec<Refusal>,
}

/// The amount in flight, for all workers together.
#[derive(Debug)]
pub(crate) struct Room {
    records_max: usize,
    bytes_max: usize,
    records: AtomicUsize,
    bytes: AtomicUsize,
    /// The topic may have changed: it has to be checked again.
    pub(crate) look_again: AtomicBool,
    /// Whether Kafka takes records.
    pub(crate) taken: Taken,
    /// In the order of their deadlines.
    waiting: Mutex<VecDeque<(Instant, Arc<Pending>)>>,
}

impl Room {
    pub(crate) fn new(records_max: usize, bytes_max: usize) -> Room {
        Room {
            records_max,
            bytes_max,
            records: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            look_again: AtomicBool::new(false),
            taken: Taken::default(),
            waiting: Mutex::default(),
        }
    }

    /// Reserves room for a batch, unless the limits are reached. A batch larger than the limits is accepted when
    /// nothing else is in flight.
    fn take(&self, records: usize, bytes: usize) -> bool {
        let before = self.records.fetch_add(records, Ordering::Relaxed);
        let bytes_before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = before + records <= self.records_max && bytes_before + bytes <= self.bytes_max;
        if fits || before == 0 {
            return true;
        }
        self.give(records, bytes);
        false
    }

    fn give(&self, records: usize, bytes: usize) {
        self.records.fetch_sub(records, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Records in flight.
    pub(crate) fn records(&self) -> usize {
        self.records.load(Ordering::Relaxed)
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<(Instant, Arc<Pending>)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers for batches older than `bound` at `now`, and forgets answered ones. Whether any had no answer.
    pub(crate) fn expire(&self, now: Instant, bound: Duration) -> bool {
        let mut has_expired = false;
        loop {
            let mut waiting = self.waiting();
            let is_due = |(until, pending): &(Instant, Arc<Pending>)| {
                pending.left.load(Ordering::Acquire) == 0 || *until <= now
            };
            if !waiting.front().is_some_and(is_due) {
                return has_expired;
            }
            let Some((_, pending)) = waiting.pop_front() else { return has_expired };
            drop(waiting);
            has_expired |= pending.time_out(bound);
        }
    }
}

impl Pending {
    /// A batch of this many records and bytes of bodies, if there is room for it.
    pub(crate) fn begin(
        room: &Arc<Room>,
        (records, bytes): (usize, usize),
        first_id: u128,
        topic: Topic,
        (answer, until): (Answer, Instant),
    ) -> Option<Arc<Pending>> {
        if !room.take(records, bytes) {
            return None;
        }
        let pending = Arc::new(Pending {
            room: Arc::clone(room),
            records,
            bytes,
            first_id,
            topic,
            left: AtomicUsize::new(records + 1),
            state: Mutex::new(State { answer: Some(answer), refused: Vec::new() }),
        });
        room.waiting().push_back((until, Arc::clone(&pending)));
        Some(pending)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A record was refused.
    pub(crate) fn refuse(&self, index: usize, failure: Failure) {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        self.lock().refused.push(Refusal { index, failure });
        self.done();
    }

    /// One record less to wait for; or all are sent.
    pub(crate) fn done(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        self.room.give(self.records, self.bytes);
        let mut state = self.lock();
        let mut refused = std::mem::take(&mut state.refused);
        let answer = state.answer.take();
        drop(state);
        let Some(answer) = answer else { return };
        refused.sort_by_key(|refusal| refusal.index);
        answer.resolve(self.outcome(refused));
    }

    /// If all failed for one temporary reason, that is the batch's outcome.
    fn outcome(&self, refused: Vec<Refusal>) -> Outcome {
        match refused.first() {
            Some(first) if refused.len() == self.records => {
                let same = |refusal: &Refusal| refusal.failure.kind() == first.failure.kind();
                if first.failure.kind().may_pass() && refused.iter().all(same) {
                    return Err(first.failure.clone());
                }
                Ok(Written { refused })
            }
            _ => Ok(Written { refused }),
        }
    }

    /// Whether it had no answer.
    fn time_out(&self, bound: Duration) -> bool {
        let Some(answer) = self.lock().answer.take() else { return false };
        let text =
            format!("Kafka did not acknowledge the records within {bound:?}; it may have them");
        self.room.taken.failed(text.clone());
        answer.resolve(Err(Failure::new(FailureKind::TimedOut, text)));
        true
    }

    fn failure(&self, message: &BorrowedMessage<'_>, error: &KafkaError) -> Failure {
        let (kind, is_taken) = cause(error, bytes_alone(message.payload_len()), self.topic);
        if kind == FailureKind::Unavailable {
            self.room.look_again.store(true, Ordering::Relaxed);
        }
        let text = not_taken(message.topic(), error);
        if !is_taken {
            self.room.taken.failed(text.clone());
        }
        Failure::new(kind, text)
    }

    /// The index of a message in the batch, by its id.
    fn index(&self, message: &BorrowedMessage<'_>) -> Option<usize> {
        let id = id_of(message)?;
        usize::try_from(id.checked_sub(self.first_id)?).ok()
    }
}

/// What an error means for a record that has so many bytes when it is alone in its batch; and whether Kafka may take others
/// all the same, because it does not take this one, or one in its batch.
fn cause(error: &KafkaError, bytes: usize, topic: Topic) -> (FailureKind, bool) {
    match error.rdkafka_error_code() {
        // A topic whose size limit was lowered refuses whole requests. Checking it again shows which messages are
        // too large.
        Some(Code::MessageSizeTooLarge | Code::InvalidMessageSize | Code::MessageBatchTooLarge) => {
            let is_alone = bytes > topic.batch_bytes_max;
            (if is_alone { FailureKind::TooLarge } else { FailureKind::Unavailable }, true)
        }
        // The client says which records of a batch this is true of, and of the others that they are in the same one. The time
        // of a record is not its sender's: it may send it again.
        Some(Code::InvalidRecord) => (FailureKind::Rejected, true),
        Some(Code::InvalidTimestamp | Code::InvalidDifferentRecord) => {
            (FailureKind::Unavailable, true)
        }
        Some(Code::MessageTimedOut) => (FailureKind::TimedOut, false),
        // What was given up has been counted when its time had passed.
        Some(Code::PurgeQueue | Code::PurgeInflight) => (FailureKind::TimedOut, true),
        _ => (FailureKind::Unavailable, false),
    }
}

/// Receives the outcomes of the sinks' messages.
#[derive(Debug)]
pub(crate) struct Deliveries;

impl OnEvent for Deliveries {
    type Tag = Arc<Pending>;

    fn delivered(&self, result: &DeliveryResult<'_>, pending: Arc<Pending>) {
        match result {
            Ok(_) => {
                pending.room.taken.arrived();
                pending.done();
            }
            Err((error, message)) => {
                let failure = pending.failure(message, error);
                pending.refuse(pending.index(message).unwrap_or(0), failure);
            }
        }
    }
}

/// The failure of a record too large to send.
pub(crate) fn too_large(bytes: usize, max: usize) -> Failure {
    let text = format!(
        "the message has {bytes} bytes, and the topic takes {max} (max.message.bytes); send less, or raise it"
    );
    Failure::new(FailureKind::TooLarge, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a record that Kafka refuses for its own sake, or for that of its batch, does not show what Kafka does with others; a record is
    /// refused for good only if it is to blame.
    #[test]
    fn causes() {
        let topic = Topic { message_bytes_max: 3000, batch_bytes_max: 1000 };
        let cause = |code, bytes| super::cause(&KafkaError::MessageProduction(code), bytes, topic);
        for code in [Code::MessageSizeTooLarge, Code::MessageBatchTooLarge] {
            assert_eq!(cause(code, 1001), (FailureKind::TooLarge, true));
            assert_eq!(cause(code, 1000), (FailureKind::Unavailable, true));
        }
        assert_eq!(cause(Code::InvalidRecord, 1), (FailureKind::Rejected, true));
        for code in [Code::InvalidTimestamp, Code::InvalidDifferentRecord] {
            assert_eq!(cause(code, 1), (FailureKind::Unavailable, true));
        }
        assert_eq!(cause(Code::MessageTimedOut, 1), (FailureKind::TimedOut, false));
        assert_eq!(cause(Code::PurgeInflight, 1), (FailureKind::TimedOut, true));
        for code in [Code::NotEnoughReplicas, Code::NotLeaderForPartition, Code::BrokerNotAvailable]
        {
            assert_eq!(cause(code, 5000), (FailureKind::Unavailable, false));
        }
    }

    /// Purpose: who reads why records are refused, or not answered, reads where to look.
    #[test]
    fn refusals_name_the_remedy() {
        for (code, remedy) in [
            (Code::InvalidTimestamp, "clock"),
            (Code::MessageTimedOut, "check that the brokers run"),
            (Code::TopicAuthorizationFailed, "topic t"),
        ] {
            let text = not_taken("t", &KafkaError::MessageProduction(code));
            assert!(text.contains(remedy), "{text}");
        }
    }
}
