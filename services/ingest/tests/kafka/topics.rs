//! Topics that get another number of partitions than before.

use std::collections::{BTreeMap, BTreeSet};

use highwater_testkit::Process;
use rdkafka::admin::{AdminOptions, NewPartitions};

use crate::broker::{Own, Place, admin, consume, create, eventually, unique, wait};
use crate::gateway::{command, records};
use crate::{arguments, start};

fn post(gateway: &Process, number: usize) -> u16 {
    let fields = format!("Record-Key: {}\r\n", number % 12);
    gateway.connect().call("POST", "/e", &fields, format!("{number:05}")).status
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
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("5 partitions") && said.contains("set partitions to 5"), "{said}");
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
