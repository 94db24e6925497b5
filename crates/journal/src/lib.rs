//! # A durable record log
//!
//! Records travel in batches, through one queue per producer, to one committing thread, which writes all waiting
//! batches and syncs once. A [`Receipt`] says when a batch is durable. Readers follow in order, from any offset. After
//! a crash, every acknowledged record is there, or the loss is reported with its place.
//!
//! ```
//! use highwater_journal::{Batch, Directory, Item, Journal, Options, Record};
//!
//! # let path = std::env::temp_dir().join(format!("journal-doc-{}", std::process::id()));
//! let journal = Journal::open(Directory::open(&path)?, Options::default())?;
//! eprint!("{}", journal.recovery());
//!
//! let producer = journal.producer()?; // one for each worker
//! let mut batch = Batch::new();
//! batch.push(Record { partition: 0, time_us: 0, id: 1, body: b"hello" });
//! let receipt = producer.append(batch)?; // never blocks: taken, or refused
//! let committed = receipt.wait()?; // or `.await` it
//!
//! let mut reader = journal.reader(committed.first_offset);
//! while let Item::Record(record) = reader.next()? {
//!     assert_eq!(record.body, b"hello");
//! }
//! journal.close()?;
//! # std::fs::remove_dir_all(&path).ok();
//! # Ok::<(), highwater_journal::Error>(())
//! ```
//!
//! # Guarantees
//!
//! - A receipt resolves successfully after the sync that made its batch durable, never before.
//! - An append never blocks its caller. Everything that can grow has a bound in [`Options`].
//! - One producer's batches keep their order. Offsets are never reused.
//! - Readers see only durable records, in order, and any loss is reported to them.
//! - An error on a receipt means *not known to be durable*: after a crash such records may be present.
//!
//! # Not guaranteed
//!
//! A batch is not a transaction: after a crash before its receipt, a part of it may remain. There is no replication:
//! damage to the only copy is detected and reported, not repaired.
//!
//! The format of the files is described in `docs/journal.md`.
#![forbid(unsafe_code)]

mod batch;
mod committer;
mod consumer;
mod damage;
mod error;
mod frames;
mod journal;
mod log;
mod look;
mod mark;
mod options;
mod position;
mod queue;
mod reader;
mod receipt;
mod retention;
mod segment;
#[cfg(test)]
mod simulation;
mod space;
pub mod storage;
mod view;

pub use batch::{Batch, Record};
pub use consumer::{CONSUMER_NAME_MAX, Consumer};
pub use damage::{DAMAGE_MAX, Damage, DamageKind, Report, Tail};
pub use error::{Error, ErrorKind};
pub use journal::{Journal, Recovery};
pub use log::{Health, Stat};
pub use options::{Options, Retention, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
pub use queue::{Producer, Refused};
pub use reader::{Item, Reader, Stored};
pub use receipt::{Committed, Receipt};
pub use storage::{Directory, Storage, create_directory, replace_file};
pub use view::{View, verify};
