//! What clients are promised: the right answer, and the right record, however their bytes arrive.

mod gateway;

use std::collections::{BTreeMap, BTreeSet};

use gateway::{bodies, gateway, journal, record, records, settles_at};
use highwater_testkit::Process;

const OK: &str = r#"{"ok":true}"#;

/// Each of the kinds of 202 that need no Kafka.
const KINDS: [&[&str]; 2] = [&["--ack=disk"], &["--ack=memory"]];

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// A gateway over a directory of its own.
fn with(flags: &[&str]) -> (Process, tempfile::TempDir) {
    let data = temporary();
    (gateway(data.path(), flags), data)
}

/// Purpose: a body that arrives in two pieces, wherever it is cut, is one record with one answer. The second of the systems
/// that inspired this answered twice and kept nothing.
#[test]
fn split_at_every_byte() {
    for flags in KINDS {
        let (process, data) = with(flags);
        let body = b"twelve bytes";
        let whole = record(body);
        let mut client = process.connect();
        for cut in 1..whole.len() {
            client.send(&whole[..cut]).expect("it reads");
            // So that the pieces arrive apart, at least mostly: the answer to another connection comes in between.
            assert_eq!(process.get("/").text(), r#"{"status":"UP"}"#);
            client.send(&whole[cut..]).expect("it reads");
            let answer = client.answer();
            assert_eq!((answer.status, answer.text()), (202, OK), "{cut}");
        }
        let expected = whole.len() - 1;
        settles_at(&process, expected as u64);
        process.stop();
        assert_eq!(bodies(data.path()), vec![body.to_vec(); expected], "{flags:?}");
    }
}

/// Purpose: pipelined requests get an answer each, and become a record each, in their order; a body may hold anything.
#[test]
fn pipelined() {
    for flags in KINDS {
        let (process, data) = with(flags);
        let mut sent: Vec<Vec<u8>> = (0..200).map(|n| format!("record {n}").into_bytes()).collect();
        sent.push(Vec::new());
        sent.push((0..=255).collect());
        sent.push(b"POST /e HTTP/1.1\r\nContent-Length: 7\r\n\r\n".to_vec());
        let requests: Vec<u8> = sent.iter().flat_map(record).collect();
        let mut client = process.connect();
        client.send(&requests).expect("it reads");
        for _ in &sent {
            let answer = client.answer();
            assert_eq!((answer.status, answer.text()), (202, OK));
        }
        settles_at(&process, sent.len() as u64);
        process.stop();
        assert_eq!(bodies(data.path()), sent, "{flags:?}");
    }
}

/// Purpose: a body in chunks is the record that it says, without the chunks.
#[test]
fn chunked() {
    for flags in KINDS {
        let (process, data) = with(flags);
        let chunked = b"POST /e HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n\
            5\r\nhello\r\n1;x=y\r\n \r\n5\r\nworld\r\n0\r\nTrailer: t\r\n\r\n";
        let answer = process.ask(chunked);
        assert_eq!((answer.status, answer.text()), (202, OK));
        let nothing = b"POST /e HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
        assert_eq!(process.ask(nothing).status, 202);
        process.stop();
        assert_eq!(bodies(data.path()), [b"hello world".to_vec(), Vec::new()]);
    }
}

/// Purpose: a body at the limit is taken, one above it is refused with 413 and becomes no record, however its length is
/// said; the limit is a setting.
#[test]
fn oversized() {
    for flags in KINDS {
        let (process, data) = with(&[flags, &["--body-max=1KiB"]].concat());
        for (bytes, status) in [(1023, 202), (1024, 202), (1025, 413), (100_000, 413)] {
            let body = vec![b'x'; bytes];
            assert_eq!(process.ask(record(&body)).status, status, "{bytes}");
        }
        let size = 1025;
        let head = "POST /e HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunked = format!("{head}{size:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(size));
        assert_eq!(process.ask(chunked.as_bytes()).status, 413);
        settles_at(&process, 2);
        process.stop();
        let lengths: Vec<usize> = bodies(data.path()).iter().map(Vec::len).collect();
        assert_eq!(lengths, [1023, 1024]);
    }
}

/// Purpose: requests that are none become no record: the wrong method, another path, garbage, a length that is a lie.
#[test]
fn what_is_no_record() {
    let (process, data) = with(&["--ack=disk"]);
    for (bytes, status) in [
        (&b"GET /e HTTP/1.1\r\nHost: t\r\n\r\n"[..], 405),
        (b"DELETE /e HTTP/1.1\r\nHost: t\r\n\r\n", 405),
        (b"POST /f HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\nx", 404),
        (b"POST /e HTTP/1.1\r\nHost: t\r\nContent-Length: 1, 2\r\n\r\nxx", 400),
        (b"POST /e HTTP/1.1\r\nHost: t\r\nContent-Length: -1\r\n\r\n", 400),
        (b"\x00\x01\x02\r\n\r\n", 400),
    ] {
        assert_eq!(process.ask(bytes).status, status, "{bytes:?}");
    }
    // The rest of this body never comes.
    let mut client = process.connect();
    client.send(b"POST /e HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\nhalf").expect("it reads");
    drop(client);
    settles_at(&process, 0);
    process.stop();
    assert_eq!(journal(data.path()), []);
}

/// Purpose: each line of a batch is a record, the last one with or without its end, and the answer says how many.
#[test]
fn batches() {
    for flags in KINDS {
        let (process, data) = with(flags);
        let mut client = process.connect();
        let mut expected = Vec::new();
        for (body, lines) in [
            ("one\ntwo\n", &["one", "two"][..]),
            ("three\nfour", &["three", "four"]),
            ("\n\nfive\n\n", &["five"]),
            ("six\r\nseven\r\n", &["six\r", "seven\r"]),
            ("", &[]),
            ("\n", &[]),
        ] {
            let answer = client.call("POST", "/batch", "", body.as_bytes());
            let count = lines.len();
            let json = format!(r#"{{"ok":true,"records":{count}}}"#);
            assert_eq!((answer.status, answer.text()), (202, &*json), "{body:?}");
            expected.extend(lines.iter().map(|line| line.as_bytes().to_vec()));
        }
        // More than a batch holds, so that the records of one request are in several.
        let many: Vec<String> = (0..70_000).map(|n| format!("{n}")).collect();
        let answer = client.call("POST", "/batch", "", many.join("\n").as_bytes());
        assert_eq!(answer.text(), r#"{"ok":true,"records":70000}"#);
        expected.extend(many.iter().map(|line| line.as_bytes().to_vec()));
        settles_at(&process, expected.len() as u64);
        process.stop();
        assert!(bodies(data.path()) == expected, "{flags:?}");
    }
}

/// Purpose: records with a key go to one partition, in their order, whichever connection and worker they come by; those
/// without are spread. Every record has an id of its own and the time at which it came.
#[test]
fn keys_and_partitions() {
    for flags in KINDS {
        let (process, data) = with(&[flags, &["--partitions=8"]].concat());
        let began = now_us();
        for round in 0..20 {
            for key in ["a", "b", "c"] {
                let mut client = process.connect();
                let fields = format!("Record-Key: {key}\r\n");
                let body = format!("{key} {round:02}");
                assert_eq!(client.call("POST", "/e", &fields, body).status, 202);
            }
        }
        let mut client = process.connect();
        for _ in 0..64 {
            assert_eq!(client.ask(record(b"none")).status, 202);
        }
        process.stop();
        let found = journal(data.path());
        let mut by_key: BTreeMap<u8, (BTreeSet<u32>, Vec<Vec<u8>>)> = BTreeMap::new();
        for record in found.iter().filter(|record| record.body != b"none") {
            let (partitions, bodies) = by_key.entry(record.body[0]).or_default();
            partitions.insert(record.partition);
            bodies.push(record.body.clone());
        }
        assert_eq!(by_key.len(), 3);
        for (partitions, bodies) in by_key.values() {
            assert_eq!((partitions.len(), bodies.len()), (1, 20));
            if flags == ["--ack=disk"] {
                // With --ack memory, two workers may reach the journal in either order.
                assert!(bodies.is_sorted(), "{bodies:?}");
            }
        }
        let without = found.iter().filter(|record| record.body == b"none");
        let spread: BTreeSet<u32> = without.map(|record| record.partition).collect();
        assert_eq!(spread, (0..8).collect());
        let ids: BTreeSet<u128> = found.iter().map(|record| record.id).collect();
        assert_eq!(ids.len(), found.len());
        assert!(found.iter().all(|record| (began..=now_us()).contains(&record.time_us)));
    }
}

fn now_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("after 1970").as_micros() as u64
}

/// Purpose: where records go nowhere, they are counted all the same, and no directory is made.
#[test]
fn nowhere() {
    let parent = temporary();
    let data = parent.path().join("data");
    let process = gateway(&data, &["--sink=null"]);
    for _ in 0..10 {
        assert_eq!(process.ask(record(b"x")).status, 202);
    }
    settles_at(&process, 10);
    assert_eq!(records(&process, "refused"), 0);
    assert_eq!(process.get_metrics("/readyz").status, 200);
    process.stop();
    assert!(!data.exists());
}
