//! What 202 means with Kafka behind it, and what is said instead.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use highwater_testkit::Process;

use crate::broker::{Own, Place, consume, create, eventually, shared, unique};
use crate::gateway::{command, records};
use crate::{arguments, start};

fn values(url: &str, topic: &str) -> Vec<String> {
    let seen = consume(url, topic);
    let mut values: Vec<_> =
        seen.into_iter().map(|one| String::from_utf8(one.value).expect("it is text")).collect();
    values.sort();
    values
}

fn partitions() -> &'static str {
    "--partitions=3"
}

/// Purpose: under each meaning of 202 what was accepted is in the topic, once, and the counts add up at rest.
#[test]
fn every_level_delivers() {
    let Some(url) = shared() else { return };
    for ack in ["memory", "disk", "kafka"] {
        let (topic, place) = (unique("level"), Place::new("level"));
        let mut arguments = arguments(ack, url, &topic, place.path());
        arguments.push(partitions());
        let gateway = start(0, &arguments);
        let mut client = gateway.connect();
        let mut expected = Vec::new();
        for number in 0..50 {
            let text = format!("{ack}-{number:03}");
            let answer = client.call("POST", "/e", "", text.as_bytes());
            assert_eq!(answer.status, 202, "{answer:?}");
            expected.push(text);
        }
        let batch: Vec<_> = (50..80).map(|number| format!("{ack}-{number:03}")).collect();
        let answer = client.call("POST", "/batch", "", batch.join("\n").as_bytes());
        assert_eq!(answer.status, 202, "{answer:?}");
        assert_eq!(answer.body, br#"{"ok":true,"records":30}"#);
        expected.extend(batch);
        eventually("all is delivered", || records(&gateway, "delivered") == 80);
        for state in ["accepted", "durable"] {
            assert_eq!(records(&gateway, state), 80, "{state} under {ack}");
        }
        eventually("nothing is pending", || gateway.metric("highwater_ingest_pending") == 0.0);
        assert_eq!(values(url, &topic), expected, "{ack}");
        gateway.stop();
    }
}

/// Purpose: settings that Kafka contradicts end the program at once, with status 2 and the remedy.
#[test]
fn another_number_of_partitions() {
    let Some(url) = shared() else { return };
    for ack in ["memory", "disk", "kafka"] {
        let (topic, place) = (unique("contradicts"), Place::new("contradicts"));
        create(url, &topic, 2, &[]);
        let mut arguments = arguments(ack, url, &topic, place.path());
        arguments.extend([partitions(), "--listen=127.0.0.1:0", "--metrics=off"]);
        let output = command(&arguments).output().expect("it starts");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(
            message.contains("2 partitions")
                && message.contains('3')
                && message.contains("partitions"),
            "{message}"
        );
    }
}

/// Purpose: who gives no number of partitions gets the topic's own, under every meaning of 202, and a topic that is created
/// has one: nobody has to know the number twice, and records with a key meet those of Kafka's own clients.
#[test]
fn the_topics_own_number_of_partitions() {
    let Some(url) = shared() else { return };
    for (ack, partitions) in
        [("memory", Some(5)), ("disk", Some(5)), ("kafka", Some(5)), ("disk", None)]
    {
        let (topic, place) = (unique("own-number"), Place::new("own-number"));
        if let Some(partitions) = partitions {
            create(url, &topic, partitions, &[]);
        }
        let gateway = start(0, &arguments(ack, url, &topic, place.path()));
        for number in 0..60 {
            let fields = format!("Record-Key: {number}\r\n");
            let answer = gateway.connect().call("POST", "/e", &fields, number.to_string());
            assert_eq!(answer.status, 202, "{answer:?}");
        }
        eventually("all is delivered", || records(&gateway, "delivered") == 60);
        let seen: BTreeSet<i32> = consume(url, &topic).iter().map(|one| one.partition).collect();
        assert_eq!(seen, (0..partitions.unwrap_or(1)).collect(), "{ack}");
        gateway.stop();
    }
}

/// Purpose: a gateway that is started again while Kafka is away takes records as before, for as many partitions as the
/// topic had; one that never saw Kafka says what to give.
#[test]
fn a_start_without_kafka_and_a_number() {
    let Some(mut own) = Own::start("") else { return };
    let (url, topic, place) = (own.url(), unique("without"), Place::new("without"));
    create(&url, &topic, 3, &[]);
    let flags = arguments("disk", &url, &topic, place.path());
    start(0, &flags).stop();
    own.kill();
    let gateway = start(0, &flags);
    for number in 0..30 {
        let fields = format!("Record-Key: {number}\r\n");
        let answer = gateway.connect().call("POST", "/e", &fields, number.to_string());
        assert_eq!(answer.status, 202, "{answer:?}");
    }
    let elsewhere = Place::new("never");
    let mut new = arguments("disk", &url, &topic, elsewhere.path());
    new.extend(["--listen=127.0.0.1:0", "--metrics=off"]);
    let output = command(&new).output().expect("it starts");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains(&topic) && message.contains("give --partitions"), "{message}");
    own.restart();
    eventually("all is delivered", || records(&gateway, "delivered") == 30);
    let seen: BTreeSet<i32> = consume(&url, &topic).iter().map(|one| one.partition).collect();
    assert_eq!(seen, (0..3).collect());
    gateway.stop();
}

/// Purpose: with Kafka away, `disk` and `memory` go on accepting and deliver everything later, `kafka` says 503 with
/// Retry-After within its bound, and never 202 for what was not taken.
#[test]
fn kafka_is_away() {
    let Some(mut own) = Own::start("") else { return };
    let url = own.url();
    let places = ["memory", "disk", "kafka"].map(|ack| (ack, unique("away"), Place::new("away")));
    let mut gateways = places.each_ref().map(|(ack, topic, place)| {
        let mut arguments = arguments(ack, &url, topic, place.path());
        arguments.extend([partitions(), "--ack-timeout=1s"]);
        let gateway = start(0, &arguments);
        let mut client = gateway.connect();
        // A busy machine may take longer than the bound of one second.
        eventually("it takes a record", || client.call("POST", "/e", "", b"before").status == 202);
        (*ack, topic, gateway, client)
    });
    own.kill();
    for (ack, _, gateway, client) in &mut gateways {
        let began = Instant::now();
        let answer = client.call("POST", "/e", "", b"while it is away");
        if *ack == "kafka" {
            assert_eq!(answer.status, 503, "{answer:?}");
            assert!(answer.header("retry-after").is_some(), "{answer:?}");
            assert!(began.elapsed() < Duration::from_secs(30), "the bound is one second");
        } else {
            assert_eq!(answer.status, 202, "{answer:?}");
            let lag = "highwater_ingest_lag_seconds";
            eventually("the lag shows", || gateway.metric(lag) > 0.5);
            assert!(gateway.metric("highwater_ingest_pending") >= 1.0);
            assert!(gateway.metric("highwater_ingest_spool_bytes") >= 1.0);
        }
    }
    // Waiting is no work.
    let computed = |gateway: &Process| gateway.metric("process_cpu_seconds_total");
    let before = gateways.each_ref().map(|(_, _, gateway, _)| computed(gateway));
    sleep(Duration::from_secs(2));
    for ((ack, _, gateway, _), before) in gateways.iter().zip(before) {
        let seconds = computed(gateway) - before;
        assert!(seconds < 0.5, "--ack {ack} computed for {seconds} of 2 s, without Kafka");
    }
    own.restart();
    for (ack, topic, gateway, client) in &mut gateways {
        eventually("it takes records again", || {
            client.call("POST", "/e", "", b"after").status == 202
        });
        eventually("nothing is pending", || gateway.metric("highwater_ingest_pending") == 0.0);
        let values = values(&url, topic);
        let is_there = |text: &str| values.iter().any(|value| value == text);
        assert!(is_there("before") && is_there("after"), "{ack}: {values:?}");
        assert!(*ack == "kafka" || is_there("while it is away"), "{ack}: {values:?}");
    }
}
