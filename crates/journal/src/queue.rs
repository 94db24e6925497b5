//! The path of a batch from a worker to the committing thread.
//!
//! Each producer has a queue of its own, with a bound in batches and one in bytes. Handing a batch over takes no lock
//! and never waits: it is accepted at once, or refused with the batch returned. The committing thread takes one batch
//! from each queue in turn, so no producer starves another, and the order of one producer's batches is kept.
//!
//! The thread sets `asleep`, then checks all queues, then parks. A producer enqueues, then checks `asleep`. So no wake-up is
//! lost.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::Thread;

use crate::batch::Batch;
use crate::error::{Error, ErrorKind};
use crate::options::Options;
use crate::receipt::{Answer, Receipt};

/// Appends batches to a journal: one per worker. Its batches keep their order.
#[derive(Debug)]
pub struct Producer {
    queue: SyncSender<Entry>,
    bytes: Arc<AtomicUsize>,
    shared: Arc<Shared>,
}

/// A batch that was not accepted, and why.
#[derive(Debug)]
pub struct Refused {
    /// Why: [`ErrorKind::Busy`], [`ErrorKind::TooLarge`], [`ErrorKind::Poisoned`] or
    /// [`ErrorKind::Closed`].
    pub error: Error,
    /// The batch, as it was.
    pub batch: Batch,
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        refused.error
    }
}

/// A batch in the queue.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) batch: Batch,
    pub(crate) answer: Answer,
}

/// What producers and the committing thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// One of `OPEN`, `POISONED`, `CLOSED`.
    state: AtomicU8,
    asleep: AtomicBool,
    /// The last group found no room, or no descriptor for a new segment.
    is_full: AtomicBool,
    thread: OnceLock<Thread>,
    /// Producers that the committing thread has not seen yet. `None`: it has ended.
    new_producers: Mutex<Option<Vec<Queue>>>,
    producers: AtomicUsize,
    producers_max: usize,
    batch_bytes_max: usize,
    queue_batches_max: usize,
    queue_bytes_max: usize,
}

const OPEN: u8 = 0;
const POISONED: u8 = 1;
const CLOSED: u8 = 2;

/// The committing thread's end of a producer.
#[derive(Debug)]
struct Queue {
    entries: Receiver<Entry>,
    bytes: Arc<AtomicUsize>,
    /// Taken from the queue, but too large for the current group.
    head: Option<Entry>,
}

impl Producer {
    /// Hands a batch over. The receipt says when it is durable.
    ///
    /// An empty batch gets a receipt like any other, which says that everything before it is durable.
    ///
    /// # Errors
    ///
    /// The batch, if it was not accepted; the kind says why. No part of it is or will be in the journal.
    pub fn append(&self, batch: Batch) -> Result<Receipt, Refused> {
        if let Err(error) = self.may_append(batch.bytes()) {
            return Err(Refused { error, batch });
        }
        let bytes = batch.bytes();
        let waiting = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if waiting + bytes > self.shared.queue_bytes_max {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Refused { error: self.busy(), batch });
        }
        let (answer, receipt) = Receipt::pair();
        match self.queue.try_send(Entry { batch, answer }) {
            Ok(()) => {
                self.shared.wake();
                Ok(receipt)
            }
            Err(refused) => {
                self.bytes.fetch_sub(bytes, Ordering::Relaxed);
                let (error, entry) = match refused {
                    TrySendError::Full(entry) => (self.busy(), entry),
                    TrySendError::Disconnected(entry) => (closed(), entry),
                };
                Err(Refused { error, batch: entry.batch })
            }
        }
    }

    /// Whether the last records found no room: on the disk, or within `bytes_max`.
    pub fn is_full(&self) -> bool {
        self.shared.is_full.load(Ordering::Relaxed)
    }

    fn may_append(&self, bytes: usize) -> Result<(), Error> {
        match self.shared.state.load(Ordering::Relaxed) {
            OPEN => {}
            POISONED => return Err(poisoned()),
            _ => return Err(closed()),
        }
        let max = self.shared.batch_bytes_max;
        if bytes > max {
            let text = format!("a batch of {bytes} bytes; batch_bytes_max is {max}");
            return Err(Error::new(ErrorKind::TooLarge, text));
        }
        Ok(())
    }

    fn busy(&self) -> Error {
        let (batches, bytes) = (self.shared.queue_batches_max, self.shared.queue_bytes_max);
        let text = format!(
            "the disk is behind: queue_batches_max ({batches}) or queue_bytes_max ({bytes}) is reached"
        );
        Error::new(ErrorKind::Busy, text)
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the journal is closed")
}

pub(crate) fn poisoned() -> Error {
    let text = "the disk failed twice in a row; find the cause, then restart the service";
    Error::new(ErrorKind::Poisoned, text)
}

impl Shared {
    pub(crate) fn new(options: &Options) -> Shared {
        Shared {
            state: AtomicU8::new(OPEN),
            asleep: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            thread: OnceLock::new(),
            new_producers: Mutex::new(Some(Vec::new())),
            producers: AtomicUsize::new(0),
            producers_max: options.producers_max,
            batch_bytes_max: options.batch_bytes_max,
            queue_batches_max: options.queue_batches_max,
            queue_bytes_max: options.queue_bytes_max,
        }
    }

    pub(crate) fn producer(self: &Arc<Shared>) -> Result<Producer, Error> {
        let max = self.producers_max;
        let one_more = |count| (count < max).then_some(count + 1);
        if self.producers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_err() {
            let text =
                format!("there are producers_max ({max}) producers; drop one, or allow more");
            return Err(Error::new(ErrorKind::TooMany, text));
        }
        let (queue, entries) = sync_channel(self.queue_batches_max);
        let bytes = Arc::<AtomicUsize>::default();
        let newcomer = Queue { entries, bytes: Arc::clone(&bytes), head: None };
        self.new_producers().as_mut().ok_or_else(closed)?.push(newcomer);
        Ok(Producer { queue, bytes, shared: Arc::clone(self) })
    }

    fn new_producers(&self) -> MutexGuard<'_, Option<Vec<Queue>>> {
        self.new_producers.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Wakes the committing thread if it sleeps.
    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed)
            && self.asleep.swap(false, Ordering::Relaxed)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Registers the calling thread as the one to wake.
    pub(crate) fn register_thread(&self) {
        let _ = self.thread.set(std::thread::current());
    }

    /// Announces that the thread is about to sleep. It must check the queues once more before it does.
    pub(crate) fn announce_sleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn end_sleep(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    pub(crate) fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    pub(crate) fn poison(&self) {
        let _ = self.state.compare_exchange(OPEN, POISONED, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(crate) fn close(&self) {
        self.state.store(CLOSED, Ordering::SeqCst);
        self.wake();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.load(Ordering::SeqCst) == CLOSED
    }
}

/// The committing thread's end of all producers.
#[derive(Debug)]
pub(crate) struct Intake {
    shared: Arc<Shared>,
    queues: Vec<Queue>,
    /// The producer whose turn is first.
    first: usize,
}

impl Intake {
    pub(crate) fn new(shared: Arc<Shared>) -> Intake {
        Intake { shared, queues: Vec::new(), first: 0 }
    }

    /// Moves waiting batches into `group`, up to `bytes_max`, or one batch if it alone is larger.
    pub(crate) fn gather(&mut self, group: &mut Vec<Entry>, bytes_max: usize) {
        if let Some(new_producers) = self.shared.new_producers().as_mut() {
            self.queues.append(new_producers);
        }
        let mut bytes = 0;
        let count = self.queues.len();
        loop {
            let mut found = false;
            for turn in 0..count {
                let queue = &mut self.queues[(self.first + turn) % count];
                let Some(entry) = queue.head() else { continue };
                if bytes > 0 && bytes + entry.batch.bytes() > bytes_max {
                    // It goes first next time, so that it cannot starve.
                    self.first = (self.first + turn) % count;
                    return;
                }
                bytes += entry.batch.bytes();
                group.extend(queue.take());
                found = true;
            }
            if !found {
                break;
            }
        }
        self.first = if count == 0 { 0 } else { (self.first + 1) % count };
        self.leave();
    }

    /// Forgets dropped producers with empty queues.
    fn leave(&mut self) {
        let shared = &self.shared;
        self.queues.retain_mut(|queue| {
            let gone = queue.is_gone();
            if gone {
                shared.producers.fetch_sub(1, Ordering::Relaxed);
            }
            !gone
        });
        self.first = self.first.min(self.queues.len().saturating_sub(1));
    }
}

/// However the committing thread ends, waiting batches are answered, and no more are accepted.
impl Drop for Intake {
    fn drop(&mut self) {
        self.shared.state.store(CLOSED, Ordering::SeqCst);
        let new_producers = self.shared.new_producers().take();
        drop(new_producers);
    }
}

impl Queue {
    fn head(&mut self) -> Option<&Entry> {
        if self.head.is_none() {
            self.head = self.entries.try_recv().ok();
        }
        self.head.as_ref()
    }

    fn take(&mut self) -> Option<Entry> {
        let entry = self.head.take()?;
        self.bytes.fetch_sub(entry.batch.bytes(), Ordering::Relaxed);
        Some(entry)
    }

    fn is_gone(&mut self) -> bool {
        if self.head.is_some() {
            return false;
        }
        match self.entries.try_recv() {
            Ok(entry) => {
                self.head = Some(entry);
                false
            }
            Err(TryRecvError::Empty) => false,
            Err(TryRecvError::Disconnected) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Record;

    fn batch(body: usize) -> Batch {
        let mut batch = Batch::new();
        batch.push(Record { partition: 0, time_us: 0, id: 0, body: &vec![0; body] });
        batch
    }

    fn shared(options: &Options) -> (Arc<Shared>, Intake) {
        let shared = Arc::new(Shared::new(options));
        (Arc::clone(&shared), Intake::new(shared))
    }

    fn kind(result: Result<Receipt, Refused>) -> Option<ErrorKind> {
        result.err().map(|refused| refused.error.kind())
    }

    /// Purpose: memory is bounded: a queue takes what its bounds say, refuses the next with `Busy`, and
    /// takes again what fits when something has been taken from it.
    #[test]
    fn queues_are_bounded() {
        let size = batch(8).bytes();
        for (batches, bytes, taken) in
            [(3, 1 << 20, 3), (100, 3 * size, 3), (100, 3 * size + 1, 3), (100, 4 * size - 1, 3)]
        {
            let options = Options {
                queue_batches_max: batches,
                queue_bytes_max: bytes,
                ..Options::default()
            };
            let (shared, mut intake) = shared(&options);
            let producer = shared.producer().expect("there is none yet");
            let receipts: Vec<_> = (0..taken).map(|_| producer.append(batch(8))).collect();
            assert!(receipts.iter().all(Result::is_ok));
            assert_eq!(kind(producer.append(batch(8))), Some(ErrorKind::Busy), "{batches} {bytes}");
            let mut group = Vec::new();
            intake.gather(&mut group, size);
            assert_eq!(group.len(), 1);
            // The next one was looked at and is held; the queue has room for it again.
            assert_eq!(kind(producer.append(batch(8))), None);
        }
    }

    /// Purpose: a batch at the limit is taken, one above it is given back whole.
    #[test]
    fn batches_are_bounded() {
        let options = Options { batch_bytes_max: batch(64).bytes(), ..Options::default() };
        let (shared, _intake) = shared(&options);
        let producer = shared.producer().expect("there is none yet");
        for (body, refused) in [(63, None), (64, None), (65, Some(ErrorKind::TooLarge))] {
            assert_eq!(kind(producer.append(batch(body))), refused, "{body}");
        }
        let refused = producer.append(batch(65)).expect_err("it is too large");
        assert_eq!((refused.batch.records(), refused.batch.bytes()), (1, batch(65).bytes()));
    }

    /// Purpose: there are at most so many producers; one that is gone makes room for another.
    #[test]
    fn producers_are_bounded() {
        let options = Options { producers_max: 2, ..Options::default() };
        let (shared, mut intake) = shared(&options);
        let first = shared.producer().expect("one of two");
        let _second = shared.producer().expect("two of two");
        let error = shared.producer().expect_err("a third");
        assert_eq!(error.kind(), ErrorKind::TooMany);
        drop(first);
        intake.gather(&mut Vec::new(), 1);
        assert!(shared.producer().is_ok());
    }

    /// Purpose: one busy producer must not starve another, and each one's order is kept.
    #[test]
    fn producers_take_turns() {
        let (shared, mut intake) = shared(&Options::default());
        let producers = [(); 3].map(|()| shared.producer().expect("there are few"));
        let mut receipts = Vec::new();
        for (index, producer) in producers.iter().enumerate() {
            for body in 0..4 {
                receipts.push(producer.append(batch(8 * (index * 4 + body))));
            }
        }
        let mut seen = Vec::new();
        loop {
            let mut group = Vec::new();
            intake.gather(&mut group, 300);
            if group.is_empty() {
                break;
            }
            seen.extend(group.iter().map(|entry| entry.batch.bytes() - 56));
        }
        let of = |index: usize| {
            let mine = |body: &usize| body / 8 / 4 == index;
            seen.iter().copied().filter(mine).collect::<Vec<_>>()
        };
        for index in 0..3 {
            let expected: Vec<usize> = (0..4).map(|body| 8 * (index * 4 + body)).collect();
            assert_eq!(of(index), expected);
        }
        let firsts: Vec<usize> = seen[..3].iter().map(|body| body / 8 / 4).collect();
        assert_eq!(firsts, [0, 1, 2], "each has its turn: {seen:?}");
    }

    /// Purpose: a batch handed over just as the journal ends still gets its answer.
    #[test]
    fn what_is_left_behind_is_answered() {
        let (shared, intake) = shared(&Options::default());
        let producer = shared.producer().expect("there is none yet");
        let receipt = producer.append(batch(1)).expect("there is room");
        // The committing thread has never seen this producer.
        drop(intake);
        let error = receipt.answer().expect("it is resolved").expect_err("nothing is durable");
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert_eq!(kind(producer.append(batch(1))), Some(ErrorKind::Closed));
        assert_eq!(shared.producer().expect_err("it has ended").kind(), ErrorKind::Closed);
    }
}
