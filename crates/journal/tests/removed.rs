//! Somebody removes or replaces files of a journal that is being written. What was acknowledged before is gone with them;
//! nothing more may be acknowledged into a file that nobody can open again.

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Place, batch, ids, read};
use highwater_journal::{
    DamageKind, Directory, Error, ErrorKind, Health, Item, Journal, Options, Reader,
    SEGMENT_BYTES_MIN, verify,
};

fn open(path: &Path) -> Journal {
    let directory = Directory::open(path).expect("nobody else has it");
    Journal::open(directory, Options::default()).expect("it can be opened")
}

fn append(journal: &Journal, id: u64) -> Result<(), Error> {
    let producer = journal.producer().expect("there are few");
    producer.append(batch([id], 100)).expect("it is not poisoned yet").wait().map(drop)
}

/// Purpose: without its directory or its lock a journal acknowledges nothing, and its health names the cause: the records
/// have no name, or not the one that is opened after a restart, or another process may write to the same files.
#[test]
fn nothing_is_acknowledged_without_a_name() {
    type Removal = fn(&Path);
    let removals: [(Removal, &str); 6] = [
        (|path| fs::remove_dir_all(path).expect("it is ours"), "No such file or directory"),
        (|path| fs::remove_file(path.join("LOCK")).expect("it is there"), "the lock was removed"),
        (
            |path| {
                fs::remove_dir_all(path).expect("it is ours");
                fs::create_dir(path).expect("it is gone");
            },
            "the directory was replaced",
        ),
        // It was moved away, as a whole, and the segment is still open: what comes now would be elsewhere.
        (
            |path| fs::rename(path, path.with_extension("before")).expect("it is ours"),
            "No such file or directory",
        ),
        (
            |path| {
                fs::rename(path, path.with_extension("before")).expect("it is ours");
                fs::create_dir(path).expect("it is gone");
            },
            "the directory was replaced",
        ),
        // It goes on elsewhere; the next segment must not begin in what is there now.
        (
            |path| {
                fs::rename(path, path.with_extension("before")).expect("it is ours");
                fs::create_dir(path).expect("it is gone");
                fs::remove_file(path.with_extension("before").join("LOCK")).expect("it is there");
            },
            "the directory was replaced",
        ),
    ];
    for (remove, cause) in removals {
        let place = Place::new("removed");
        let path = place.path().join("journal");
        let journal = open(&path);
        append(&journal, 1).expect("the disk works");
        remove(&path);
        let error = append(&journal, 2).expect_err("nobody could read it");
        assert_eq!(error.kind(), ErrorKind::Disk, "{error}");
        assert!(error.to_string().contains(cause), "{error}");
        assert!(matches!(journal.health(), Health::Poisoned(_)), "{:?}", journal.health());
    }
}

/// Purpose: if only the segment was removed, what comes later goes into another one and is there after the next opening,
/// which reports what is missing.
#[test]
fn a_removed_segment_is_left_behind() {
    let place = Place::new("removed-segment");
    let mut options = Options::default();
    options.segment_bytes = SEGMENT_BYTES_MIN;
    let directory = || Directory::open(place.path()).expect("nobody else has it");
    let journal = Journal::open(directory(), options).expect("it can be opened");
    let mut ids_of_first = Vec::new();
    for id in 0.. {
        append(&journal, id).expect("the disk works");
        match place.segments().len() {
            1 => ids_of_first.push(id),
            _ => break,
        }
    }
    fs::remove_file(&place.segments()[1]).expect("it is there");
    append(&journal, 1_000_000).expect("there is a new segment");
    journal.close().expect("the disk works");

    let journal = open(place.path());
    assert!(journal.recovery().to_string().contains("missing"), "{}", journal.recovery());
    let (records, _) = read(&mut journal.reader_from_start());
    assert_eq!(ids(&records), [ids_of_first, vec![1_000_000]].concat());
}

/// Purpose: retention removes nothing from a directory that took the place of the journal's own: a copy that somebody
/// restored has segments of the same names.
#[test]
fn retention_leaves_other_directories_alone() {
    let place = Place::new("removed-retention");
    let (path, moved) = (place.path().join("journal"), place.path().join("moved"));
    let mut options = Options::default();
    options.segment_bytes = SEGMENT_BYTES_MIN;
    options.retention.bytes = Some(0);
    options.retention.keep_unread = true;
    let directory = Directory::open(&path).expect("nobody else has it");
    let journal = Journal::open(directory, options).expect("it can be opened");
    let mut id = 0;
    while journal.stat().segments < 3 {
        append(&journal, id).expect("the disk works");
        id += 1;
    }
    fs::rename(&path, &moved).expect("it is ours");
    fs::create_dir(&path).expect("it is gone");
    for file in fs::read_dir(&moved).expect("it is there") {
        let file = file.expect("it can be listed");
        fs::copy(file.path(), path.join(file.file_name())).expect("there is room");
    }
    let count = || fs::read_dir(&path).expect("it is there").count();
    let before = count();
    // Nothing is kept for consumers any more; and closing waits for the committing thread.
    journal.release_unread();
    let _ = journal.close();
    assert_eq!(count(), before);
}

/// Purpose: if somebody removes the oldest segments, their records are reported when the journal is opened, by `verify` and
/// to readers; what retention removed is not, neither before nor after that.
#[test]
fn a_removed_oldest_segment_is_reported() {
    let place = Place::new("removed-oldest");
    let open = |retained: Option<u64>| {
        let mut options = Options::default();
        options.segment_bytes = SEGMENT_BYTES_MIN;
        options.retention.bytes = retained;
        let directory = Directory::open(place.path()).expect("nobody else has it");
        Journal::open(directory, options).expect("it can be opened")
    };
    let missing = |journal: &Journal| journal.recovery().report.damage.clone();
    let mut id = 0;
    let mut fill = |journal: &Journal, segments: usize| {
        let before = place.segments().last().cloned();
        let mut begun = 0;
        let mut newest = before;
        while begun < segments {
            append(journal, id).expect("the disk works");
            id += 1;
            let last = place.segments().last().cloned();
            begun += usize::from(std::mem::replace(&mut newest, last.clone()) != last);
        }
    };
    // Retention removes some.
    let journal = open(Some(2 * SEGMENT_BYTES_MIN));
    fill(&journal, 6);
    journal.close().expect("the disk works");
    let journal = open(None);
    let kept = journal.stat().first_offset.expect("there are records");
    assert!(kept > 0, "retention removed nothing");
    assert_eq!(missing(&journal), []);
    fill(&journal, 3);
    journal.close().expect("the disk works");
    assert!(verify(&Directory::look(place.path()).expect("it is there")).unwrap().is_intact());

    // Somebody removes two.
    for oldest in &place.segments()[..2] {
        fs::remove_file(oldest).expect("it is there");
    }
    let journal = open(None);
    let first = journal.stat().first_offset.expect("there are records");
    let [lost] = missing(&journal).try_into().expect("one finding");
    assert_eq!(
        (lost.kind, lost.first_offset, lost.next_offset),
        (DamageKind::Missing, kept, first)
    );
    let summary = journal.recovery().to_string();
    let text = format!("records from {kept} to {} are missing", first - 1);
    assert!(summary.contains(&text), "{summary}");
    match journal.reader(kept).next().expect("it can be read") {
        Item::Skipped(damage) => assert_eq!(damage, lost),
        other => panic!("{other:?}"),
    }
    journal.close().expect("the disk works");
    let report = verify(&Directory::look(place.path()).expect("it is there")).unwrap();
    assert_eq!(report.damage, [lost]);

    // Retention goes past them.
    let journal = open(Some(2 * SEGMENT_BYTES_MIN));
    fill(&journal, 4);
    journal.close().expect("the disk works");
    let journal = open(None);
    assert_eq!(missing(&journal), []);
    let kept = journal.stat().first_offset.expect("there are records");
    let end = journal.stat().next_offset;
    journal.close().expect("the disk works");

    // Somebody removes all. It does not look like a new journal, and no offset is given again that is known to have been.
    for segment in place.segments() {
        fs::remove_file(segment).expect("it is there");
    }
    let journal = open(None);
    let [lost] = missing(&journal).try_into().expect("one finding");
    assert_eq!(
        (lost.kind, lost.first_offset, lost.next_offset),
        (DamageKind::NoSegments, kept, end)
    );
    let summary = journal.recovery().to_string();
    assert!(summary.contains("all segments are gone"), "{summary}");
    append(&journal, 1).expect("the disk works");
    assert_eq!(journal.stat().first_offset, Some(end));
    match journal.reader(kept).next().expect("it can be read") {
        Item::Skipped(damage) => assert_eq!(damage, lost),
        other => panic!("{other:?}"),
    }
    journal.close().expect("the disk works");
    assert_eq!(missing(&open(None)), []);
}

/// Purpose: if the newest segment is replaced by an older copy of itself, as by somebody who restores it, or removed, the records
/// that are known to have been there are reported when the journal is opened, by `verify` and to readers, and their offsets are
/// not given again. So are those of a journal that has one segment, which is removed.
#[test]
fn a_newest_segment_from_before_is_reported() {
    type Change = fn(&Place, Vec<u8>);
    let older: Change = |place, copy| fs::write(&place.segments()[0], copy).expect("it is there");
    let gone: Change = |place, _| fs::remove_file(&place.segments()[0]).expect("it is there");
    for (change, kind, first) in [(older, DamageKind::Newest, 3), (gone, DamageKind::NoSegments, 0)]
    {
        let place = Place::new("removed-newest");
        let journal = open(place.path());
        (0..3).for_each(|id| append(&journal, id).expect("the disk works"));
        let copy = fs::read(&place.segments()[0]).expect("it is there");
        (3..6).for_each(|id| append(&journal, id).expect("the disk works"));
        journal.close().expect("the disk works");
        change(&place, copy);

        let report = verify(&Directory::look(place.path()).expect("it is there")).unwrap();
        let journal = open(place.path());
        assert_eq!(report.damage, journal.recovery().report.damage);
        let [lost] = report.damage.try_into().expect("one finding");
        assert_eq!((lost.kind, lost.first_offset, lost.next_offset), (kind, first, 6));
        let summary = journal.recovery().to_string();
        assert!(summary.contains(&format!("records from {first} to 5 were there")), "{summary}");
        append(&journal, 6).expect("the disk works");
        let mut reader = journal.reader(first);
        match reader.next().expect("it can be read") {
            Item::Skipped(damage) => assert_eq!(damage, lost),
            other => panic!("{other:?}"),
        }
        let (records, _) = read(&mut reader);
        assert_eq!(records, [(6, 6)]);
    }
}

/// Purpose: what a process that was killed has written is known to have been there, too, if not how much.
#[test]
fn segments_that_are_gone_after_a_crash_are_reported() {
    let (place, crashed) = (Place::new("removed-crash"), Place::new("removed-crashed"));
    let journal = open(place.path());
    fs::create_dir_all(crashed.path()).expect("there is room");
    let copy = || {
        for file in fs::read_dir(place.path()).expect("it is there") {
            let file = file.expect("it can be listed");
            if !file.file_name().to_string_lossy().ends_with(".hwj") {
                fs::copy(file.path(), crashed.path().join(file.file_name()))
                    .expect("there is room");
            }
        }
    };
    copy();
    assert_eq!(open(crashed.path()).recovery().report.damage, [], "there was nothing");
    (0..3).for_each(|id| append(&journal, id).expect("the disk works"));
    copy();
    let [lost] =
        open(crashed.path()).recovery().report.damage.clone().try_into().expect("one finding");
    assert_eq!((lost.kind, lost.first_offset, lost.next_offset), (DamageKind::NoSegments, 0, 1));
}

/// Purpose: a segment of which less than its first block is left is reported with all its records, and does not keep the journal from opening.
#[test]
fn a_truncated_segment_is_reported() {
    for left in [0, 100] {
        let place = Place::new("truncated");
        let mut options = Options::default();
        options.segment_bytes = SEGMENT_BYTES_MIN;
        let reopen = || {
            let directory = Directory::open(place.path()).expect("nobody else has it");
            Journal::open(directory, options.clone()).expect("it can be opened")
        };
        let journal = reopen();
        (0..100).for_each(|id| append(&journal, id).expect("the disk works"));
        let big = journal.producer().expect("there are few");
        for id in 100..120 {
            big.append(batch([id], 4000)).expect("there is room").wait().expect("the disk works");
        }
        journal.close().expect("the disk works");
        let segments = place.segments();
        let file = fs::File::options().write(true).open(&segments[1]).expect("it is there");
        file.set_len(left).expect("it can be truncated");
        let journal = reopen();
        let lost = journal.recovery().report.damage.last().expect("it is reported");
        let kind = if left == 0 { DamageKind::File } else { DamageKind::Changed };
        assert_eq!((lost.kind, lost.first_offset), (kind, 50), "{segments:?}");
        let (records, _) = read(&mut journal.reader_from_start());
        let expected: Vec<u64> = (0..50).chain(lost.next_offset..120).collect();
        assert_eq!(ids(&records), expected);
        assert_eq!(lost.next_offset, 100);
    }
}

/// A journal of two segments, the first of which somebody cuts to `left` bytes, while it is closed or while it is read.
fn cut(place: &Place, left: u64, is_open: bool) -> (Journal, Option<Reader>) {
    let mut options = Options::default();
    options.segment_bytes = 1 << 20;
    let reopen = || {
        let directory = Directory::open(place.path()).expect("nobody else has it");
        Journal::open(directory, options.clone()).expect("it can be opened")
    };
    let journal = reopen();
    let producer = journal.producer().expect("there are few");
    for id in 0..300 {
        let receipt = producer.append(batch([id], 4000)).expect("there is room");
        receipt.wait().expect("the disk works");
    }
    let segments = place.segments();
    assert_eq!(segments.len(), 2);
    let mut reader = journal.reader_from_start();
    assert!(matches!(reader.next().expect("the disk works"), Item::Record(_)));
    let cut = || {
        let file = fs::File::options().write(true).open(&segments[0]).expect("it is there");
        file.set_len(left).expect("it can be truncated");
    };
    if is_open {
        cut();
        return (journal, Some(reader));
    }
    drop((producer, reader));
    journal.close().expect("the disk works");
    cut();
    (reopen(), None)
}

/// Purpose: readers report what a segment that was truncated in the middle of the journal has lost, once, wherever they
/// begin, and then go on behind it: also those that were reading it.
#[test]
fn a_truncated_segment_is_not_passed_over() {
    for left in [500_000, 8192 + 48, 8192] {
        for is_open in [false, true] {
            let place = Place::new("cut");
            let (journal, reading) = cut(&place, left, is_open);
            let mut reader = reading.unwrap_or_else(|| journal.reader_from_start());
            let (records, missing) = read(&mut reader);
            let [lost] = &missing[..] else { panic!("{left} {is_open}: {missing:?}") };
            assert_eq!(lost.kind, DamageKind::Changed, "{lost}");
            let before = |id: &u64| *id < lost.first_offset;
            let mut expected: Vec<u64> = (0..300).filter(before).collect();
            expected.extend(lost.next_offset..300);
            let read_before = usize::from(is_open);
            assert_eq!(
                ids(&records),
                expected[read_before.min(expected.len())..],
                "{left} {is_open}"
            );
            assert!(lost.next_offset > lost.first_offset && lost.next_offset < 300, "{lost}");
            let damage = &journal.recovery().report.damage;
            if let (Some(first), Some(last)) = (damage.first(), damage.last()) {
                let range = (first.first_offset, last.next_offset);
                assert_eq!(range, (lost.first_offset, lost.next_offset));
            }
            assert_eq!(damage.is_empty(), is_open, "{damage:?}");
            for begin in [lost.first_offset, lost.first_offset + 1, lost.next_offset - 1] {
                let (records, missing) = read(&mut journal.reader(begin));
                let [lost_there] = &missing[..] else { panic!("{begin}: {missing:?}") };
                assert_eq!(lost_there.next_offset, lost.next_offset);
                assert_eq!(ids(&records), (lost.next_offset..300).collect::<Vec<_>>());
            }
            let (records, missing) = read(&mut journal.reader(lost.next_offset));
            assert_eq!((records.len() as u64, missing), (300 - lost.next_offset, Vec::new()));
        }
    }
}

/// Purpose: if the segment that is being written is truncated, its readers report the loss and go on with what comes later.
#[test]
fn a_newest_segment_that_is_truncated_is_not_passed_over() {
    let place = Place::new("cut-newest");
    let journal = open(place.path());
    let producer = journal.producer().expect("there are few");
    // More than a reader reads at once.
    let big = producer.append(batch(0..100, 4000)).expect("there is room");
    big.wait().expect("the disk works");
    let mut reader = journal.reader_from_start();
    assert!(matches!(reader.next().expect("the disk works"), Item::Record(_)));
    let file = fs::File::options().write(true).open(&place.segments()[0]).expect("it is there");
    file.set_len(10_000).expect("it can be truncated");
    let mut late = journal.reader_from_start();
    append(&journal, 100).expect("the disk works");
    for reader in [&mut reader, &mut late] {
        let (records, missing) = read(reader);
        let [lost] = &missing[..] else { panic!("{missing:?}") };
        assert_eq!(lost.next_offset, 100, "{lost}");
        assert_eq!(records.last(), Some(&(100, 100)));
    }
}

/// Purpose: while `written.pos` cannot be written, records are taken all the same, the owner is notified and can count it, and
/// it is written as soon as that works.
#[test]
fn a_mark_that_cannot_be_written_is_reported() {
    let place = Place::new("unmarked");
    let (mark, errors) = (place.path().join("written.pos"), Arc::<AtomicU64>::default());
    std::os::unix::fs::symlink("/dev/full", &mark).expect("it is free");
    let mut options = Options::default();
    let counted = Arc::clone(&errors);
    options.on_unmarked = Arc::new(move |error| {
        assert!(error.to_string().contains("written.pos"), "{error}");
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let reopen = || {
        let directory = Directory::open(place.path()).expect("nobody else has it");
        Journal::open(directory, options.clone()).expect("a full disk does not prevent it")
    };
    let journal = reopen();
    append(&journal, 1).expect("records go elsewhere");
    append(&journal, 2).expect("records go elsewhere");
    // The mark comes behind the receipt.
    assert!(journal.stat().unmarked >= 1);
    journal.close().expect("records go elsewhere");
    assert!(errors.load(Ordering::Relaxed) >= 3, "with each group, and at the end");
    fs::remove_file(&mark).expect("it is there");
    let journal = reopen();
    append(&journal, 3).expect("the disk works");
    append(&journal, 4).expect("the disk works");
    assert_eq!(journal.stat().unmarked, 0);
    drop(journal);
    for segment in place.segments() {
        fs::remove_file(segment).expect("it is there");
    }
    let report = reopen().recovery().report.clone();
    assert_eq!(report.next_offset, 4, "{report}");
}
