//! The gateway is killed with `kill -9` at random instants, over and over: every record that was acknowledged is there,
//! once, with an id of its own.
//!
//!   TORTURE_ROUNDS=100   how many times (`make torture`)
//!   TORTURE_SEED=7       from which random numbers; printed

mod gateway;

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gateway::{gateway, journal, record, settles_at};
use highwater::journal::{Directory, Item, View, verify};
use highwater_testkit::{Client, PATIENCE, request};

const ROUNDS: u64 = 5;
const PRODUCERS: u64 = 6;

/// What a producer has sent, by whether it was acknowledged.
#[derive(Default)]
struct Sent {
    acknowledged: Vec<String>,
    unknown: Vec<String>,
}

fn knob(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Purpose: what was acknowledged under `--ack disk` survives any number of crashes: it is there, nothing is there twice
/// or was never sent, and whenever the gateway rests its counters add up exactly.
#[test]
fn torture_without_kafka() {
    let seed = knob("TORTURE_SEED").unwrap_or_else(|| fastrand::u64(..));
    let rounds = knob("TORTURE_ROUNDS").unwrap_or(ROUNDS);
    eprintln!("TORTURE_SEED={seed}, {rounds} rounds");
    let mut random = fastrand::Rng::with_seed(seed);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data = directory.path();
    let mut all = Sent::default();
    for round in 0..rounds {
        let transport = if random.bool() { "--transport=auto" } else { "--transport=epoll" };
        let mut process = gateway(data, &["--ack=disk", "--partitions=4", transport]);
        let is_over = AtomicBool::new(false);
        let answered = AtomicU64::new(0);
        let (address, rests) = (process.address, random.bool());
        let seeds: Vec<u64> = (0..PRODUCERS).map(|_| random.u64(..)).collect();
        let sent: Vec<Sent> = thread::scope(|scope| {
            let (is_over, answered) = (&is_over, &answered);
            let producers: Vec<_> = seeds
                .iter()
                .enumerate()
                .map(|(producer, seed)| {
                    let (name, random) =
                        (format!("{round}-{producer}"), fastrand::Rng::with_seed(*seed));
                    scope.spawn(move || produce(address, &name, random, is_over, answered))
                })
                .collect();
            let until = Instant::now() + PATIENCE;
            while answered.load(Ordering::SeqCst) < 10 {
                assert!(Instant::now() < until, "no answers");
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_micros(random.u64(0..300_000)));
            if rests {
                // Everything is answered: the counters have to agree with the clients, to the record.
                is_over.store(true, Ordering::SeqCst);
                while !producers.iter().all(thread::ScopedJoinHandle::is_finished) {
                    assert!(Instant::now() < until, "a request without an answer");
                    thread::sleep(Duration::from_millis(1));
                }
                settles_at(&process, answered.load(Ordering::SeqCst));
            }
            process.signal("KILL");
            is_over.store(true, Ordering::SeqCst);
            producers
                .into_iter()
                .map(|producer| producer.join().expect("no wrong answer"))
                .collect()
        });
        assert!(!process.wait().success());
        for sent in sent {
            assert!(!rests || sent.unknown.is_empty());
            all.acknowledged.extend(sent.acknowledged);
            all.unknown.extend(sent.unknown);
        }
        check(data, &all);
    }
    // It continues to serve, and a clean shutdown leaves an intact journal.
    let process = gateway(data, &["--ack=disk"]);
    let mut client = process.connect();
    assert_eq!(client.ask(record(b"the end")).status, 202);
    settles_at(&process, 1);
    process.stop();
    all.acknowledged.push("the end".to_owned());
    check(data, &all);
    let report = verify(&Directory::look(data).expect("it is there")).expect("it can be read");
    assert!(report.tail.is_none(), "{report}");
    eprintln!("{} acknowledged, {} unknown", all.acknowledged.len(), all.unknown.len());
}

/// Sends records under names of their own until it is over or the server is gone.
fn produce(
    address: SocketAddr,
    name: &str,
    mut random: fastrand::Rng,
    is_over: &AtomicBool,
    answered: &AtomicU64,
) -> Sent {
    let mut sent = Sent::default();
    let Ok(mut client) = Client::try_connect(address) else { return sent };
    for number in 0.. {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        let content = |part: u64| {
            let fill = "x".repeat((number * 7 % 300) as usize);
            format!("{name}-{number}-{part} {fill}")
        };
        // One record, several in one body, or several requests at once.
        let kind = random.u64(0..3);
        let records: Vec<String> = (0..[1, 5, 4][kind as usize]).map(content).collect();
        let outcome = match kind {
            0 => client.try_ask(record(&records[0])).map(|answer| vec![answer]),
            1 => client
                .try_ask(request("POST", "/batch", "Record-Key: k\r\n", records.join("\n")))
                .map(|answer| vec![answer]),
            _ => {
                let requests: Vec<u8> = records.iter().flat_map(record).collect();
                let sent = client.send(&requests);
                sent.and_then(|()| {
                    let answers = records.iter().map(|_| client.try_answer());
                    // A connection that has ended gives none.
                    answers.map(|answer| answer?.ok_or(ErrorKind::UnexpectedEof.into())).collect()
                })
            }
        };
        match outcome {
            Ok(answers) => {
                assert!(answers.iter().all(|answer| answer.status == 202), "{answers:?}");
                answered.fetch_add(records.len() as u64, Ordering::SeqCst);
                sent.acknowledged.extend(records);
            }
            Err(_) => {
                sent.unknown.extend(records);
                break;
            }
        }
    }
    sent
}

/// Compares what was sent with what the files hold, read by a parser that shares nothing with the journal; and that with
/// what the journal's own reader gives.
fn check(data: &Path, sent: &Sent) {
    let records = journal(data);
    let ids: BTreeSet<u128> = records.iter().map(|record| record.id).collect();
    assert_eq!(ids.len(), records.len(), "ids are given once");
    assert!(records.is_sorted_by(|one, next| one.offset < next.offset));
    let mut found: BTreeMap<&[u8], usize> = BTreeMap::new();
    for record in &records {
        *found.entry(&record.body).or_default() += 1;
    }
    for record in &sent.acknowledged {
        assert_eq!(found.remove(record.as_bytes()), Some(1), "acknowledged: {record:?}");
    }
    let unknown: BTreeSet<&[u8]> = sent.unknown.iter().map(|record| record.as_bytes()).collect();
    for (record, count) in found {
        let text = String::from_utf8_lossy(record);
        assert!(unknown.contains(record) && count == 1, "never sent, or twice: {text:?}, {count}");
    }

    let directory = Directory::look(data).expect("it is there");
    let view = View::open(directory, u64::MAX).expect("it can be read");
    let mut reader = view.reader_from_start();
    let mut read = Vec::new();
    loop {
        match reader.next().expect("it can be read") {
            Item::Record(record) => read.push((record.offset, record.id, record.body.to_vec())),
            Item::Skipped(damage) => panic!("{damage}"),
            Item::End => break,
        }
    }
    let parsed: Vec<_> =
        records.into_iter().map(|record| (record.offset, record.id, record.body)).collect();
    assert!(read == parsed, "the journal's reader gives something else");
}
