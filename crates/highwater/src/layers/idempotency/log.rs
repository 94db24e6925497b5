//! Keys on a disk, which survive the end of the process.
//!
//! ```text
//! key is new ─▶ `begun` is durable ─▶ handler ─▶ `answered` is durable ─▶ the client has its answer
//! ```
//!
//! If the process ends before the first arrow, nothing was applied. If it ends before the third, the key has begun and was not
//! answered: it is unknown whether its handler has applied the request.

use std::sync::Arc;
use std::time::Duration;

use highwater_journal::{Batch, Item, Journal, Options, Producer, Record, Storage};

use super::kept::Happened;
use super::record;
use super::table::{Key, Table};
use crate::logging::rate_limited;

pub(super) use highwater_journal::Receipt;

/// A journal of keys.
#[derive(Debug)]
pub(super) struct Log {
    producer: Producer,
    journal: Journal,
    batch_bytes_max: usize,
}

impl Log {
    /// Opens the journal. Its records are kept for as long as keys are.
    pub(super) fn open(
        storage: impl Storage,
        mut options: Options,
        lifetime: Duration,
    ) -> Result<Log, String> {
        if options.retention.bytes.is_some() {
            return Err(String::from(
                "idempotency(…).journal(…): `retention.bytes` would forget keys before their time; leave it `None`, and limit the \
                 journal with `bytes_max`",
            ));
        }
        options.retention.age = Some(lifetime);
        options.retention.keep_unread = false;
        let theirs = Arc::clone(&options.on_unmarked);
        options.on_unmarked = Arc::new(move |error| {
            rate_limited!(
                WARN,
                cause = %error,
                "idempotency keys are kept, but if the newest files of their journal are lost, that may go unnoticed: \
                 give the disk room, or make the file writable"
            );
            theirs(error);
        });
        let batch_bytes_max = options.batch_bytes_max;
        let failed = |error| format!("idempotency(…).journal(…): {error}");
        let journal = Journal::open(storage, options).map_err(failed)?;
        if *journal.recovery() != highwater_journal::Recovery::default() {
            let found = journal.recovery().to_string();
            if !found.is_empty() {
                tracing::warn!(found, "the journal of idempotency keys was repaired");
            }
        }
        let producer = journal.producer().map_err(failed)?;
        Ok(Log { producer, journal, batch_bytes_max })
    }

    /// The largest record that it takes, in bytes.
    pub(super) fn record_bytes_max(&self) -> usize {
        self.batch_bytes_max
    }

    /// Puts into the table what is known at `now`. Keys that have begun and were not answered are unknown, or free if
    /// `frees_unknown`.
    pub(super) fn load(
        &self,
        table: &mut Table,
        now: u64,
        frees_unknown: bool,
    ) -> Result<(), String> {
        let mut reader = self.journal.reader_from_start();
        loop {
            let item =
                reader.next().map_err(|error| format!("idempotency(…).journal(…): {error}"))?;
            let stored = match item {
                Item::Record(stored) => stored,
                Item::Skipped(damage) => {
                    tracing::warn!(
                        ?damage,
                        "idempotency keys are lost: their requests may be applied again"
                    );
                    continue;
                }
                Item::End => break,
            };
            let Some((key, fingerprint, happened)) = record::read(stored.body) else {
                return Err(format!(
                    "idempotency(…).journal(…): the record {} is not one of idempotency keys; give the layer a folder of its own",
                    stored.offset
                ));
            };
            let key = Key::from(key);
            if table.is_old(stored.time_us, now) {
                table.release(&key);
                continue;
            }
            match happened {
                Happened::Begun if frees_unknown => {}
                Happened::Begun => table.interrupt(&key, fingerprint, stored.time_us),
                Happened::Answered(kept) => {
                    table.finish(&key, fingerprint, Arc::unwrap_or_clone(kept), stored.time_us);
                }
                Happened::Released => table.release(&key),
            }
        }
        Ok(())
    }

    /// Hands a record over; the receipt says when it is durable. Records keep the order in which they are handed over.
    pub(super) fn append(
        &self,
        (key, fingerprint): (&Key, u128),
        happened: &Happened,
        now: u64,
    ) -> Result<Receipt, String> {
        let body = record::write(key, fingerprint, happened);
        let mut batch = Batch::new();
        batch.push(Record { partition: 0, time_us: now, id: fingerprint, body: &body });
        self.producer.append(batch).map_err(|refused| refused.error.to_string())
    }
}
