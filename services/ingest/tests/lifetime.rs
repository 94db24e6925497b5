//! From start to end: a clean stop loses nothing that was accepted, and a full disk nothing that was acknowledged.

mod gateway;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gateway::{bodies, gateway, journal, record, records, settles_at};
use highwater_testkit::{Client, PATIENCE, SmallDisk};

/// Purpose: a process that is told to stop under load has every record that it has answered 202, each once, under every
/// kind of 202: what is in memory goes to the disk first.
#[test]
fn sigterm_under_load_loses_nothing() {
    const CLIENTS: usize = 8;
    const BEFORE: usize = 200;
    // Long enough that a record in memory is there when the signal comes.
    for (ack, linger) in [("--ack=memory", "--linger=10s"), ("--ack=disk", "--linger=0s")] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut process = gateway(directory.path(), &[ack, linger]);
        let address = process.address;
        let under_way = AtomicUsize::new(0);
        let accepted: Vec<Vec<String>> = thread::scope(|scope| {
            let under_way = &under_way;
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    scope.spawn(move || post_until_refused(address, client, BEFORE, under_way))
                })
                .collect();
            let until = Instant::now() + PATIENCE;
            while under_way.load(Ordering::SeqCst) < CLIENTS {
                assert!(Instant::now() < until, "clients that get no answers");
                thread::sleep(Duration::from_millis(1));
            }
            process.signal("TERM");
            clients.into_iter().map(|client| client.join().expect("no wrong answer")).collect()
        });
        assert!(process.wait().success());
        let mut found: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for body in bodies(directory.path()) {
            *found.entry(body).or_default() += 1;
        }
        for body in accepted.iter().flatten() {
            assert_eq!(found.remove(body.as_bytes()), Some(1), "{ack}: {body}");
        }
        // What was taken when the answer could not be sent any more.
        assert!(found.values().all(|count| *count == 1), "{found:?}");
    }
}

/// Posts until the server stops. What was answered 202.
fn post_until_refused(
    address: SocketAddr,
    client: usize,
    before: usize,
    under_way: &AtomicUsize,
) -> Vec<String> {
    let (mut accepted, mut sent) = (Vec::new(), 0);
    // A connection that ends cleanly may be followed by another, as long as it listens.
    while let Ok(mut connection) = Client::try_connect(address) {
        loop {
            let body = format!("{client} {sent}");
            sent += 1;
            let Ok(answer) = connection.try_ask(record(&body)) else { break };
            assert_eq!(answer.status, 202);
            accepted.push(body);
            if accepted.len() == before {
                under_way.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
    accepted
}

/// A disk that is full once `ballast` is there, or nothing where none can be made.
fn full_disk() -> Option<(SmallDisk, std::path::PathBuf)> {
    let disk = SmallDisk::new("2m").map_err(|reason| highwater_skip::skip("root", reason)).ok()?;
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![0; 1 << 20]).expect("there is room");
    Some((disk, ballast))
}

/// Purpose: on a full disk no record is acknowledged that is not there; clients get 503 and when to come again, operators
/// see it on /readyz; and when there is room again, it serves on by itself.
#[test]
fn a_full_disk_under_ack_disk() {
    let Some((disk, ballast)) = full_disk() else { return };
    let data = disk.path().join("data");
    let process = gateway(&data, &["--ack=disk"]);
    let mut client = process.connect();
    let (mut accepted, mut refused) = (Vec::new(), 0);
    for number in 0_u32.. {
        let mut body = vec![b'x'; 10_000];
        body[..4].copy_from_slice(&number.to_le_bytes());
        let answer = client.ask(record(&body));
        match answer.status {
            202 => accepted.push(body),
            503 => {
                assert_eq!(answer.header("retry-after"), Some("1"));
                assert!(answer.text().contains("no room"), "{}", answer.text());
                refused += 1;
            }
            other => panic!("{other}"),
        }
        assert!(number < 10_000, "the disk has no end");
        if refused == 5 {
            break;
        }
    }
    assert!(accepted.len() > 20, "{}", accepted.len());
    assert_eq!(records(&process, "refused"), refused);
    let ready = process.get_metrics("/readyz");
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains("journal"), "{}", ready.text());
    settles_at(&process, accepted.len() as u64);

    std::fs::remove_file(&ballast).expect("it is there");
    for number in 0..5 {
        let body = format!("again {number}").into_bytes();
        assert_eq!(client.ask(record(&body)).status, 202);
        accepted.push(body);
    }
    assert_eq!(process.get_metrics("/readyz").status, 200);
    settles_at(&process, accepted.len() as u64);
    process.stop();
    assert!(bodies(&data) == accepted, "what was acknowledged, and nothing else");
}

/// Purpose: under `--ack memory`, records that a full disk does not take stay in memory; when that is full as well, clients
/// get 503 and when to come again; and when there is room again, all that was accepted is there, each record once.
#[test]
fn a_full_disk_under_ack_memory() {
    let Some((disk, ballast)) = full_disk() else { return };
    let data = disk.path().join("data");
    let flags = [
        "--ack=memory",
        "--workers=1",
        "--body-max=16KiB",
        "--batch-bytes=64KiB",
        "--memory-max=1MiB",
    ];
    let process = gateway(&data, &flags);
    let mut client = process.connect();
    let (mut accepted, mut refused) = (Vec::new(), 0);
    for number in 0_u32.. {
        let mut body = vec![b'x'; 10_000];
        body[..4].copy_from_slice(&number.to_le_bytes());
        let answer = client.ask(record(&body));
        match answer.status {
            202 => accepted.push(body),
            503 => {
                assert_eq!(answer.header("retry-after"), Some("1"));
                refused += 1;
            }
            other => panic!("{other}"),
        }
        assert!(number < 10_000, "there is no end");
        if refused == 5 {
            break;
        }
    }
    assert_eq!(records(&process, "accepted"), accepted.len() as u64);
    assert_eq!(records(&process, "refused"), refused);
    assert!(process.metric("highwater_ingest_pending") > 0.0);
    let pending = records(&process, "accepted") - records(&process, "durable");
    assert!((10_000..=1 << 20).contains(&(pending * 10_000)), "{pending}: memory_max is a bound");

    std::fs::remove_file(&ballast).expect("it is there");
    settles_at(&process, accepted.len() as u64);
    assert_eq!(client.ask(record(b"again")).status, 202);
    accepted.push(b"again".to_vec());
    process.stop();
    assert!(bodies(&data) == accepted, "what was accepted, each once, in order");
}

/// Purpose: what was durable is there after a restart, new records follow it, and each process counts its own.
#[test]
fn restarts() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for round in 1..=3_u64 {
        let process = gateway(directory.path(), &["--ack=disk"]);
        for number in 0..10 {
            let body = format!("{round} {number}");
            assert_eq!(process.ask(record(body.as_bytes())).status, 202);
        }
        settles_at(&process, 10);
        process.stop();
        let records = journal(directory.path());
        assert_eq!(records.len() as u64, 10 * round);
        assert!(records.is_sorted_by_key(|record| record.offset));
    }
}

/// Purpose: when the data directory is moved away while it serves, nothing more is acknowledged on the disk, operators see it
/// on /readyz, and the gateway ends with a sentence about the journal, its directory and what to do, not about a flag. What
/// was acknowledged before is in the directory, wherever it is now; what was acknowledged only in memory is counted as
/// lost.
#[test]
fn a_directory_that_is_moved_away() {
    for ack in ["disk", "memory"] {
        let place = tempfile::tempdir().expect("a temporary directory");
        let (data, moved) = (place.path().join("data"), place.path().join("moved"));
        let flags = [&format!("--ack={ack}"), "--linger=0s", "--drain-timeout=100ms"];
        let mut process = gateway(&data, &flags);
        let mut client = process.connect();
        assert_eq!(client.ask(record("before")).status, 202);
        settles_at(&process, 1);
        std::fs::rename(&data, &moved).expect("it is ours");
        let after = client.ask(record("after")).status;
        assert_eq!(after, if ack == "disk" { 503 } else { 202 }, "{ack}");
        let until = Instant::now() + PATIENCE;
        while process.get_metrics("/readyz").status != 503 {
            assert!(Instant::now() < until, "{ack}: it is ready without its directory");
            thread::sleep(Duration::from_millis(5));
        }
        process.signal("TERM");
        assert_eq!(process.wait().code(), Some(1), "{ack}");
        let log = process.log();
        let at_once: Vec<&str> =
            log.lines().filter(|line| line.contains("the journal has failed")).collect();
        assert_eq!(at_once.len(), 1, "{ack}: once, while it serves: {log}");
        assert!(
            at_once[0].contains("Repair the disk") && at_once[0].contains("ERROR"),
            "{ack}: {log}"
        );
        let last = log.lines().last().expect("it said why");
        let start = format!("highwater-ingest: the journal in {} failed: ", data.display());
        assert!(last.starts_with(&start), "{ack}: {last}");
        assert!(last.contains("start the gateway again"), "{ack}: {last}");
        assert_eq!(last.contains("1 records that were acknowledged in memory"), ack == "memory");
        assert_eq!(bodies(&moved), [b"before"]);
    }
}

/// Purpose: if the journal cannot record its position, records are taken all the same; the log says so with the remedy, and a
/// metric counts it.
#[test]
fn a_mark_that_cannot_be_written_is_logged() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mark = directory.path().join("written.pos");
    std::os::unix::fs::symlink("/dev/full", &mark).expect("it is free");
    let process = gateway(directory.path(), &["--ack=disk"]);
    let mut client = process.connect();
    for body in ["first", "second"] {
        assert_eq!(client.ask(record(body)).status, 202);
    }
    process.wait_for(|line| line.contains("written.pos") && line.contains("give the disk room"));
    settles_at(&process, 2);
    assert!(process.metric("highwater_ingest_unmarked_total") >= 2.0);
}

/// Purpose: an end without Kafka says how many records wait on the disk, and says nothing if there are none.
#[test]
fn records_that_wait_are_counted_at_the_end() {
    const WAIT: &str = "records wait in the spool";
    let directory = tempfile::tempdir().expect("a temporary directory");
    let away = [
        "--ack=disk",
        "--sink=kafka",
        "--kafka-brokers=127.0.0.1:1",
        "--partitions=1",
        "--drain-timeout=200ms",
    ];
    for records in 0..=1 {
        let mut process = gateway(directory.path(), &away);
        for _ in 0..records {
            assert_eq!(process.ask(record("body")).status, 202);
        }
        process.signal("TERM");
        assert!(process.wait().success());
        let log = process.log();
        assert_eq!(log.contains(WAIT), records > 0, "{log}");
    }
}
