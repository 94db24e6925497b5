//! The journal under seeds that decide everything a disk may do.
//!
//! One seed is one life of a journal: producers append, a reader and a named consumer follow, the disk
//! gives errors, fills up and has room again, syncs fail and leave what they like, the power is cut in the middle of
//! any operation or the process is killed, bytes rot; then it is reopened, several times. The committing half runs
//! here, on this thread, so a seed always does the same.
//!
//! The oracle is independent of the code under test: [`parser`] reads the files by the letter of the
//! format, and [`model`] knows what was promised.
//!
//! Each of these defects, introduced by hand, makes a normal run fail with the message on the right:
//!
//! | defect | message |
//! |---|---|
//! | receipts are resolved without a sync | a record is lost |
//! | a failed sync counts as success | a record is lost |
//! | a failed sync is repeated on the same file | a record is lost |
//! | a new segment's name is not synced | a record is lost |
//! | a new segment's header is not synced | damage where there is none |
//! | the next segment's header covers all of an abandoned one | the end of a file overflows |
//! | a body's checksum is not checked | rot is not reported |
//! | a header's checksum is not checked | rot is not reported |
//! | a hole in the middle is not reported | rot is not reported |
//! | opening does not sync | damage where there is none |
//! | opening does not rewrite what may be in the page cache only | a record is lost |
//! | offsets of a cut tail are reused | the reader leaves a loss out |
//! | a reader at the end stays before the offsets of a cut tail | a reader at the end waits |
//! | readers see records that are not durable yet | a record is lost |
//! | removed segments' names are not synced | a record is lost |
//! | a consumer's position goes into one slot only | a position is lost |
//! | a loaded position is not written again | a position is lost |
//!
//! A position that moves to the other slot after a failed write is too rare here; a separate test in `consumer.rs`
//! covers it.
//!
//! `JOURNAL_SEEDS=100000 cargo test -p highwater-journal --lib seeds` runs more of them;
//! `JOURNAL_SEED=42` runs one.

mod model;
mod parser;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use world::World;

/// Seeds in a normal run.
const SEEDS: u64 = 2_000;

/// Seeds of the long run.
const SEEDS_MANY: u64 = 10_000;

/// Event counts over all seeds: a simulation in which nothing happens finds nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    acknowledged: u64,
    failed: u64,
    full: u64,
    no_descriptors: u64,
    refused: u64,
    poisoned: u64,
    power_cuts: u64,
    kills: u64,
    closes: u64,
    tails: u64,
    torn: u64,
    changed: u64,
    lost_files: u64,
    unfinished: u64,
    segments: u64,
    rot: u64,
    positions: u64,
    opened_badly: u64,
    weeks: u64,
    other_sinks: u64,
    released: u64,
    moved_on: u64,
}

impl Seen {
    fn add(&mut self, other: &Seen) {
        for (sum, one) in self.fields().into_iter().zip({ *other }.fields()) {
            *sum += *one;
        }
    }

    fn fields(&mut self) -> [&mut u64; 22] {
        [
            &mut self.acknowledged,
            &mut self.failed,
            &mut self.full,
            &mut self.no_descriptors,
            &mut self.refused,
            &mut self.poisoned,
            &mut self.power_cuts,
            &mut self.kills,
            &mut self.closes,
            &mut self.tails,
            &mut self.torn,
            &mut self.changed,
            &mut self.lost_files,
            &mut self.unfinished,
            &mut self.segments,
            &mut self.rot,
            &mut self.positions,
            &mut self.opened_badly,
            &mut self.weeks,
            &mut self.other_sinks,
            &mut self.released,
            &mut self.moved_on,
        ]
    }
}

fn run(first: u64, count: u64) -> Seen {
    let (next, end) = (AtomicU64::new(first), first + count);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let seen = Mutex::new(Seen::default());
    let live = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return;
            }
            match catch_unwind(AssertUnwindSafe(|| World::new(seed).live())) {
                Ok(one) => seen.lock().expect("nothing panics with it").add(&one),
                Err(_) => {
                    next.store(end, Ordering::Relaxed);
                    panic!("seed {seed} failed: JOURNAL_SEED={seed} runs it alone");
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(live)).collect();
        assert!(all.into_iter().map(|one| one.join()).all(|one| one.is_ok()), "a seed failed");
    });
    seen.into_inner().expect("nothing panicked with it")
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text}; it is a number")))
}

/// Purpose: whatever the disk does, no acknowledged record is lost, and every loss is reported.
#[test]
fn seeds() {
    if let Some(seed) = number("JOURNAL_SEED") {
        eprintln!("{:#?}", run(seed, 1));
        return;
    }
    let count = number("JOURNAL_SEEDS").unwrap_or(SEEDS);
    let mut seen = run(0, count);
    eprintln!("{count} seeds: {seen:?}");
    for (index, field) in seen.fields().into_iter().enumerate() {
        assert!(*field > 0 || count < SEEDS, "nothing of the kind number {index} ever happened");
    }
}

/// Purpose: as `seeds`, for longer, with others.
#[test]
#[ignore = "takes minutes"]
fn many_seeds() {
    eprintln!("{:?}", run(1_000_000, SEEDS_MANY));
}
