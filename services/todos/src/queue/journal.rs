//! The queue in files of its own: a journal in the data directory.
//!
//! A command is acknowledged after the sync that made it durable, which it shares with all commands that
//! arrived meanwhile, of all workers.
//!
//! Applied commands are kept until they are committed, and then while they are among the newest `KEPT_BYTES`, for
//! inspection.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use highwater::journal::{
    Batch, Consumer, Directory, Error, ErrorKind, Health, Item, Journal, Options, Producer, Reader,
    Record,
};
use highwater::logging::{rate_limited, tracing};

use super::{Delivery, Durable, Position, Queue, QueueError, Refusal, Sender, Source};
use crate::command::{Command, Poison};
use crate::data::keep_text;
use crate::health::Part;

/// Its name in the table of positions of a store that belongs to it alone. In one that other queues share, it is followed
/// by the queue's own id.
pub const NAME: &str = "journal";

/// The file of the data directory with that id.
const ID: &str = "queue-id";

/// Where it is in the data directory.
const DIRECTORY: &str = "queue";

/// The consumer's name.
const CONSUMER: &str = "applier";

/// How large a segment becomes. Applied commands are removed one segment at a time.
const SEGMENT_BYTES: u64 = 8 << 20;

/// So much of what was applied is kept.
const KEPT_BYTES: u64 = 16 << 20;

/// The smallest bound of the queue: it must have room for what is kept, and a segment.
pub const BYTES_MIN: u64 = KEPT_BYTES + 2 * SEGMENT_BYTES;

/// The shortest interval between probes for room.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// How many batches of one worker may wait for the disk.
const BATCHES_MAX: usize = 1 << 14;

/// The queue of a self-contained service.
#[derive(Debug)]
pub struct JournalQueue {
    inner: Arc<Inner>,
}

struct Inner {
    journal: Journal,
    /// Its name in the store's table of positions.
    name: String,
    part: Part,
    /// Why the applier cannot read it, if it cannot.
    unread: Mutex<Option<String>>,
    /// Every command with a lower offset is applied and visible.
    applied: AtomicU64,
    probe: Mutex<Probe>,
}

/// Probes whether there is room again: an instance that is not ready may get no writes, so no write would find out.
struct Probe {
    producer: Producer,
    tried: Option<Instant>,
}

impl JournalQueue {
    /// Opens the queue in `data`; it is made if it is not there. `applied` is the store's position: no
    /// command is given an offset below it. `None`: the store does not know this queue's position, because
    /// other instances have queues too; then what was committed here counts as applied.
    ///
    /// # Errors
    ///
    /// If the directory is another process's, cannot be written, or the disk fails.
    pub fn open(
        data: &Path,
        bytes_max: u64,
        applied: Option<u64>,
    ) -> Result<JournalQueue, QueueError> {
        let path = data.join(DIRECTORY);
        let open = || {
            let mut options = Options::default();
            options.segment_bytes = SEGMENT_BYTES;
            options.queue_batches_max = BATCHES_MAX;
            options.bytes_max = Some(bytes_max);
            options.retention.bytes = Some(KEPT_BYTES);
            options.retention.keep_unread = true;
            options.on_unmarked = Arc::new(|error| {
                rate_limited!(
                    WARN,
                    cause = %error,
                    "commands are queued, but if the queue's newest files are lost, that may go unnoticed: \
                     give the disk room, or make the file writable"
                );
            });
            Directory::open(&path).and_then(|directory| Journal::open(directory, options))
        };
        let failed = |error: Error| explain(&path, &error);
        let mut journal = open().map_err(failed)?;
        if !journal.recovery().to_string().is_empty() {
            tracing::warn!(found = %journal.recovery(), "the queue was repaired");
        }
        let committed = journal.consumer(CONSUMER).map_err(failed)?.position();
        let name = match applied {
            Some(_) => NAME.to_owned(),
            None => format!("{NAME}/{}", id(data, journal.stat().records == 0)?),
        };
        let applied = begins_at(applied, committed);
        if journal.stat().next_offset < applied {
            // The queue's files are older than the store, or gone. An offset that is given again would look like
            // one that is applied: so the queue goes on behind it.
            let end = journal.stat().next_offset;
            tracing::warn!(end, applied, "the queue ends before the store's position");
            journal
                .consumer(CONSUMER)
                .and_then(|consumer| consumer.commit(applied))
                .map_err(failed)?;
            journal.close().map_err(failed)?;
            journal = open().map_err(failed)?;
        }
        let (part, applied) = (Part::new("queue"), AtomicU64::new(applied));
        let probe = Probe { producer: journal.producer().map_err(failed)?, tried: None };
        let probe = Mutex::new(probe);
        let unread = Mutex::default();
        Ok(JournalQueue { inner: Arc::new(Inner { journal, name, part, unread, applied, probe }) })
    }

    /// Delivers from behind the last command applied on.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn source(&self) -> Result<JournalSource, QueueError> {
        let inner = Arc::clone(&self.inner);
        let consumer = inner.journal.consumer(CONSUMER).map_err(|error| of(&error))?;
        let applied = inner.applied.load(Ordering::Acquire);
        let reader = inner.journal.reader(applied);
        Ok(JournalSource { inner, consumer, reader, given: applied, applied })
    }

    /// Its name in the store's table of positions.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Logs which commands the store has lost that were applied to it, if it is only at `stored`: it was restored from a backup.
    /// They are not applied again unasked, because the backup may have been restored to undo them.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn compare(&self, stored: Option<u64>) -> Result<(), QueueError> {
        let (journal, committed) =
            (&self.inner.journal, self.inner.applied.load(Ordering::Acquire));
        let mut reader = journal.reader(stored.unwrap_or(0));
        let mut commands = 0_u64;
        while reader.next_offset() < committed {
            match reader.next().map_err(|error| of(&error))? {
                Item::Record(record) if record.offset < committed => {
                    commands += u64::from(!record.body.is_empty());
                }
                Item::Skipped(_) => {}
                Item::Record(_) | Item::End => break,
            }
        }
        if commands > 0 {
            tracing::warn!(
                commands,
                stored,
                committed,
                "the store has lost commands of this queue that were applied: it was restored from a backup, or is another one. To \
                 apply these again, which the queue still has, stop this instance, remove {DIRECTORY}/consumer-{CONSUMER}.pos from \
                 its --data, and start it; older changes of a todo may then replace newer ones"
            );
        }
        Ok(())
    }

    /// The size of its files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.inner.journal.stat().bytes
    }
}

/// Which command is applied first after a start: the one behind the store's position, if the store knows it, else behind
/// what was committed here.
pub(crate) fn begins_at(stored: Option<u64>, committed: u64) -> u64 {
    stored.unwrap_or(committed)
}

impl Queue for JournalQueue {
    fn sender(&self) -> Result<Box<dyn Sender>, QueueError> {
        let producer = self.inner.journal.producer().map_err(|error| of(&error))?;
        Ok(Box::new(JournalSender { inner: Arc::clone(&self.inner), producer }))
    }

    fn part(&self) -> Part {
        self.inner.look();
        self.inner.part.clone()
    }

    fn depth(&self) -> u64 {
        self.inner.depth()
    }

    fn unmarked(&self) -> u64 {
        self.inner.journal.stat().unmarked
    }

    fn mark(&self) -> Option<u64> {
        Some(self.inner.journal.stat().next_offset)
    }

    fn reached(&self, mark: u64) -> bool {
        self.inner.applied.load(Ordering::Acquire) >= mark
    }
}

impl Inner {
    fn depth(&self) -> u64 {
        let end = self.journal.stat().next_offset;
        end.saturating_sub(self.applied.load(Ordering::Acquire))
    }

    /// The client's view of a journal error.
    fn refused(&self, error: &Error) -> Refusal {
        match error.kind() {
            ErrorKind::Busy | ErrorKind::Full => Refusal::Full(error.to_string()),
            _ => Refusal::Down(error.to_string()),
        }
    }

    /// Says whether the journal takes commands and gives them out.
    fn look(&self) {
        match self.journal.health() {
            Health::Full(error) => {
                self.part.is_down(error.to_string());
                self.try_again();
            }
            Health::Poisoned(error) => self.part.is_down(error.to_string()),
            _ => match &*self.unread() {
                Some(error) => self.part.is_down(error.as_str()),
                None => self.part.is_up(),
            },
        }
    }

    fn unread(&self) -> MutexGuard<'_, Option<String>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an empty record, if the last one is long enough ago. The next check sees the result.
    fn try_again(&self) {
        let mut probe = self.probe.lock().unwrap_or_else(PoisonError::into_inner);
        if probe.tried.is_none_or(|tried| tried.elapsed() >= PROBE_INTERVAL) {
            probe.tried = Some(Instant::now());
            let mut batch = Batch::new();
            batch.push(Record { partition: 0, time_us: 0, id: 0, body: b"" });
            // The journal's health says what came of it.
            drop(probe.producer.append(batch));
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {} waiting", self.journal.stat(), self.depth())
    }
}

/// A worker's way into the journal.
struct JournalSender {
    inner: Arc<Inner>,
    producer: Producer,
}

impl Sender for JournalSender {
    fn send(&self, command: &Command) -> Result<Durable, Refusal> {
        let body = command.encode();
        let time_us = u64::try_from(command.requested_us).unwrap_or(0);
        let mut batch = Batch::new();
        batch.push(Record { partition: 0, time_us, id: command.id.as_u128(), body: &body });
        let receipt =
            self.producer.append(batch).map_err(|refused| self.inner.refused(&refused.error))?;
        let inner = Arc::clone(&self.inner);
        Ok(Box::pin(async move { receipt.await.map(drop).map_err(|error| inner.refused(&error)) }))
    }
}

/// The applier's end of the journal.
#[derive(Debug)]
pub struct JournalSource {
    inner: Arc<Inner>,
    consumer: Consumer,
    reader: Reader,
    /// Every command with a lower offset was given.
    given: u64,
    /// Every command with a lower offset is applied.
    applied: u64,
}

impl Source for JournalSource {
    fn name(&self) -> &str {
        &self.inner.name
    }

    fn next(&mut self, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        let read = self.read(max, wait);
        *self.inner.unread() =
            read.as_ref().err().map(|error| format!("commands cannot be read: {error}"));
        read
    }

    fn applied(&mut self) {
        self.applied = self.given;
        self.inner.applied.store(self.given, Ordering::Release);
    }

    fn commit(&mut self) -> Result<(), QueueError> {
        self.consumer.commit(self.applied).map_err(|error| of(&error))
    }
}

impl JournalSource {
    fn read(&mut self, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError> {
        let mut deliveries = Vec::new();
        let mut may_wait = true;
        while deliveries.len() < max {
            match self.reader.next() {
                // Somebody tried whether there was room.
                Ok(Item::Record(record)) if record.body.is_empty() => {}
                Ok(Item::Record(record)) => {
                    let position = Some(Position { partition: 0, offset: record.offset });
                    deliveries.push(Delivery { position, content: Command::decode(record.body) });
                }
                Ok(Item::Skipped(damage)) => {
                    tracing::error!(%damage, "commands cannot be read from the queue");
                    if damage.next_offset > damage.first_offset {
                        let position =
                            Some(Position { partition: 0, offset: damage.next_offset - 1 });
                        let poison = Poison { bytes: Vec::new(), reason: damage.to_string() };
                        deliveries.push(Delivery { position, content: Err(poison) });
                    }
                }
                Ok(Item::End) if deliveries.is_empty() && may_wait => {
                    may_wait = false;
                    self.nothing_to_apply();
                    self.reader.wait_more(wait);
                }
                Ok(Item::End) => break,
                // What was read before is given first; the error comes again.
                Err(_) if !deliveries.is_empty() => break,
                Err(error) => return Err(of(&error)),
            }
        }
        self.given = self.reader.next_offset();
        if deliveries.is_empty() {
            self.nothing_to_apply();
        }
        Ok(deliveries)
    }

    /// Up to here there was nothing to apply: there may be offsets without a command, such as those of a tail that a crash has
    /// torn. What was given before is applied, or the applier would not ask.
    fn nothing_to_apply(&mut self) {
        self.given = self.reader.next_offset();
        self.applied();
    }
}

/// Distinguishes this queue from those of other instances on the same store. It is made with the queue, and goes with it.
/// A queue that is empty may get a new one.
fn id(data: &Path, is_empty: bool) -> Result<String, QueueError> {
    let file = data.join(ID);
    let keep = || keep_text(&file, || fastrand::u128(..));
    let kept = keep().and_then(|id| match id.as_str() {
        "" if is_empty => fs::remove_file(&file).and_then(|()| keep()),
        "" => Err(io::Error::other("it is empty; delete it")),
        _ => Ok(id),
    });
    kept.map_err(|error| {
        QueueError::new(format!(
            "cannot keep the queue's id in {}: {error}; give --data a directory that this user can write",
            file.display()
        ))
    })
}

fn of(error: &Error) -> QueueError {
    QueueError::new(error.to_string())
}

fn explain(path: &Path, error: &Error) -> QueueError {
    let path = path.display();
    QueueError::new(match error.kind() {
        // These errors name the remedy.
        ErrorKind::InUse => format!("{error} (--data); each instance has its own"),
        ErrorKind::Full => format!("cannot write {path}: {error}; free some space"),
        ErrorKind::Version => error.to_string(),
        _ => format!(
            "cannot use the queue in {path}: {error}; give --data a directory that this user can write"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Action;

    fn open(data: &Path) -> Result<JournalQueue, QueueError> {
        JournalQueue::open(data, BYTES_MIN, None)
    }

    fn send(queue: &JournalQueue) {
        let command = Command {
            id: uuid::Uuid::from_u128(1),
            todo: uuid::Uuid::from_u128(1),
            user_id: "owner".into(),
            requested_us: 1,
            action: Action::Delete,
        };
        let durable = queue.sender().expect("there are few").send(&command);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(durable.expect("there is room")).expect("the disk works");
    }

    /// Purpose: a queue whose commands cannot be read is not ready, until they can.
    #[test]
    fn an_unreadable_queue_is_down() {
        let data = tempfile::tempdir().expect("a temporary directory");
        let queue = open(data.path()).expect("it can be opened");
        send(&queue);
        let mut source = queue.source().expect("the disk works");
        let files = fs::read_dir(data.path().join(DIRECTORY)).expect("it is there");
        let mut files = files.map(|file| file.expect("it can be read").path());
        let is_segment = |file: &std::path::PathBuf| file.extension().is_some_and(|e| e == "hwj");
        let segment = files.find(is_segment).expect("it has a command");
        let away = segment.with_extension("away");
        fs::rename(&segment, &away).expect("it is ours");
        fs::create_dir(&segment).expect("it is free");
        source.next(1, Duration::ZERO).expect_err("a directory is not a file");
        let down = queue.part().down().expect("nothing is applied");
        assert!(down.contains("cannot be read"), "{down}");
        fs::remove_dir(&segment).expect("it is ours");
        fs::rename(&away, &segment).expect("it is ours");
        assert_eq!(source.next(1, Duration::ZERO).expect("it is back").len(), 1);
        assert_eq!(queue.part().down(), None);
    }

    /// Purpose: an empty id, as a crash once left it, keeps a queue with commands from being opened, and no other.
    #[test]
    fn an_empty_id() {
        let data = tempfile::tempdir().expect("a temporary directory");
        let id = data.path().join(ID);
        fs::write(&id, "").expect("writable");
        let queue = open(data.path()).expect("it has no command");
        assert_eq!(fs::read_to_string(&id).expect("it is there").trim().len(), 32);
        send(&queue);
        drop(queue);
        fs::write(&id, "").expect("writable");
        let refused = open(data.path()).expect_err("commands belong to the id");
        assert!(refused.to_string().contains("delete it"), "{refused}");
    }
}
