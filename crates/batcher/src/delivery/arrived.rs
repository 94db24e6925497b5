//! Finds records in the topic whose acknowledgement was never received.
//!
//! A producer that ended with messages in flight does not know their outcome: the broker may have them, or get them a
//! moment later from a socket that the kernel still drains. So before anything is sent again, the topic is read from
//! the marks on, matching record ids, until no message has arrived for a while.
//!
//! Bounds: at most `MESSAGES_MAX` messages and `TIME_MAX`; beyond them the search ends with what it has found, and the
//! log says so.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use rdkafka::config::FromClientConfig as _;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode as Code;

use super::marks::Marks;
use crate::sink::kafka::{Error, ErrorKind, Settings, id_of, unavailable};

/// The most messages read: other producers may have written as well.
const MESSAGES_MAX: usize = 10_000_000;
/// The most time it takes.
const TIME_MAX: Duration = Duration::from_secs(60);
/// How long a broker may take to answer while nothing has been read.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// The longest wait for a message before other checks.
const POLL: Duration = Duration::from_millis(20);
/// The timeout of one query for a partition's end.
const QUESTION: Duration = Duration::from_secs(5);

/// A record's place: partition and offset.
pub(super) type Place = (u32, i64);

/// The records that may be there.
#[derive(Debug, Default)]
pub(super) struct Sought {
    pub(super) ids: HashSet<u128>,
    /// How long no message must have arrived.
    pub(super) settle: Duration,
}

/// The result.
#[derive(Debug)]
pub(super) enum Search {
    /// These records are in the topic, which has lost others that were delivered.
    Found(HashMap<u128, Place>, Vec<Loss>),
    /// The topic may not be read, and why.
    Denied(String),
}

/// A partition that ends before its mark.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    pub(super) partition: u32,
    /// Where it ends.
    pub(super) end: i64,
    /// The lowest offset that an uncommitted record may have.
    pub(super) first: i64,
}

/// Reads the topic from the marks on. `ends` may stop it early.
pub(super) fn search(
    settings: &Settings,
    marks: Option<&Marks>,
    sought: &Sought,
    ends: impl Fn() -> bool,
) -> Result<Search, Error> {
    let consumer = consumer(settings)?;
    let (assigned, lost) = places(&consumer, settings, marks, sought.ids.len())?;
    consumer.assign(&assigned).map_err(wrong)?;
    let began = Instant::now();
    let (mut found, mut at_end) = (HashMap::new(), HashSet::new());
    let (mut messages, mut answered_at, mut quiet_since) = (0, began, None);
    loop {
        let polled = consumer.poll(POLL);
        let now = Instant::now();
        match polled {
            Some(Ok(message)) => {
                (messages, answered_at) = (messages + 1, now);
                if let Some(id) = id_of(&message).filter(|id| sought.ids.contains(id)) {
                    found.insert(id, place(&message));
                    quiet_since = quiet_since.map(|_| now);
                }
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                answered_at = now;
                at_end.insert(partition);
            }
            Some(Err(error)) if is_denial(&error) => {
                return Ok(Search::Denied(error.to_string()));
            }
            // The client retries by itself; `SILENCE_MAX` bounds that.
            Some(Err(_)) | None => {}
        }
        if at_end.len() == settings.partitions as usize {
            let since = *quiet_since.get_or_insert(now);
            if found.len() == sought.ids.len() || now - since >= sought.settle {
                return Ok(Search::Found(found, lost));
            }
        } else if now - answered_at > SILENCE_MAX || ends() {
            let topic = &settings.topic;
            return Err(unavailable(format!("topic {topic} could not be read to its end")));
        }
        if messages >= MESSAGES_MAX || now - began > TIME_MAX {
            tracing::warn!(
                topic = settings.topic,
                messages,
                "the topic was not read to its end: it has got too many messages since; records may be there twice"
            );
            return Ok(Search::Found(found, lost));
        }
    }
}

fn wrong(error: KafkaError) -> Error {
    Error::new(ErrorKind::Setting, format!("Kafka: {error}"))
}

fn consumer(settings: &Settings) -> Result<BaseConsumer, Error> {
    let mut config = settings.config();
    config
        // It joins no group, but the client requires a group name.
        .set("group.id", "highwater-delivery")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("isolation.level", "read_uncommitted")
        // For a mark that the topic no longer has: it was recreated, or its old messages are gone.
        .set("auto.offset.reset", "earliest")
        .set("fetch.wait.max.ms", "20");
    BaseConsumer::from_config(&config).map_err(wrong)
}

/// Where these partitions end now.
pub(super) fn ends(settings: &Settings, partitions: &[u32]) -> Result<Vec<Place>, Error> {
    if partitions.is_empty() {
        return Ok(Vec::new());
    }
    let consumer = consumer(settings)?;
    let end = |partition: &u32| Ok((*partition, watermarks(&consumer, settings, *partition)?.1));
    partitions.iter().map(end).collect()
}

/// The offsets of a partition's first message and of its end.
fn watermarks(
    consumer: &BaseConsumer,
    settings: &Settings,
    partition: u32,
) -> Result<(i64, i64), Error> {
    let topic = &settings.topic;
    let number = i32::try_from(partition).unwrap_or(i32::MAX);
    consumer
        .fetch_watermarks(topic, number, QUESTION)
        .map_err(|error| unavailable(format!("asking how far topic {topic} has got: {error}")))
}

fn place(message: &BorrowedMessage<'_>) -> Place {
    (u32::try_from(message.partition()).unwrap_or_default(), message.offset())
}

fn is_denial(error: &KafkaError) -> bool {
    let codes = [Code::TopicAuthorizationFailed, Code::GroupAuthorizationFailed];
    error.rdkafka_error_code().is_some_and(|code| codes.contains(&code))
}

/// Where to start reading each partition.
fn places(
    consumer: &BaseConsumer,
    settings: &Settings,
    marks: Option<&Marks>,
    sought: usize,
) -> Result<(TopicPartitionList, Vec<Loss>), Error> {
    let topic = &settings.topic;
    let marks = marks.filter(|marks| marks.topic == *topic);
    let (mut assigned, mut lost) = (TopicPartitionList::new(), Vec::new());
    for partition in 0..settings.partitions {
        let number = i32::try_from(partition).unwrap_or(i32::MAX);
        let (low, high) = watermarks(consumer, settings, partition)?;
        let from = match marks.and_then(|marks| marks.offsets.get(&partition).copied()) {
            Some(mark) if mark > high => {
                lost.push(Loss { partition, end: high, first: low });
                low
            }
            Some(mark) => mark.max(low),
            // Its end at the last commit is unknown: go no further back than the number of records sought.
            None => high.saturating_sub(i64::try_from(sought).unwrap_or(i64::MAX)).max(low),
        };
        assigned.add_partition_offset(topic, number, Offset::Offset(from)).map_err(wrong)?;
    }
    Ok((assigned, lost))
}
