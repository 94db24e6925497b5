//! A topic that gets another number of partitions: noticed at start and while the service runs, nothing lost, and the
//! commands of each todo in order.

use std::collections::BTreeSet;
use std::time::Duration;

use highwater_testkit::{PATIENCE, Process, eventually, within};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};

use crate::stage::{Client, Stage};

const LONG: Duration = Duration::from_secs(30);

fn config(stage: &Stage) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", stage.brokers()).set("group.id", "test");
    config
}

/// The partitions that hold anything.
fn used(stage: &Stage) -> BTreeSet<i32> {
    let client: BaseConsumer = config(stage).create().expect("settings");
    let metadata = client.fetch_metadata(Some(&stage.topic), LONG).expect("the broker is there");
    let ids = metadata.topics()[0].partitions().iter().map(|partition| partition.id());
    let end = |id: &i32| client.fetch_watermarks(&stage.topic, *id, LONG).expect("known").1;
    ids.filter(|id| end(id) > 0).collect()
}

/// What an operator does with Kafka's own tools.
fn operate<T>(
    stage: &Stage,
    work: impl AsyncFnOnce(&AdminClient<DefaultClientContext>, &AdminOptions) -> T,
) -> T {
    let admin: AdminClient<DefaultClientContext> = config(stage).create().expect("settings");
    let options = AdminOptions::new().operation_timeout(Some(LONG));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work(&admin, &options))
}

/// Todos that are changed again and again; the last title of each is known.
struct Todos {
    targets: Vec<String>,
    steps: u32,
}

impl Todos {
    fn create(client: &mut Client) -> Todos {
        let create = |number: u32| {
            let body = format!(r#"{{"title":"step 0 of {number}"}}"#);
            let answer = client.ask("POST", "/todos", &body);
            assert_eq!(answer.status, 202, "{answer:?}");
            format!("/todos/{}", answer.member("id"))
        };
        Todos { targets: (0..24).map(create).collect(), steps: 0 }
    }

    fn step(&mut self, client: &mut Client) {
        self.steps += 1;
        for (number, target) in self.targets.iter().enumerate() {
            let body = format!(r#"{{"title":"step {} of {number}"}}"#, self.steps);
            let answer = client.ask("PUT", target, &body);
            assert_eq!(answer.status, 202, "{answer:?}");
        }
    }

    fn await_last(&self, client: &mut Client) {
        for (number, target) in self.targets.iter().enumerate() {
            let last = format!("step {} of {number}", self.steps);
            eventually(&last, || client.get(target).json()["title"] == *last);
        }
    }
}

fn repartition(stage: &Stage) -> (bool, String) {
    let mut command = stage.command();
    // They are the instances'.
    for name in ["REDIS_URL", "KAFKA_PARTITIONS", "HIGHWATER_ACK_TIMEOUT"] {
        command.env_remove(name);
    }
    let output = command.arg("repartition").output().expect("it runs");
    let bytes = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&bytes).into_owned())
}

fn warns(instance: &Process) {
    eventually("the warning", || {
        let log = instance.log();
        log.contains("the topic has got more partitions") && log.contains("repartition")
    });
}

/// Purpose: a topic with more partitions than before is noticed by instances that run and by ones that start; commands go
/// where they went before, so that those which wait and those which come later are applied in order; and all partitions
/// are used after `repartition`, which refuses while commands wait. One that was recreated with fewer takes no commands
/// until `repartition`.
#[test]
fn another_number_of_partitions() {
    let Some(stage) = Stage::start() else { return };
    let first = stage.instance();
    let worker = stage.worker();
    let mut client = stage.client(&first);
    let mut todos = Todos::create(&mut client);
    todos.step(&mut client);
    todos.await_last(&mut client);
    worker.stop();

    // Commands wait, and then the topic gets more partitions.
    todos.step(&mut client);
    let more = NewPartitions::new(&stage.topic, 9);
    operate(&stage, async |admin, options| admin.create_partitions([&more], options).await)
        .expect("the broker is there");
    warns(&first);
    todos.step(&mut client);
    let second = stage.instance();
    warns(&second);
    todos.step(&mut stage.client(&second));
    assert_eq!(used(&stage), BTreeSet::from([0, 1, 2, 3]));
    let (is_done, message) = repartition(&stage);
    assert!(!is_done && message.contains("are not applied yet"), "{message}");

    // With two workers they would be applied side by side.
    let workers = [stage.worker(), stage.worker()];
    todos.await_last(&mut client);
    todos.await_last(&mut stage.client(&second));
    first.stop();
    second.stop();
    let mut outcome = (false, String::new());
    eventually("everything is committed", || {
        outcome = repartition(&stage);
        outcome.0
    });
    assert!(outcome.1.contains("divided by 9 partitions now, 4 before"), "{}", outcome.1);
    let third = stage.instance();
    let mut client = stage.client(&third);
    (0..3).for_each(|_| todos.step(&mut client));
    todos.await_last(&mut client);
    assert!(used(&stage).len() > 4, "{:?}", used(&stage));
    assert!(!third.log().contains("more partitions"), "{}", third.log());

    made_anew_with_fewer(&stage, &third);
    drop(workers);
}

fn made_anew_with_fewer(stage: &Stage, instance: &Process) {
    operate(stage, async |admin, options| admin.delete_topics(&[&stage.topic], options).await)
        .expect("the broker is there");
    let recreated = NewTopic::new(&stage.topic, 2, TopicReplication::Fixed(1));
    eventually("the topic is recreated", || {
        let made =
            operate(stage, async |admin, options| admin.create_topics([&recreated], options).await);
        made.is_ok_and(|made| made[0].is_ok())
    });
    let mut client = stage.client(instance);
    eventually("the instance says so", || {
        let answer = client.create("refused");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        answer.status == 503 && text.contains("divided by 9") && text.contains("repartition")
    });
    assert_eq!(client.get("/ready").status, 503);
    assert_eq!(client.get("/todos?limit=1").status, 200);
    // Some were taken before the instance looked: they are applied.
    let mut outcome = (false, String::new());
    let is_done = within(PATIENCE, || {
        outcome = repartition(stage);
        outcome.0
    });
    let message = outcome.1;
    assert!(is_done && message.contains("divided by 2 partitions now, 9 before"), "{message}");
    let next = stage.instance();
    let mut client = stage.client(&next);
    let mut todos = Todos::create(&mut client);
    todos.step(&mut client);
    todos.await_last(&mut client);
}
