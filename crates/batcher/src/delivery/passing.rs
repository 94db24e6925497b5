//! The batch that goes to Kafka from memory, bypassing a full journal.
//!
//! One at a time. Unacknowledged records are sent again in the next session, after a search in the topic, like those of
//! the journal. If Kafka refuses a request, its records are sent one by one.

use highwater_journal::{Record, Stored};
use rdkafka::error::KafkaError;

use super::dead_letters::{DeadLetters, bury, too_large};
use super::direct::{Direct, Given};
use super::session::{End, Session, is_refused};
use crate::Written;
use crate::sink::kafka::{Error, Settings, bytes_alone, not_taken, unavailable};

/// Messages of records from memory are numbered from here on.
pub(super) const PASSING: usize = 1 << 62;

/// The state of a record of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unsent,
    Open,
    Done,
}

/// The batch that is being sent.
#[derive(Debug)]
pub(super) struct Passing {
    given: Given,
    states: Vec<State>,
    /// No record before this one is unsent.
    sent_below: usize,
    open: usize,
    left: usize,
    /// Kafka has refused a request: records go one by one, to find the refused one.
    is_single: bool,
    dead: u64,
}

impl Passing {
    /// The batch that has waited longest.
    pub(super) fn next(direct: &Direct) -> Option<Passing> {
        let given = direct.take()?;
        let left = given.batch.records();
        let states = vec![State::Unsent; left];
        Some(Passing { given, states, sent_below: 0, open: 0, left, is_single: false, dead: 0 })
    }

    /// Records sent and not answered.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    pub(super) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// The ids of the records that are not known to be in the topic.
    pub(super) fn ids(&self) -> impl Iterator<Item = (usize, u128)> {
        let undone = self.states.iter().enumerate().filter(|(_, state)| **state != State::Done);
        undone.filter_map(|(index, _)| Some((index, self.given.batch.get(index)?.id)))
    }

    /// The record to send next.
    fn to_send(&self) -> Option<usize> {
        let may_send = !self.is_single || self.open == 0;
        let rest = may_send.then(|| &self.states[self.sent_below..])?;
        let ahead = rest.iter().position(|state| *state == State::Unsent)?;
        Some(self.sent_below + ahead)
    }

    fn sent(&mut self, index: usize) {
        self.states[index] = State::Open;
        self.sent_below = index + 1;
        self.open += 1;
    }

    /// The record is in the topic, or among the dead letters.
    pub(super) fn done(&mut self, index: usize) {
        let Some(state) = self.states.get_mut(index) else { return };
        self.open -= usize::from(*state == State::Open);
        self.left -= usize::from(*state != State::Done);
        *state = State::Done;
    }

    /// The session has ended: unanswered records are sent again, unless they are found in the topic.
    pub(super) fn end_session(&mut self) {
        self.states
            .iter_mut()
            .filter(|state| **state == State::Open)
            .for_each(|state| *state = State::Unsent);
        self.sent_below = 0;
        self.open = 0;
    }

    /// All of it is delivered. Returns the number of records, bytes and dead letters.
    pub(super) fn finish(self) -> (u64, u64, u64) {
        let Passing { given: Given { batch, answer, .. }, dead, .. } = self;
        let size = (batch.records() as u64, batch.body_bytes() as u64);
        // Its memory is reused.
        drop(batch);
        answer.resolve(Ok(Written::default()));
        (size.0, size.1, dead)
    }

    /// Whether it has waited long enough for a Kafka that has failed.
    pub(super) fn is_late(&self) -> bool {
        self.given.is_late()
    }

    /// Gives it back to its worker, after the end of a session. Returns the records' ids, and which of them are done; and the
    /// number of dead letters.
    pub(super) fn give_back(self) -> (Vec<(u128, bool)>, u64) {
        let Passing { given, states, dead, .. } = self;
        let states = states.into_iter().map(|state| state == State::Done);
        let ids = given.batch.iter().map(|record| record.id).zip(states).collect();
        given.give_back();
        (ids, dead)
    }

    /// Sends as many records as allowed.
    pub(super) fn send(
        &mut self,
        settings: &Settings,
        session: &Session,
        dead_letters: &mut DeadLetters,
    ) -> Result<(), Error> {
        while let Some(index) = self.to_send() {
            let Some(record) = self.stored(index) else { break };
            let (bytes, max) = (bytes_alone(record.body.len()), session.topic.message_bytes_max);
            if bytes > max {
                self.bury(index, settings, dead_letters, &too_large(bytes, max))?;
                continue;
            }
            session.send(settings, &record, PASSING + index)?;
            self.sent(index);
        }
        Ok(())
    }

    /// Handles a record's outcome.
    pub(super) fn handle_outcome(
        &mut self,
        index: usize,
        outcome: Result<i64, KafkaError>,
        settings: &Settings,
        dead_letters: &mut DeadLetters,
    ) -> Result<(), End> {
        let error = match outcome {
            Ok(_) => {
                self.done(index);
                return Ok(());
            }
            Err(error) => error,
        };
        if !is_refused(&error) {
            return Err(unavailable(not_taken(&settings.topic, &error)).into());
        }
        if self.is_single {
            // It was sent alone, so it is the refused record.
            let reason = not_taken(&settings.topic, &error);
            self.bury(index, settings, dead_letters, &reason)?;
        }
        self.is_single = true;
        Err(End::Again)
    }

    /// The record as the journal would return it.
    fn stored(&self, index: usize) -> Option<Stored<'_>> {
        let Record { partition, time_us, id, body } = self.given.batch.get(index)?;
        Some(Stored { offset: 0, partition, time_us, id, body })
    }

    fn bury(
        &mut self,
        index: usize,
        settings: &Settings,
        dead_letters: &mut DeadLetters,
        reason: &str,
    ) -> Result<(), Error> {
        if let Some(record) = self.stored(index) {
            bury(dead_letters, settings, &record, reason)?;
            dead_letters.sync()?;
            self.dead += 1;
        }
        self.done(index);
        Ok(())
    }
}
