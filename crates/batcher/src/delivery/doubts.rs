//! Was it delivered or not? What nobody knows after a session that ended with messages on their way.
//!
//! ```text
//!   no doubts ──messages are sent──▶ open ──the session ends with all answers──▶ no doubts
//!                                     │
//!                                     └──it ends without, or the process does──▶ doubts ──the topic was read──▶ open
//! ```
//!
//! The marks' file says which it is, so that a process that was killed leaves its doubts to the next.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use super::DeliveryOptions;
use super::arrived::{Place, Search, Sought, ends, search};
use super::marks::Marks;
use crate::sink::kafka::{Error, Settings};

#[derive(Debug)]
pub(super) struct Doubts {
    path: PathBuf,
    settle: Duration,
    marks: Marks,
    /// The marks are those of the sessions before; otherwise nobody knows how far the topic had got.
    is_marked: bool,
    are_any: bool,
    /// Why the topic cannot be read.
    denied: Option<String>,
    /// Records that the topic has, though nobody heard so.
    arrived: HashMap<u128, Place>,
    /// In the topic, let go of, and not committed.
    passed: Vec<Place>,
    /// The file could not be written, and it was said.
    is_failing: bool,
}

impl Doubts {
    /// What the process before has left.
    pub(super) fn load(settings: &Settings, options: &DeliveryOptions) -> Doubts {
        let found = Marks::load(&options.marks);
        let same = found.clone().filter(|marks| marks.topic == settings.topic);
        if let Some(marks) = &found {
            say_changes(marks, settings);
        }
        // Another topic has nothing of ours yet; without the file, nobody knows.
        let are_any = same.as_ref().map_or(found.is_none(), |marks| !marks.is_clean);
        let is_marked = found.is_some();
        let mut marks = same.unwrap_or_default();
        (marks.topic, marks.partitions) = (settings.topic.clone(), settings.partitions);
        Doubts {
            path: options.marks.clone(),
            settle: options.settle,
            marks,
            is_marked,
            are_any,
            denied: None,
            arrived: HashMap::new(),
            passed: Vec::new(),
            is_failing: false,
        }
    }

    pub(super) fn are_any(&self) -> bool {
        self.are_any
    }

    /// The topic cannot be read, so the position has to follow closely.
    pub(super) fn is_denied(&self) -> bool {
        self.denied.is_some()
    }

    /// Looks in the topic for the records with these ids.
    pub(super) fn resolve(
        &mut self,
        settings: &Settings,
        ids: HashSet<u128>,
        ends: impl Fn() -> bool,
    ) -> Result<(), Error> {
        self.arrived.clear();
        if !ids.is_empty() {
            let sought = Sought { ids, settle: self.settle };
            let marks = self.is_marked.then_some(&self.marks);
            match search(settings, marks, &sought, ends)? {
                Search::Found(found) => self.take_found(found, settings),
                Search::Denied(reason) => self.deny(reason, settings),
            }
        }
        self.are_any = false;
        Ok(())
    }

    fn take_found(&mut self, found: HashMap<u128, Place>, settings: &Settings) {
        self.denied = None;
        if !found.is_empty() {
            tracing::info!(
                topic = settings.topic,
                records = found.len(),
                "found in the topic, though their acknowledgement was not heard: they are not sent again"
            );
        }
        self.arrived = found;
    }

    fn deny(&mut self, reason: String, settings: &Settings) {
        if self.denied.is_none() {
            tracing::warn!(
                topic = settings.topic,
                "the topic may not be read ({reason}), so after a crash the last records may be there twice; allow the \
                 gateway to read it. Until then the position is committed with each acknowledgement"
            );
        }
        self.denied = Some(reason);
    }

    /// Where the record with this id stands in the topic, if it was found there. It is asked once.
    pub(super) fn take(&mut self, id: u128) -> Option<Place> {
        if self.arrived.is_empty() { None } else { self.arrived.remove(&id) }
    }

    /// Messages are sent from now on. A partition that has no mark yet gets one where it ends.
    pub(super) fn begin_session(&mut self, settings: &Settings) -> Result<(), Error> {
        let marks = &mut self.marks.offsets;
        let new: Vec<u32> =
            (0..settings.partitions).filter(|one| !marks.contains_key(one)).collect();
        for (partition, end) in ends(settings, &new)? {
            let found = self.arrived.values().filter(|(of, _)| *of == partition);
            let first = found.map(|(_, offset)| *offset).min();
            marks.insert(partition, first.map_or(end, |first| first.min(end)));
        }
        self.marks.is_clean = false;
        if !self.store() {
            // What it says would be believed after a crash; without it, the topic's end is read.
            let _ = std::fs::remove_file(&self.path);
        }
        Ok(())
    }

    /// Nothing more is sent. Whether all messages have got their answers.
    pub(super) fn end_session(&mut self, is_clean: bool) {
        self.are_any = !is_clean;
        self.marks.is_clean = is_clean;
        self.store();
    }

    /// A record in the topic was let go of.
    pub(super) fn pass(&mut self, partition: u32, offset: i64) {
        self.passed.push((partition, offset));
    }

    /// What was let go of is committed: only now may the marks pass it.
    pub(super) fn committed(&mut self) {
        for (partition, offset) in self.passed.drain(..) {
            self.marks.pass(partition, offset);
        }
        self.store();
    }

    /// Replaces the file. If that fails, the old one is right as well: then more of the topic is read after a crash.
    fn store(&mut self) -> bool {
        self.is_marked = true;
        let stored = self.marks.store(&self.path);
        if let Err(error) = &stored
            && !self.is_failing
        {
            let path = self.path.display();
            tracing::warn!("{path}: {error}; after a crash more of the topic is read");
        }
        self.is_failing = stored.is_err();
        stored.is_ok()
    }
}

/// Says what is not as it was when the marks were written.
fn say_changes(marks: &Marks, settings: &Settings) {
    let (topic, partitions) = (&settings.topic, settings.partitions);
    if marks.topic != *topic {
        tracing::warn!(
            "the spool was delivered to topic {} until now; what it still holds goes to {topic}",
            marks.topic
        );
    } else if marks.partitions != partitions {
        tracing::warn!(
            "topic {topic} had {} partitions and has {partitions} now: a record that was taken before goes to its old \
             partition modulo {partitions}, and a key may have another partition from now on",
            marks.partitions
        );
    }
}
