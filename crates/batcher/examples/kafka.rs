//! Measures how fast one thread writes to Kafka, with every record acknowledged by all replicas.
//!
//! ```sh
//! cargo run --profile fast -p highwater-batcher --features kafka --example kafka -- \
//!     127.0.0.1:29092 TOPIC PARTITIONS RECORDS BYTES BATCH_BYTES LINGER_MS
//! ```
//!
//! Prints a JSON object. The clock starts when the client is connected and stops when the last receipt is there; the
//! process's CPU is what it used meanwhile. `bench/plans/kafka.toml` compares it with Kafka's own producer test.
#![forbid(unsafe_code)]
// What an example has to say, it prints.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use highwater_batcher::sink::kafka::{Client, KafkaSink, Limits, Settings};
use highwater_batcher::{Batcher, Failure, Layout, Moment, OnFailure, Options, Refused};

/// The most unanswered bytes: as much as Kafka's own producer buffers by default (`buffer.memory`).
const BUFFER_BYTES: usize = 32 << 20;

/// Records that a worker accepts per turn under load.
const TURN_RECORDS: usize = 256;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [brokers, topic, numbers @ ..] = &arguments[..] else {
        return Err("write BROKERS TOPIC PARTITIONS RECORDS BYTES BATCH_BYTES LINGER_MS".into());
    };
    let numbers: Vec<usize> = numbers.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let [partitions, records, bytes, batch_bytes, linger_ms] = numbers[..] else {
        return Err("write five numbers: PARTITIONS RECORDS BYTES BATCH_BYTES LINGER_MS".into());
    };
    let mut settings = Settings::new(brokers, topic, u32::try_from(partitions)?);
    settings.batch_bytes = batch_bytes;
    settings.linger = Duration::from_millis(u64::try_from(linger_ms)?);
    let mut limits = Limits::default();
    (limits.records_max, limits.bytes_max) = (BUFFER_BYTES / bytes.max(1), BUFFER_BYTES);
    limits.ack_timeout = Duration::from_secs(60);
    let client = Client::start(settings.clone(), limits)?;
    if let Some(trouble) = client.trouble() {
        return Err(trouble.into());
    }
    let mut options = Options::default();
    (options.partitions, options.layout) = (settings.partitions, Layout::Mixed);
    (options.in_flight_max, options.on_failure) = (64, OnFailure::Report);
    (options.batch_bytes, options.memory_max) = (256 << 10, 2 * BUFFER_BYTES);
    let batcher = Batcher::new(client.sink(), options)?;
    let (cpu, began) = (cpu_seconds()?, Instant::now());
    let (written, failure) = write(batcher, settings.partitions, records, &vec![b'x'; bytes]);
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds()? - cpu);
    if written != records as u64 {
        let why = failure.map_or("no failure was seen".to_owned(), |failure| failure.to_string());
        return Err(format!("{written} of {records} were written: {why}").into());
    }
    let (records, bytes) = (records as f64, bytes as f64);
    let us = cpu * 1e6 / records;
    println!(
        "{{\"records\": {records}, \"seconds\": {seconds:.3}, \"records_per_s\": {:.0}, \"mb_per_s\": {:.1}, \"cpu_us_per_record\": {us:.3}}}",
        records / seconds,
        records * bytes / seconds / 1e6,
    );
    client.close(Duration::from_secs(10));
    Ok(())
}

/// Writes records to the partitions, a turn's worth to each, as Kafka's own producer fills one batch after the other,
/// and waits for all of them. Returns how many were written, and the last failure.
fn write(
    mut batcher: Batcher<KafkaSink>,
    partitions: u32,
    records: usize,
    body: &[u8],
) -> (u64, Option<Failure>) {
    let mut failure = None;
    let mut end_turn = |batcher: &mut Batcher<KafkaSink>, now, waker| {
        batcher.on_turn_end(now, waker);
        if let Some(trouble) = batcher.trouble() {
            failure = Some(trouble.clone());
        }
    };
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let unix_us = u64::try_from(unix.as_micros()).unwrap_or(u64::MAX);
    let mut moment = Moment { now: Instant::now(), unix_us };
    for number in 0..records {
        let partition = (number / TURN_RECORDS) as u32 % partitions;
        // As a worker does: the clock is read, and the sink asked, once in a turn.
        if number % TURN_RECORDS == 0 {
            moment.now = Instant::now();
            end_turn(&mut batcher, moment.now, &waker);
        }
        while let Err(Refused::Full) = batcher.append(partition, moment, body) {
            std::thread::park_timeout(Duration::from_millis(1));
            end_turn(&mut batcher, Instant::now(), &waker);
        }
    }
    while !batcher.is_idle() {
        batcher.flush(Instant::now());
        end_turn(&mut batcher, Instant::now(), &waker);
        std::thread::park_timeout(Duration::from_millis(1));
    }
    (batcher.counts().written, failure)
}

/// What this process has used of the CPUs. The kernel counts in ticks of 10 ms.
fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(") ").ok_or("no such format")?.1.split(' ');
    let ticks: u64 = fields.skip(11).take(2).map(|field| field.parse().unwrap_or(0)).sum();
    Ok(ticks as f64 / 100.0)
}
