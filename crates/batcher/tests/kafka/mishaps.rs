//! The delivery of a journal while Kafka is unreachable, crashes, loses the topic or asks for a password.

use std::time::Duration;

use highwater_batcher::sink::kafka::Settings;
use rdkafka::admin::AdminOptions;

use crate::broker::{LONG, Own, admin, consume, eventually, shared, topics_known, unique, wait};
use crate::delivery::{Spool, first_copies_are, until_delivered};

/// Purpose: a broker that is killed, and one that is stopped, in the middle of a delivery: records wait in the journal,
/// and all arrive when it is back, in order; the delay can be seen meanwhile.
#[test]
fn a_broker_that_dies_under_load() {
    let Some(mut own) = Own::start("") else { return };
    let (url, topic) = (own.url(), unique("dies"));
    let mut spool = Spool::new("dies");
    spool.append_numbered(4, 0, 500);
    let delivery = spool.deliver(Settings::new(&url, &topic, 4));
    let progress = delivery.progress();
    eventually("some are delivered", || progress.delivered() > 0);
    own.kill();
    spool.append_numbered(4, 500, 500);
    eventually("the problem is reported", || progress.trouble().is_some());
    assert!(progress.oldest_us() > 0, "there is an oldest record that waits");
    own.restart();
    until_delivered(&progress, 4000);
    assert_eq!((progress.trouble(), progress.oldest_us()), (None, 0));
    spool.append_numbered(4, 1000, 500);
    own.stop();
    spool.append_numbered(4, 1500, 500);
    own.restart();
    until_delivered(&progress, 8000);
    assert!(delivery.stop(LONG));
    // A broker that was killed may have forgotten what the producer's last request was: then it is there twice.
    first_copies_are(&consume(&url, &topic), 4, 2000);
}

/// Purpose: with no Kafka at the start, the delivery starts, says so, can be stopped at once and loses nothing; when
/// Kafka comes, everything is delivered.
#[test]
fn kafka_comes_later() {
    let Some(mut own) = Own::start("") else { return };
    own.kill();
    let (url, topic) = (own.url(), unique("later"));
    let mut spool = Spool::new("later");
    spool.append_numbered(2, 0, 100);
    let delivery = spool.deliver(Settings::new(&url, &topic, 2));
    let progress = delivery.progress();
    assert!(progress.trouble().is_some_and(|text| text.contains(&url)), "{:?}", progress.trouble());
    assert!(progress.oldest_us() > 0 && !progress.is_idle());
    assert!(!delivery.stop(LONG), "it does not wait for a Kafka that is away");
    let delivery = spool.deliver(Settings::new(&url, &topic, 2));
    spool.append_numbered(2, 100, 100);
    own.restart();
    until_delivered(&delivery.progress(), 400);
    assert!(delivery.stop(LONG));
    first_copies_are(&consume(&url, &topic), 2, 200);
}

/// Purpose: a topic that somebody has removed is made again, and what was not acknowledged goes there.
#[test]
fn the_topic_is_removed() {
    let Some(url) = shared() else { return };
    let topic = unique("removed");
    let mut spool = Spool::new("removed");
    let mut settings = Settings::new(url, &topic, 2);
    // How long the client takes a topic that it does not find for one that was just made; half a minute by default.
    settings.properties.push(("topic.metadata.propagation.max.ms".into(), "1000".into()));
    let delivery = spool.deliver(settings);
    let progress = delivery.progress();
    spool.append_numbered(2, 0, 10);
    until_delivered(&progress, 20);
    let removed = wait(admin(url).delete_topics(&[&topic], &AdminOptions::new())).expect("removed");
    assert!(removed.iter().all(Result::is_ok), "{removed:?}");
    eventually("it is gone", || topics_known(url).is_some_and(|all| !all.contains(&topic)));
    spool.append_numbered(2, 10, 10);
    until_delivered(&progress, 40);
    assert!(delivery.stop(LONG));
    let seen = consume(url, &topic);
    for number in 10..20 {
        let is_there = |partition: u32| {
            let text = format!("{partition}-{number:05}");
            seen.iter().any(|one| one.value == text.as_bytes())
        };
        assert!(is_there(0) && is_there(1), "{number}");
    }
}

/// What a broker needs to ask for a password.
const PASSWORDS: &str = r#"listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="b" user_broker="b" user_gateway="right";"#;

/// Purpose: a wrong password is reported to the operator in Kafka's words, and holds the records; with the right one they
/// are delivered.
#[test]
fn a_wrong_password() {
    let with = |url: &str, topic: &str, password: &str| {
        let mut settings = Settings::new(url, topic, 2);
        for (name, value) in [
            ("security.protocol", "sasl_plaintext"),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.username", "gateway"),
            ("sasl.password", password),
        ] {
            settings.properties.push((name.to_owned(), value.to_owned()));
        }
        settings
    };
    let Some(own) = Own::start_unseen(PASSWORDS) else { return };
    let (url, topic) = (own.url(), unique("password"));
    let mut spool = Spool::new("password");
    spool.append_numbered(2, 0, 10);
    let delivery = spool.deliver(with(&url, &topic, "wrong"));
    let progress = delivery.progress();
    let is_reported =
        || progress.trouble().is_some_and(|text| text.to_lowercase().contains("authentication"));
    eventually("the problem is reported", is_reported);
    assert!(!delivery.stop(Duration::from_secs(1)));
    let delivery = spool.deliver(with(&url, &topic, "right"));
    until_delivered(&delivery.progress(), 20);
    assert!(delivery.stop(LONG));
}
