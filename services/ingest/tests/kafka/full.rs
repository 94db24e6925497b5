//! A disk that the spool fills while Kafka is down, and one that others keep full.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use highwater_testkit::SmallDisk;

use crate::broker::{Own, consume, eventually, unique};
use crate::gateway::records;
use crate::{arguments, start};

const BODY_BYTES: usize = 16_000;

fn body(number: usize) -> Vec<u8> {
    let mut body = format!("{number:06} ").into_bytes();
    body.resize(BODY_BYTES, b'x');
    body
}

/// Each record that was acknowledged is in the topic once, and those of one partition are in the order of their numbers.
fn check(url: &str, topic: &str, accepted: &[usize]) {
    let mut found: BTreeMap<usize, usize> = BTreeMap::new();
    let mut last: BTreeMap<i32, usize> = BTreeMap::new();
    for seen in consume(url, topic) {
        let number =
            std::str::from_utf8(&seen.value[..6]).expect("digits").parse().expect("digits");
        *found.entry(number).or_default() += 1;
        let before = last.insert(seen.partition, number);
        assert!(before < Some(number), "order of partition {}", seen.partition);
    }
    let expected: BTreeMap<usize, usize> = accepted.iter().map(|number| (*number, 1)).collect();
    let count = |map: &BTreeMap<usize, usize>| map.values().sum::<usize>();
    assert!(found == expected, "{} in the topic, {} acknowledged", count(&found), accepted.len());
}

fn small_disk(size: &str) -> Option<SmallDisk> {
    SmallDisk::new(size).map_err(|reason| highwater_skip::skip("root", reason)).ok()
}

/// One worker, so that the order of all records is known.
fn flags<'a>(brokers: &'a str, topic: &'a str, data: &'a Path) -> Vec<&'a str> {
    let mut flags = arguments("memory", brokers, topic, data);
    flags.retain(|flag| !flag.starts_with("--workers"));
    flags.extend(["--workers=1", "--partitions=4", "--memory-max=8MiB", "--queue-target=10s"]);
    flags
}

/// Purpose: Kafka is down until the spool has filled its disk and memory is full; when it is back, everything that was
/// acknowledged is delivered, once and in order, and records are taken again. The spool stood still for ever: its one
/// segment was delivered, and could neither grow nor go.
#[test]
fn a_spool_that_has_filled_its_disk() {
    let Some(disk) = small_disk("48m") else { return };
    let Some(mut own) = Own::start("") else { return };
    let (url, topic, data) = (own.url(), unique("full"), disk.path().join("data"));
    let flags = flags(&url, &topic, &data);
    own.kill();
    let gateway = start(0, &flags);
    let mut client = gateway.connect();
    let mut accepted = Vec::new();
    for number in 0.. {
        let answer = client.call("POST", "/e", "", body(number));
        match answer.status {
            202 => accepted.push(number),
            503 => {
                assert!(answer.header("retry-after").is_some(), "{answer:?}");
                // A disk that is only slow refuses as well.
                if gateway.get_metrics("/readyz").status == 503 {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            other => panic!("{other}"),
        }
    }
    assert!(accepted.len() > (48 << 20) / (BODY_BYTES + 100), "{}", accepted.len());
    own.restart();
    eventually("all is delivered", || records(&gateway, "delivered") == accepted.len() as u64);
    // It goes on for several times what the disk holds.
    for number in 100_000..106_000 {
        while client.call("POST", "/e", "", body(number)).status != 202 {
            std::thread::sleep(Duration::from_millis(20));
        }
        accepted.push(number);
    }
    eventually("all is delivered", || records(&gateway, "delivered") == accepted.len() as u64);
    gateway.stop();
    check(&url, &topic, &accepted);
}

/// Purpose: what was acknowledged in memory does not wait for a disk that others keep full: it goes to Kafka after
/// everything on the disk, in order; and through the journal again when there is room.
#[test]
fn a_disk_that_stays_full() {
    let Some(disk) = small_disk("4m") else { return };
    let Some(own) = Own::start("") else { return };
    let (url, topic, data) = (own.url(), unique("stays-full"), disk.path().join("data"));
    let gateway = start(0, &flags(&url, &topic, &data));
    let mut client = gateway.connect();
    let mut accepted = Vec::new();
    let mut post = |numbers: std::ops::Range<usize>| {
        for number in numbers {
            assert_eq!(client.call("POST", "/e", "", body(number)).status, 202);
            accepted.push(number);
        }
        accepted.clone()
    };
    post(0..20);
    let ballast = disk.path().join("ballast");
    // As much as fits: an error says that it is full.
    assert!(std::fs::write(&ballast, vec![0; 8 << 20]).is_err());
    let all = post(20..400);
    eventually("all is delivered", || records(&gateway, "delivered") == all.len() as u64);
    std::fs::remove_file(&ballast).expect("it is there");
    let all = post(400..500);
    eventually("all is delivered", || records(&gateway, "delivered") == all.len() as u64);
    gateway.stop();
    check(&url, &topic, &all);
}

/// Purpose: a stop that cannot save what was acknowledged in memory says how much it was, and does not succeed.
#[test]
fn a_stop_that_loses_records() {
    let Some(disk) = small_disk("1m") else { return };
    let (topic, data) = (unique("loses"), disk.path().join("data"));
    let mut flags = flags("127.0.0.1:1", &topic, &data);
    flags.push("--drain-timeout=1s");
    let mut process = start(0, &flags);
    let mut client = process.connect();
    for number in 0..200 {
        assert_eq!(client.call("POST", "/e", "", body(number)).status, 202);
    }
    process.signal("TERM");
    assert_eq!(process.wait().code(), Some(1));
}

/// Purpose: what has bypassed a full disk does not stay in memory when Kafka fails. Once there is room it goes to the disk, and
/// is in the topic once, whether or not Kafka had it already. (It stayed where it was until Kafka was back, or was lost.)
#[test]
fn kafka_fails_while_the_disk_is_full() {
    let Some(disk) = small_disk("6m") else { return };
    let Some(mut own) = Own::start("") else { return };
    let (url, topic, data) = (own.url(), unique("both-fail"), disk.path().join("data"));
    let flags = flags(&url, &topic, &data);
    let mut gateway = start(0, &flags);
    let mut client = gateway.connect();
    let mut accepted = Vec::new();
    let mut post = |numbers: std::ops::Range<usize>| {
        for number in numbers {
            assert_eq!(client.call("POST", "/e", "", body(number)).status, 202);
            accepted.push(number);
        }
        accepted.clone()
    };
    post(0..20);
    let ballast = disk.path().join("ballast");
    assert!(std::fs::write(&ballast, vec![0; 8 << 20]).is_err());
    let all = post(20..60);
    eventually("all is delivered", || records(&gateway, "delivered") == all.len() as u64);
    // What it is sent from now on may arrive or not.
    own.hang();
    let all = post(60..80);
    std::fs::remove_file(&ballast).expect("it is there");
    own.kill();
    eventually("all is on the disk", || records(&gateway, "durable") == all.len() as u64);
    gateway.signal("KILL");
    gateway.wait();
    own.restart();
    let gateway = start(0, &flags);
    eventually("all is delivered", || gateway.metric("highwater_ingest_pending") == 0.0);
    gateway.stop();
    check(&url, &topic, &all);
}
