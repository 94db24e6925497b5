//! The sink: what it writes, what it refuses, and when it answers.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use highwater_batcher::sink::kafka::{Client, ErrorKind, KafkaSink, Limits, Settings};
use highwater_batcher::{
    Batch, Batcher, FailureKind, Layout, Moment, Options, Outcome, Receipt, Sink, Written,
};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use crate::broker::{LONG, Own, consume, create, create_copied, eventually, shared, texts, unique};

/// Keeps the batches that it is given.
#[derive(Clone, Default)]
struct Keeps(Rc<RefCell<Vec<Arc<Batch>>>>);

impl Sink for Keeps {
    fn write(&mut self, batch: &Arc<Batch>) -> Result<Receipt, highwater_batcher::Failure> {
        self.0.borrow_mut().push(Arc::clone(batch));
        Ok(Receipt::ready(Ok(Written::default())))
    }
}

/// A batch of records: partition and body.
fn batch(records: &[(u32, &[u8])]) -> Arc<Batch> {
    let keeps = Keeps::default();
    let mut options = Options::default();
    (options.partitions, options.layout) = (16, Layout::Mixed);
    (options.batch_bytes, options.memory_max) = (8 << 20, 256 << 20);
    let mut batcher = Batcher::new(keeps.clone(), options).expect("the options are right");
    for (partition, body) in records {
        let moment = Moment { now: Instant::now(), unix_us: 1_700_000_000_123_456 };
        batcher.append(*partition, moment, body).expect("there is room");
    }
    batcher.flush(Instant::now());
    let batches = keeps.0.borrow();
    assert_eq!(batches.len(), 1, "one batch");
    Arc::clone(&batches[0])
}

fn write(sink: &mut KafkaSink, records: &[(u32, &[u8])]) -> Outcome {
    sink.write(&batch(records))?.wait()
}

fn client(url: &str, topic: &str, partitions: u32) -> Client {
    let mut limits = Limits::default();
    (limits.start_timeout, limits.ack_timeout) = (LONG, LONG);
    Client::start(Settings::new(url, topic, partitions), limits).expect("it starts")
}

/// Purpose: what is acknowledged is in the topic, byte for byte, in order, with id, time and partition; and
/// the topic is made with as many partitions as were asked for.
#[test]
fn round_trip() {
    let Some(url) = shared() else { return };
    let topic = unique("round-trip");
    let client = client(url, &topic, 4);
    let bodies: [&[u8]; 5] = [b"", b"plain", b"two\nlines", &[0, 255, 10, 13], &[b'x'; 100_000]];
    let records: Vec<(u32, &[u8])> =
        (0..20).map(|at| ((at % 5) as u32, bodies[(at / 4) as usize])).collect();
    let mut sink = client.sink();
    let batch = batch(&records);
    let outcome = sink.write(&batch).expect("it is taken").wait();
    assert_eq!(outcome, Ok(Written::default()));
    let seen = consume(url, &topic);
    assert_eq!(seen.len(), records.len());
    for partition in 0..4 {
        let mine = || seen.iter().filter(|one| one.partition == partition);
        let expected: Vec<_> =
            batch.iter().filter(|record| record.partition % 4 == partition as u32).collect();
        assert_eq!(mine().count(), expected.len(), "of partition {partition}");
        for (seen, record) in mine().zip(expected) {
            assert_eq!(seen.value, record.body);
            assert_eq!(seen.id, format!("{:032x}", record.id));
            assert_eq!(seen.time_ms, 1_700_000_000_123);
        }
    }
    assert_eq!(client.in_flight(), 0);
    assert_eq!(client.trouble(), None);
    client.close(LONG);
}

/// Purpose: many batches of several workers, unanswered at once, arrive complete, each worker's in order.
#[test]
fn batches_in_flight_keep_their_order() {
    let Some(url) = shared() else { return };
    let topic = unique("in-flight");
    let client = client(url, &topic, 2);
    std::thread::scope(|scope| {
        for worker in 0..2_u32 {
            let mut sink = client.sink();
            scope.spawn(move || {
                let receipts: Vec<_> = (0..200)
                    .map(|round| {
                        let bodies: Vec<_> =
                            (0..20).map(|at| format!("{worker}-{:05}", round * 20 + at)).collect();
                        let records: Vec<_> =
                            bodies.iter().map(|body| (worker, body.as_bytes())).collect();
                        sink.write(&batch(&records)).expect("there is room")
                    })
                    .collect();
                for receipt in receipts {
                    assert_eq!(receipt.wait(), Ok(Written::default()));
                }
            });
        }
    });
    let seen = consume(url, &topic);
    for worker in 0..2 {
        let expected: Vec<_> = (0..4000).map(|at| format!("{worker}-{at:05}")).collect();
        assert_eq!(texts(&seen, worker), expected);
    }
}

/// Purpose: a topic that is not what the settings say is refused at the start, with the numbers and the remedy, instead
/// of spreading keys over other partitions than consumers expect.
#[test]
fn the_topic_is_looked_at() {
    let Some(url) = shared() else { return };
    let start = |topic: &str, partitions, may_create| {
        let mut settings = Settings::new(url, topic, partitions);
        settings.create_topic = may_create;
        let mut limits = Limits::default();
        limits.start_timeout = LONG;
        Client::start(settings, limits).map(drop)
    };
    let topic = unique("looked-at");
    let error = start(&topic, 3, false).expect_err("it is missing");
    assert_eq!(error.kind(), ErrorKind::Topic);
    assert!(
        error.to_string().contains(&topic) && error.to_string().contains("3 partitions"),
        "{error}"
    );
    start(&topic, 3, true).expect("it is made");
    start(&topic, 3, false).expect("it is there");
    let error = start(&topic, 5, true).expect_err("it has 3");
    assert_eq!(error.kind(), ErrorKind::Topic);
    let text = error.to_string();
    assert!(text.contains("has 3 partitions") && text.contains("set to 5"), "{text}");
    let compacted = unique("compacted");
    create(url, &compacted, 1, &[("cleanup.policy", "compact")]);
    let error = start(&compacted, 1, true).expect_err("it wants keys");
    assert!(error.to_string().contains("cleanup.policy"), "{error}");
}

/// Purpose: what the topic does not take for its size is refused, to the byte, and costs its neighbours nothing.
#[test]
fn too_large_is_what_the_broker_says() {
    let Some(url) = shared() else { return };
    let topic = unique("too-large");
    const MAX: usize = 5000;
    create(url, &topic, 1, &[("max.message.bytes", "5000")]);
    let client = client(url, &topic, 1);
    let bodies: Vec<Vec<u8>> = (MAX - 200..MAX + 10).map(|length| vec![b'x'; length]).collect();
    let records: Vec<(u32, &[u8])> = bodies.iter().map(|body| (0, &body[..])).collect();
    let written = write(&mut client.sink(), &records).expect("most are taken");
    let first = written.refused.first().expect("some are too large").index as usize;
    let expected: Vec<_> = (first..bodies.len()).collect();
    let refused: Vec<_> = written.refused.iter().map(|refusal| refusal.index as usize).collect();
    assert_eq!(refused, expected);
    assert!(written.refused.iter().all(|refusal| refusal.failure.kind() == FailureKind::TooLarge));
    let seen = consume(url, &topic);
    assert_eq!(seen.len(), first, "all others are there");
    // The broker takes no more either: the same message by a client that does not look first.
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", url)
        .set("message.max.bytes", "1000000")
        .create()
        .expect("a client");
    let id = "0".repeat(32);
    for (length, is_taken) in [(bodies[first - 1].len(), true), (bodies[first].len(), false)] {
        let headers = rdkafka::message::OwnedHeaders::new();
        let headers = headers.insert(rdkafka::message::Header { key: "id", value: Some(&id) });
        let body = vec![b'y'; length];
        let record = BaseRecord::<(), _>::to(&topic).payload(&body).headers(headers);
        producer.send(record).map_err(|(error, _)| error).expect("it is sent");
        producer.flush(LONG).expect("it is answered");
        let is_there = consume(url, &topic).iter().any(|seen| seen.value == body);
        assert_eq!(is_there, is_taken, "{length} bytes");
    }
}

/// Purpose: a topic that takes less than at the start refuses whole requests; no client is told that a small record is too
/// large, and soon the small ones pass again and the large ones are refused.
#[test]
fn a_topic_that_takes_less_than_before() {
    let Some(url) = shared() else { return };
    let topic = unique("takes-less");
    create(url, &topic, 1, &[("max.message.bytes", "100000")]);
    let client = client(url, &topic, 1);
    let mut sink = client.sink();
    write(&mut sink, &[(0, b"before")]).expect("it is taken");
    crate::delivery::set(url, &topic, "max.message.bytes", "1000");
    let large = [b'x'; 5000];
    eventually("the large one is refused for good", || {
        match write(&mut sink, &[(0, &large), (0, b"small")]) {
            Ok(written) => {
                let [refusal] = &written.refused[..] else { return false };
                refusal.index == 0 && refusal.failure.kind() == FailureKind::TooLarge
            }
            Err(failure) => {
                assert!(failure.kind().may_pass(), "{failure:?}");
                false
            }
        }
    });
}

/// Purpose: a record that is no larger than the topic says, and larger than its segments, is refused for good; those beside it
/// are taken, and nothing is wrong with Kafka.
#[test]
fn a_record_larger_than_a_segment() {
    let Some(url) = shared() else { return };
    let topic = unique("segments");
    let sizes = [("segment.bytes", "1048576"), ("max.message.bytes", "4000000")];
    create(url, &topic, 1, &sizes);
    let client = client(url, &topic, 1);
    let large = vec![b'x'; 1 << 20];
    let records: [(u32, &[u8]); 3] = [(0, b"before"), (0, &large), (0, b"after")];
    let mut sink = client.sink();
    for _ in 0..2 {
        let written = write(&mut sink, &records).expect("the others are taken");
        let refused: Vec<_> =
            written.refused.iter().map(|one| (one.index, one.failure.kind())).collect();
        assert_eq!(refused, [(1, FailureKind::TooLarge)]);
        assert_eq!(client.trouble(), None);
    }
    assert_eq!(texts(&consume(url, &topic), 0), ["before", "after", "before", "after"]);
}

/// Purpose: with no broker there, the start does not fail and a write is refused at once, and works when the broker is
/// back; one that dies under load answers in time, and what was acknowledged is there.
#[test]
fn a_broker_that_comes_and_goes() {
    let Some(mut own) = Own::start("") else { return };
    let (url, topic) = (own.url(), unique("comes-and-goes"));
    own.kill();
    let mut limits = Limits::default();
    (limits.start_timeout, limits.ack_timeout) =
        (Duration::from_millis(500), Duration::from_secs(2));
    let client = Client::start(Settings::new(&url, &topic, 2), limits).expect("it may come");
    let mut sink = client.sink();
    let failure = write(&mut sink, &[(0, b"x")]).expect_err("nobody is there");
    assert_eq!(failure.kind(), FailureKind::Unavailable);
    assert!(client.trouble().is_some());
    own.restart();
    eventually("records are taken", || write(&mut sink, &[(0, b"first")]).is_ok());
    own.kill();
    let failure = write(&mut sink, &[(1, b"while it is away")]).expect_err("nobody answers");
    assert_eq!(failure.kind(), FailureKind::TimedOut);
    own.restart();
    eventually("what was wrong has passed, though nobody writes", || client.trouble().is_none());
    eventually("records are taken again", || write(&mut sink, &[(0, b"last")]).is_ok());
    assert_eq!(client.trouble(), None);
    let seen = consume(&url, &topic);
    for text in ["first", "last"] {
        assert!(seen.iter().any(|one| one.value == text.as_bytes()), "{text}");
    }
}

/// Purpose: a broker hangs, a record is not acknowledged in time, and the broker takes both what was sent before and what
/// comes afterwards: each record is there once at most. Kafka's client begins a new epoch when a message times out, in
/// which the broker cannot recognize what was sent in the old one.
#[test]
fn what_is_not_acknowledged_is_not_written_twice() {
    let Some(own) = Own::start("") else { return };
    let (url, topic) = (own.url(), unique("not-twice"));
    let mut limits = Limits::default();
    (limits.start_timeout, limits.ack_timeout) = (LONG, Duration::from_secs(2));
    let client = Client::start(Settings::new(&url, &topic, 2), limits).expect("it starts");
    let mut sink = client.sink();
    eventually("records are taken", || write(&mut sink, &[(0, b"warm"), (1, b"warm")]).is_ok());
    own.hang();
    let first = sink.write(&batch(&[(0, b"first")])).expect("there is room");
    std::thread::sleep(Duration::from_millis(1900));
    let second = sink.write(&batch(&[(1, b"second")])).expect("there is room");
    assert_eq!(first.wait().expect_err("it hangs").kind(), FailureKind::TimedOut);
    // Until Kafka's client looks for messages whose time is up, once per second, and has begun its new epoch.
    std::thread::sleep(Duration::from_millis(1300));
    own.go_on();
    let failure = second.wait().expect_err("it was given up with the first");
    assert_eq!(failure.kind(), FailureKind::TimedOut, "{failure}");
    eventually("records are taken", || write(&mut sink, &[(0, b"last"), (1, b"last")]).is_ok());
    let texts: Vec<_> = consume(&url, &topic).into_iter().map(|one| one.value).collect();
    for text in [b"first".as_slice(), b"second"] {
        let count = texts.iter().filter(|seen| *seen == text).count();
        assert!(count <= 1, "{count} times {}", String::from_utf8_lossy(text));
    }
}

/// Purpose: what is on its way is bounded; beyond it a batch is refused whole, and taken when there is room.
#[test]
fn what_is_on_its_way_is_bounded() {
    let Some(url) = shared() else { return };
    let topic = unique("bounded");
    let mut limits = Limits::default();
    (limits.records_max, limits.ack_timeout, limits.start_timeout) = (10, LONG, LONG);
    let mut settings = Settings::new(url, &topic, 1);
    // So that nothing is answered before all is written.
    settings.linger = Duration::from_secs(2);
    let client = Client::start(settings, limits).expect("it starts");
    let mut sink = client.sink();
    let six = [(0, &b"x"[..]); 6];
    let first = sink.write(&batch(&six)).expect("it fits");
    let failure = sink.write(&batch(&six)).expect_err("12 are more than 10");
    assert_eq!(failure.kind(), FailureKind::Busy);
    let second = sink.write(&batch(&six[..4])).expect("10 are not");
    assert!(first.wait().is_ok() && second.wait().is_ok());
    assert_eq!(client.in_flight(), 0);
    // Nothing is on its way: then it may be more.
    let eleven = [(0, &b"x"[..]); 11];
    assert!(sink.write(&batch(&eleven)).expect("it is alone").wait().is_ok());
    assert_eq!(consume(url, &topic).len(), 21);
}

/// Purpose: a cluster that answers and takes nothing, because too few replicas are in sync, is in trouble as long as that
/// lasts, also while nobody writes; and not any more once there are enough.
#[test]
fn too_few_replicas() {
    let Some(own) = Own::start("broker.session.timeout.ms=3000") else { return };
    let mut other = own.joined();
    let (url, topic) = (own.url(), unique("few-replicas"));
    let looks: BaseProducer =
        ClientConfig::new().set("bootstrap.servers", &url).create().expect("a client");
    eventually("both brokers are known", || {
        let metadata = looks.client().fetch_metadata(None, Duration::from_secs(2));
        metadata.is_ok_and(|metadata| metadata.brokers().len() == 2)
    });
    create_copied(&url, &topic, 1, 2, &[("min.insync.replicas", "2")]);
    let mut limits = Limits::default();
    (limits.start_timeout, limits.ack_timeout) = (LONG, Duration::from_secs(1));
    let client = Client::start(Settings::new(&url, &topic, 1), limits).expect("it starts");
    let mut sink = client.sink();
    let is_written = |sink: &mut KafkaSink| write(sink, &[(0, b"a")]) == Ok(Written::default());
    eventually("it takes records", || is_written(&mut sink) && client.trouble().is_none());
    other.kill();
    let names_it = || client.trouble().is_some_and(|text| text.contains("min.insync.replicas"));
    eventually("nothing is taken", || !is_written(&mut sink));
    assert!(client.trouble().is_some(), "it has just taken nothing");
    // Nobody writes: what is looked at says so, however often.
    eventually("what is missing", || {
        assert!(client.trouble().is_some(), "it answers, and takes nothing");
        names_it()
    });
    let until = Instant::now() + Duration::from_secs(7);
    while Instant::now() < until {
        assert!(client.trouble().is_some(), "it answers, and takes nothing");
        std::thread::sleep(Duration::from_millis(10));
    }
    other.restart();
    eventually("it takes records again", || client.trouble().is_none());
    eventually("they are taken", || is_written(&mut sink));
    client.close(LONG);
}
