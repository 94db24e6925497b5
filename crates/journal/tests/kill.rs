//! A real process in a real directory is killed without warning.
//!
//! The child appends through several producers and prints a record's id once its receipt says durable.
//! The parent kills it after some of those lines, and looks for each of the ids in the files: with a
//! search for bytes that shares nothing with the journal, and with the journal. A kill loses no page
//! cache; what a power cut does to unsynced pages is the simulation's business.

mod common;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use common::Place;
use highwater_journal::{Batch, Directory, Journal, Options, Record, SEGMENT_BYTES_MIN, verify};

const ROUNDS: u64 = 8;
const PRODUCERS: u64 = 3;
const CHILD: &str = "JOURNAL_KILL_CHILD";
const FIRST: &str = "JOURNAL_KILL_FIRST";

fn options() -> Options {
    let mut options = Options::default();
    options.segment_bytes = 8 * SEGMENT_BYTES_MIN;
    options
}

/// What a plain search finds: it is in no other record, header or number.
fn token(id: u64) -> String {
    format!("<record {id:08} of the child>")
}

fn length(id: u64) -> usize {
    40 + (id * 37 % 700) as usize
}

/// Purpose: what the child acknowledged is there after `kill -9`, round after round on one directory.
#[test]
fn nothing_acknowledged_is_lost() {
    let place = Place::new("kill");
    let mut acknowledged = BTreeSet::new();
    for round in 0..ROUNDS {
        let first = (round + 1) * 1_000_000;
        let lines = 20 + 60 * round;
        acknowledged.extend(run_and_kill(place.path(), first, lines as usize));
        check_files(&place, &acknowledged);
        check_journal(&place, &acknowledged);
    }
    assert!(acknowledged.len() > 500, "the children were killed too early to say anything");
}

/// Runs the child until it has acknowledged so many batches, kills it, and gives all it acknowledged.
fn run_and_kill(path: &Path, first: u64, lines_wanted: usize) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().expect("it runs"))
        .args(["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"])
        .env(CHILD, path)
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test can run again");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut ids = Vec::new();
    let parse = |line: String| line.strip_prefix("durable ").map(|id| id.parse::<u64>());
    while ids.len() < lines_wanted {
        let line = lines.next().expect("it never ends by itself").expect("it writes text");
        ids.extend(parse(line).map(|id| id.expect("it writes numbers")));
    }
    child.kill().expect("it runs");
    // What it printed before it was killed counts as well; its last line may be cut off.
    for line in lines.map_while(Result::ok) {
        let known = |id: &u64| (first..first + 1_000_000).contains(id);
        ids.extend(parse(line).and_then(Result::ok).filter(known));
    }
    child.wait().expect("it was killed");
    ids
}

fn check_files(place: &Place, acknowledged: &BTreeSet<u64>) {
    let mut found = BTreeSet::new();
    for path in place.segments() {
        let bytes = std::fs::read(&path).expect("it is there");
        let text = String::from_utf8_lossy(&bytes);
        let tokens = text.match_indices("<record ").filter_map(|(at, _)| text.get(at + 8..at + 16));
        found.extend(tokens.filter_map(|id| id.parse::<u64>().ok()));
    }
    let lost: Vec<_> = acknowledged.difference(&found).collect();
    assert!(lost.is_empty(), "not in the files: {lost:?}");
}

fn check_journal(place: &Place, acknowledged: &BTreeSet<u64>) {
    let directory = Directory::open(place.path()).expect("the kernel has released the lock");
    let journal = Journal::open(directory, options()).expect("it can be opened");
    let report = &journal.recovery().report;
    assert!(report.is_intact(), "{report}");
    let mut reader = journal.reader_from_start();
    let mut last = [0; PRODUCERS as usize + 1];
    let mut found = BTreeSet::new();
    loop {
        match reader.next().expect("the disk works") {
            highwater_journal::Item::Record(record) => {
                let id = u64::try_from(record.id).expect("ids are small here");
                assert!(record.body.starts_with(token(id).as_bytes()));
                assert_eq!(record.body.len(), length(id));
                let last = &mut last[record.partition as usize];
                assert!(id > *last, "the order of producer {}", record.partition);
                *last = id;
                assert!(found.insert(id), "{id} is there twice");
            }
            highwater_journal::Item::Skipped(damage) => panic!("{damage}"),
            highwater_journal::Item::End => break,
        }
    }
    assert!(acknowledged.is_subset(&found));
    drop(reader);
    journal.close().expect("the disk works");
    let look = Directory::look(place.path()).expect("it is there");
    assert!(verify(&look).expect("it can be read").is_intact());
    // Nothing is expected of what was not acknowledged; reading it once more finds the same.
    let journal = Journal::open(Directory::open(place.path()).expect("it is free"), options());
    let journal = journal.expect("it can be opened");
    assert_eq!(journal.stat().records, found.len() as u64);
}

/// Not a test: what the parent runs and kills.
#[test]
#[ignore = "the other test runs it"]
fn child() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let first: u64 = std::env::var(FIRST).expect("it was given").parse().expect("it is a number");
    let directory = Directory::open(&path).expect("nobody else has it");
    let journal = Journal::open(directory, options()).expect("it can be opened");
    std::thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let journal = &journal;
            scope.spawn(move || append_for_ever(journal, producer, first + producer * 300_000));
        }
    });
}

/// Keeps some batches in flight, and prints what is durable.
fn append_for_ever(journal: &Journal, producer: u64, first: u64) {
    let queue = journal.producer().expect("there are few");
    let mut waiting = std::collections::VecDeque::new();
    let mut id = first;
    loop {
        let (mut batch, mut ids) = (Batch::new(), Vec::new());
        for _ in 0..1 + id % 5 {
            let mut body = token(id).into_bytes();
            body.resize(length(id), b'.');
            let partition = producer as u32;
            batch.push(Record { partition, time_us: id, id: id.into(), body: &body });
            ids.push(id);
            id += 1;
        }
        waiting.push_back((queue.append(batch).expect("few are waiting"), ids));
        if waiting.len() < 8 {
            continue;
        }
        if let Some((receipt, ids)) = waiting.pop_front() {
            receipt.wait().expect("the disk works");
            let lines: String = ids.iter().map(|id| format!("durable {id}\n")).collect();
            let mut out = std::io::stdout().lock();
            out.write_all(lines.as_bytes()).and_then(|()| out.flush()).expect("the parent reads");
        }
    }
}
