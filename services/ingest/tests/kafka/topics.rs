//! Topics without rights, and topics that get another number of partitions than before.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use highwater_testkit::Process;
use rdkafka::admin::{AdminOptions, NewPartitions};

use crate::broker::{Own, Place, admin, consume, create, eventually, unique, wait};
use crate::gateway::{command, records};
use crate::{arguments, start};

fn post(gateway: &Process, number: usize) -> u16 {
    let fields = format!("Record-Key: {}\r\n", number % 12);
    gateway.connect().call("POST", "/e", &fields, format!("{number:05}")).status
}

/// A broker with authorization. A topic without rules is open to everybody; one with rules to those that they allow.
const AUTHORIZATION: &str =
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true";

/// Allows everybody an operation on a topic.
fn allow(own: &Own, operation: &str, topic: &str) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/services/kafka.sh");
    let url = own.url();
    let output = Command::new(script)
        .args(["tool", "org.apache.kafka.tools.AclCommand", "--bootstrap-server", &url, "--add"])
        .args(["--force", "--allow-principal", "User:ANONYMOUS"])
        .args(["--operation", operation, "--topic", topic])
        .output()
        .expect("the script runs");
    let message = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&message));
}

/// Purpose: a topic to which the gateway may not write, or which it may not see, is named in the log with the right that is
/// missing. `disk` keeps what it has acknowledged, and no record becomes a dead letter; `kafka` answers 503. Once the right
/// is given, all is delivered, each record once, without a restart.
#[test]
fn a_topic_without_rights() {
    let Some(own) = Own::start(AUTHORIZATION) else { return };
    let url = own.url();
    for (ack, has, reason) in [
        ("disk", "Describe", "not authorized to write to topic"),
        ("disk", "DescribeConfigs", "exists, but this client is not authorized to see it"),
        ("kafka", "Describe", "not authorized to write to topic"),
    ] {
        let (topic, place) = (unique("rights"), Place::new("rights"));
        create(&url, &topic, 2, &[]);
        allow(&own, has, &topic);
        let mut flags = arguments(ack, &url, &topic, place.path());
        flags.extend(["--partitions=2", "--ack-timeout=2s"]);
        let gateway = start(0, &flags);
        let taken = if ack == "kafka" {
            assert_eq!(post(&gateway, 0), 503);
            0
        } else {
            (0..20).for_each(|number| assert_eq!(post(&gateway, number), 202));
            20
        };
        eventually(&format!("the log names the reason: {}", gateway.log()), || {
            let message = gateway.log();
            [reason, &topic, "operations Describe and Write"]
                .iter()
                .all(|word| message.contains(word))
        });
        assert_eq!(records(&gateway, "delivered"), 0);
        assert!(!gateway.log().contains("delivered again"), "{}", gateway.log());
        allow(&own, "Write", &topic);
        eventually("it takes records", || post(&gateway, taken) == 202);
        eventually("all is delivered", || gateway.metric("highwater_ingest_pending") == 0.0);
        let dead = std::fs::read(place.path().join("dead-letters.jsonl")).unwrap_or_default();
        assert!(dead.is_empty(), "no record is at fault: {}", String::from_utf8_lossy(&dead));
        gateway.stop();
        allow(&own, "Read", &topic);
        let seen: Vec<_> = consume(&url, &topic).into_iter().map(|one| one.value).collect();
        let values: BTreeSet<_> = seen.iter().collect();
        assert_eq!((seen.len(), values.len()), (taken + 1, taken + 1), "each once");
    }
}

/// Purpose: a topic that gets more partitions while the gateway runs changes nothing for it, also after the broker was
/// killed: records go to the first ones, as before, so that those of a key stay in order. A start with the old number is
/// refused with both numbers and the remedy; one without a number uses all partitions. Everything arrives once.
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
    assert!(used.iter().all(|partition| *partition < 3), "{used:?}");

    own.kill();
    (60..70).for_each(|number| assert_eq!(post(&gateway, number), 202));
    own.restart();
    (70..80).for_each(|number| assert_eq!(post(&gateway, number), 202));
    eventually("all is delivered", || records(&gateway, "delivered") == 80);
    gateway.stop();
    let used: BTreeSet<i32> = consume(&url, &topic).iter().map(|one| one.partition).collect();
    assert!(used.iter().all(|partition| *partition < 3), "{used:?}");

    // With the old number it does not start.
    let mut old = flags.clone();
    old.extend(["--partitions=3", "--listen=127.0.0.1:0", "--metrics=off"]);
    let output = command(&old).output().expect("it starts");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(
        message.contains("5 partitions") && message.contains("set partitions to 5"),
        "{message}"
    );
    let gateway = start(0, &flags);
    (80..100).for_each(|number| assert_eq!(post(&gateway, number), 202));
    eventually("all is delivered", || gateway.metric("highwater_ingest_pending") == 0.0);
    gateway.stop();
    let seen = consume(&url, &topic);
    let values: BTreeSet<&Vec<u8>> = seen.iter().map(|one| &one.value).collect();
    assert_eq!((seen.len(), values.len()), (100, 100), "each once");
    let used: BTreeSet<i32> = seen.iter().map(|one| one.partition).collect();
    assert!(used.len() > 3, "{used:?}");
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
