//! Two brokers, and partitions whose leader moves under load: because it is killed, and because it is told to.
//!
//! `LEADER_ROUNDS` says how often (1).

use std::sync::atomic::Ordering;
use std::time::Duration;

use highwater_testkit::lasting_ports;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};

use crate::broker::{Own, Place, create_copied, eventually, unique};
use crate::torture::{Producers, adds_up, compare, setting};
use crate::{arguments, start};

const PARTITIONS: i32 = 4;

/// The controller gives partitions back to the broker that they are to be led by, soon after it is back.
const CONFIG: &str = "leader.imbalance.check.interval.seconds=1";

/// Purpose: a 202 survives that the leader of a partition is another broker than it was when the record was sent; under
/// `--ack kafka` none is given for what only a leader had that is gone.
#[test]
fn moves_under_load() {
    let Some(first) = Own::start(CONFIG) else { return };
    let mut second = first.joined();
    // A topic with two copies can be made only then.
    eventually("both brokers are known", || brokers(&first.url()) == Some(2));
    for ack in ["disk", "kafka"] {
        moves(ack, &first, &mut second);
    }
}

fn client(url: &str) -> BaseConsumer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", url).set("group.id", "looks");
    config.create().expect("a client")
}

/// How many brokers there are, if the one at `url` answers.
fn brokers(url: &str) -> Option<usize> {
    let metadata = client(url).fetch_metadata(None, Duration::from_secs(2)).ok()?;
    Some(metadata.brokers().len())
}

/// The leader of each partition of a topic, and how many copies are in sync; if the broker answers.
fn leaders(url: &str, topic: &str) -> Option<Vec<(i32, usize)>> {
    let metadata = client(url).fetch_metadata(Some(topic), Duration::from_secs(2)).ok()?;
    let partitions = metadata.topics().first()?.partitions();
    Some(partitions.iter().map(|one| (one.leader(), one.isr().len())).collect())
}

/// Waits until every partition has two copies in sync, and each broker leads some.
fn balanced(url: &str, topic: &str) {
    eventually("two brokers lead, each with a copy", || {
        leaders(url, topic).is_some_and(|all| {
            let leads = |node| all.iter().any(|(leader, _)| *leader == node);
            all.len() == PARTITIONS as usize
                && all.iter().all(|(_, copies)| *copies == 2)
                && leads(1)
                && leads(2)
        })
    });
}

fn moves(ack: &str, first: &Own, second: &mut Own) {
    let (topic, place) = (unique("leader"), Place::new("leader"));
    create_copied(&first.url(), &topic, PARTITIONS, 2, &[]);
    balanced(&first.url(), &topic);
    let brokers = format!("{},{}", first.url(), second.url());
    let mut arguments = arguments(ack, &brokers, &topic, place.path());
    arguments.extend(["--partitions=4", "--ack-timeout=2s"]);
    let ports = lasting_ports(2);
    let gateway = start(ports, &arguments);
    let producers = Producers::start(gateway.address);
    let more = |what: &str| {
        let before = producers.count();
        eventually(what, || producers.count() > before + 100);
    };
    let rounds = setting("LEADER_ROUNDS", 1);
    for _ in 0..rounds {
        more("records are acknowledged with two brokers");
        second.kill();
        eventually("the other broker leads", || {
            leaders(&first.url(), &topic).is_some_and(|all| all.iter().all(|(node, _)| *node == 1))
        });
        more("records are acknowledged with one broker");
        second.restart();
        // Nobody is killed now: partitions are taken from the one and given to the other.
        balanced(&first.url(), &topic);
        more("records are acknowledged after partitions were given back");
    }
    let refused = producers.refused.load(Ordering::Relaxed);
    let acknowledged = producers.end();
    eventually("nothing is pending", || gateway.metric("highwater_ingest_pending") == 0.0);
    gateway.stop();
    let twice = compare(first, &topic, &acknowledged);
    adds_up(ports, &arguments);
    eprintln!(
        "leaders moved {} times behind --ack {ack}: {} acknowledged, {refused} requests refused, 0 lost, {twice} there twice",
        2 * rounds,
        acknowledged.len()
    );
}
