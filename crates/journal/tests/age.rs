//! Retention by age, and clocks that are wrong.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{Place, batch};
use highwater_journal::{Batch, Directory, Journal, Options, Record, SEGMENT_BYTES_MIN};

fn open(place: &Place, options: Options) -> Journal {
    let directory = Directory::open(place.path()).expect("nobody else has it");
    Journal::open(directory, options).expect("it can be opened")
}

fn small() -> Options {
    let mut options = Options::default();
    options.segment_bytes = SEGMENT_BYTES_MIN;
    options
}

fn append(journal: &Journal, batch: Batch) {
    let producer = journal.producer().expect("there are few");
    producer.append(batch).expect("there is room").wait().expect("the disk works");
}

/// Appends one batch after the other, each durable before the next.
fn fill(journal: &Journal, first: u64, batches: u64, length: usize) {
    (first..first + batches).for_each(|id| append(journal, batch([id], length)));
}

/// Purpose: what is older than `age` goes, by the clock the journal was given; the newest segment stays.
#[test]
fn retention_looks_at_age() {
    let place = Place::new("age");
    let mut options = small();
    options.retention.age = Some(Duration::from_micros(500));
    options.clock = Arc::new(|| 1_600);
    let journal = open(&place, options.clone());
    // Record n is of 1000 + n.
    fill(&journal, 0, 200, 500);
    // Closing removes what need not be kept.
    journal.close().expect("the disk works");
    let journal = open(&place, options);
    let first = journal.stat().first_offset.expect("there are records");
    assert!((80..=100).contains(&first), "{first}: what is of 1100 and later is kept");
}

/// Purpose: a record that is stamped with a time far in the future keeps its segment no longer than the next one was begun,
/// and none of those behind it.
#[test]
fn a_stamp_from_the_future_keeps_nothing() {
    let place = Place::new("future");
    let now = Arc::new(AtomicU64::new(1_000));
    let clock = Arc::clone(&now);
    let mut options = small();
    options.retention.age = Some(Duration::from_micros(500));
    options.clock = Arc::new(move || clock.load(Ordering::Relaxed));
    let journal = open(&place, options.clone());
    let mut wrong = Batch::new();
    wrong.push(Record { partition: 0, time_us: u64::MAX / 2, id: 1000, body: b"from the future" });
    append(&journal, wrong);
    // Record n is of 1000 + n, and of that time.
    for id in 0..400 {
        now.store(1_000 + id, Ordering::Relaxed);
        fill(&journal, id, 1, 500);
    }
    let begun = journal.stat().segments as u64;
    assert!(begun > 10, "{begun}");
    now.store(1_600, Ordering::Relaxed);
    journal.close().expect("the disk works");
    // Opening and a turn without work apply retention.
    let journal = open(&place, options);
    fill(&journal, 400, 1, 500);
    journal.close().expect("the disk works");
    let journal = open(&place, small());
    let first = journal.stat().first_offset.expect("there are records");
    assert!((80..=102).contains(&first), "{first}: what is of 1100 and later is kept");
}

/// Purpose: a journal whose `bytes_max` is smaller than a segment takes records again once retention may remove the old
/// ones. (There was one segment, which is never removed: it was full for ever.)
#[test]
fn a_small_journal_is_not_full_for_ever() {
    let now = Arc::new(AtomicU64::new(1_000));
    let place = Place::new("small");
    let mut options = Options::default();
    options.bytes_max = Some(256 << 10);
    options.retention.age = Some(Duration::from_micros(500));
    let clock = Arc::clone(&now);
    options.clock = Arc::new(move || clock.load(Ordering::Relaxed));
    let journal = open(&place, options);
    let producer = journal.producer().expect("there are few");
    let refused = |id| producer.append(batch([id], 4000)).expect("a place").wait().is_err();
    let taken = (0..100).take_while(|id| !refused(*id)).count();
    assert!((40..65).contains(&taken), "{taken}");
    assert!(refused(100), "what is young stays");
    now.store(10_000, Ordering::Relaxed);
    assert!(!refused(10_000), "what is old goes");
    let stat = journal.stat();
    assert!(stat.records < taken as u64 / 2, "{stat:?}");
}

/// Purpose: the same with retention by size that would keep as much as `bytes_max` allows.
#[test]
fn retention_by_size_is_below_the_bound() {
    for kept in [200 << 10, 256 << 10, 1 << 20] {
        let place = Place::new("sizes");
        let mut options = Options::default();
        options.bytes_max = Some(256 << 10);
        options.retention.bytes = Some(kept);
        let journal = open(&place, options);
        fill(&journal, 0, 200, 4000);
        assert!(journal.stat().bytes <= 256 << 10, "{:?}", journal.stat());
        assert_eq!(journal.stat().last_offset, Some(199));
    }
}
