//! Checks the topic: that it exists as expected, and its limits.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rdkafka::admin::{
    AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::{FromClientConfig as _, FromClientConfigAndContext as _};
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, Producer as _};
use rdkafka::types::RDKafkaErrorCode;

use super::error::{Error, ErrorKind, unavailable};
use super::events::{Events, Quiet};
use super::settings::Settings;

/// A topic's size limit if it is not set or not readable: Kafka's default of `message.max.bytes`.
const MESSAGE_BYTES_DEFAULT: usize = 1_048_588;
/// The timeout of one query to the cluster. Events are polled in between.
const QUESTION: Duration = Duration::from_millis(500);
/// How long refused connections are retried: a starting broker refuses at first.
const PATIENCE: Duration = Duration::from_millis(1500);

/// A topic that is as expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Topic {
    /// Its `max.message.bytes`: the largest batch it accepts.
    pub(crate) message_bytes_max: usize,
    /// The largest batch of several records: no larger than that, nor than its segments (`segment.bytes`), so that none is
    /// refused for its neighbours. A record that is larger, before it is compressed, is alone in its batch.
    pub(crate) batch_bytes_max: usize,
}

/// Checks the topic, and creates it if it is missing and that is allowed. Blocks for `timeout` at most.
pub(crate) fn look(settings: &Settings, timeout: Duration) -> Result<Topic, Error> {
    let deadline = Instant::now() + timeout;
    let asks = questioner(settings)?;
    let admin = AdminClient::from_config(&settings.config()).map_err(wrong)?;
    let mut creation = None;
    let partitions = loop {
        match (count(&asks, settings, deadline)?, &creation) {
            (Some(partitions), _) => break partitions,
            (None, Some(creation)) => wait(deadline, || unseen(settings, creation))?,
            (None, None) if settings.create_topic => {
                creation = Some(create(&admin, settings, deadline)?);
            }
            (None, None) => {
                let text = format!(
                    "topic {} does not exist, and creating it is not allowed; create it with {} partitions",
                    settings.topic, settings.partitions
                );
                return Err(Error::new(ErrorKind::Topic, text));
            }
        }
    };
    if partitions != settings.partitions {
        let (topic, wanted) = (&settings.topic, settings.partitions);
        let text = format!(
            "topic {topic} has {partitions} partitions, but partitions is set to {wanted}; set partitions to {partitions}, or name another topic"
        );
        return Err(Error::new(ErrorKind::Topic, text));
    }
    limits(&admin, settings, deadline)
}

/// How many partitions the topic has now, whatever the settings say; `None` if there is no such topic. Blocks for
/// `timeout` at most.
///
/// # Errors
///
/// [`ErrorKind::Unavailable`]: no broker answers in time. [`ErrorKind::Setting`]: the client cannot be created.
pub fn partitions_of_topic(settings: &Settings, timeout: Duration) -> Result<Option<u32>, Error> {
    count(&questioner(settings)?, settings, Instant::now() + timeout)
}

/// The largest batch that the topic takes: within its `max.message.bytes` and `segment.bytes`, or their defaults where this
/// client may not read them. Blocks for `timeout` at most.
///
/// # Errors
///
/// As for [`partitions_of_topic`].
pub fn batch_bytes_of_topic(settings: &Settings, timeout: Duration) -> Result<usize, Error> {
    let admin = AdminClient::from_config(&settings.config()).map_err(wrong)?;
    let described = describe(&admin, settings, Instant::now() + timeout)?;
    Ok(sizes(described.as_ref()).batch_bytes_max)
}

/// Which partition takes nothing now, because it has no leader, or too few replicas are in sync: what is missing, and the
/// remedy. Blocks for `timeout` at most.
pub(super) fn missing_replicas(
    settings: &Settings,
    timeout: Duration,
) -> Result<Option<String>, Error> {
    let deadline = Instant::now() + timeout;
    let admin = AdminClient::from_config(&settings.config()).map_err(wrong)?;
    let needed = match describe(&admin, settings, deadline)? {
        Some(described) => entry(&described, "min.insync.replicas"),
        None => None,
    };
    let needed = needed.and_then(|needed| needed.parse::<usize>().ok()).unwrap_or(1);
    let left = deadline.saturating_duration_since(Instant::now()).max(QUESTION);
    let metadata = questioner(settings)?
        .client()
        .fetch_metadata(None, left)
        .map_err(|error| unavailable(format!("Kafka at {}: {error}", settings.brokers)))?;
    let name = &settings.topic;
    let Some(topic) = metadata.topics().iter().find(|topic| topic.name() == name) else {
        return Ok(Some(format!("topic {name} is missing")));
    };
    let missing = topic.partitions().iter().find_map(|partition| {
        let (id, insync) = (partition.id(), partition.isr().len());
        // A topic with fewer copies than that needs all of them.
        let needed = needed.min(partition.replicas().len());
        if partition.leader() < 0 {
            return Some(format!(
                "partition {id} of topic {name} has no leader; start its brokers"
            ));
        }
        (insync < needed).then(|| {
            format!(
                "partition {id} of topic {name} has {insync} replicas in sync and needs {needed} \
                 (min.insync.replicas); start the brokers of the others"
            )
        })
    });
    Ok(missing)
}

fn questioner(settings: &Settings) -> Result<BaseProducer<Events<Quiet>>, Error> {
    BaseProducer::from_config_and_context(&settings.config(), Events::new(Quiet)).map_err(wrong)
}

/// The error of a client that cannot be created.
fn wrong(error: KafkaError) -> Error {
    Error::new(ErrorKind::Setting, format!("Kafka: {error}"))
}

/// Waits a moment before the topic is looked at again, as long as there is time for that.
fn wait(deadline: Instant, why: impl Fn() -> Error) -> Result<(), Error> {
    if Instant::now() + QUESTION >= deadline {
        return Err(why());
    }
    thread::sleep(Duration::from_millis(50));
    Ok(())
}

/// How the topic came to exist.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Creation {
    /// We have created it.
    Ours,
    /// Kafka says that it exists. Another process was faster, or the topic is hidden from us.
    Existed,
}

/// The error of a topic that exists, and is not in the cluster's list of topics.
fn unseen(settings: &Settings, creation: &Creation) -> Error {
    let topic = &settings.topic;
    unavailable(match creation {
        Creation::Ours => {
            format!("topic {topic} was created, but the cluster does not know it yet")
        }
        Creation::Existed => format!(
            "topic {topic} exists, but this client is not authorized to see it; {}",
            rights(topic)
        ),
    })
}

/// The remedy for missing rights.
fn rights(topic: &str) -> String {
    format!(
        "allow it the operations Describe and Write (kafka-acls --add --operation Write --topic {topic} …)"
    )
}

/// Why Kafka has not taken a message for this topic, with a remedy where there is one.
pub(crate) fn not_taken(topic: &str, error: &KafkaError) -> String {
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::TopicAuthorizationFailed) => {
            format!("this client is not authorized to write to topic {topic}; {}", rights(topic))
        }
        Some(RDKafkaErrorCode::InvalidTimestamp) => format!(
            "Kafka: {error}; compare this machine's clock with the brokers', and see the topic's \
             message.timestamp.before.max.ms and message.timestamp.after.max.ms"
        ),
        Some(RDKafkaErrorCode::MessageTimedOut) => {
            format!("Kafka: {error}; check that the brokers run and can be reached")
        }
        _ => format!("Kafka: {error}"),
    }
}

/// How many partitions it has; `None` if there is no such topic.
///
/// It queries all topics: where brokers create topics automatically, querying one by name would create it, with the
/// broker's number of partitions.
fn count(
    asks: &BaseProducer<Events<Quiet>>,
    settings: &Settings,
    deadline: Instant,
) -> Result<Option<u32>, Error> {
    let began = Instant::now();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let asked = asks.client().fetch_metadata(None, left.min(QUESTION));
        asks.poll(Duration::ZERO);
        let error = match asked {
            Ok(metadata) => {
                let named =
                    |topic: &&rdkafka::metadata::MetadataTopic| topic.name() == settings.topic;
                let found = metadata.topics().iter().find(named);
                return Ok(found.filter(|topic| !topic.partitions().is_empty()).map(|topic| {
                    u32::try_from(topic.partitions().len()).expect("Kafka counts with 31 bits")
                }));
            }
            Err(error) => error,
        };
        // What came before the last error says more: the log is what comes first.
        (0..16).for_each(|_| asks.poll(Duration::ZERO));
        let trouble = asks.context().trouble.get();
        let has_ended =
            Instant::now() >= deadline || (trouble.is_some() && began.elapsed() > PATIENCE);
        if has_ended {
            let reason = trouble.unwrap_or_else(|| error.to_string());
            return Err(unavailable(format!("Kafka at {}: {reason}", settings.brokers)));
        }
    }
}

fn create(
    admin: &AdminClient<DefaultClientContext>,
    settings: &Settings,
    deadline: Instant,
) -> Result<Creation, Error> {
    let replicas = TopicReplication::Fixed(settings.replication.map_or(-1, i32::from));
    let new = NewTopic::new(&settings.topic, settings.partitions as i32, replicas);
    let failed =
        |reason: String| unavailable(format!("creating topic {}: {reason}", settings.topic));
    let left = deadline.saturating_duration_since(Instant::now()).max(QUESTION);
    let options = AdminOptions::new().operation_timeout(Some(left)).request_timeout(Some(left));
    let answers =
        block_on(admin.create_topics([&new], &options)).map_err(|e| failed(e.to_string()))?;
    match answers.into_iter().next() {
        Some(Ok(_)) => {
            let (topic, partitions) = (&settings.topic, settings.partitions);
            tracing::info!(%topic, partitions, "created the topic");
            Ok(Creation::Ours)
        }
        Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => Ok(Creation::Existed),
        Some(Err((
            _,
            code @ (RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::ClusterAuthorizationFailed),
        ))) => Err(failed(format!(
            "{code}. If it exists, {}; else allow the operation Create, or create it",
            rights(&settings.topic)
        ))),
        Some(Err((_, code))) => Err(failed(code.to_string())),
        None => Err(failed("no answer".to_owned())),
    }
}

/// The topic's settings; `None` if this client may not read them.
fn describe(
    admin: &AdminClient<DefaultClientContext>,
    settings: &Settings,
    deadline: Instant,
) -> Result<Option<ConfigResource>, Error> {
    let left = deadline.saturating_duration_since(Instant::now()).max(QUESTION);
    let options = AdminOptions::new().request_timeout(Some(left));
    let topic = ResourceSpecifier::Topic(&settings.topic);
    let answers = block_on(admin.describe_configs([&topic], &options));
    let failed =
        |reason: String| unavailable(format!("looking at topic {}: {reason}", settings.topic));
    match answers.map_err(|error| failed(error.to_string()))?.into_iter().next() {
        Some(Ok(described)) => Ok(Some(described)),
        // Permission to write does not imply permission to read the configuration.
        Some(Err(RDKafkaErrorCode::TopicAuthorizationFailed)) => Ok(None),
        Some(Err(code)) => Err(failed(code.to_string())),
        None => Err(failed("no answer".to_owned())),
    }
}

/// The topic's size limits. A compacted topic, which needs keys, is refused: records have none.
fn limits(
    admin: &AdminClient<DefaultClientContext>,
    settings: &Settings,
    deadline: Instant,
) -> Result<Topic, Error> {
    let described = describe(admin, settings, deadline)?;
    let policy = described.as_ref().and_then(|described| entry(described, "cleanup.policy"));
    if policy.is_some_and(|policy| policy.contains("compact")) {
        let text = format!(
            "topic {} is compacted (cleanup.policy), which keeps one message for each key, and records have no key; name a topic that is not",
            settings.topic
        );
        return Err(Error::new(ErrorKind::Topic, text));
    }
    Ok(sizes(described.as_ref()))
}

fn sizes(described: Option<&ConfigResource>) -> Topic {
    let bytes = |name| described.and_then(|described| entry(described, name)?.parse().ok());
    let message_bytes_max = bytes("max.message.bytes").unwrap_or(MESSAGE_BYTES_DEFAULT);
    let segment_bytes: usize = bytes("segment.bytes").unwrap_or(usize::MAX);
    Topic { message_bytes_max, batch_bytes_max: message_bytes_max.min(segment_bytes).max(1) }
}

fn entry(described: &ConfigResource, name: &str) -> Option<String> {
    described.get(name).and_then(|entry| entry.value.clone())
}

/// Waits for a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
