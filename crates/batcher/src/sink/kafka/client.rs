//! The connection to Kafka that all sinks of a process share.
//!
//! ```text
//!   start ─▶ looked at ──topic as expected──▶ serving ──fatal error, or the topic has changed──▶ looked at …
//!              │  ▲                                        what is on its way fails, and its receipts say so
//!              └──┘ not now: again after a pause; meanwhile batches are refused
//! ```
//!
//! librdkafka's threads talk to the brokers; a polling thread receives the messages' outcomes, and a supervisor times
//! out overdue batches and replaces a producer that cannot continue.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdkafka::config::FromClientConfigAndContext as _;
use rdkafka::producer::{Producer as _, PurgeConfig, ThreadedProducer};

use super::error::{Error, ErrorKind, unavailable};
use super::events::Events;
use super::pending::{Deliveries, Room};
use super::settings::Settings;
use super::topic::{Topic, look};

/// The supervisor's interval: a receipt is late by this much at most.
const TICK: Duration = Duration::from_millis(20);
/// The timeout for checking a topic after startup.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// The pauses between attempts.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// How much may be in flight, and for how long.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// The most unanswered records of all sinks together. Beyond it:
    /// [`FailureKind::Busy`](crate::FailureKind::Busy). 100 000.
    pub records_max: usize,
    /// The most bytes of their bodies. Beyond it: [`FailureKind::Busy`](crate::FailureKind::Busy). 64 MiB.
    pub bytes_max: usize,
    /// A receipt fails with [`FailureKind::TimedOut`](crate::FailureKind::TimedOut) after this, and with it all others that
    /// wait then: otherwise Kafka's client could write some of their records twice. 5 s.
    pub ack_timeout: Duration,
    /// How long startup waits for Kafka. If it does not answer, batches are refused until it does. 3 s.
    pub start_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            records_max: 100_000,
            bytes_max: 64 << 20,
            ack_timeout: Duration::from_secs(5),
            start_timeout: Duration::from_secs(3),
        }
    }
}

/// The connection that all sinks share.
pub struct Client {
    pub(super) shared: Arc<Shared>,
    supervisor: Option<JoinHandle<()>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("settings", &self.shared.settings).finish_non_exhaustive()
    }
}

pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) limits: Limits,
    pub(super) room: Arc<Room>,
    live: RwLock<Option<Live>>,
    /// Why there is none, or the connection's last error.
    reason: Mutex<Option<String>>,
    ends: AtomicBool,
}

/// A producer that serves.
pub(super) struct Live {
    pub(super) producer: ThreadedProducer<Events<Deliveries>>,
    pub(super) topic: Topic,
}

impl Client {
    /// Connects, checks the topic, and creates it if needed. If Kafka does not answer within `start_timeout`, it keeps
    /// retrying, and batches are refused meanwhile.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Setting`] and [`ErrorKind::Topic`], which need an operator's change.
    pub fn start(settings: Settings, limits: Limits) -> Result<Client, Error> {
        settings.check()?;
        let message = Duration::from_millis(1)..=Duration::from_secs(24 * 3600);
        if !message.contains(&limits.ack_timeout) {
            let text = format!("ack_timeout {:?}: write 1 ms to 24 h", limits.ack_timeout);
            return Err(Error::new(ErrorKind::Setting, text));
        }
        let room = Arc::new(Room::new(limits.records_max, limits.bytes_max));
        let shared = Arc::new(Shared {
            settings,
            limits,
            room,
            live: RwLock::new(None),
            reason: Mutex::new(None),
            ends: AtomicBool::new(false),
        });
        match shared.connect(shared.limits.start_timeout) {
            Err(error) if error.kind() != ErrorKind::Unavailable => return Err(error),
            Err(error) => {
                tracing::warn!("batches are refused until Kafka answers: {error}");
                shared.set_reason(Some(error.to_string()));
            }
            Ok(()) => {}
        }
        let supervisor = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("kafka".into())
            .spawn(move || supervisor.supervise())
            .map_err(|error| unavailable(format!("starting a thread: {error}")))?;
        Ok(Client { shared, supervisor: Some(thread) })
    }

    /// Why batches are refused now, or the connection's last error, or why Kafka has not taken the last records; `None` if all is
    /// well.
    pub fn trouble(&self) -> Option<String> {
        self.shared.trouble()
    }

    /// Records that Kafka has not answered for.
    pub fn in_flight(&self) -> usize {
        self.shared.room.records()
    }

    /// Waits, for at most `timeout`, until all accepted batches are answered for, and ends. The others fail. Do not
    /// write to the sinks any more before this call.
    pub fn close(self, timeout: Duration) {
        if let Some(live) = &*self.shared.live() {
            // The receipts report what it could not deliver.
            let _ = live.producer.flush(timeout);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        if let Some(thread) = self.supervisor.take() {
            thread.thread().unpark();
            // If it panicked, there is nothing left to end.
            let _ = thread.join();
        }
        self.shared.replace(None);
    }
}

impl Shared {
    pub(super) fn live(&self) -> RwLockReadGuard<'_, Option<Live>> {
        self.live.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn trouble(&self) -> Option<String> {
        let complaint = self.live().as_ref().and_then(|live| live.producer.context().trouble.get());
        let reason = || self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
        complaint.or_else(reason).or_else(|| self.room.taken.trouble())
    }

    fn set_reason(&self, reason: Option<String>) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Replaces the producer. The old one ends here, not on a worker: its messages fail.
    fn replace(&self, live: Option<Live>) {
        let mut place = self.live.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *place, live);
        drop(place);
        drop(old);
    }

    fn connect(&self, timeout: Duration) -> Result<(), Error> {
        let topic = look(&self.settings, timeout)?;
        let is_same =
            self.live().as_ref().is_some_and(|live| live.topic == topic && !is_dead(live));
        if !is_same {
            let mut config =
                self.settings.producer_config(topic.message_bytes_max, topic.batch_bytes_max);
            config.set("message.timeout.ms", self.limits.ack_timeout.as_millis().to_string());
            let producer =
                ThreadedProducer::from_config_and_context(&config, Events::new(Deliveries))
                    .map_err(|error| Error::new(ErrorKind::Setting, format!("Kafka: {error}")))?;
            self.replace(Some(Live { producer, topic }));
        }
        if let Some(live) = &*self.live() {
            live.producer.context().trouble.has_passed();
        }
        self.set_reason(None);
        // It answers; whether it takes records is another question.
        self.room.taken.look(&self.settings, timeout);
        Ok(())
    }

    fn supervise(&self) {
        let mut pause = PAUSE.0;
        let mut again_at = Instant::now();
        while !self.ends.load(Ordering::Acquire) {
            std::thread::park_timeout(TICK);
            let now = Instant::now();
            if self.room.expire(now, self.limits.ack_timeout) {
                self.give_up();
            }
            let is_gone = self.live().as_ref().is_none_or(is_dead);
            // Without writes, no answer shows that an earlier error has passed.
            let is_asked = self.room.look_again.load(Ordering::Relaxed) || self.trouble().is_some();
            if !(is_gone || is_asked) || now < again_at {
                continue;
            }
            self.room.look_again.store(false, Ordering::Relaxed);
            // It checks in short steps, so that waiters are answered in time.
            match self.connect(LOOK_TIMEOUT.min(self.limits.ack_timeout / 4).max(TICK)) {
                Ok(()) => {
                    if is_gone {
                        tracing::info!("Kafka takes records again");
                    }
                    pause = PAUSE.0;
                }
                Err(error) => self.refuse(&error, is_gone),
            }
            again_at = Instant::now() + pause;
            pause = (pause * 2).min(PAUSE.1);
        }
        // Nobody waits for ever.
        self.room
            .expire(Instant::now() + Duration::from_secs(365 * 24 * 3600), self.limits.ack_timeout);
    }

    /// A batch was not acknowledged in time: nothing that is on its way is sent again. When a message times out, the client
    /// begins a new epoch, and would repeat in it what the broker may have from the old one, and cannot recognize. So
    /// all of it fails now, before the client looks for messages whose time is up, which it does once per second.
    fn give_up(&self) {
        if let Some(live) = &*self.live() {
            let timeout = self.limits.ack_timeout;
            tracing::warn!(
                "Kafka has not acknowledged a batch within {timeout:?}: all batches in flight fail"
            );
            live.producer.purge(PurgeConfig::default().queue().inflight());
        }
    }

    /// The producer cannot continue; or, if Kafka is only unreachable, it waits for it.
    fn refuse(&self, error: &Error, is_gone: bool) {
        if !is_gone && error.kind() != ErrorKind::Unavailable {
            tracing::error!("batches are refused: {error}");
            self.replace(None);
        }
        self.set_reason(Some(error.to_string()));
    }
}

/// A fatal error is permanent: only a new producer helps.
fn is_dead(live: &Live) -> bool {
    live.producer.client().fatal_error().is_some()
}
