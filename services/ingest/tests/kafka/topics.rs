//! Topics that are not as they should be: without rights, missing, or with another number of partitions than before.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use highwater_testkit::Process;
use rdkafka::admin::{AdminOptions, NewPartitions};

use crate::broker::{Own, Place, admin, consume, create, eventually, unique, wait};
use crate::gateway::{command, records};
use crate::{arguments, start};

/// A broker that asks who may do what, and lets everybody do what no rule says.
const RULES: &str = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true";

/// Adds a rule, or removes it.
fn rule(own: &Own, action: &str, arguments: &[&str]) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/services/kafka.sh");
    let url = own.url();
    let class = ["tool", "org.apache.kafka.tools.AclCommand", "--bootstrap-server", &url, action];
    let output = Command::new(script)
        .args(class)
        .args(["--force", "--deny-principal", "User:ANONYMOUS"])
        .args(arguments)
        .output()
        .expect("the script runs");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

fn post(gateway: &Process, number: usize) -> u16 {
    let fields = format!("Record-Key: {}\r\n", number % 12);
    gateway.connect().call("POST", "/e", &fields, format!("{number:05}")).status
}

fn says(gateway: &Process, words: &[&str]) {
    eventually(&format!("the gateway says {words:?}"), || {
        let said = gateway.said();
        words.iter().all(|word| said.contains(word))
    });
}

/// Each record is in the topic once.
fn are_there(url: &str, topic: &str, count: usize) {
    let mut found: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for seen in consume(url, topic) {
        *found.entry(seen.value).or_default() += 1;
    }
    let expected = (0..count).map(|number| (format!("{number:05}").into_bytes(), 1)).collect();
    assert_eq!(found, expected);
}

/// Purpose: a topic that the gateway may not write, or not see, is named with what Kafka says; `disk` keeps what it
/// acknowledged and makes no dead letters of it, `kafka` answers 503; with the right, all is delivered, once.
#[test]
fn a_topic_without_rights() {
    let Some(own) = Own::start(RULES) else { return };
    let url = own.url();
    for (ack, operation) in [("disk", "Write"), ("disk", "All"), ("kafka", "Write")] {
        let (topic, place) = (unique("rights"), Place::new("rights"));
        create(&url, &topic, 2, &[]);
        let denied = ["--operation", operation, "--topic", &topic];
        rule(&own, "--add", &denied);
        let mut flags = arguments(ack, &url, &topic, place.path());
        flags.extend(["--partitions=2", "--ack-timeout=2s"]);
        let gateway = start(0, &flags);
        let mut taken = 0;
        if ack == "kafka" {
            assert_eq!(post(&gateway, 0), 503);
            eventually("it is not ready", || gateway.get_metrics("/readyz").status == 503);
        } else {
            (0..20).for_each(|number| assert_eq!(post(&gateway, number), 202));
            taken = 20;
            says(&gateway, &[&topic, "uthoriz"]);
            assert_eq!(records(&gateway, "delivered"), 0);
        }
        rule(&own, "--remove", &denied);
        eventually("it takes records", || post(&gateway, taken) == 202);
        let all = taken + 1;
        eventually("all is delivered", || records(&gateway, "delivered") == all as u64);
        gateway.stop();
        are_there(&url, &topic, all);
        assert!(!place.path().join("dead-letters.jsonl").exists(), "no record is at fault");
    }
}

/// Purpose: a topic that gets more partitions while the gateway runs changes nothing until it connects again; then
/// records wait, the log says which number to give, and 202 goes on. The next start delivers everything, once. Records
/// of a key that were delivered before are in order, and so are those that are delivered after.
#[test]
fn a_topic_that_gets_more_partitions() {
    let Some(mut own) = Own::start("") else { return };
    let (url, topic, place) = (own.url(), unique("more"), Place::new("more"));
    create(&url, &topic, 3, &[]);
    let mut flags = arguments("disk", &url, &topic, place.path());
    flags.retain(|flag| !flag.starts_with("--workers"));
    flags.push("--workers=1");
    let gateway = start(0, &flags);
    (0..40).for_each(|number| assert_eq!(post(&gateway, number), 202));
    eventually("all is delivered", || records(&gateway, "delivered") == 40);
    let more = NewPartitions::new(&topic, 5);
    let made = wait(admin(&url).create_partitions([&more], &AdminOptions::new())).expect("made");
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    (40..60).for_each(|number| assert_eq!(post(&gateway, number), 202));
    eventually("all is delivered", || records(&gateway, "delivered") == 60);
    let used: BTreeSet<i32> = consume(&url, &topic).iter().map(|one| one.partition).collect();
    assert_eq!(used, (0..3).collect());

    own.kill();
    own.restart();
    eventually("it has connected again, and is told", || {
        assert_eq!(post(&gateway, 60), 202);
        gateway.said().contains("has 5 partitions")
    });
    says(&gateway, &[&topic, "set partitions to 5"]);
    let waiting = records(&gateway, "accepted") - records(&gateway, "delivered");
    assert!(waiting > 0);
    (61..80).for_each(|number| assert_eq!(post(&gateway, number), 202));
    let accepted = records(&gateway, "accepted");
    gateway.stop();

    // With the old number it does not start.
    let mut old = flags.clone();
    old.extend(["--partitions=3", "--listen=127.0.0.1:0", "--metrics=off"]);
    let output = command(&old).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("5 partitions") && said.contains("set partitions to 5"), "{said}");
    let gateway = start(0, &flags);
    eventually("all is delivered", || gateway.metric("highwater_ingest_pending") == 0.0);
    (80..100).for_each(|number| assert_eq!(post(&gateway, number), 202));
    eventually("all is delivered", || gateway.metric("highwater_ingest_pending") == 0.0);
    gateway.stop();
    let seen = consume(&url, &topic);
    assert_eq!(seen.len() as u64, accepted + 20);
    let ids: BTreeSet<&String> = seen.iter().map(|one| &one.id).collect();
    assert_eq!(ids.len(), seen.len(), "each once");
    let mut last: BTreeMap<(i32, usize), Vec<u8>> = BTreeMap::new();
    for one in &seen {
        let number: usize = String::from_utf8_lossy(&one.value).parse().expect("a number");
        let before = last.insert((one.partition, number % 12), one.value.clone());
        assert!(
            before.is_none_or(|before| before <= one.value),
            "the order of key {}",
            number % 12
        );
    }
}
