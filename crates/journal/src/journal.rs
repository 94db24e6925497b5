//! The journal, as an application uses it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use highwater_core::frame::{FRAMES_AT, Previous};

use crate::committer::{Committer, Turn};
use crate::consumer::{Consumer, Consumers};
use crate::damage::{Report, Tail};
use crate::error::{Error, ErrorKind, is_full};
use crate::log::{Health, Log, Stat};
use crate::look::{Found, look};
use crate::mark::{self, Mark};
use crate::options::Options;
use crate::queue::{Producer, Shared};
use crate::reader::Reader;
use crate::retention::Keeper;
use crate::segment::Segment;
use crate::storage::{File, Storage};

/// How often retention by age is checked while nothing is written.
const RETENTION_INTERVAL: Duration = Duration::from_secs(10);

/// A durable record log. See the crate's documentation.
///
/// Dropping it closes it: accepted records are made durable first, so this may take as long as the disk does.
#[derive(Debug)]
pub struct Journal {
    storage: Arc<dyn Storage>,
    log: Arc<Log>,
    shared: Arc<Shared>,
    consumers: Arc<Consumers>,
    recovery: Recovery,
    thread: Option<JoinHandle<()>>,
}

/// What opening the journal found and repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// The state found. Its tail has been cut off, and unfinished files are removed.
    pub report: Report,
    /// Lost consumer positions, one sentence each.
    pub positions_lost: Vec<String>,
}

/// A summary for operators, one line per finding; empty if all is well.
impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report.fmt(f)?;
        for lost in &self.positions_lost {
            writeln!(f, "{lost}")?;
        }
        Ok(())
    }
}

impl Journal {
    /// Opens the journal in `storage`, or creates one, and starts its committing thread.
    ///
    /// It repairs what a crash left: see [`recovery`](Journal::recovery). Damage does not prevent it from opening.
    ///
    /// # Errors
    ///
    /// If an option is out of its range, a file is of a later version, or the disk gives an error.
    pub fn open(storage: impl Storage, options: Options) -> Result<Journal, Error> {
        let (mut journal, mut committer) = Journal::open_idle(Arc::new(storage), options)?;
        let shared = Arc::clone(&journal.shared);
        let run = move || {
            shared.register_thread();
            run(&mut committer, &shared);
            committer.finish();
        };
        let thread = std::thread::Builder::new().name("journal".into()).spawn(run);
        let failed = |error| Error::new(ErrorKind::Disk, format!("starting a thread: {error}"));
        journal.thread = Some(thread.map_err(failed)?);
        Ok(journal)
    }

    /// The journal, and its committing half for the caller to run.
    pub(crate) fn open_idle(
        storage: Arc<dyn Storage>,
        mut options: Options,
    ) -> Result<(Journal, Committer), Error> {
        options.check()?;
        options.segment_bytes = options.segment_bytes_within();
        let mut found = look(&*storage, options.scan_bytes_max)?;
        mend(&*storage, &mut found)?;
        let mut recovery = Recovery::default();
        let failed = |error| Error::disk(storage.place(), &error);
        let lost = &mut recovery.positions_lost;
        let consumers = Consumers::load(Arc::clone(&storage), options.consumers_max, lost);
        let consumers = Arc::new(consumers.map_err(failed)?);
        // A position may be beyond the end, where offsets were given to records that could not be written: they are not
        // reused.
        let report = &mut found.report;
        report.next_offset = report.next_offset.max(consumers.highest().unwrap_or(0));
        recovery.report = report.clone();
        let segments = std::mem::take(&mut found.segments);
        let log = Log::new(segments, &recovery.report);
        let shared = Arc::new(Shared::new(&options));
        let floor = Mark::open(&*storage, mark::FLOOR, log.begins_at()).map_err(failed)?;
        let written = Mark::open(&*storage, mark::WRITTEN, 0).map_err(failed)?;
        let keeper = Keeper::new(options.retention, Arc::clone(&consumers), floor);
        let (log_, shared_) = (Arc::clone(&log), Arc::clone(&shared));
        let marked = (keeper, written);
        let committer =
            Committer::new(Arc::clone(&storage), options, log_, shared_, marked, &found);
        Ok((Journal { storage, log, shared, consumers, recovery, thread: None }, committer))
    }

    /// What opening found and repaired. If its text is not empty, it belongs in the operator's log.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// A new queue to append through: one per appending thread.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooMany`] if there are `producers_max` of them.
    pub fn producer(&self) -> Result<Producer, Error> {
        self.shared.producer()
    }

    /// Reads from the record `offset` on. If retention has removed it, the reader reports that first.
    pub fn reader(&self, offset: u64) -> Reader {
        Reader::new(Arc::clone(&self.log), Arc::clone(&self.storage), offset)
    }

    /// Reads from the first record that retention has left.
    pub fn reader_from_start(&self) -> Reader {
        self.reader(self.log.begins_at())
    }

    /// The consumer `name`. A new one begins with the first existing record. It touches the disk, and so blocks.
    ///
    /// # Errors
    ///
    /// If there are `consumers_max` of them, the name is not `[a-z0-9_-]{1,64}`, or the disk gives an
    /// error.
    pub fn consumer(&self, name: &str) -> Result<Consumer, Error> {
        self.consumers.consumer(name, self.log.begins_at(), &self.log, &self.shared)
    }

    /// The consumer `name`. A new one begins after the last existing record. It touches the disk, and so blocks.
    ///
    /// # Errors
    ///
    /// As for [`consumer`](Journal::consumer).
    pub fn consumer_from_end(&self, name: &str) -> Result<Consumer, Error> {
        self.consumers.consumer(name, self.log.next_offset(), &self.log, &self.shared)
    }

    /// From now on, retention removes records whether or not consumers have read them, as without
    /// [`Retention::keep_unread`](crate::Retention::keep_unread). For callers that open the journal with that option
    /// until they know whether any consumer needs the records.
    pub fn release_unread(&self) {
        self.consumers.ignore();
        self.shared.wake();
    }

    /// Forgets the consumer `name`: its position is removed, and no records are kept for it any more.
    ///
    /// # Errors
    ///
    /// If the disk reports an error: the consumer may then reappear after the next opening.
    pub fn forget_consumer(&self, name: &str) -> Result<(), Error> {
        self.consumers.forget(name)?;
        self.shared.wake();
        Ok(())
    }

    /// The consumers' names and positions.
    pub fn consumers(&self) -> Vec<(String, u64)> {
        self.consumers.positions()
    }

    /// The journal's current size and offsets.
    pub fn stat(&self) -> Stat {
        self.log.stat()
    }

    /// Whether it accepts records.
    pub fn health(&self) -> Health {
        self.log.health()
    }

    /// Stops accepting, makes accepted records durable, closes the last segment cleanly, and releases the storage once
    /// readers and producers are gone as well.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Poisoned`] if the disk failed, now or before.
    pub fn close(mut self) -> Result<(), Error> {
        self.end();
        match self.log.health() {
            Health::Poisoned(error) => Err(error),
            _ => Ok(()),
        }
    }

    fn end(&mut self) {
        self.shared.close();
        if let Some(thread) = self.thread.take() {
            // If it panicked, its receipts have reported that.
            let _ = thread.join();
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs turns until the journal is closed and nothing waits.
fn run(committer: &mut Committer, shared: &Shared) {
    loop {
        if committer.turn() == Turn::Worked {
            continue;
        }
        shared.announce_sleep();
        if committer.turn() == Turn::Worked {
            shared.end_sleep();
            continue;
        }
        if shared.is_closed() {
            return;
        }
        if committer.looks_at_age() {
            std::thread::park_timeout(RETENTION_INTERVAL);
        } else {
            std::thread::park();
        }
        shared.end_sleep();
    }
}

/// Repairs what a crash has left.
///
/// Bytes after the newest segment's highest mark may never have been synced, or their sync may have failed: the pages
/// are then in the page cache, look intact, count as clean, and never reach the disk. So those bytes are rewritten
/// unchanged and synced before they are served.
fn mend(storage: &dyn Storage, found: &mut Found) -> Result<(), Error> {
    for name in &found.report.unfinished {
        let failed = |error| Error::disk(format!("removing {}/{name}", storage.place()), &error);
        storage.remove(name).map_err(failed)?;
    }
    for segment in found.segments.iter().filter(|segment| segment.is_unnamed) {
        let failed = |error| Error::disk(format!("{}/{}", storage.place(), segment.name), &error);
        prove(storage, segment).map_err(failed)?;
    }
    if let Some(segment) = found.segments.last_mut() {
        let place = format!("{}/{}", storage.place(), segment.name);
        if let (Some(tail), Some((at, kind))) = (&found.report.tail, found.unreadable) {
            let Tail { at: end, bytes, .. } = tail;
            let text = format!(
                "{place}: the disk cannot read at {at} ({kind}), so it cannot be known whether the \
                 {bytes} bytes at {end} hold records; copy the file to another disk"
            );
            return Err(Error::new(ErrorKind::Disk, text));
        }
        let failed = |error| Error::disk(format!("mending {place}"), &error);
        let mut file = prove(storage, segment).map_err(failed)?;
        if found.report.tail.is_some() {
            cut_tail(&mut *file, segment, found.report.next_offset).map_err(failed)?;
            found.previous = Some(Previous { sequence: segment.sequence, end: segment.end });
        }
        file.sync().map_err(failed)?;
    }
    storage.sync_dir().map_err(|error| Error::disk(storage.place(), &error))
}

/// Rewrites the part of a segment that may never have been synced, and syncs it.
fn prove(storage: &dyn Storage, segment: &Segment) -> io::Result<Box<dyn File>> {
    let mut file = storage.open(&segment.name)?;
    // Without a mark after the header, even the header may be in the page cache only.
    let from = if segment.mark > FRAMES_AT as u64 { segment.mark } else { 0 };
    write_again(&mut *file, from, segment.end)?;
    file.sync()?;
    Ok(file)
}

/// Writes a seal where the tail begins, and cuts off the rest.
///
/// The seal records the next offset. The tail may have been records that a reader saw before the disk damaged them:
/// their offsets are never reused, even after the next opening. So the seal is durable before anything is cut off.
fn cut_tail(file: &mut dyn File, segment: &mut Segment, next_offset: u64) -> io::Result<()> {
    let mut bytes = Vec::new();
    segment.next_offset = next_offset;
    segment.seal().push(&mut bytes, segment.salt, segment.mark);
    match file.write_at(segment.end, &bytes).and_then(|()| file.sync()) {
        // The tail may stay: the next segment's header excludes it.
        Err(error) if is_full(&error) => return Ok(()),
        other => other?,
    }
    segment.end += bytes.len() as u64;
    segment.sealed = true;
    file.cut(segment.end)
}

/// Rewrites the bytes from `at` to `end` in place.
fn write_again(file: &mut dyn File, mut at: u64, end: u64) -> io::Result<()> {
    let mut piece = vec![0; 1 << 20];
    while at < end {
        let bytes = piece.len().min((end - at) as usize);
        let filled = file.read_at(at, &mut piece[..bytes])?;
        if filled == 0 {
            return Ok(());
        }
        file.write_at(at, &piece[..filled])?;
        at += filled as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Batch, Record};
    use crate::reader::Item;
    use crate::storage::sim::{Disk, Faults};

    fn batch(id: u128) -> Batch {
        let mut batch = Batch::new();
        batch.push(Record { partition: 0, time_us: 0, id, body: b"a body" });
        batch
    }

    fn kind<T: fmt::Debug>(result: Result<T, impl Into<Error>>) -> ErrorKind {
        result.expect_err("it must not succeed").into().kind()
    }

    /// Purpose: batches that arrive during a sync share the next one, from whichever producer; and offsets follow the
    /// order of the receipts.
    #[test]
    fn one_sync_for_all_that_wait() {
        let disk = Disk::new(1);
        let (journal, mut committer) =
            Journal::open_idle(Arc::new(disk.clone()), Options::default()).expect("it is empty");
        let producers = [(); 5].map(|()| journal.producer().expect("there are few"));
        let append =
            |id: usize| producers[id % 5].append(batch(id as u128)).expect("there is room");
        append(0).answer();
        assert_eq!(committer.turn(), Turn::Worked);
        let before = disk.syncs();
        let receipts: Vec<_> = (0..100).map(append).collect();
        assert!(receipts.iter().all(|receipt| receipt.answer().is_none()));
        assert_eq!(committer.turn(), Turn::Worked);
        assert_eq!(disk.syncs() - before, 1);
        let offsets: Vec<u64> = receipts
            .iter()
            .map(|receipt| receipt.answer().expect("it is durable").expect("it works").first_offset)
            .collect();
        for producer in 0..5 {
            let mine: Vec<_> = offsets.iter().skip(producer).step_by(5).collect();
            assert!(mine.is_sorted(), "{mine:?}");
        }
        assert_eq!(committer.turn(), Turn::Idle);
    }

    /// Purpose: after two disk failures in a row the journal is poisoned and appends fail at once; reopened on a
    /// working disk, it serves.
    #[test]
    fn a_failing_disk_poisons_until_the_next_opening() {
        let disk = Disk::new(1);
        let journal = Journal::open(disk.clone(), Options::default()).expect("it is empty");
        let producer = journal.producer().expect("there are few");
        producer.append(batch(1)).expect("there is room").wait().expect("the disk works");
        disk.set_faults(Faults { write: 100, ..Faults::default() });
        let receipt = producer.append(batch(2)).expect("there is room");
        assert_eq!(kind(receipt.wait()), ErrorKind::Disk);
        disk.set_faults(Faults::default());
        assert_eq!(kind(producer.append(batch(3))), ErrorKind::Poisoned);
        assert!(matches!(journal.health(), Health::Poisoned(_)));
        assert_eq!(kind(journal.close()), ErrorKind::Disk);

        let journal = Journal::open(disk, Options::default()).expect("the disk works");
        let producer = journal.producer().expect("there are few");
        let committed = producer.append(batch(4)).expect("there is room").wait();
        assert!(committed.expect("the disk works").first_offset > 0);
    }

    /// Purpose: without room nothing is lost or poisoned; with room again it serves, without reopening.
    #[test]
    fn a_full_disk_poisons_nothing() {
        let disk = Disk::new(1);
        let journal = Journal::open(disk.clone(), Options::default()).expect("it is empty");
        let producer = journal.producer().expect("there are few");
        for room in [0, 8191, 8192, 8192 + 30] {
            disk.set_faults(Faults { room: Some(room), ..Faults::default() });
            let receipt = producer.append(batch(1)).expect("there is room in the queue");
            assert_eq!(kind(receipt.wait()), ErrorKind::Full, "{room}");
            assert!(matches!(journal.health(), Health::Full(_)));
        }
        disk.set_faults(Faults::default());
        producer.append(batch(2)).expect("there is room").wait().expect("the disk has room");
        assert!(matches!(journal.health(), Health::Serving));
        assert_eq!(journal.stat().records, 1);
    }

    /// Purpose: a shortage of descriptors says nothing about the disk: a group that finds none for a new segment is refused, also
    /// after the disk failed in the old one, and nobody has to restart the service.
    #[test]
    fn a_lack_of_descriptors_poisons_nothing() {
        let disk = Disk::new(1);
        let journal = Journal::open(disk.clone(), Options::default()).expect("it is empty");
        let producer = journal.producer().expect("there are few");
        let append = |id| producer.append(batch(id)).expect("it is not poisoned").wait();
        for write in [0, 100] {
            disk.set_faults(Faults { write, no_descriptors: true, ..Faults::default() });
            let error = append(1).expect_err("there is no segment for it");
            assert_eq!(error.kind(), ErrorKind::Descriptors, "{error}");
            assert!(error.to_string().contains("LimitNOFILE="), "{error}");
            assert!(matches!(journal.health(), Health::Full(_)), "{:?}", journal.health());
            disk.set_faults(Faults::default());
            append(2).expect("there are descriptors");
            assert!(matches!(journal.health(), Health::Serving));
        }
        assert_eq!(journal.stat().records, 2);
    }

    /// A spool whose first record is read, on a disk that is full of it, and an appender.
    fn full_spool(disk: &Disk) -> (Journal, Committer, Producer) {
        let mut options = Options::default();
        options.retention.bytes = Some(0);
        options.retention.keep_unread = true;
        let opened = Journal::open_idle(Arc::new(disk.clone()), options);
        let (journal, mut committer) = opened.expect("nobody has it");
        let producer = journal.producer().expect("there are few");
        append(&producer, &mut committer, 1).expect("the disk works");
        let consumer = journal.consumer("reads").expect("there are few");
        consumer.commit(1).expect("the disk works");
        (journal, committer, producer)
    }

    fn append(producer: &Producer, committer: &mut Committer, id: u128) -> Result<u64, Error> {
        let receipt = producer.append(batch(id)).expect("there is room in the queue");
        while committer.turn() == Turn::Worked {}
        Ok(receipt.answer().expect("it had its turn")?.first_offset)
    }

    fn full(disk: &Disk) -> Faults {
        let used = disk.contents().values().map(Vec::len).sum::<usize>() as u64;
        Faults { room: Some(used), ..Faults::default() }
    }

    /// What a reader shows from the offset 1 on.
    fn second(journal: &Journal) -> u128 {
        match journal.reader(1).next().expect("the disk works") {
            Item::Record(record) => record.id,
            other => panic!("{other:?}"),
        }
    }

    /// Purpose: offsets that were given to records which found no room are not reported as missing records once retention has
    /// removed the segment before them. (The service made a dead letter of them.)
    #[test]
    fn offsets_without_records_are_not_missing() {
        let disk = Disk::new(1);
        let (journal, mut committer, producer) = full_spool(&disk);
        disk.set_faults(full(&disk));
        assert_eq!(kind(append(&producer, &mut committer, 2)), ErrorKind::Full);
        disk.set_faults(Faults::default());
        let offset = append(&producer, &mut committer, 3).expect("there is room");
        assert_eq!((offset, journal.stat().segments), (2, 1), "one offset is left out");
        assert_eq!(second(&journal), 3);
    }

    /// Purpose: a segment whose records are forgotten gets no more, also if the disk fails before it is emptied: the next one says
    /// that it has none.
    #[test]
    fn a_forgotten_segment_is_left() {
        let disk = Disk::new(1);
        let (journal, mut committer, producer) = full_spool(&disk);
        disk.set_faults(Faults { sync: 100, ..full(&disk) });
        append(&producer, &mut committer, 2).expect_err("there is no room");
        disk.set_faults(Faults::default());
        append(&producer, &mut committer, 3).expect("there is room");
        assert_eq!(second(&journal), 3);
        drop((journal, committer));
        let opened = Journal::open_idle(Arc::new(disk), Options::default());
        assert_eq!(opened.expect("nobody has it").0.stat().records, 1);
    }
}
