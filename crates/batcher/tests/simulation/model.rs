//! What must be true of every record, in any implementation of batching.
//!
//! The model is notified of records that are appended, given to the sink and answered by it. It knows neither batch sizes
//! nor lanes, and no clock.

use std::collections::{BTreeMap, HashSet, VecDeque};

use highwater_batcher::{Batch, Record};

/// What is known of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) partition: u32,
    pub(crate) time_us: u64,
    pub(crate) id: u128,
    pub(crate) body: Vec<u8>,
    pub(crate) state: State,
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// In the batcher; the sink has never seen it.
    Inside,
    /// The sink has it, and has not answered.
    Given,
    /// The sink did not take it; it may be given again.
    Back,
    Written,
    Failed,
    Rejected,
}

/// All records, by their number: the first eight bytes of the body, or its length where that is shorter.
#[derive(Default)]
pub(crate) struct Model {
    records: Vec<Known>,
    by_id: BTreeMap<u128, usize>,
    /// Of each partition, those that the sink has never seen, in order.
    inside: BTreeMap<u32, VecDeque<usize>>,
    ids: HashSet<u128>,
}

impl Model {
    /// A record was appended. Its number.
    pub(crate) fn appended(
        &mut self,
        partition: u32,
        time_us: u64,
        id: u128,
        body: &[u8],
    ) -> usize {
        let number = self.records.len();
        assert!(self.ids.insert(id), "the id {id} was given twice");
        self.by_id.insert(id, number);
        let (body, state) = (body.to_vec(), State::Inside);
        self.records.push(Known { partition, time_us, id, body, state });
        self.inside.entry(partition).or_default().push_back(number);
        number
    }

    /// The sink was given a batch. Its records' numbers, and whether it was given before.
    pub(crate) fn given(&mut self, batch: &Batch) -> (Vec<usize>, bool) {
        let records: Vec<Record<'_>> = batch.iter().collect();
        assert!(!records.is_empty(), "a batch without records");
        assert_eq!(records.len(), batch.records());
        let one_by_one: Vec<_> = (0..records.len()).filter_map(|index| batch.get(index)).collect();
        assert_eq!(records, one_by_one, "reading in order and by index agree");
        assert_eq!(batch.get(records.len()), None);
        let bytes: usize = records.iter().map(|record| record.body.len()).sum();
        assert_eq!(bytes, batch.body_bytes());
        let first = records[0].partition;
        let is_one = records.iter().all(|record| record.partition == first);
        assert_eq!(batch.partition(), is_one.then_some(first));
        assert_eq!(batch.first_id(), records[0].id);

        let numbers: Vec<usize> = records
            .iter()
            .map(|record| *self.by_id.get(&record.id).expect("a record that was appended"))
            .collect();
        let was_back = self.records[numbers[0]].state == State::Back;
        for (record, &number) in records.iter().zip(&numbers) {
            let known = &mut self.records[number];
            let Known { partition, time_us, body, .. } = &*known;
            assert_eq!((record.partition, record.time_us), (*partition, *time_us));
            assert_eq!(record.body, &body[..]);
            if was_back {
                assert_eq!(known.state, State::Back, "what is given again is the same batch");
            } else {
                assert_eq!(known.state, State::Inside, "given twice: {known:?}");
                let next = self.inside.get_mut(&known.partition).and_then(VecDeque::pop_front);
                assert_eq!(next, Some(number), "out of order in partition {}", known.partition);
            }
            known.state = State::Given;
        }
        // Nothing of these partitions overtakes what is to be given again.
        for &number in &numbers {
            let earlier = self.records[..number].iter().filter(|known| known.state == State::Back);
            let of_mine = |known: &&Known| known.partition == self.records[number].partition;
            assert_eq!(earlier.filter(of_mine).count(), 0, "overtaken");
        }
        (numbers, was_back)
    }

    /// The sink has answered for a record.
    pub(crate) fn answered(&mut self, number: usize, state: State) {
        let known = &mut self.records[number];
        assert_eq!(known.state, State::Given, "answered once: {known:?}");
        known.state = state;
    }

    pub(crate) fn state(&self, number: usize) -> State {
        self.records[number].state
    }

    /// How many records are there, with this fate.
    pub(crate) fn count(&self, state: State) -> u64 {
        self.records.iter().filter(|known| known.state == state).count() as u64
    }

    /// When the oldest record was taken that the sink has never seen.
    pub(crate) fn inside_since(&self) -> Option<u64> {
        let inside = self.records.iter().filter(|known| known.state == State::Inside);
        inside.map(|known| known.time_us).min()
    }

    /// How many bytes the bodies have that no answer has come for.
    pub(crate) fn unanswered_bytes(&self) -> usize {
        let is_here =
            |known: &&Known| matches!(known.state, State::Inside | State::Given | State::Back);
        self.records.iter().filter(is_here).map(|known| known.body.len()).sum()
    }

    pub(crate) fn records(&self) -> u64 {
        self.records.len() as u64
    }
}
