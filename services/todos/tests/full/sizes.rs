//! Topics that take less than a batch usually has: nothing small is refused for what is sent with it.

use std::time::Duration;

use highwater_testkit::eventually;
use highwater_todos::command::{Action, Command, Poison};
use highwater_todos::queue::kafka::{
    Division, KafkaQueue, KafkaSettings, WithDeadTopic, source_name,
};
use highwater_todos::queue::{Delivery, Position, Queue as _, Refusal, Sender};
use highwater_todos::store::Store as _;
use highwater_todos::store::sqlite::Sqlite;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};

use crate::command;
use crate::stage::Stage;

/// What the topics of these tests take.
const BYTES_MAX: &str = "3000";
const LONG: Duration = Duration::from_secs(30);

fn settings(stage: &Stage) -> KafkaSettings {
    KafkaSettings {
        brokers: stage.brokers(),
        topic: stage.topic.clone(),
        partitions: 1,
        ack_timeout: Duration::from_secs(10),
    }
}

fn config(stage: &Stage) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", stage.brokers()).set("group.id", "test");
    config
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

/// Makes both topics.
fn create(stage: &Stage) {
    let admin: AdminClient<DefaultClientContext> = config(stage).create().expect("settings");
    let dead = settings(stage).dead_topic();
    let of = |name| {
        NewTopic::new(name, 1, TopicReplication::Fixed(1)).set("max.message.bytes", BYTES_MAX)
    };
    let options = AdminOptions::new().operation_timeout(Some(LONG));
    let created = wait(admin.create_topics(&[of(&stage.topic), of(&dead)], &options));
    assert!(created.expect("an answer").iter().all(Result::is_ok));
}

/// What is in a topic.
fn count(stage: &Stage, topic: &str) -> i64 {
    let client: BaseConsumer = config(stage).create().expect("settings");
    client.fetch_watermarks(topic, 0, LONG).expect("known").1
}

fn creation(number: u64, bytes: usize) -> Command {
    let (title, description) = ("title".to_owned(), "x".repeat(bytes));
    command(number, number, Action::Create { title, description })
}

/// Purpose: where a topic takes less than a full batch, commands that arrive together are all taken, and only one that it would
/// not take alone is refused for good; the same of dead letters, of which none counts as sent that is not there.
#[test]
fn a_topic_that_takes_little() {
    let Some(stage) = Stage::start() else { return };
    create(&stage);
    let data = tempfile::tempdir().expect("a temporary directory");
    let path = data.path().to_owned();
    let open = move || Ok(Box::new(Sqlite::open(&path)?) as _);
    let division = Division::new(&stage.topic, Box::new(open));
    let queue = KafkaQueue::new(&settings(&stage), division).expect("the settings are right");
    eventually("the queue is ready", || queue.part().down().is_none());
    let sender = queue.sender().expect("there is room");
    let send =
        |sender: &dyn Sender, command: &Command| sender.send(command).expect("there is room");
    // What it takes may be found out a moment after it is reached.
    eventually("a command is taken", || wait(send(&*sender, &creation(1, 10))).is_ok());
    let before = count(&stage, &stage.topic);
    let sent: Vec<_> = (2..202).map(|number| send(&*sender, &creation(number, 600))).collect();
    for durable in sent {
        assert_eq!(wait(durable), Ok(()));
    }
    assert_eq!(count(&stage, &stage.topic) - before, 200);
    let refused = wait(send(&*sender, &creation(300, 3000)));
    assert!(matches!(refused, Err(Refusal::TooLarge(_))), "{refused:?}");
    assert_eq!(queue.part().down(), None, "that says nothing about others");
    drop(sender);
    drop(queue);

    let store = Box::new(Sqlite::open(data.path()).expect("it is free"));
    let mut store = WithDeadTopic::new(store, &settings(&stage)).expect("the settings are right");
    let source = source_name(&stage.topic);
    let poison = |offset: u64| {
        let bytes = vec![b'x'; if offset == 20 { 5000 } else { 500 }];
        let content = Err(Poison { bytes, reason: "poison".to_owned() });
        Delivery { position: Some(Position { partition: 0, offset }), content }
    };
    let poisons: Vec<Delivery> = (0..40).map(poison).collect();
    assert_eq!(store.apply(&source, &poisons).expect("it works").dead, 40);
    eventually("all are sent that can be", || {
        store.idle();
        store.unsent(&source, 100).expect("it works").is_empty()
    });
    assert_eq!(count(&stage, &settings(&stage).dead_topic()), 39);
}
