//! # From the journal to Kafka
//!
//! A [`Delivery`] is a thread that reads a journal as one of its named consumers and sends each record to Kafka, in
//! order. It commits its position only after records that all replicas have acknowledged (`acks=all`, by an idempotent
//! producer), so each is delivered. Records delivered without an acknowledgement are found in the topic before anything
//! is sent again (`doubts.rs`), so none is there twice.
//!
//! ```text
//!   start ─▶ session ──acknowledged──▶ position committed ─▶ …
//!              │  ▲
//!   a message  │  │ after a pause: the topic looked at again, a new producer,
//!   has failed ▼  │ reading from the first record that is not done with
//!             pause
//! ```
//!
//! An unreachable, slow or changed broker does not end a session: the producer retries indefinitely and in order. A
//! session ends when a message has failed permanently: the topic is gone, the producer's sequence numbers were lost, or
//! Kafka will not accept a record. Such a record, found by sending records one by one, goes to the file of dead letters
//! and does not block the others.
//!
//! # Invariants
//!
//! - The position never passes a record that is neither acknowledged nor, durably, among the dead letters.
//! - In a partition, the first message of each record comes after the first message of every earlier one.
//! - Records read but not acknowledged take at most `window_records` and `window_bytes`.

mod arrived;
mod dead_letters;
mod direct;
mod doubts;
mod marks;
mod passing;
mod progress;
mod run;
mod session;
mod suspects;
mod window;
mod work;

pub use direct::SpoolSink;
pub use progress::Progress;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use highwater_journal::{Consumer, Item};

use crate::sink::JournalSink;
use crate::sink::kafka::{Error, ErrorKind, Settings, look, unavailable};
use dead_letters::DeadLetters;
use direct::Direct;
use run::{Run, Shared};

/// Options of a delivery.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeliveryOptions {
    /// The file of dead letters: records that Kafka will never accept. It is created if missing.
    pub dead_letters: PathBuf,
    /// The file with each partition's end at the last commit: where a start looks for records that were delivered but
    /// not committed. `kafka-delivered` beside the dead letters.
    pub marks: PathBuf,
    /// The most records read but not acknowledged. 65 536.
    pub window_records: usize,
    /// The most bytes of their bodies (or one record, if that is larger). 32 MiB.
    pub window_bytes: usize,
    /// How often the position is committed under load; otherwise it is committed at once. Records delivered since are
    /// looked for in the topic after a crash. 100 ms.
    pub commit_interval: Duration,
    /// How long no message must have arrived in the topic before records of unknown outcome are sent again: requests of
    /// an ended producer may still be in flight. 1 s.
    pub settle: Duration,
    /// How long startup waits for Kafka. If it does not answer, the delivery starts all the same. 3 s.
    pub start_timeout: Duration,
    /// The longest pause between attempts. 2 s.
    pub pause_max: Duration,
}

impl DeliveryOptions {
    /// The defaults, with this file of dead letters.
    pub fn new(dead_letters: impl Into<PathBuf>) -> DeliveryOptions {
        let dead_letters = dead_letters.into();
        DeliveryOptions {
            marks: dead_letters.with_file_name("kafka-delivered"),
            dead_letters,
            window_records: 65_536,
            window_bytes: 32 << 20,
            commit_interval: Duration::from_millis(100),
            settle: Duration::from_secs(1),
            start_timeout: Duration::from_secs(3),
            pause_max: Duration::from_secs(2),
        }
    }
}

/// Delivers a journal to Kafka until it is stopped or dropped.
pub struct Delivery {
    progress: Arc<Progress>,
    direct: Arc<Direct>,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("progress", &self.progress).finish_non_exhaustive()
    }
}

/// The deadline of a delivery.
#[derive(Debug, Default)]
struct Stop {
    until: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Stop {
    fn order(&self, until: Instant) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
        self.changed.notify_all();
    }

    fn until(&self) -> Option<Instant> {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps, unless it is to stop. Returns whether it is.
    fn pause(&self, pause: Duration) -> bool {
        let until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(until, pause, |until| until.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.is_some()
    }
}

impl Delivery {
    /// Starts to deliver records that `consumer` has not committed, and new ones. It reads the uncommitted ones once,
    /// to count them, and checks the topic.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Setting`] and [`ErrorKind::Topic`], which need an operator's change; [`ErrorKind::Disk`]. An
    /// unreachable Kafka is not an error: records then wait in the journal.
    pub fn start(
        settings: Settings,
        options: DeliveryOptions,
        consumer: Consumer,
    ) -> Result<Delivery, Error> {
        settings.check()?;
        for (name, value) in
            [("window_records", options.window_records), ("window_bytes", options.window_bytes)]
        {
            if value == 0 {
                return Err(Error::new(ErrorKind::Setting, format!("{name} 0: write 1 or more")));
            }
        }
        let dead_letters = DeadLetters::open(&options.dead_letters)?;
        let progress = Arc::new(Progress::default());
        count(&consumer, &progress)?;
        let topic = match look(&settings, options.start_timeout) {
            Ok(topic) => Some(topic),
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                progress.set_trouble(Some(error.to_string()));
                None
            }
            Err(error) => return Err(error),
        };
        let stop = Arc::<Stop>::default();
        let direct = Arc::new(Direct::new(Arc::clone(&progress)));
        let shared = Shared { progress, direct, stop };
        let mut run = Run::new(settings, topic, options, consumer, dead_letters, shared.clone());
        let ended = Ended(Arc::clone(&shared.progress));
        let thread = std::thread::Builder::new().name("delivery".into()).spawn(move || {
            let _ended = ended;
            run.run();
        });
        let thread = thread.map_err(|error| unavailable(format!("starting a thread: {error}")))?;
        let Shared { progress, direct, stop } = shared;
        Ok(Delivery { progress, direct, stop, thread: Some(thread) })
    }

    /// Its progress.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// A sink for one worker, which writes to the journal through `sink`, and bypasses the journal while it is full and
    /// has nothing left to deliver.
    pub fn sink(&self, sink: JournalSink) -> SpoolSink {
        SpoolSink::new(sink, Arc::clone(&self.direct))
    }

    /// Delivers the records in the journal, for at most `timeout`, and stops early if Kafka is unreachable; commits its
    /// position and ends. Append nothing more before this call. Returns whether everything was delivered.
    pub fn stop(mut self, timeout: Duration) -> bool {
        self.end(timeout);
        self.progress.is_idle()
    }

    fn end(&mut self, timeout: Duration) {
        if let Some(thread) = self.thread.take() {
            self.stop.order(Instant::now() + timeout);
            // If it panicked, `Ended` has reported that.
            let _ = thread.join();
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

/// Reports a panic of the thread.
struct Ended(Arc<Progress>);

impl Drop for Ended {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set_trouble(Some(
                "the delivery has ended by a fault of its own; start it again".to_owned(),
            ));
        }
    }
}

/// Counts the records left to deliver.
fn count(consumer: &Consumer, progress: &Progress) -> Result<(), Error> {
    use std::sync::atomic::Ordering::Relaxed;
    let mut reader = consumer.reader();
    let (mut records, mut bytes) = (0, 0);
    loop {
        let item = reader.next().map_err(|error| Error::new(ErrorKind::Disk, error.to_string()))?;
        match item {
            Item::Record(record) => {
                if records == 0 {
                    progress.oldest_us.store(record.time_us, Relaxed);
                }
                records += 1;
                bytes += record.body.len() as u64;
            }
            // Logged when the delivery reads it.
            Item::Skipped(_) => {}
            Item::End => break,
        }
    }
    progress.left[0].store(records, Relaxed);
    progress.left[1].store(bytes, Relaxed);
    progress.position.store(consumer.position(), Relaxed);
    Ok(())
}
