//! Producers with unique records, and random `kill -9` of the gateway and of the broker: what was acknowledged is in the
//! topic.
//!
//! `TORTURE_ROUNDS` says how many rounds (1); `TORTURE_SEED` repeats the choices of a run, whose seed is in its output.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use highwater_testkit::{Client, lasting_ports, request};

use crate::broker::{Own, Place, consume, eventually, unique};
use crate::gateway::records as counted;
use crate::{arguments, start};

const PRODUCERS: u64 = 4;

/// Producers that never give up, and what they were told.
pub(crate) struct Producers {
    ends: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<BTreeSet<String>>>,
    pub(crate) refused: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Producers {
    pub(crate) fn start(address: SocketAddr) -> Producers {
        let ends = Arc::<AtomicBool>::default();
        let acknowledged = Arc::<Mutex<BTreeSet<String>>>::default();
        let refused = Arc::<AtomicU64>::default();
        let produce = |producer| {
            let (ends, all, refused) =
                (Arc::clone(&ends), Arc::clone(&acknowledged), Arc::clone(&refused));
            thread::spawn(move || produce(producer, address, &ends, &all, &refused))
        };
        let threads = (0..PRODUCERS).map(produce).collect();
        Producers { ends, acknowledged, refused, threads }
    }

    pub(crate) fn count(&self) -> usize {
        self.acknowledged.lock().expect("no producer panics").len()
    }

    pub(crate) fn end(self) -> BTreeSet<String> {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("no producer panics");
        }
        let acknowledged = Arc::into_inner(self.acknowledged).expect("the producers have ended");
        acknowledged.into_inner().expect("no producer panics")
    }
}

/// Sends records that nobody else sends, each once, singly and in batches, and notes what gets a 202.
fn produce(
    producer: u64,
    address: SocketAddr,
    ends: &AtomicBool,
    acknowledged: &Mutex<BTreeSet<String>>,
    refused: &AtomicU64,
) {
    let mut client = None;
    for number in 0.. {
        if ends.load(Ordering::Relaxed) {
            return;
        }
        let Some(open) = &mut client else {
            client = Client::try_connect(address).ok();
            if client.is_none() {
                sleep(Duration::from_millis(5));
            }
            continue;
        };
        let records: Vec<String> = if number % 10 == 0 {
            (0..5).map(|part| format!("p{producer}-{number}-{part}")).collect()
        } else {
            vec![format!("p{producer}-{number}")]
        };
        let path = if records.len() > 1 { "/batch" } else { "/e" };
        match open.try_ask(request("POST", path, "", records.join("\n"))) {
            Ok(answer) if answer.status == 202 => {
                acknowledged.lock().expect("no producer panics").extend(records);
                // Slower producers prove as much, and leave the cores to the brokers.
                sleep(Duration::from_millis(1));
            }
            Ok(answer) => {
                assert_eq!(answer.status, 503, "{answer:?}");
                assert!(answer.header("retry-after").is_some(), "{answer:?}");
                refused.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(20));
            }
            Err(_) => client = None,
        }
    }
}

/// Numbers that look random, from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Who is killed in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Killed {
    Gateway,
    Broker,
    Both,
}

/// Purpose: a 202 of `--ack disk --sink kafka` means that the record gets into the topic, once, whenever the gateway is
/// killed.
#[test]
fn gateway_is_killed() {
    torture("disk", &[Killed::Gateway]);
}

/// Purpose: the same, whenever the broker is killed.
#[test]
fn broker_is_killed() {
    torture("disk", &[Killed::Broker]);
}

/// Purpose: the same, whenever both are killed.
#[test]
fn both_are_killed() {
    torture("disk", &[Killed::Both]);
}

/// Purpose: a 202 of `--ack kafka` means that the record is in the topic, whoever is killed when.
#[test]
fn kafka() {
    torture("kafka", &[Killed::Both, Killed::Gateway, Killed::Broker, Killed::Gateway]);
}

fn torture(ack: &str, killed: &[Killed]) {
    let Some(mut own) = Own::start("") else { return };
    let rounds = setting("TORTURE_ROUNDS", 1);
    let seed = setting("TORTURE_SEED", u64::from(std::process::id()));
    let what = format!("torture of --ack {ack}, {killed:?} killed");
    eprintln!("{what}: {rounds} rounds, TORTURE_SEED={seed}");
    let mut dice = Dice(seed);
    let (url, topic, place) = (own.url(), unique("torture"), Place::new("torture"));
    let mut arguments = arguments(ack, &url, &topic, place.path());
    arguments.extend(["--partitions=4", "--ack-timeout=2s"]);
    let ports = lasting_ports(2);
    let mut gateway = start(ports, &arguments);
    let producers = Producers::start(gateway.address);
    for round in 0..rounds {
        let before = producers.count();
        eventually("records are acknowledged", || producers.count() > before + 20);
        // Some are killed before they deliver anything, others in the middle of it.
        let longest_ms = if dice.below(2) == 0 { 300 } else { 2500 };
        sleep(Duration::from_millis(dice.below(longest_ms)));
        let killed = killed[round as usize % killed.len()];
        let (kills_broker, kills_gateway) = (killed != Killed::Gateway, killed != Killed::Broker);
        if kills_broker {
            own.kill();
            sleep(Duration::from_millis(dice.below(200)));
        }
        if kills_gateway {
            gateway.kill();
            gateway = start(ports, &arguments);
        }
        if kills_broker {
            own.restart();
        }
    }
    let before = producers.count();
    eventually("records are acknowledged at the end", || producers.count() > before + 20);
    let refused = producers.refused.load(Ordering::Relaxed);
    let acknowledged = producers.end();
    eventually("nothing is pending", || gateway.metric("highwater_ingest_pending") == 0.0);
    gateway.stop();
    let twice = compare(&own, &topic, &acknowledged);
    adds_up(ports, &arguments);
    eprintln!(
        "{what}: {rounds} rounds, {} acknowledged, {refused} requests refused, 0 lost, {twice} there twice",
        acknowledged.len()
    );
    assert_eq!(twice, 0, "there twice");
}

/// Everything acknowledged is in the topic, by Kafka's own consumer. What is there twice has the same id each time. How
/// many are.
pub(crate) fn compare(own: &Own, topic: &str, acknowledged: &BTreeSet<String>) -> usize {
    let count = consume(&own.url(), topic).len();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/services/kafka.sh");
    let port = own.url().rsplit_once(':').expect("a port").1.to_owned();
    let consumed = Command::new(script)
        .args(["consume", topic, &count.to_string()])
        .env("HW_KAFKA_PORT", port)
        .output()
        .expect("the script runs");
    let text = String::from_utf8(consumed.stdout).expect("it is text");
    let mut ids: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut messages = 0;
    for line in text.lines().filter(|line| line.starts_with("Partition:")) {
        let fields: Vec<_> = line.split('\t').collect();
        let [_, _, headers, value] = fields[..] else { panic!("a message is {line:?}") };
        let id = headers.strip_prefix("id:").unwrap_or_else(|| panic!("a message is {line:?}"));
        ids.entry(value).or_default().insert(id);
        messages += 1;
    }
    assert_eq!(
        messages,
        count,
        "Kafka's consumer and ours see the same: {}",
        String::from_utf8_lossy(&consumed.stderr)
    );
    let lost: Vec<_> =
        acknowledged.iter().filter(|record| !ids.contains_key(record.as_str())).collect();
    assert!(
        lost.is_empty(),
        "{} of {} acknowledged are lost: {lost:?}",
        lost.len(),
        acknowledged.len()
    );
    for (record, ids) in &ids {
        assert_eq!(ids.len(), 1, "{record} was sent once and has two ids");
    }
    let different: BTreeSet<_> = ids.values().flatten().collect();
    assert_eq!(different.len(), ids.len(), "two records have one id");
    messages - ids.len()
}

/// In a process that nobody kills, at rest: accepted = durable = delivered, exactly what was acknowledged, and nothing
/// is pending.
pub(crate) fn adds_up(ports: u16, arguments: &[&str]) {
    let gateway = start(ports, arguments);
    assert_eq!(gateway.metric("highwater_ingest_pending"), 0.0, "it was delivered before");
    let producers = Producers::start(gateway.address);
    eventually("records are acknowledged", || producers.count() > 200);
    let acknowledged = producers.end().len() as u64;
    eventually("nothing is pending", || gateway.metric("highwater_ingest_pending") == 0.0);
    eventually("it is at rest", || counted(&gateway, "delivered") == acknowledged);
    for state in ["accepted", "durable"] {
        assert_eq!(counted(&gateway, state), acknowledged, "{state}");
    }
    gateway.stop();
}
