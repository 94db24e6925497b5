//! The batch that goes to Kafka from memory, past a full journal.
//!
//! One at a time, and again in the next session as far as nobody has heard of its records: they are looked for in the
//! topic like those of the journal. Kafka's refusal of a request makes its records go one by one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use highwater_journal::{Record, Stored};
use rdkafka::error::KafkaError;

use super::direct::Direct;
use super::run::{End, Run, bury, too_large};
use super::session::{Session, is_refused};
use crate::receipt::Answer;
use crate::sink::kafka::{bytes_alone, unavailable};
use crate::{Batch, Written};

/// Messages of records that come from memory have numbers from here on.
pub(super) const PASSING: usize = 1 << 62;

/// What is known of a record of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Unsent,
    Open,
    Done,
}

/// The batch that is being sent.
#[derive(Debug)]
pub(super) struct Passing {
    batch: Arc<Batch>,
    answer: Answer,
    fates: Vec<Fate>,
    open: usize,
    left: usize,
    /// Kafka has refused a request: records go one by one, to find which one it does not take.
    pub(super) is_single: bool,
    pub(super) dead: u64,
}

impl Passing {
    /// The batch that has waited longest.
    pub(super) fn next(direct: &Direct) -> Option<Passing> {
        let (batch, answer) = direct.take()?;
        let left = batch.records();
        let fates = vec![Fate::Unsent; left];
        Some(Passing { batch, answer, fates, open: 0, left, is_single: false, dead: 0 })
    }

    /// Records that were sent and have no answer.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    pub(super) fn is_done(&self) -> bool {
        self.left == 0
    }

    pub(super) fn get(&self, index: usize) -> Option<Record<'_>> {
        self.batch.get(index)
    }

    /// The ids of the records that are not known to be in the topic.
    pub(super) fn ids(&self) -> impl Iterator<Item = (usize, u128)> {
        let undone = self.fates.iter().enumerate().filter(|(_, fate)| **fate != Fate::Done);
        undone.filter_map(|(index, _)| Some((index, self.batch.get(index)?.id)))
    }

    /// The record to send next.
    pub(super) fn to_send(&self) -> Option<usize> {
        let may_send = !self.is_single || self.open == 0;
        may_send.then(|| self.fates.iter().position(|fate| *fate == Fate::Unsent)).flatten()
    }

    pub(super) fn sent(&mut self, index: usize) {
        self.fates[index] = Fate::Open;
        self.open += 1;
    }

    /// It is in the topic, or among the dead letters.
    pub(super) fn done(&mut self, index: usize) {
        let Some(fate) = self.fates.get_mut(index) else { return };
        self.open -= usize::from(*fate == Fate::Open);
        self.left -= usize::from(*fate != Fate::Done);
        *fate = Fate::Done;
    }

    /// The session has ended: what has no answer is sent again, unless it is found in the topic.
    pub(super) fn end_session(&mut self) {
        self.fates
            .iter_mut()
            .filter(|fate| **fate == Fate::Open)
            .for_each(|fate| *fate = Fate::Unsent);
        self.open = 0;
    }

    /// All of it is in the topic. How many records and bytes, and how many dead letters, it was.
    pub(super) fn finish(self) -> (u64, u64, u64) {
        let Passing { batch, answer, dead, .. } = self;
        let size = (batch.records() as u64, batch.body_bytes() as u64);
        // Its memory is used again.
        drop(batch);
        answer.resolve(Ok(Written::default()));
        (size.0, size.1, dead)
    }
}

impl Run {
    pub(super) fn passing_open(&self) -> usize {
        self.passing.as_ref().map_or(0, Passing::open)
    }

    /// Sends what waits in memory; answers for it when all of it has arrived.
    pub(super) fn pass(&mut self, session: &Session) -> Result<(), End> {
        let Some(passing) = &mut self.passing else { return Ok(()) };
        if session.is_single {
            return Ok(());
        }
        while let Some(index) = passing.to_send() {
            let Some(Record { partition, time_us, id, body }) = passing.get(index) else { break };
            let record = Stored { offset: 0, partition, time_us, id, body };
            let (bytes, max) = (bytes_alone(body.len()), session.topic.message_bytes_max);
            if bytes > max {
                let reason = too_large(bytes, max);
                bury(&mut self.dead_letters, &self.settings, &record, &reason)?;
                self.dead_letters.sync()?;
                passing.dead += 1;
                passing.done(index);
                continue;
            }
            session.send(&self.settings, &record, PASSING + index)?;
            passing.sent(index);
        }
        if passing.is_done()
            && let Some(passing) = self.passing.take()
        {
            let (records, bytes, dead) = passing.finish();
            let progress = &self.progress;
            progress.dead.fetch_add(dead, Ordering::Release);
            progress.delivered_bytes.fetch_add(bytes, Ordering::Release);
            progress.delivered.fetch_add(records, Ordering::Release);
            self.was_passing = true;
        }
        Ok(())
    }

    /// What became of a record that was sent from memory.
    pub(super) fn hear_passing(
        &mut self,
        index: usize,
        fate: Result<i64, KafkaError>,
    ) -> Result<(), End> {
        let Some(passing) = &mut self.passing else { return Ok(()) };
        let error = match fate {
            Ok(_) => {
                passing.done(index);
                return Ok(());
            }
            Err(error) => error,
        };
        if !is_refused(&error) {
            return Err(unavailable(format!("Kafka: {error}")).into());
        }
        if passing.is_single
            && let Some(Record { partition, time_us, id, body }) = passing.get(index)
        {
            // It was alone: it is the one.
            let record = Stored { offset: 0, partition, time_us, id, body };
            bury(&mut self.dead_letters, &self.settings, &record, &format!("Kafka: {error}"))?;
            self.dead_letters.sync()?;
            passing.dead += 1;
            passing.done(index);
        }
        passing.is_single = true;
        Err(End::Again)
    }
}
