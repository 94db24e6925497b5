//! Measures how many records per second one core batches, with each record checked at the sink.
//!
//! Not a test: `cargo bench -p highwater-batcher`. Each record is 8 bytes, a number one higher than the one before. The
//! sink walks every batch and compares every record with the number that must come next, so every counted record has
//! arrived, once and in order. For comparison, `slots.rs` rebuilds the design of the second system that inspired this
//! one, with the same check at its end.
//!
//! `--run batcher|slots|slots-sent` makes one run and prints it as JSON, for `bench/plans/batcher.toml`: how many
//! records arrived, or, for `slots-sent`, how many were sent, as that system counted.
//!
//! Appending and checking happen on one thread, so the figure is for one core with both.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::hint::black_box;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use highwater_batcher::{
    Batch, Batcher, Failure, Moment, Options, Receipt, Refused, Sink, Written,
};

mod slots;

/// Records appended per turn: as many as a worker receives at once under load.
const TURN: u64 = 512;

/// Records of each run.
const RECORDS: u64 = 200_000_000;

/// What was found at the end of the way.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    /// Records that arrived.
    arrived: u64,
    /// Records that were not the one that had to come next.
    wrong: u64,
}

/// Compares every record with the number that must come next.
#[derive(Default)]
struct Checking {
    found: Found,
    next: u64,
}

impl Sink for Checking {
    fn write(&mut self, batch: &Arc<Batch>) -> Result<Receipt, Failure> {
        let (mut next, mut wrong) = (self.next, 0);
        for record in batch.iter() {
            let number = <[u8; 8]>::try_from(record.body).map_or(u64::MAX, u64::from_le_bytes);
            wrong += u64::from(number != next);
            next = number.wrapping_add(1);
        }
        self.found.arrived += batch.records() as u64;
        self.found.wrong += wrong;
        self.next = next;
        Ok(Receipt::ready(Ok(Written::default())))
    }
}

/// A run of the batcher: what arrived, how long it took, the most memory that its batches had.
fn batcher(records: u64) -> (Found, Duration, usize) {
    let mut batcher = Batcher::new(Checking::default(), Options::default()).expect("defaults");
    let (mut memory, began) = (0, Instant::now());
    let mut number = 0_u64;
    while number < records {
        let moment = Moment { now: Instant::now(), unix_us: number };
        for _ in 0..TURN.min(records - number) {
            match batcher.append(0, moment, &black_box(number).to_le_bytes()) {
                Ok(_) => number += 1,
                Err(Refused::Full) => break,
                Err(refused) => panic!("{refused}"),
            }
        }
        memory = memory.max(batcher.memory());
        batcher.on_turn_end(moment.now, Waker::noop());
    }
    batcher.flush(Instant::now());
    (batcher.sink().found, began.elapsed(), memory)
}

fn main() {
    // Under `cargo test --benches` it only shows that it runs.
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--run") {
        return run_once(arguments.get(at + 1).map_or("", String::as_str));
    }
    let is_test = !arguments.iter().any(|argument| argument == "--bench");
    let (records, rounds) = if is_test { (1_000_000, 1) } else { (RECORDS, 5) };
    println!(
        "8-byte records, one core, {records} a run, every one compared with the next number at the sink"
    );
    for round in 1..=rounds {
        let (found, took, memory) = batcher(records);
        let million = records as f64 / took.as_secs_f64() / 1e6;
        println!(
            "batcher   run {round}: {million:6.1} M/s   arrived {}   lost {}   out of place {}   memory {} KiB",
            found.arrived,
            records - found.arrived,
            found.wrong,
            memory >> 10
        );
        assert_eq!((found.arrived, found.wrong), (records, 0));
    }
    let short = Duration::from_millis(if is_test { 50 } else { 1000 });
    for producers in [1, 2] {
        slots::report(producers, None, short);
    }
    for rate in [5_000_000, 100_000, 1000] {
        slots::report(1, Some(rate), 3 * short);
    }
}

/// One run, as JSON on one line.
fn run_once(what: &str) {
    let (records, took, lost) = match what {
        "batcher" => {
            let (found, took, _) = batcher(RECORDS);
            assert_eq!((found.arrived, found.wrong), (RECORDS, 0));
            (found.arrived, took, 0)
        }
        "slots" | "slots-sent" => {
            let outcome = slots::run(1, None, Duration::from_secs(1));
            let counted = if what == "slots" { outcome.distinct } else { outcome.sent };
            (counted, outcome.took, outcome.sent - outcome.distinct)
        }
        _ => panic!(
            "--run {what:?} is unknown; write --run batcher, --run slots or --run slots-sent"
        ),
    };
    let rate = records as f64 / took.as_secs_f64();
    println!("{{\"records\":{records},\"records_per_s\":{rate:.0},\"lost\":{lost}}}");
}
