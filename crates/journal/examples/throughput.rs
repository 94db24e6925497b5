//! Measures the journal's throughput in records per second, at several batch sizes.
//!
//! `cargo run --release -p highwater-journal --example throughput -- DIR [SECONDS [BODY_BYTES]]`
//!
//! Four producers keep some batches in flight each; a reader follows and counts. It prints the records that the reader
//! has seen within the time, so they were written, synced and read back, not merely handed over. `DIR` should be on the
//! disk in question; it is filled and emptied again. The last line, for comparison, is a loop that writes and syncs one
//! record at a time.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "this is the program's output")]

use std::collections::VecDeque;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use highwater_journal::{Batch, Directory, Error, Item, Journal, Options, Record};

const PRODUCERS: u64 = 4;
const IN_FLIGHT: usize = 16;

struct Plan {
    dir: PathBuf,
    time: Duration,
    body_bytes: usize,
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| {
        arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let Some(dir) = arguments.first() else {
        println!("throughput DIR [SECONDS [BODY_BYTES]]");
        return Ok(());
    };
    let time = Duration::from_secs(number(1, 3));
    let plan = Plan { dir: dir.into(), time, body_bytes: number(2, 100) as usize };
    println!(
        "{PRODUCERS} producers, {IN_FLIGHT} batches in flight each, {} bytes",
        plan.body_bytes
    );
    println!("{:>14} {:>14} {:>10} {:>12}", "records/batch", "records/s", "MB/s", "batches/s");
    for records in [1, 4, 16, 64, 256, 1024] {
        let dir = plan.dir.join(format!("batch-{records}"));
        let (seen, took) = run(&plan, &dir, records)?;
        let _ = fs::remove_dir_all(&dir);
        let rate = seen as f64 / took.as_secs_f64();
        let (mb, batches) = (rate * plan.body_bytes as f64 / 1e6, rate / records as f64);
        println!("{records:>14} {rate:>14.0} {mb:>10.1} {batches:>12.0}");
    }
    let alone = write_and_sync(&plan).expect("the directory can be written to");
    println!("one at a time {alone:>14.0}");
    Ok(())
}

fn run(plan: &Plan, dir: &Path, records: u64) -> Result<(u64, Duration), Error> {
    let mut options = Options::default();
    options.retention.bytes = Some(1 << 30);
    let journal = Journal::open(Directory::open(dir)?, options)?;
    let done = AtomicBool::new(false);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..PRODUCERS {
            scope.spawn(|| produce(plan, &journal, records, &done));
        }
        let mut reader = journal.reader_from_start();
        let mut seen = 0;
        while began.elapsed() < plan.time {
            match reader.next()? {
                Item::Record(_) => seen += 1,
                // Retention was faster: those are not counted.
                Item::Skipped(_) => {}
                Item::End => drop(reader.wait_more(Duration::from_millis(100))),
            }
        }
        let took = began.elapsed();
        done.store(true, Ordering::Relaxed);
        Ok((seen, took))
    })
}

fn produce(plan: &Plan, journal: &Journal, records: u64, done: &AtomicBool) {
    let producer = journal.producer().expect("there are few");
    let body = vec![b'x'; plan.body_bytes];
    let (mut waiting, mut id) = (VecDeque::new(), 0);
    while !done.load(Ordering::Relaxed) {
        let mut batch = Batch::new();
        for _ in 0..records {
            batch.push(Record { partition: 0, time_us: id, id: id.into(), body: &body });
            id += 1;
        }
        match producer.append(batch) {
            Ok(receipt) => waiting.push_back(receipt),
            Err(_busy) => drop(waiting.pop_front().map(|receipt| receipt.wait())),
        }
        if waiting.len() >= IN_FLIGHT {
            drop(waiting.pop_front().map(|receipt| receipt.wait()));
        }
    }
}

/// Records per second of a loop that writes one and syncs.
fn write_and_sync(plan: &Plan) -> std::io::Result<f64> {
    let path = plan.dir.join("alone");
    let mut file = fs::File::create(&path)?;
    let (body, began, mut count) = (vec![b'x'; plan.body_bytes], Instant::now(), 0u64);
    while began.elapsed() < plan.time {
        file.write_all(&body)?;
        file.sync_data()?;
        count += 1;
    }
    fs::remove_file(path)?;
    Ok(count as f64 / began.elapsed().as_secs_f64())
}
