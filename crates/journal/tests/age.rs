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
