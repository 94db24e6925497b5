//! Two instances, workers, and everything they need, of which one part after the other is taken away.
//!
//! One test, since a broker takes ten seconds and half a gigabyte; each step is a function.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use highwater_testkit::{PATIENCE, Process, eventually, within};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Headers as _, Message as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::servers::number;
use crate::stage::{Client, Stage, ids};

/// Purpose: what the full form promises holds with real servers. A write is shown by every instance at every limit;
/// whatever is away, reads go on, and a write is acknowledged and kept or answered 503; what is away is named; what was
/// acknowledged is applied once and in order, also when workers are killed; poison holds up nobody; a worker that is told
/// to end has committed what it applied.
#[test]
fn the_full_form() {
    let Some(mut stage) = Stage::start() else { return };
    let instances = [stage.instance(), stage.instance()];
    let mut worker = stage.worker();
    writes_show_everywhere(&stage, &instances);
    redis_is_restarted(&mut stage, &instances);
    kafka_is_restarted(&mut stage, &instances);
    postgres_is_restarted(&mut stage, &instances);
    worker = a_worker_is_killed(&mut stage, &instances, worker);
    worker = a_worker_is_killed_and_started_again(&stage, &instances, worker);
    poison_goes_to_the_dead_letters(&stage, &instances);
    worker = what_waits_is_not_missing(&stage, &instances, worker);
    a_worker_ends_in_order(&stage, worker);
    for instance in instances {
        instance.stop();
    }
}

/// The targets of every kind of limit.
const LISTS: [&str; 5] =
    ["/todos?limit=1", "/todos?limit=2", "/todos?limit=7", "/todos?limit=10000", "/todos"];

fn is_shown(client: &mut Client, id: &str) -> bool {
    LISTS.iter().all(|list| {
        let answer = client.get(list);
        assert_eq!(answer.status, 200, "{list}: {answer:?}");
        ids(&answer).first().is_some_and(|first| first == id)
    })
}

fn writes_show_everywhere(stage: &Stage, instances: &[Process; 2]) {
    let [mut a, mut b] = instances.each_ref().map(|instance| stage.client(instance));
    eventually("the worker works", || {
        let answer = a.ask("POST", "/todos?wait=applied", r#"{"title":"first","description":""}"#);
        answer.status == 201
    });
    for number in 0..30 {
        let answer = a.create(&format!("number {number}"));
        assert_eq!(answer.status, 202, "{answer:?}");
        eventually("every instance shows it", || {
            is_shown(&mut b, &answer.member("id")) && is_shown(&mut a, &answer.member("id"))
        });
    }
    // Who waits reads its own write, at once.
    let answer = b.ask("POST", "/todos?wait=applied", r#"{"title":"mine","description":""}"#);
    assert_eq!(answer.status, 201, "{answer:?}");
    assert!(
        is_shown(&mut b, &answer.member("id")),
        "201 means that every read of this instance shows it"
    );
    let target = format!("/todos/{}?wait=applied", answer.member("id"));
    let changed = b.ask("PUT", &target, r#"{"completed":true}"#);
    assert_eq!((changed.status, &changed.json()["completed"]), (200, &true.into()), "{changed:?}");
    assert_eq!(b.ask("DELETE", &target, "").status, 200);
    assert_eq!(b.get(&format!("/todos/{}", answer.member("id"))).status, 404);
    for list in LISTS {
        let key = match list.split_once('=') {
            Some((_, "10000")) | None => "todos:all".to_owned(),
            Some((_, limit)) => format!("todos:limit:{limit}"),
        };
        let mut seen = String::new();
        let agrees = within(PATIENCE, || {
            let bytes: Option<Vec<u8>> = stage.redis.ask(&["GET", &key]);
            let [of_a, of_b] = [&mut a, &mut b].map(|client| client.get(list).body);
            let state: Vec<String> = stage.redis.ask(&["HGETALL", "todos:state"]);
            seen = format!("{key}: {bytes:?}\n{of_a:?}\n{of_b:?}\n{state:?}");
            bytes.is_some_and(|bytes| bytes == of_a && bytes == of_b)
        });
        assert!(agrees, "the key has not what clients get: {seen}");
    }
}

/// Clients that write to one instance and read from both, until they are told to stop.
struct Load {
    stop: AtomicBool,
    acknowledged: Mutex<Vec<String>>,
    refused: AtomicU64,
    reads: AtomicU64,
}

impl Load {
    /// Runs `scene` under load; answers what was acknowledged meanwhile.
    fn during(
        stage: &mut Stage,
        instances: &[Process; 2],
        scene: impl FnOnce(&mut Stage, &Load),
    ) -> Vec<String> {
        let clients = || instances.each_ref().map(|instance| stage.client(instance));
        let (writers, readers) = (clients(), clients());
        let load = Load {
            stop: AtomicBool::new(false),
            acknowledged: Mutex::default(),
            refused: AtomicU64::new(0),
            reads: AtomicU64::new(0),
        };
        thread::scope(|scope| {
            let load = &load;
            writers.into_iter().for_each(|client| drop(scope.spawn(move || load.write(client))));
            readers.into_iter().for_each(|client| drop(scope.spawn(move || load.read(client))));
            // Also when the scene fails: the others must end.
            struct Stop<'a>(&'a AtomicBool);
            impl Drop for Stop<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Ordering::Relaxed);
                }
            }
            let _stop = Stop(&load.stop);
            scene(stage, load);
        });
        load.acknowledged.into_inner().expect("no panic")
    }

    fn write(&self, mut client: Client) {
        while !self.stop.load(Ordering::Relaxed) {
            let answer = client.create("under load");
            match answer.status {
                202 => self.acknowledged.lock().expect("no panic").push(answer.member("id")),
                503 => {
                    assert!(
                        answer.header("retry-after").is_some(),
                        "503 without Retry-After: {answer:?}"
                    );
                    self.refused.fetch_add(1, Ordering::Relaxed);
                }
                _ => panic!("neither acknowledged nor refused: {answer:?}"),
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn read(&self, mut client: Client) {
        for list in ["/todos?limit=1", "/todos?limit=3", "/todos?limit=20"].iter().cycle() {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let answer = client.get(list);
            assert_eq!(answer.status, 200, "reads go on: {answer:?}");
            self.reads.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn await_acknowledged(&self, what: &str) {
        let count = || self.acknowledged.lock().expect("no panic").len();
        let before = count();
        eventually(&format!("writes are acknowledged {what}"), || count() > before + 20);
    }

    fn await_reads(&self, what: &str) {
        let before = self.reads.load(Ordering::Relaxed);
        eventually(&format!("reads go on {what}"), || {
            self.reads.load(Ordering::Relaxed) > before + 100
        });
    }
}

/// Waits until `/ready` names the part that is away, or nothing.
fn await_ready(stage: &Stage, instances: &[Process; 2], away: Option<&str>) {
    for instance in instances {
        let mut client = stage.client(instance);
        eventually(&format!("/ready says {away:?}"), || {
            let answer = client.get("/ready");
            match away {
                None => answer.status == 200,
                Some(part) => {
                    answer.status == 503 && String::from_utf8_lossy(&answer.body).contains(part)
                }
            }
        });
    }
}

/// Every id is shown, and each once.
fn await_all(stage: &Stage, instances: &[Process; 2], acknowledged: &[String]) {
    for instance in instances {
        let mut client = stage.client(instance);
        let mut missing = Vec::new();
        let are_shown = within(PATIENCE, || {
            let ids = ids(&client.get("/todos"));
            let shown: BTreeSet<&String> = ids.iter().collect();
            assert_eq!(shown.len(), ids.len(), "a todo is there twice");
            assert!(ids.len() < 10_000, "the test writes more than a list shows");
            missing = acknowledged.iter().filter(|id| !shown.contains(id)).collect();
            missing.is_empty()
        });
        let (count, all, first) = (missing.len(), acknowledged.len(), missing.first());
        assert!(are_shown, "{count} of {all} are not shown, {first:?} first\n{}", instance.log());
    }
}

fn redis_is_restarted(stage: &mut Stage, instances: &[Process; 2]) {
    let acknowledged = Load::during(stage, instances, |stage, load| {
        load.await_acknowledged("with Redis");
        stage.redis.server.end("KILL");
        await_ready(stage, instances, Some("cache"));
        load.await_acknowledged("without Redis");
        load.await_reads("without Redis");
        stage.redis.restart();
        await_ready(stage, instances, None);
        load.await_acknowledged("with Redis again");
    });
    await_all(stage, instances, &acknowledged);
    writes_show_everywhere(stage, instances);
}

fn kafka_is_restarted(stage: &mut Stage, instances: &[Process; 2]) {
    let acknowledged = Load::during(stage, instances, |stage, load| {
        load.await_acknowledged("with Kafka");
        stage.kafka.end("KILL");
        eventually("a write is refused", || load.refused.load(Ordering::Relaxed) > 0);
        await_ready(stage, instances, Some("queue"));
        load.await_reads("without Kafka");
        stage.kafka.begin();
        stage.kafka.await_port();
        await_ready(stage, instances, None);
        load.await_acknowledged("with Kafka again");
    });
    await_all(stage, instances, &acknowledged);
}

fn postgres_is_restarted(stage: &mut Stage, instances: &[Process; 2]) {
    let acknowledged = Load::during(stage, instances, |stage, load| {
        load.await_acknowledged("with Postgres");
        stage.postgres.stop();
        await_ready(stage, instances, Some("store"));
        load.await_acknowledged("without Postgres");
        load.await_reads("without Postgres");
        stage.postgres.restart();
        await_ready(stage, instances, None);
        load.await_acknowledged("with Postgres again");
    });
    await_all(stage, instances, &acknowledged);
}

/// Answers the worker that took over.
fn a_worker_is_killed(stage: &mut Stage, instances: &[Process; 2], worker: Process) -> Process {
    let mut client = stage.client(&instances[0]);
    let todo = client.ask("POST", "/todos?wait=applied", r#"{"title":"step 0","description":""}"#);
    let target = format!("/todos/{}", todo.member("id"));
    let mut steps = 0;
    let mut step = |client: &mut Client| {
        let answer = client.ask("PUT", &target, &format!(r#"{{"title":"step {}"}}"#, steps + 1));
        assert_eq!(answer.status, 202, "{answer:?}");
        steps += 1;
    };
    let mut workers = vec![worker];
    let acknowledged = Load::during(stage, instances, |stage, load| {
        for _ in 0..2 {
            // A second one joins, under load; then the first is killed while it applies.
            workers.push(stage.worker());
            (0..50).for_each(|_| step(&mut client));
            load.await_acknowledged("with two workers");
            let mut killed = workers.remove(0);
            killed.kill();
            (0..50).for_each(|_| step(&mut client));
            load.await_acknowledged("after one was killed");
        }
    });
    await_all(stage, instances, &acknowledged);
    let last = format!("step {steps}");
    for instance in instances {
        let mut client = stage.client(instance);
        eventually("the last of many changes is what is shown", || {
            client.get(&target).json()["title"] == *last
        });
    }
    workers.remove(0)
}

/// An update waits for the creation that was acknowledged before it, and that waits for a worker. The one that is started
/// again is the same member of the group, so nobody waits for the session of the killed one, with the brokers' default of
/// six seconds.
fn a_worker_is_killed_and_started_again(
    stage: &Stage,
    instances: &[Process; 2],
    mut worker: Process,
) -> Process {
    let mut client = stage.client(&instances[0]);
    for round in 0..5 {
        worker.kill();
        worker = stage.worker();
        let created = client.create(&format!("round {round}"));
        assert_eq!(created.status, 202, "{created:?}");
        let target = format!("/todos/{}", created.member("id"));
        let changed = client.ask("PUT", &target, r#"{"completed":true}"#);
        assert_eq!(changed.status, 202, "round {round}: {changed:?}\n{}", worker.log());
    }
    worker
}

fn producer(stage: &Stage) -> BaseProducer {
    ClientConfig::new().set("bootstrap.servers", stage.brokers()).create().expect("settings")
}

fn poison_goes_to_the_dead_letters(stage: &Stage, instances: &[Process; 2]) {
    let producer = producer(stage);
    for partition in 0..4 {
        let poison = BaseRecord::<[u8], [u8]>::to(&stage.topic)
            .partition(partition)
            .payload(b"no\xffcommand");
        assert!(producer.send(poison).is_ok());
    }
    producer.flush(Duration::from_secs(30)).expect("the broker is there");
    // What comes behind it is applied, in every partition.
    let mut client = stage.client(&instances[1]);
    let ids: Vec<String> =
        (0..20).map(|number| client.create(&format!("behind {number}")).member("id")).collect();
    await_all(stage, instances, &ids);

    let letters: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", stage.brokers())
        .set("group.id", "test")
        .set("auto.offset.reset", "earliest")
        .create()
        .expect("settings");
    letters.subscribe(&[&format!("{}-dead", stage.topic)]).expect("a topic");
    let mut origins = BTreeSet::new();
    eventually("every poisoned message is in the topic of dead letters", || {
        if let Some(Ok(letter)) = letters.poll(Duration::from_millis(100)) {
            assert_eq!(letter.payload(), Some(&b"no\xffcommand"[..]));
            let headers = letter.headers().expect("it has some");
            let text = |name: &str| {
                let header = headers.iter().find(|header| header.key == name).expect(name);
                String::from_utf8(header.value.expect("a value").to_vec()).expect("it is text")
            };
            assert!(text("reason").contains("not a command"), "{}", text("reason"));
            origins.insert(text("origin"));
        }
        origins.len() == 4
    });
    let in_table = number(&stage.postgres.url(), "SELECT count(*) FROM dead_letters");
    assert_eq!(in_table, 4);
}

/// Workers were away for long: a todo of that time may be among the commands that wait, so it cannot be said that it is not
/// there. Once they have caught up, it can.
fn what_waits_is_not_missing(stage: &Stage, instances: &[Process; 2], worker: Process) -> Process {
    worker.stop();
    let created = stage.client(&instances[0]).create("waits");
    assert_eq!(created.status, 202, "{created:?}");
    let flags = ["--listen=127.0.0.1:0", "--metrics=off", "--workers=1", "--wait-max=100ms"];
    let secret = format!("--jwt-secret={}", crate::stage::SECRET);
    let late = Process::start(stage.command().args(flags).arg(secret));
    let since_1970 = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
    let made_ms = since_1970.as_millis() - 300_000;
    let id = format!("{:08x}-{:04x}-7000-8000-000000000001", made_ms >> 16, made_ms & 0xffff);
    let mut client = stage.client(&late);
    let status = |client: &mut Client| {
        client.ask("PUT", &format!("/todos/{id}"), r#"{"completed":true}"#).status
    };
    assert_eq!(status(&mut client), 503);
    let worker = stage.worker();
    eventually("it is known that there is none", || status(&mut client) == 404);
    late.stop();
    worker
}

fn a_worker_ends_in_order(stage: &Stage, worker: Process) {
    worker.stop();
    let group: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", stage.brokers())
        .set("group.id", highwater_todos::queue::kafka::GROUP)
        .create()
        .expect("settings");
    let mut asked = TopicPartitionList::new();
    for partition in 0..4 {
        asked.add_partition(&stage.topic, partition);
    }
    let committed =
        group.committed_offsets(asked, Duration::from_secs(30)).expect("the broker is there");
    for partition in 0..4 {
        let watermarks = group.fetch_watermarks(&stage.topic, partition, Duration::from_secs(30));
        let (_, end) = watermarks.expect("the broker is there");
        let position =
            committed.find_partition(&stage.topic, partition).expect("asked for").offset();
        assert_eq!(position, Offset::Offset(end), "partition {partition} is committed to its end");
    }
}
