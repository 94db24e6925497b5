//! The delivery of a journal: order, positions, dead letters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use highwater_batcher::delivery::{Delivery, DeliveryOptions, Progress};
use highwater_batcher::sink::kafka::{ErrorKind, Settings};
use highwater_journal::{Batch, Directory, Journal, Options, Producer, Record};
use rdkafka::admin::{AdminOptions, AlterConfig, ResourceSpecifier};

use crate::broker::{LONG, Place, admin, consume, create, eventually, shared, texts, unique, wait};

/// A journal, and its delivery.
pub(crate) struct Spool {
    pub(crate) place: Place,
    pub(crate) journal: Journal,
    producer: Producer,
    next_id: u128,
}

/// When the records of the tests were taken, in microseconds.
const TIME_US: u64 = 1_700_000_000_000_000;

impl Spool {
    pub(crate) fn new(name: &str) -> Spool {
        Spool::open(Place::new(name))
    }

    fn open(place: Place) -> Spool {
        let mut options = Options::default();
        options.retention.keep_unread = true;
        let directory = Directory::open(place.path()).expect("it is ours");
        let journal = Journal::open(directory, options).expect("it opens");
        let producer = journal.producer().expect("one");
        Spool { place, journal, producer, next_id: 1 }
    }

    /// A crash tears the journal's end.
    fn torn(self) -> Spool {
        let Spool { place, journal, producer, next_id } = self;
        drop(producer);
        journal.close().expect("the disk works");
        let files = std::fs::read_dir(place.path()).expect("it is there");
        let segments = files.map(|entry| entry.expect("it can be read").path());
        let newest =
            segments.filter(|path| path.extension().is_some_and(|suffix| suffix == "hwj")).max();
        let torn = |mut file: std::fs::File| std::io::Write::write_all(&mut file, &[0xA5; 999]);
        let file = std::fs::File::options().append(true).open(newest.expect("there is one"));
        file.and_then(torn).expect("it can be written");
        Spool { next_id, ..Spool::open(place) }
    }

    /// Appends records (partition, time, body), durably. Their ids follow each other.
    pub(crate) fn append(&mut self, records: &[(u32, u64, Vec<u8>)]) {
        for piece in records.chunks(500) {
            let mut batch = Batch::new();
            for (partition, time_us, body) in piece {
                let (partition, time_us) = (*partition, *time_us);
                batch.push(Record { partition, time_us, id: self.next_id, body });
                self.next_id += 1;
            }
            self.producer.append(batch).expect("there is room").wait().expect("the disk works");
        }
    }

    /// Appends so many records to each of `partitions`: `p-00000` and so on from `first`.
    pub(crate) fn append_numbered(&mut self, partitions: u32, first: usize, count: usize) {
        let records: Vec<_> = (0..count * partitions as usize)
            .map(|at| {
                let partition = at as u32 % partitions;
                let text = format!("{partition}-{:05}", first + at / partitions as usize);
                (partition, TIME_US + at as u64, text.into_bytes())
            })
            .collect();
        self.append(&records);
    }

    pub(crate) fn deliver(&self, settings: Settings) -> Delivery {
        self.try_deliver(settings).expect("it starts")
    }

    pub(crate) fn try_deliver(
        &self,
        settings: Settings,
    ) -> Result<Delivery, highwater_batcher::sink::kafka::Error> {
        let mut options = DeliveryOptions::new(self.place.path().join("dead-letters.jsonl"));
        options.pause_max = Duration::from_millis(500);
        let consumer = self.journal.consumer("kafka").expect("one");
        Delivery::start(settings, options, consumer)
    }

    /// The reasons and bodies of the dead letters.
    pub(crate) fn dead(&self) -> Vec<(String, String)> {
        let text = std::fs::read_to_string(self.place.path().join("dead-letters.jsonl"));
        let text = text.expect("it is there");
        let parse = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
        let field =
            |object: &serde_json::Value, name: &str| object[name].as_str().map(str::to_owned);
        let letter = |line: &str| {
            let object = parse(line);
            let field = |name| field(&object, name).expect("a text");
            (field("reason"), field("body"))
        };
        text.lines().map(letter).collect()
    }
}

/// The threads of deliveries, by number, and how long each has run so far, in the kernel's ticks.
fn threads() -> BTreeMap<String, u64> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux has it");
    let of = |task: std::io::Result<std::fs::DirEntry>| {
        let task = task.ok()?;
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        let fields: Vec<&str> = stat.split_once("(delivery) ")?.1.split(' ').collect();
        let ticks = |field: usize| fields[field].parse::<u64>().expect("a number");
        Some((task.file_name().into_string().ok()?, ticks(11) + ticks(12)))
    };
    tasks.filter_map(of).collect()
}

/// Purpose: after a crash that has torn the journal's end, an idle delivery sleeps, and its position is past the cut: else
/// the segment would count as unread for ever.
#[test]
fn a_torn_end_is_not_waited_for() {
    let Some(url) = shared() else { return };
    let mut spool = Spool::new("torn");
    spool.append_numbered(1, 0, 10);
    let mut spool = spool.torn();
    let end = spool.journal.stat().next_offset;
    assert!(end > 10, "the cut offsets are not given again: {end}");
    let others = threads();
    let delivery = spool.deliver(Settings::new(url, &unique("torn"), 1));
    let progress = delivery.progress();
    until_delivered(&progress, 10);
    eventually("the position is past the cut", || progress.position() == end);
    let before = threads();
    std::thread::sleep(Duration::from_secs(1));
    let after = threads();
    let began = before.iter().filter(|(thread, _)| !others.contains_key(*thread));
    let ran = began.filter_map(|(thread, before)| Some(after.get(thread)? - before)).min();
    // A tick is 10 ms. Another test's delivery may have begun meanwhile, and works.
    assert!(ran.is_some_and(|ran| ran < 50), "of 100 ticks it ran {ran:?}, with nothing to do");
    spool.append_numbered(1, 10, 10);
    until_delivered(&progress, 20);
    assert!(delivery.stop(LONG));
    assert_eq!(spool.journal.consumers(), [("kafka".to_owned(), end + 10)]);
}

pub(crate) fn until_delivered(progress: &Progress, records: u64) {
    eventually("all is delivered", || progress.delivered() >= records && progress.is_idle());
    assert_eq!(progress.delivered(), records);
}

pub(crate) fn numbered(partition: i32, count: usize) -> Vec<String> {
    (0..count).map(|at| format!("{partition}-{at:05}")).collect()
}

/// Changes a setting of a topic.
pub(crate) fn set(url: &str, topic: &str, name: &str, value: &str) {
    let change = AlterConfig::new(ResourceSpecifier::Topic(topic)).set(name, value);
    let changed = wait(admin(url).alter_configs([&change], &AdminOptions::new())).expect("changed");
    assert!(changed.iter().all(Result::is_ok), "{changed:?}");
}

/// Purpose: everything in the journal arrives once, in order, with its id and time, what was there before the start and
/// what comes; the counts add up; the next start has nothing left to do.
#[test]
fn in_order_and_counted() {
    let Some(url) = shared() else { return };
    let topic = unique("delivery");
    let mut spool = Spool::new("delivery");
    spool.append_numbered(8, 0, 1000);
    let delivery = spool.deliver(Settings::new(url, &topic, 8));
    let progress: Arc<Progress> = delivery.progress();
    assert_eq!(progress.left_at_start(), 8000);
    assert_eq!(progress.left_at_start_bytes(), 8000 * 7);
    until_delivered(&progress, 8000);
    spool.append_numbered(8, 1000, 500);
    until_delivered(&progress, 12_000);
    assert_eq!(progress.delivered_bytes(), 12_000 * 7);
    assert_eq!((progress.oldest_us(), progress.trouble()), (0, None));
    assert_eq!(progress.position(), spool.journal.stat().next_offset);
    assert!(delivery.stop(LONG), "all was delivered");
    let again = spool.deliver(Settings::new(url, &topic, 8));
    assert_eq!(again.progress().left_at_start(), 0);
    assert!(again.stop(LONG));
    let seen = consume(url, &topic);
    assert_eq!(seen.len(), 12_000, "none twice");
    for partition in 0..8 {
        assert_eq!(texts(&seen, partition), numbered(partition, 1500));
    }
    let first = seen.iter().find(|one| one.value == b"3-00000").expect("it is there");
    assert_eq!(first.id, format!("{:032x}", 4));
    assert_eq!(first.time_ms, (TIME_US / 1000) as i64);
}

/// Purpose: a stop without any time still commits what was acknowledged and loses nothing: what is left is delivered by
/// the next one, and every record is there, in order if repetitions are left out.
#[test]
fn stopped_in_the_middle() {
    let Some(url) = shared() else { return };
    let topic = unique("stopped");
    let mut spool = Spool::new("stopped");
    spool.append_numbered(4, 0, 5000);
    let mut delivered = 0;
    for _ in 0..3 {
        let delivery = spool.deliver(Settings::new(url, &topic, 4));
        let progress = delivery.progress();
        assert_eq!(progress.left_at_start() + delivered, 20_000);
        eventually("some are delivered", || progress.delivered() > 0 || progress.is_idle());
        delivery.stop(Duration::ZERO);
        delivered += progress.delivered();
    }
    let delivery = spool.deliver(Settings::new(url, &topic, 4));
    assert_eq!(delivery.progress().left_at_start() + delivered, 20_000);
    assert!(delivery.stop(LONG), "it has time for all of it");
    assert_eq!(delivered + (20_000 - delivered), 20_000);
    first_copies_are(&consume(url, &topic), 4, 5000);
}

/// Each record is there, and the first copies are in order. How many are there twice.
pub(crate) fn first_copies_are(
    seen: &[crate::broker::Seen],
    partitions: i32,
    count: usize,
) -> usize {
    let mut ids = std::collections::HashSet::new();
    let first: Vec<_> = seen.iter().filter(|one| ids.insert(one.id.clone())).cloned().collect();
    for partition in 0..partitions {
        assert_eq!(
            texts(&first, partition),
            numbered(partition, count),
            "of partition {partition}"
        );
    }
    seen.len() - first.len()
}

/// Purpose: a record that is larger than the topic takes goes to the dead letters with the reason, and holds up nobody.
#[test]
fn a_record_that_is_too_large() {
    let Some(url) = shared() else { return };
    let topic = unique("dead");
    create(url, &topic, 2, &[("max.message.bytes", "2000")]);
    let mut spool = Spool::new("dead");
    spool.append_numbered(2, 0, 100);
    let large = "large".repeat(1000);
    spool.append(&[(1, TIME_US, large.clone().into_bytes())]);
    spool.append_numbered(2, 100, 100);
    let delivery = spool.deliver(Settings::new(url, &topic, 2));
    let progress = delivery.progress();
    until_delivered(&progress, 401);
    assert_eq!(progress.dead_lettered(), 1);
    assert!(delivery.stop(LONG));
    let seen = consume(url, &topic);
    assert_eq!(first_copies_are(&seen, 2, 200), 0, "none twice");
    let dead = spool.dead();
    assert_eq!(dead.len(), 1);
    assert!(dead[0].0.contains("max.message.bytes") && dead[0].1 == large, "{}", dead[0].0);
}

/// Purpose: a record that is no larger than the topic says, and larger than its segments, goes to the dead letters; those
/// behind it are delivered.
#[test]
fn a_record_larger_than_a_segment() {
    let Some(url) = shared() else { return };
    let topic = unique("segment");
    let sizes = [("segment.bytes", "1048576"), ("max.message.bytes", "4000000")];
    create(url, &topic, 1, &sizes);
    let mut spool = Spool::new("segment");
    spool.append_numbered(1, 0, 10);
    // It does not compress to less than a segment.
    let mut state = 1_u64;
    let letter = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef"[(state >> 59) as usize]
    };
    let large: Vec<u8> = (0..3_000_000).map(letter).collect();
    spool.append(&[(0, TIME_US, large)]);
    spool.append_numbered(1, 10, 10);
    let delivery = spool.deliver(Settings::new(url, &topic, 1));
    let progress = delivery.progress();
    until_delivered(&progress, 21);
    assert_eq!(progress.dead_lettered(), 1);
    assert!(delivery.stop(LONG));
    assert_eq!(first_copies_are(&consume(url, &topic), 1, 20), 0, "none twice");
    let dead = spool.dead();
    assert!(dead[0].0.contains("segment size"), "{}", dead[0].0);
}

/// Purpose: Kafka refuses whole requests for one record (here: for its time). Exactly the records that it does not take
/// become dead letters; their neighbours arrive, in order.
#[test]
fn records_that_kafka_refuses_in_company() {
    let Some(url) = shared() else { return };
    let topic = unique("refused");
    create(url, &topic, 3, &[("message.timestamp.before.max.ms", "3600000")]);
    let now_us = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now_us = now_us.expect("the clock is set").as_micros() as u64;
    let mut spool = Spool::new("refused");
    let records: Vec<_> = (0..600)
        .map(|at| {
            let is_old = at % 97 == 50;
            let text = format!("{}-{:05}{}", at % 3, at / 3, if is_old { "-old" } else { "" });
            (at % 3, if is_old { TIME_US } else { now_us }, text.into_bytes())
        })
        .collect();
    spool.append(&records);
    let delivery = spool.deliver(Settings::new(url, &topic, 3));
    let progress = delivery.progress();
    until_delivered(&progress, 600);
    assert_eq!(progress.dead_lettered(), 6);
    assert!(progress.sessions() >= 3, "one fails, one looks for the reason, one goes on");
    assert!(delivery.stop(LONG));
    let seen = consume(url, &topic);
    let mut ids = std::collections::HashSet::new();
    let first: Vec<_> = seen.into_iter().filter(|one| ids.insert(one.id.clone())).collect();
    for partition in 0..3 {
        let mine = records.iter().filter(|(of, ..)| *of == partition);
        let texts_of = mine.map(|(.., body)| String::from_utf8_lossy(body).into_owned());
        let expected: Vec<_> = texts_of.filter(|text| !text.ends_with("-old")).collect();
        assert_eq!(texts(&first, partition as i32), expected, "of partition {partition}");
    }
    let dead = spool.dead();
    assert!(
        dead.iter().all(|(reason, body)| reason.contains("Kafka") && body.ends_with("-old")),
        "{dead:?}"
    );
    assert_eq!(dead.len(), 6);
}

/// Purpose: the settings that somebody has to change are refused at the start, not retried in silence.
#[test]
fn wrong_partitions_at_the_start() {
    let Some(url) = shared() else { return };
    let topic = unique("partitions");
    create(url, &topic, 3, &[]);
    let spool = Spool::new("partitions");
    let error = spool.try_deliver(Settings::new(url, &topic, 4)).expect_err("it has 3");
    assert_eq!(error.kind(), ErrorKind::Topic);
    assert!(error.to_string().contains("has 3 partitions"), "{error}");
}

/// Purpose: what was spooled for more partitions than the topic has now is delivered, each old partition in order.
#[test]
fn fewer_partitions_than_before() {
    let Some(url) = shared() else { return };
    let topic = unique("fewer");
    let mut spool = Spool::new("fewer");
    spool.append_numbered(6, 0, 50);
    let delivery = spool.deliver(Settings::new(url, &topic, 4));
    until_delivered(&delivery.progress(), 300);
    assert!(delivery.stop(LONG));
    let seen = consume(url, &topic);
    for partition in 0..6 {
        let prefix = format!("{partition}-");
        let mine: Vec<_> = texts(&seen, partition % 4)
            .into_iter()
            .filter(|text| text.starts_with(&prefix))
            .collect();
        assert_eq!(mine, numbered(partition, 50));
    }
}
