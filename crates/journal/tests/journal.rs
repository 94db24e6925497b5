//! A journal in a real directory, as an application uses it.

mod common;

use std::fs;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Place, batch, ids, read};
use highwater_journal::storage::{File, Storage};
use highwater_journal::{
    Batch, DamageKind, Directory, ErrorKind, Item, Journal, Options, Retention, SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN, View, verify,
};

fn open(place: &Place, options: Options) -> Journal {
    let directory = Directory::open(place.path()).expect("nobody else has it");
    Journal::open(directory, options).expect("it can be opened")
}

fn small() -> Options {
    let mut options = Options::default();
    options.segment_bytes = SEGMENT_BYTES_MIN;
    options
}

/// Appends one batch after the other, each durable before the next.
fn fill(journal: &Journal, first: u64, batches: u64, length: usize) {
    let producer = journal.producer().expect("there are few");
    for id in first..first + batches {
        let committed = producer.append(batch([id], length)).expect("there is room").wait();
        assert_eq!(committed.expect("the disk works").records, 1);
    }
}

fn flip(path: &Path, at: u64) {
    let byte = fs::read(path).expect("it is there")[at as usize];
    let mut file = fs::File::options().write(true).open(path).expect("it is there");
    file.seek(SeekFrom::Start(at)).expect("it is a file");
    file.write_all(&[byte ^ 0x10]).expect("it can be written");
}

/// Purpose: what was appended is read, in order, across segments and openings.
#[test]
fn records_come_back() {
    let place = Place::new("come-back");
    for round in 0..3 {
        let journal = open(&place, small());
        assert_eq!(journal.recovery().to_string(), "");
        assert_eq!(journal.stat().records, round * 100);
        fill(&journal, round * 100, 100, 500);
        let (records, missing) = read(&mut journal.reader_from_start());
        assert_eq!(ids(&records), (0..(round + 1) * 100).collect::<Vec<_>>());
        assert!(missing.is_empty());
        assert!(records.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0), "no offset is left out");
        journal.close().expect("the disk works");
    }
    assert!(place.segments().len() > 9, "{:?}", place.segments());
}

/// Purpose: a reader can begin anywhere, and finds the record it was asked for or the one behind it.
#[test]
fn readers_begin_anywhere() {
    let place = Place::new("anywhere");
    let journal = open(&place, small());
    fill(&journal, 0, 60, 900);
    for offset in [0, 1, 14, 15, 16, 59, 60, 61, 1000] {
        let (records, missing) = read(&mut journal.reader(offset));
        assert_eq!(ids(&records), (offset..60).collect::<Vec<_>>(), "from {offset}");
        assert!(missing.is_empty());
    }
}

/// Purpose: a reader follows the end: it is woken by new records, and need not poll.
#[test]
fn readers_follow_the_end() {
    let place = Place::new("follow");
    let journal = open(&place, small());
    let mut reader = journal.reader_from_start();
    assert!(!reader.wait_more(Duration::ZERO));
    std::thread::scope(|scope| {
        scope.spawn(|| fill(&journal, 0, 200, 300));
        let mut next = 0;
        while next < 200 {
            match reader.next().expect("the disk works") {
                Item::Record(record) => {
                    assert_eq!(record.id, next);
                    next += 1;
                }
                Item::Skipped(damage) => panic!("{damage}"),
                Item::End => assert!(reader.wait_more(Duration::from_secs(60)), "at {next}"),
            }
        }
    });
}

/// Purpose: several producers at once: all is there once, and each one's order is kept.
#[test]
fn producers_keep_their_order() {
    let place = Place::new("producers");
    let journal = open(&place, small());
    std::thread::scope(|scope| {
        for producer in 0..4u64 {
            let journal = &journal;
            scope.spawn(move || {
                let queue = journal.producer().expect("there are few");
                let mut receipts = Vec::new();
                for batches in 0..100 {
                    let first = producer * 1000 + batches * 3;
                    receipts
                        .push(queue.append(batch(first..first + 3, 50)).expect("there is room"));
                }
                for receipt in receipts {
                    receipt.wait().expect("the disk works");
                }
            });
        }
    });
    let (records, _) = read(&mut journal.reader_from_start());
    assert_eq!(records.len(), 1200);
    for producer in 0..4 {
        let mine: Vec<u64> = ids(&records).into_iter().filter(|id| id / 1000 == producer).collect();
        assert_eq!(mine, (producer * 1000..producer * 1000 + 300).collect::<Vec<_>>());
    }
}

/// Purpose: two processes on one directory would destroy it: the second is refused, by name; looking is
/// not, and writing is possible again when the first is gone.
#[test]
fn a_directory_has_one_writer() {
    let place = Place::new("lock");
    let journal = open(&place, small());
    fill(&journal, 0, 1, 10);
    let error = Directory::open(place.path()).expect_err("it is in use");
    assert_eq!(error.kind(), ErrorKind::InUse);
    let text = error.to_string();
    assert!(text.contains(&place.path().display().to_string()), "{text}");
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    let look = Directory::look(place.path()).expect("looking is free");
    let view = View::open(look, u64::MAX).expect("looking is free");
    assert_eq!(view.report().records, 1);
    drop(journal);
    assert!(Directory::open(place.path()).is_ok());
}

/// Purpose: an end that a crash tore off is cut, and the report names what was cut and what is kept; then all
/// is well again.
#[test]
fn a_torn_end_is_cut() {
    let place = Place::new("torn");
    let journal = open(&place, small());
    fill(&journal, 0, 10, 100);
    journal.close().expect("the disk works");
    let segment = place.segments().pop().expect("there is one");
    let bytes = fs::metadata(&segment).expect("it is there").len();
    // The seal, and half of the last record.
    let cut = bytes - 80 - 100;
    fs::File::options().write(true).open(&segment).and_then(|file| file.set_len(cut)).expect("cut");

    let journal = open(&place, small());
    let tail = journal.recovery().report.tail.clone().expect("there is one");
    assert_eq!((tail.records_kept, tail.at, tail.bytes), (9, bytes - 80 - 160, 60));
    assert_eq!(Path::new(&tail.file), Path::new(segment.file_name().expect("it has a name")));
    assert!(journal.recovery().to_string().contains("60 bytes at"), "{}", journal.recovery());
    assert!(journal.recovery().report.is_intact(), "a tail is not damage");
    fill(&journal, 10, 1, 100);
    let (records, missing) = read(&mut journal.reader_from_start());
    assert_eq!(ids(&records), [0, 1, 2, 3, 4, 5, 6, 7, 8, 10]);
    assert!(missing.is_empty());
    assert!(records.last().expect("there are ten").0 > 9, "the lost offset is not given again");
    journal.close().expect("the disk works");

    let journal = open(&place, small());
    assert_eq!(journal.recovery().to_string(), "", "it is reported once");
}

/// Purpose: the offsets of a cut tail are not waited for. Whoever has read to the end is at the journal's next offset, and
/// sleeps; and a position committed there stays, over the next opening as well.
#[test]
fn nobody_waits_for_a_cut_tail() {
    let place = Place::new("cut-tail");
    let journal = open(&place, small());
    fill(&journal, 0, 10, 100);
    journal.close().expect("the disk works");
    let segment = place.segments().pop().expect("there is one");
    let bytes = fs::metadata(&segment).expect("it is there").len();
    let cut = |file: fs::File| file.set_len(bytes - 80 - 100);
    fs::File::options().write(true).open(&segment).and_then(cut).expect("cut");
    for opening in 0..3 {
        let journal = open(&place, small());
        let end = journal.stat().next_offset;
        assert!(end > 9, "the lost offset is not given again: {end}");
        let mut reader = journal.consumer("c").expect("one").reader();
        let (records, missing) = read(&mut reader);
        assert_eq!((records.len(), missing.len()), (if opening == 0 { 9 } else { 0 }, 0));
        assert_eq!(reader.next_offset(), end, "opening {opening}");
        assert!(!reader.wait_more(Duration::from_millis(1)), "opening {opening}: nothing comes");
        let consumer = journal.consumer("c").expect("one");
        consumer.commit(reader.next_offset()).expect("the disk works");
        assert_eq!(consumer.position(), end);
        journal.close().expect("the disk works");
    }
    let journal = open(&place, small());
    let end = journal.stat().next_offset;
    let mut reader = journal.consumer("c").expect("one").reader();
    fill(&journal, 10, 1, 100);
    assert!(reader.wait_more(Duration::ZERO));
    assert_eq!(read(&mut reader).0, [(end, 10)]);
}

/// Purpose: a byte that changed in the middle costs the record it stands in, and file and place are
/// reported: at opening, by `verify`, and to readers, who get all the rest.
#[test]
fn damage_in_the_middle_is_reported() {
    let place = Place::new("middle");
    let journal = open(&place, small());
    fill(&journal, 0, 100, 500);
    journal.close().expect("the disk works");
    let segments = place.segments();
    let record = 8192 + 3 * 560;
    flip(&segments[1], record + 60);
    let name = segments[1].file_name().expect("it has one").to_string_lossy().into_owned();

    let look = || Directory::look(place.path()).expect("it is there");
    let report = verify(&look()).expect("it can be read");
    let [damage] = &report.damage[..] else { panic!("{report}") };
    assert_eq!((damage.kind, &damage.file, damage.at), (DamageKind::Changed, &name, record));
    assert_eq!((damage.bytes, damage.next_offset - damage.first_offset), (560, 1));
    assert!(damage.to_string().contains(&format!("{name}: 560 bytes at {record}")), "{damage}");

    let journal = open(&place, small());
    assert_eq!(journal.recovery().report.damage, report.damage);
    let (records, missing) = read(&mut journal.reader_from_start());
    let lost = damage.first_offset;
    assert_eq!(ids(&records), (0..100).filter(|id| *id != lost).collect::<Vec<_>>());
    assert_eq!(missing, report.damage);
    // From behind it, nothing is missing.
    assert!(read(&mut journal.reader(lost + 1)).1.is_empty());
}

/// Purpose: what a file beyond `scan_bytes_max` has lost is not noticed at opening, but a reader says so.
#[test]
fn what_opening_did_not_read_is_told_by_readers() {
    let place = Place::new("unscanned");
    let mut options = small();
    options.scan_bytes_max = 0;
    let journal = open(&place, options.clone());
    fill(&journal, 0, 100, 500);
    journal.close().expect("the disk works");
    flip(&place.segments()[0], 8192 + 560 + 20);
    let journal = open(&place, options);
    assert!(journal.recovery().report.is_intact());
    assert!(journal.recovery().report.unscanned_bytes > 0);
    assert_eq!(journal.stat().records, 100);
    let (records, missing) = read(&mut journal.reader_from_start());
    assert_eq!((records.len(), missing.len(), missing[0].first_offset), (99, 1, 1));
}

/// Purpose: a file that is gone, or whose header is gone, is reported with the offsets that it had.
#[test]
fn whole_files_that_are_lost_are_reported() {
    let place = Place::new("files");
    let journal = open(&place, small());
    fill(&journal, 0, 100, 500);
    journal.close().expect("the disk works");
    let segments = place.segments();
    let bases: Vec<u64> = segments
        .iter()
        .map(|path| path.file_stem().expect("it has a name").to_string_lossy()[11..].parse())
        .collect::<Result<_, _>>()
        .expect("the name says the offset");
    fs::remove_file(&segments[1]).expect("it is there");
    flip(&segments[3], 0);
    flip(&segments[3], 4096);
    let journal = open(&place, small());
    let (records, missing) = read(&mut journal.reader_from_start());
    let damage: Vec<_> =
        missing.iter().map(|lost| (lost.kind, lost.first_offset, lost.next_offset)).collect();
    assert_eq!(
        damage,
        [(DamageKind::Missing, bases[1], bases[2]), (DamageKind::File, bases[3], bases[4])]
    );
    let lost = |id: &u64| (bases[1]..bases[2]).contains(id) || (bases[3]..bases[4]).contains(id);
    assert_eq!(ids(&records), (0..100).filter(|id| !lost(id)).collect::<Vec<_>>());
}

/// Purpose: retention keeps what a named consumer has not read, and removes it once it has. Without a consumer nothing
/// has been read.
#[test]
fn retention_waits_for_consumers() {
    let place = Place::new("spool");
    let mut options = small();
    options.retention =
        Retention { bytes: Some(3 * SEGMENT_BYTES_MIN), age: None, keep_unread: true };
    let journal = open(&place, options.clone());
    let consumer = journal.consumer("kafka").expect("the name is good");
    fill(&journal, 0, 200, 500);
    assert_eq!(journal.stat().first_offset, Some(0), "nothing unread is removed");
    let mut reader = consumer.reader();
    let (records, _) = read(&mut reader);
    assert_eq!(records.len(), 200);
    consumer.commit(150).expect("the disk works");
    consumer.commit(100).expect("it is behind, and changes nothing");
    assert_eq!(consumer.position(), 150);
    drop((consumer, reader));
    journal.close().expect("the disk works");

    // Closing has removed what need not be kept.
    let journal = open(&place, options.clone());
    assert_eq!(journal.consumers(), [("kafka".to_owned(), 150)]);
    fill(&journal, 200, 1, 500);
    let consumer = journal.consumer("kafka").expect("it is there");
    let (records, missing) = read(&mut consumer.reader());
    assert_eq!(ids(&records), (150..201).collect::<Vec<_>>());
    assert!(missing.is_empty());
    let first = journal.stat().first_offset.expect("there are records");
    assert!((100..=150).contains(&first), "{first}");
    let (_, missing) = read(&mut journal.reader(0));
    assert_eq!((missing[0].kind, missing[0].next_offset), (DamageKind::Removed, first));

    drop(consumer);
    journal.forget_consumer("kafka").expect("the disk works");
    journal.close().expect("the disk works");
    let journal = open(&place, options.clone());
    assert_eq!(
        journal.stat().first_offset,
        Some(first),
        "a consumer may come, and has read nothing"
    );
    journal.release_unread();
    journal.close().expect("the disk works");
    let journal = open(&place, options);
    assert!(journal.stat().bytes <= 4 * SEGMENT_BYTES_MIN, "nobody needs it any more");
    for name in ["", "Kafka", "a/b", &"a".repeat(65)] {
        let error = journal.consumer(name).expect_err(name);
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    assert!(journal.consumer(&"a".repeat(64)).is_ok());
}

/// Purpose: the journal takes no more of the disk than `bytes_max`, says `Full`, and serves again when
/// there is room.
#[test]
fn a_full_journal_serves_again() {
    let place = Place::new("full");
    let mut options = small();
    options.bytes_max = Some(6 * SEGMENT_BYTES_MIN);
    options.retention = Retention { bytes: Some(1), age: None, keep_unread: true };
    let journal = open(&place, options);
    let consumer = journal.consumer("c").expect("the name is good");
    let producer = journal.producer().expect("there are few");
    let mut taken = 0;
    let error = loop {
        match producer.append(batch([taken], 500)).expect("there is room").wait() {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Full);
    assert!(error.to_string().contains("bytes_max"), "{error}");
    assert!(taken > 50 && journal.stat().bytes <= 6 * SEGMENT_BYTES_MIN);
    consumer.commit(taken).expect("the disk works");
    let committed = producer.append(batch([taken], 500)).expect("there is room").wait();
    assert!(committed.is_ok(), "{committed:?}");
}

/// Purpose: a batch beyond its limit is given back; one at it is taken, even if it alone exceeds a group
/// and a segment.
#[test]
fn batches_have_a_limit() {
    let place = Place::new("batch");
    let mut options = small();
    (options.batch_bytes_max, options.group_bytes_max) = (100_056, 1000);
    let journal = open(&place, options);
    let producer = journal.producer().expect("there are few");
    for (length, taken) in [(99_992, true), (100_000, true), (100_001, false)] {
        match producer.append(batch([1], length)) {
            Ok(receipt) => {
                receipt.wait().expect("the disk works");
                assert!(taken, "{length}");
            }
            Err(refused) => {
                assert_eq!((refused.error.kind(), taken), (ErrorKind::TooLarge, false), "{length}");
                assert_eq!(refused.batch.records(), 1);
            }
        }
    }
    let (records, missing) = read(&mut journal.reader_from_start());
    assert_eq!((records.len(), missing.len()), (2, 0));
}

/// Purpose: an option out of its range is refused by name, at the range's ends and beyond.
#[test]
fn options_have_ranges() {
    let place = Place::new("options");
    for (bytes, good) in [
        (SEGMENT_BYTES_MIN - 1, false),
        (SEGMENT_BYTES_MIN, true),
        (SEGMENT_BYTES_MAX, true),
        (SEGMENT_BYTES_MAX + 1, false),
    ] {
        let mut options = Options::default();
        options.segment_bytes = bytes;
        let directory = Directory::open(place.path()).expect("nobody else has it");
        match Journal::open(directory, options) {
            Ok(_) => assert!(good, "{bytes}"),
            Err(error) => {
                assert!(!good && error.kind() == ErrorKind::Invalid, "{error}");
                assert!(error.to_string().contains("segment_bytes"), "{error}");
            }
        }
    }
}

/// Purpose: closing makes durable what was accepted, and afterwards nothing is accepted; an empty batch is
/// answered like any other.
#[test]
fn closing_keeps_what_was_accepted() {
    let place = Place::new("close");
    let journal = open(&place, small());
    let producer = journal.producer().expect("there are few");
    let receipts: Vec<_> =
        (0..50).map(|id| producer.append(batch([id], 100)).expect("there is room")).collect();
    let empty = producer.append(Batch::new()).expect("there is room");
    journal.close().expect("the disk works");
    assert!(receipts.iter().all(|receipt| matches!(receipt.answer(), Some(Ok(_)))));
    assert_eq!(empty.answer().expect("it is answered").expect("the disk works").records, 0);
    let refused = producer.append(batch([50], 100)).expect_err("it is closed");
    assert_eq!(refused.error.kind(), ErrorKind::Closed);
}

/// Purpose: a looker sees what is added while it looks, without a lock.
#[test]
fn views_look_again() {
    let place = Place::new("view");
    let journal = open(&place, small());
    fill(&journal, 0, 3, 10);
    let look = Directory::look(place.path()).expect("looking is free");
    let view = View::open(look, u64::MAX).expect("looking is free");
    assert_eq!(read(&mut view.reader_from_start()).0.len(), 3);
    assert!(view.again().expect("it can be read").is_none(), "there is nothing new");
    fill(&journal, 3, 30, 900);
    let again = view.again().expect("it can be read").expect("there is more");
    let (records, missing) = read(&mut again.reader(3));
    assert_eq!((ids(&records), missing.len()), ((3..33).collect(), 0));
}

/// Purpose: looking at a journal that is being written to, rotated and trimmed finds no damage where
/// there is none.
#[test]
fn looking_while_it_changes_finds_no_damage() {
    let place = Place::new("busy");
    let mut options = small();
    options.retention.bytes = Some(4 * SEGMENT_BYTES_MIN);
    let journal = open(&place, options);
    let look = Directory::look(place.path()).expect("looking is free");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            fill(&journal, 0, 500, 900);
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let mut looks = 0;
        while !done.load(std::sync::atomic::Ordering::Relaxed) || looks == 0 {
            let report = verify(&look).expect("it can be read");
            assert!(report.is_intact(), "look {looks}: {report}");
            looks += 1;
        }
    });
}

/// Purpose: a file of a later version is named, not taken for damage, and not touched.
#[test]
fn a_later_version_is_refused_by_name() {
    let place = Place::new("version");
    let journal = open(&place, small());
    fill(&journal, 0, 1, 10);
    journal.close().expect("the disk works");
    let path = place.segments().remove(0);
    let mut bytes = fs::read(&path).expect("it is there");
    for at in [0, 4096] {
        bytes[at + 8] = 2;
        bytes[at + 12..at + 16].fill(0);
        let crc = highwater_core::frame::crc32c(&bytes[at..at + 64]);
        bytes[at + 12..at + 16].copy_from_slice(&crc.to_le_bytes());
    }
    fs::write(&path, &bytes).expect("it can be written");
    let directory = Directory::open(place.path()).expect("nobody else has it");
    let error = Journal::open(directory, small()).expect_err("it is of version 2");
    assert_eq!(error.kind(), ErrorKind::Version);
    assert!(error.to_string().contains("format version 2"), "{error}");
    assert_eq!(fs::read(&path).expect("it is there"), bytes);
}

/// Looks at a directory in which retention removes all segments but the newest as soon as it has opened one.
#[derive(Debug)]
struct Trimmed {
    directory: Directory,
    is_trimmed: AtomicBool,
}

impl Storage for Trimmed {
    fn list(&self) -> io::Result<Vec<String>> {
        self.directory.list()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn File>> {
        self.directory.create(name)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn File>> {
        let opened = self.directory.open(name);
        if !self.is_trimmed.swap(true, Ordering::Relaxed) {
            let mut options = small();
            options.retention.bytes = Some(1);
            let directory = Directory::open(self.directory.place()).expect("nobody else has it");
            let journal = Journal::open(directory, options).expect("it can be opened");
            journal.close().expect("the disk works");
        }
        opened
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.directory.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.directory.sync_dir()
    }

    fn place(&self) -> String {
        self.directory.place()
    }
}

/// Purpose: what retention removes between listing and reading is not there, and is not missing either.
#[test]
fn what_goes_while_looking_is_not_missing() {
    let place = Place::new("trimmed");
    let journal = open(&place, small());
    fill(&journal, 0, 100, 500);
    journal.close().expect("the disk works");
    assert!(place.segments().len() > 2);
    let directory = Directory::look(place.path()).expect("looking is free");
    let report = verify(&Trimmed { directory, is_trimmed: false.into() }).expect("it can be read");
    assert_eq!(place.segments().len(), 1);
    assert!(report.is_intact(), "{report}");
    assert!((1..100).contains(&report.records), "{}", report.records);
}
