//! Records of unknown outcome, after a session that ended with messages in flight.
//!
//! ```text
//!   no doubts ──messages are sent──▶ open ──the session ends with all answers──▶ no doubts
//!                                     │
//!                                     └──it ends without, or the process does──▶ doubts ──the topic was read──▶ open
//! ```
//!
//! The marks file records the state, so that a killed process leaves its doubts to the next.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use super::DeliveryOptions;
use super::arrived::{Loss, Place, Search, Sought, ends, search};
use super::marks::Marks;
use crate::sink::kafka::{Error, Settings};

/// The place of a record that is done, if it is not known: no partition has this number.
const NOWHERE: Place = (u32::MAX, 0);

#[derive(Debug)]
pub(super) struct Doubts {
    path: PathBuf,
    settle: Duration,
    marks: Marks,
    /// The marks are those of earlier sessions; otherwise the topic's end at the last commit is unknown.
    is_marked: bool,
    are_any: bool,
    /// Why the topic cannot be read.
    denied: Option<String>,
    /// Records in the topic whose acknowledgement was not received.
    arrived: HashMap<u128, Place>,
    /// Records that bypassed the journal, were given back to their workers, and are done: the journal will get them all the
    /// same.
    returned: HashSet<u128>,
    /// The same, if it is not known whether they are in the topic.
    returned_unknown: HashSet<u128>,
    /// In the topic, released, and not committed.
    passed: Vec<Place>,
    /// A failure to write the file was logged.
    is_failing: bool,
}

impl Doubts {
    /// Loads the state that the previous process left.
    pub(super) fn load(settings: &Settings, options: &DeliveryOptions) -> Doubts {
        let found = Marks::load(&options.marks);
        let same = found.clone().filter(|marks| marks.topic == settings.topic);
        if let Some(marks) = &found {
            log_changes(marks, settings);
        }
        // A new topic has none of our records yet; without the file, that is unknown.
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
            returned: HashSet::new(),
            returned_unknown: HashSet::new(),
            passed: Vec::new(),
            is_failing: false,
        }
    }

    pub(super) fn are_any(&self) -> bool {
        self.are_any
    }

    /// The topic cannot be read, so the position is committed with each acknowledgement.
    pub(super) fn is_denied(&self) -> bool {
        self.denied.is_some()
    }

    /// Looks in the topic for the records with these ids.
    pub(super) fn resolve(
        &mut self,
        settings: &Settings,
        mut ids: HashSet<u128>,
        ends: impl Fn() -> bool,
    ) -> Result<(), Error> {
        self.arrived.clear();
        ids.extend(&self.returned_unknown);
        if !ids.is_empty() {
            let sought = Sought { ids, settle: self.settle };
            let marks = self.is_marked.then_some(&self.marks);
            match search(settings, marks, &sought, ends)? {
                Search::Found(found, lost) => {
                    lost.into_iter().for_each(|loss| self.lower(settings, loss));
                    self.take_found(found, settings);
                }
                Search::Denied(reason) => self.deny(reason, settings),
            }
        }
        // Those that the journal gets later would not be among the next ids.
        let arrived = &mut self.arrived;
        let found = self.returned_unknown.drain().filter(|id| arrived.remove(id).is_some());
        self.returned.extend(found);
        self.are_any = false;
        Ok(())
    }

    /// Records were given back to a worker that had bypassed the journal: their ids, and which of them are done.
    pub(super) fn give_back(&mut self, ids: Vec<(u128, bool)>) {
        for (id, is_done) in ids {
            let returned = if is_done { &mut self.returned } else { &mut self.returned_unknown };
            returned.insert(id);
        }
        self.end_session(false);
    }

    fn take_found(&mut self, found: HashMap<u128, Place>, settings: &Settings) {
        self.denied = None;
        if !found.is_empty() {
            tracing::info!(
                topic = settings.topic,
                records = found.len(),
                "found in the topic, though their acknowledgement was not received: they are not sent again"
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

    /// The place in the topic of the record with this id, if it is done: found there, or given back. Each is taken once.
    pub(super) fn take(&mut self, id: u128) -> Option<Place> {
        let place = if self.arrived.is_empty() { None } else { self.arrived.remove(&id) };
        place.or_else(|| self.returned.remove(&id).then_some(NOWHERE))
    }

    /// Messages are sent from now on. A partition without a mark gets one at its end.
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
            // After a crash a stale file would be trusted; without it, the topic's end is read.
            let _ = std::fs::remove_file(&self.path);
        }
        Ok(())
    }

    /// Nothing more is sent. `is_clean`: all messages were answered.
    pub(super) fn end_session(&mut self, is_clean: bool) {
        // The next process knows nothing of what was given back.
        let is_clean = is_clean && self.returned.is_empty() && self.returned_unknown.is_empty();
        self.are_any = !is_clean;
        self.marks.is_clean = is_clean;
        self.store();
    }

    /// A record in the topic was released.
    pub(super) fn pass(&mut self, partition: u32, offset: i64) {
        self.passed.push((partition, offset));
    }

    /// Released records are committed: only now may the marks pass them.
    pub(super) fn committed(&mut self, settings: &Settings) {
        let mut suspects = BTreeMap::new();
        for (partition, offset) in self.passed.drain(..) {
            // Kafka does not give the offset of every record.
            if !self.marks.pass(partition, offset) && offset >= 0 {
                suspects.insert(partition, offset + 1);
            }
        }
        if !suspects.is_empty() {
            self.look_for_losses(settings, &suspects);
        }
        self.store();
    }

    /// Logs which partitions have lost what was delivered to them. `suspects` are committed up to the given offsets.
    fn look_for_losses(&mut self, settings: &Settings, suspects: &BTreeMap<u32, i64>) {
        let partitions: Vec<u32> = suspects.keys().copied().collect();
        // If Kafka does not answer, the next record of the partition asks again.
        let ends = ends(settings, &partitions).unwrap_or_default();
        for (partition, end) in ends {
            self.lower(settings, Loss { partition, end, first: suspects[&partition] });
        }
    }

    fn lower(&mut self, settings: &Settings, Loss { partition, end, first }: Loss) {
        if let Some(expected) = self.marks.lower(partition, end, first) {
            say_lost(&settings.topic, partition, end, expected);
        }
    }

    /// Replaces the file. If that fails, the old one is still correct: more of the topic is read after a crash.
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

/// Logs that a partition ends before what was delivered to it.
fn say_lost(topic: &str, partition: u32, end: i64, expected: i64) {
    tracing::warn!(
        %topic, partition, end, expected,
        "the partition ends before what was delivered to it: the topic was recreated, or the brokers have lost data. Delivery \
         goes on with what the journal still holds; earlier records are missing from the topic, so restore them from \
         elsewhere if they are needed, and set the offsets of its consumer groups back (kafka-consumer-groups.sh \
         --reset-offsets --to-earliest), or they may pass over new records"
    );
}

/// Logs what has changed since the marks were written.
fn log_changes(marks: &Marks, settings: &Settings) {
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

#[cfg(test)]
mod tests {
    use rdkafka::config::FromClientConfig as _;
    use rdkafka::mocking::MockCluster;
    use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

    use super::*;

    /// Purpose: brokers that have lost what was delivered are noticed: by a start that has to look for records in the topic, and
    /// by the first record that goes to such a partition afterwards. Each partition is reported once, and its mark is then
    /// such that no record is missed after a crash. A partition that has lost nothing is not reported.
    #[test]
    fn brokers_that_have_lost_their_data() {
        let cluster = MockCluster::new(1).expect("a cluster in this process");
        cluster.create_topic("events", 3, 1).expect("a topic");
        let settings = Settings::new(&cluster.bootstrap_servers(), "events", 3);
        let producer = BaseProducer::from_config(&settings.config()).expect("a producer");
        for partition in 0..3 {
            let record = BaseRecord::<(), _>::to("events").payload("new").partition(partition);
            producer.send(record).expect("there is room");
        }
        producer.flush(Duration::from_secs(20)).expect("the cluster answers");
        let folder = tempfile::tempdir().expect("a temporary directory");
        let options = DeliveryOptions::new(folder.path().join("dead-letters.jsonl"));
        let marks =
            "highwater-delivery 1\ntopic events\npartitions 3\nopen\n0 42\n1 0\n2 42\nend\n";
        std::fs::write(&options.marks, marks).expect("a file");
        let mut doubts = Doubts::load(&settings, &options);
        doubts.settle = Duration::ZERO;
        doubts.resolve(&settings, HashSet::from([1]), || false).expect("the cluster answers");
        assert_eq!(doubts.marks.offsets, BTreeMap::from([(0, 0), (1, 0), (2, 0)]));

        doubts.marks.offsets.insert(0, 42);
        (0..3).for_each(|partition| doubts.pass(partition, 0));
        doubts.committed(&settings);
        assert_eq!(doubts.marks.offsets, BTreeMap::from([(0, 1), (1, 1), (2, 1)]));
        // Acknowledged before the mark, as in a topic with enough messages.
        doubts.pass(1, 0);
        doubts.pass(1, -1);
        doubts.committed(&settings);
        assert_eq!(doubts.marks.offsets[&1], 1);
        assert_eq!(Marks::load(&options.marks), Some(doubts.marks));
    }
}
