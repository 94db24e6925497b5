//! # Batches of records, and the sinks that take them
//!
//! A [`Batcher`] belongs to one worker. It gathers the records that the worker accepts into batches, hands each batch
//! to a [`Sink`], and reports the outcome to the waiters of its records ([`Awaiting`]) and in its counts. Appending
//! takes no lock, no atomic and, while a batch has room, no allocation. Nothing here starts a thread or reads a clock:
//! time is an argument, and a sink that has to wait uses its own thread.
//!
//! ```text
//!   append ─▶ open batch ──full, or due──▶ Sink::write ─▶ Receipt ─▶ Awaiting, counts
//!     │        of a lane                                        │
//!     └ Full: `memory_max` is reached                           └ refused: kept, or reported ([`OnFailure`])
//! ```
//!
//! ```
//! use std::sync::Arc;
//! use std::task::Waker;
//! use std::time::Instant;
//! use highwater_batcher::sink::Null;
//! use highwater_batcher::{Batcher, Moment, Options};
//!
//! let sink = Null::default();
//! let counted = sink.counts();
//! let mut batcher = Batcher::new(sink, Options::default())?;
//! let moment = Moment { now: Instant::now(), unix_us: 1 };
//! batcher.append(0, moment, b"a record")?;
//! batcher.on_turn_end(moment.now, Waker::noop());
//! assert_eq!(counted.records(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! - A record that was appended reaches the sink once, in a batch; records of one partition reach it in their order.
//!   A batch is given to the sink again only if the sink did not confirm it and the options say [`OnFailure::Keep`].
//!   Its records keep their ids, so that a repetition can be distinguished from a second record.
//! - All batches together, open and unanswered ones, take at most `memory_max` bytes.
//!   Beyond it an append is refused with [`Refused::Full`], and nothing is dropped.
//! - An append never waits.
//!
//! # When a batch is handed over
//!
//! A batch that is full (`batch_bytes`, `records_max`) goes to the sink at once. Any other batch goes at the end of the
//! first turn in which two conditions hold: `linger` has passed since the previous batch was closed, and fewer than
//! `in_flight_max` batches of its lane are unanswered. So the first record after a pause does not wait; while records
//! keep coming, a lane closes one batch per `linger`, however many turns that takes; and if the sink is slower than
//! that, batches grow automatically. A record never waits longer than `linger` for others to share its batch. Network
//! cards coalesce interrupts in this way, and databases call it group commit; its only parameter is the bound on the
//! wait.
#![forbid(unsafe_code)]

mod awaiting;
mod batch;
mod batcher;
#[cfg(feature = "kafka")]
pub mod delivery;
mod failure;
mod flow;
mod lane;
mod options;
mod receipt;
pub mod sink;

pub use awaiting::Awaiting;
pub use batch::{Batch, Iter};
pub use batcher::{Batcher, Moment, Refused};
pub use failure::{Failure, FailureKind};
pub use flow::Counts;
pub use highwater_journal::Record;
pub use options::{Layout, OnFailure, Options, OptionsError, PARTITIONS_MAX, random_id};
pub use receipt::{Answer, Outcome, Receipt, Refusal, Written};
pub use sink::Sink;
