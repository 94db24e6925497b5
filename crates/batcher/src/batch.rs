//! Batches: as they are filled, and as a sink receives them.
//!
//! The bodies are concatenated; `ends` holds where each one ends. Consecutive records with the same partition and time
//! share one run. Ids are consecutive.
//!
//! Invariant: the first run begins at record 0 if there is a record; runs increase; `ends` never decreases.

use highwater_journal::Record;

/// Records that are handed to a sink together. A batch never changes once a sink has it.
#[derive(Debug, Default)]
pub struct Batch {
    first_id: u128,
    bodies: Vec<u8>,
    ends: Vec<u32>,
    runs: Vec<Run>,
}

/// From here on, records have this partition and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u32,
    partition: u32,
    time_us: u64,
}

impl Batch {
    /// How many records there are; at least one if a sink has it.
    pub fn records(&self) -> usize {
        self.ends.len()
    }

    /// The total bytes of all bodies.
    pub fn body_bytes(&self) -> usize {
        self.bodies.len()
    }

    /// The first record's id. A record's id is this plus its index.
    pub fn first_id(&self) -> u128 {
        self.first_id
    }

    /// The partition of all records; `None` if they have several, as with [`Layout::Mixed`](crate::Layout::Mixed).
    pub fn partition(&self) -> Option<u32> {
        let partition = self.runs.first()?.partition;
        self.runs.iter().all(|run| run.partition == partition).then_some(partition)
    }

    /// The record with this index.
    pub fn get(&self, index: usize) -> Option<Record<'_>> {
        let end = *self.ends.get(index)? as usize;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        let run = self.runs.partition_point(|run| run.first as usize <= index) - 1;
        let Run { partition, time_us, .. } = self.runs[run];
        let id = self.first_id.wrapping_add(index as u128);
        Some(Record { partition, time_us, id, body: &self.bodies[start..end] })
    }

    /// The records in their order.
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            bodies: &self.bodies,
            ends: self.ends.iter(),
            start: 0,
            id: self.first_id,
            runs: &self.runs,
            run: Run { first: 0, partition: 0, time_us: 0 },
            index: 0,
            next_run: 0,
        }
    }

    /// How much memory it takes.
    pub(crate) fn memory(&self) -> usize {
        self.bodies.capacity()
            + self.ends.capacity() * size_of::<u32>()
            + self.runs.capacity() * size_of::<Run>()
    }

    /// Forgets the records and keeps the memory.
    fn clear(&mut self) {
        self.bodies.clear();
        self.ends.clear();
        self.runs.clear();
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = Record<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// The records of a batch.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    bodies: &'a [u8],
    ends: std::slice::Iter<'a, u32>,
    start: usize,
    id: u128,
    runs: &'a [Run],
    run: Run,
    index: u32,
    /// The index of the first record after `run`.
    next_run: u32,
}

impl Iter<'_> {
    #[cold]
    fn take_run(&mut self) {
        let Some((run, rest)) = self.runs.split_first() else { return };
        self.run = *run;
        self.runs = rest;
        self.next_run = rest.first().map_or(u32::MAX, |next| next.first);
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Record<'a>;

    #[inline]
    fn next(&mut self) -> Option<Record<'a>> {
        let end = *self.ends.next()? as usize;
        if self.index == self.next_run {
            self.take_run();
        }
        let body = &self.bodies[self.start..end];
        let Run { partition, time_us, .. } = self.run;
        let record = Record { partition, time_us, id: self.id, body };
        self.start = end;
        self.id = self.id.wrapping_add(1);
        self.index += 1;
        Some(record)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.ends.size_hint()
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// The minimum memory of an open batch, without bodies.
pub(crate) const OVERHEAD_MIN: usize = ENDS_MIN * size_of::<u32>() + RUNS_MIN * size_of::<Run>();

const BODIES_MIN: usize = 4096;
const ENDS_MIN: usize = 64;
const RUNS_MIN: usize = 4;

/// How large a batch may become.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) bytes: usize,
    pub(crate) records: usize,
}

/// A batch that is being filled.
///
/// Its memory is allocated before a record is added, so that [`push`](Open::push) only copies.
#[derive(Debug)]
pub(crate) struct Open {
    batch: Batch,
    /// The partition and time of the last record.
    last: Run,
    /// How many bytes and records fit without allocating or reaching the batch's size.
    fits: Size,
}

impl Default for Open {
    fn default() -> Open {
        let last = Run { first: 0, partition: 0, time_us: 0 };
        Open { batch: Batch::default(), last, fits: Size { bytes: 0, records: 0 } }
    }
}

impl Open {
    #[inline]
    pub(crate) fn records(&self) -> usize {
        self.batch.ends.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batch.ends.is_empty()
    }

    pub(crate) fn memory(&self) -> usize {
        self.batch.memory()
    }

    /// The first record's time.
    pub(crate) fn first_us(&self) -> Option<u64> {
        self.batch.runs.first().map(|run| run.time_us)
    }

    /// Whether it is full, for a batch of that size.
    pub(crate) fn is_full(&self, size: Size) -> bool {
        self.batch.bodies.len() >= size.bytes || self.records() >= size.records
    }

    /// Whether a body of this many bytes fits; it always fits into an empty batch.
    pub(crate) fn takes(&self, bytes: usize, size: Size) -> bool {
        self.is_empty()
            || (self.records() < size.records && self.batch.bodies.len() + bytes <= size.bytes)
    }

    /// Adds a record, if that needs only a copy.
    #[inline]
    pub(crate) fn push(&mut self, partition: u32, time_us: u64, body: &[u8]) -> Option<u128> {
        let Batch { first_id, bodies, ends, .. } = &mut self.batch;
        let end = bodies.len() + body.len();
        let same = self.last.partition == partition && self.last.time_us == time_us;
        if end > self.fits.bytes || ends.len() >= self.fits.records || !same {
            return None;
        }
        let id = first_id.wrapping_add(ends.len() as u128);
        bodies.extend_from_slice(body);
        // It is at most 2^30, or the length of one record that is.
        ends.push(end as u32);
        Some(id)
    }

    /// The most additional memory that one more record takes.
    pub(crate) fn growth(&self, bytes: usize, size: Size) -> usize {
        let [bodies, ends, runs] = self.wanted(bytes, size);
        let batch = &self.batch;
        bodies.saturating_sub(batch.bodies.capacity())
            + ends.saturating_sub(batch.ends.capacity()) * size_of::<u32>()
            + runs.saturating_sub(batch.runs.capacity()) * size_of::<Run>()
    }

    /// The most additional memory that this many more records of one partition and time take, here and in the following
    /// batches.
    pub(crate) fn growth_max(&self, records: usize, bytes: usize, size: Size) -> usize {
        // Vectors double when they grow, here too. A batch that ends half empty is followed by a record that is
        // longer than half a batch.
        let batches = 2 + 2 * bytes / size.bytes + records / size.records;
        let minimum = BODIES_MIN.min(size.bytes) + 2 * OVERHEAD_MIN;
        self.memory() + 2 * bytes + 2 * records * size_of::<u32>() + batches * minimum
    }

    /// Ensures that [`push`](Open::push) accepts such a record, which must [fit](Open::takes).
    pub(crate) fn prepare(&mut self, partition: u32, time_us: u64, bytes: usize, size: Size) {
        let [bodies, ends, runs] = self.wanted(bytes, size);
        grow(&mut self.batch.bodies, bodies);
        grow(&mut self.batch.ends, ends);
        grow(&mut self.batch.runs, runs);
        self.fits = Size {
            bytes: self
                .batch
                .bodies
                .capacity()
                .min(size.bytes.max(self.batch.bodies.len() + bytes)),
            records: self.batch.ends.capacity().min(size.records),
        };
        let run = Run { first: self.batch.ends.len() as u32, partition, time_us };
        let same = self.last.partition == partition && self.last.time_us == time_us;
        if self.is_empty() || !same {
            self.batch.runs.push(run);
            self.last = run;
        }
    }

    /// The bytes, ends and runs needed for one more record.
    fn wanted(&self, bytes: usize, size: Size) -> [usize; 3] {
        let Batch { bodies, ends, runs, .. } = &self.batch;
        let twice = |capacity: usize, needed: usize, min: usize, max: usize| {
            if needed <= capacity { capacity } else { (2 * capacity).max(min).min(max).max(needed) }
        };
        [
            twice(bodies.capacity(), bodies.len() + bytes, BODIES_MIN, size.bytes),
            twice(ends.capacity(), ends.len() + 1, ENDS_MIN, size.records),
            twice(runs.capacity(), runs.len() + 1, RUNS_MIN, size.records),
        ]
    }

    /// Begins a batch in the memory of an old one.
    pub(crate) fn begin(&mut self, mut batch: Batch, first_id: u128) {
        debug_assert!(self.is_empty());
        batch.clear();
        batch.first_id = first_id;
        *self = Open { batch, ..Open::default() };
    }

    /// Takes the batch, and leaves one without memory.
    pub(crate) fn take(&mut self) -> Batch {
        std::mem::take(self).batch
    }
}

/// Ensures a capacity of `wanted` in total.
fn grow<T>(values: &mut Vec<T>, wanted: usize) {
    if wanted > values.capacity() {
        values.reserve_exact(wanted - values.len());
    }
}
