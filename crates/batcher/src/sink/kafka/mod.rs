//! # Records to Kafka
//!
//! [`Client`] holds the connection and is shared by all workers; each worker has its own [`Sink`](crate::Sink), a
//! [`KafkaSink`]. A receipt resolves when the broker has acknowledged every record of the batch (`acks=all`, by an
//! idempotent producer), or lists the records that it refused. [`Settings`] name the cluster and the topic;
//! [`crate::delivery`] uses them as well, for records in a journal.
//!
//! A record becomes a message: its body is the value, byte for byte; its id is the header `id`, 32 hexadecimal digits
//! as `highwater journal cat --json` writes them; its time is the timestamp; its partition is the message's, modulo the
//! number of partitions. There is no key.
//!
//! `docs/kafka.md` describes the guarantees, and what happens when Kafka is unreachable, slow, or refuses records.

mod client;
mod error;
mod events;
mod message;
mod partition;
mod pending;
mod settings;
mod sink;
mod taken;
mod topic;

pub use client::{Client, Limits};
pub use error::{Error, ErrorKind};
pub use message::batch_bytes;
pub use partition::partition_of_key;
pub use settings::Settings;
pub use sink::KafkaSink;
pub use taken::Taken;
pub use topic::{batch_bytes_of_topic, partitions_of_topic};

pub(crate) use error::unavailable;
pub(crate) use events::{Events, OnEvent};
pub(crate) use message::{bytes_alone, id_of, message};
pub(crate) use topic::{Topic, look, not_taken};
