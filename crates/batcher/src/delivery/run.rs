//! The delivery's thread.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use highwater_journal::{Consumer, Item, Reader};

use super::dead_letters::{DeadLetters, bury};
use super::direct::Direct;
use super::doubts::Doubts;
use super::passing::{PASSING, Passing};
use super::progress::Progress;
use super::session::{DeliveryReport, End, Session, is_refused};
use super::suspects::Suspects;
use super::window::{Done, Window};
use super::work::{Work, entry};
use super::{DeliveryOptions, Stop};
use crate::sink::kafka::{Error, ErrorKind, Settings, Topic, look, not_taken, unavailable};

/// The timeout for checking the topic.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// The first pause after something went wrong.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The first pause before Kafka's client is asked for answers again, and the longest, after many polls without one.
const POLL: Duration = Duration::from_millis(2);
const POLL_MAX: Duration = Duration::from_millis(32);
/// The longest wait for records before other checks.
const WAIT: Duration = Duration::from_millis(50);
/// The most records read before answers are handled.
const READ_MAX: usize = 1024;
/// The most windows of records sent but not committed: one unanswered, one waiting for its commit.
const CANDIDATES_WINDOWS: usize = 2;

/// The thread's shared state.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) progress: Arc<Progress>,
    pub(super) direct: Arc<Direct>,
    pub(super) stop: Arc<Stop>,
}

/// The thread's own state.
pub(super) struct Run {
    settings: Settings,
    /// The topic as checked at startup, for the first session.
    topic: Option<Topic>,
    options: DeliveryOptions,
    consumer: Consumer,
    reader: Reader,
    dead_letters: DeadLetters,
    progress: Arc<Progress>,
    direct: Arc<Direct>,
    /// The batch sent from memory, bypassing a full journal.
    passing: Option<Passing>,
    stop: Arc<Stop>,
    window: Window,
    suspects: Suspects,
    doubts: Doubts,
    /// Finished, and not committed.
    done: Done,
    /// Every record with a lower offset is finished, committed or not.
    done_below: u64,
    committed_at: Instant,
    /// The end of the journal was reached.
    is_at_end: bool,
    /// Something was sent from memory just now: more may follow soon.
    was_passing: bool,
    /// The next pause before the client is asked for answers.
    poll: Duration,
}

/// However the thread ends, waiting workers are notified.
impl Drop for Run {
    fn drop(&mut self) {
        self.direct.close();
    }
}

impl Run {
    pub(super) fn new(
        settings: Settings,
        topic: Option<Topic>,
        options: DeliveryOptions,
        consumer: Consumer,
        dead_letters: DeadLetters,
        Shared { progress, direct, stop }: Shared,
    ) -> Run {
        Run {
            doubts: Doubts::load(&settings, &options),
            settings,
            topic,
            options,
            reader: consumer.reader(),
            consumer,
            dead_letters,
            progress,
            direct,
            passing: None,
            stop,
            window: Window::default(),
            suspects: Suspects::default(),
            done: Done::default(),
            done_below: 0,
            committed_at: Instant::now(),
            is_at_end: false,
            was_passing: false,
            poll: POLL,
        }
    }

    /// Delivers until it is stopped.
    pub(super) fn run(&mut self) {
        let mut pause = PAUSE_MIN;
        loop {
            let before = self.progress.delivered();
            let error = match self.session() {
                End::Stopped => break,
                End::Again => continue,
                End::Trouble(error) => error,
            };
            self.progress.set_trouble(Some(error.to_string()));
            self.give_back();
            self.report_oldest();
            if self.progress.delivered() > before {
                pause = PAUSE_MIN;
            }
            if self.stop.pause(pause) {
                break;
            }
            pause = (pause * 2).min(self.options.pause_max);
        }
    }

    /// Kafka has failed: gives back what has bypassed the journal and waits for it.
    fn give_back(&mut self) {
        if let Some(passing) = self.passing.take_if(|passing| passing.is_late()) {
            let (ids, dead) = passing.give_back();
            self.doubts.give_back(ids);
            self.progress.dead.fetch_add(dead, Ordering::Release);
        }
        self.direct.give_back();
    }

    /// Delivers with one producer, until it cannot go on.
    fn session(&mut self) -> End {
        let known = self.topic.take().map(Ok);
        let topic = match known.unwrap_or_else(|| look(&self.settings, LOOK_TIMEOUT)) {
            Ok(topic) => topic,
            Err(error) => return error.into(),
        };
        if let Err(error) = self.resolve_doubts() {
            return error.into();
        }
        let session = match Session::begin(&self.settings, topic, !self.suspects.is_empty()) {
            Ok(session) => session,
            Err(error) => return error.into(),
        };
        self.progress.sessions.fetch_add(1, Ordering::Relaxed);
        self.dead_letters.reserve();
        self.reader = self.consumer.reader();
        self.is_at_end = false;
        let end = self.deliver(&session);
        for (number, outcome) in session.end() {
            if let Some(index) = number.checked_sub(PASSING) {
                if let (Ok(_), Some(passing)) = (outcome, &mut self.passing) {
                    passing.done(index);
                }
                continue;
            }
            match outcome {
                Ok(offset) => self.window.acknowledge(number, offset),
                Err(error) => self.suspect(number, is_refused(&error)),
            }
        }
        let is_clean = self.window.open() == 0 && self.passing_open() == 0;
        self.passing.iter_mut().for_each(Passing::end_session);
        // A dead letter that is not durable is not finished.
        if !self.window.is_unsynced() {
            self.let_go();
        }
        // If that fails, the next session reads from an earlier position, and skips finished records.
        if let Err(error) = self.commit() {
            self.progress.set_trouble(Some(error.to_string()));
        }
        self.window.reset();
        self.doubts.end_session(is_clean);
        end
    }

    /// Looks in the topic for records of unknown outcome, before any is sent again.
    fn resolve_doubts(&mut self) -> Result<(), Error> {
        if self.doubts.are_any() {
            let records = CANDIDATES_WINDOWS * self.options.window_records + READ_MAX;
            let mut reader = self.consumer.reader();
            let mut ids = HashSet::new();
            while ids.len() < records {
                match reader.next().map_err(disk)? {
                    Item::Record(record) => ids.insert(record.id),
                    Item::Skipped(_) => continue,
                    Item::End => break,
                };
            }
            ids.extend(self.passing.iter().flat_map(Passing::ids).map(|(_, id)| id));
            let stop = Arc::clone(&self.stop);
            let ends = move || stop.until().is_some_and(|until| Instant::now() >= until);
            self.doubts.resolve(&self.settings, ids, ends)?;
            self.pass_over();
        }
        self.doubts.begin_session(&self.settings)
    }

    /// Records of the batch from memory that are known to be in the topic are not sent.
    fn pass_over(&mut self) {
        if let Some(passing) = &mut self.passing {
            let found: Vec<_> =
                passing.ids().filter(|(_, id)| self.doubts.take(*id).is_some()).collect();
            found.into_iter().for_each(|(index, _)| passing.done(index));
        }
    }

    fn deliver(&mut self, session: &Session) -> End {
        loop {
            let turn = self.turn(session);
            match turn {
                Ok(true) => {}
                Ok(false) => return End::Stopped,
                Err(end) => return end,
            }
        }
    }

    /// One round: read, send, take outcomes, release, commit. False if it is stopping and may not or need not continue.
    fn turn(&mut self, session: &Session) -> Result<bool, End> {
        // Before the journal is read to its end: records that the worker appended earlier go first.
        if self.passing.is_none() && !session.is_single {
            self.passing = Passing::next(&self.direct);
            self.pass_over();
        }
        let read = self.fill(session)?;
        if self.window.is_unsynced() {
            self.dead_letters.sync()?;
            self.window.synced();
        }
        // Full, or nothing to read: then it waits for answers.
        let waits = read == 0 && self.window.open() + self.passing_open() > 0;
        if waits {
            self.pause_for_answers(session);
        }
        let reports = session.reports();
        self.poll = if waits && reports.is_empty() { (self.poll * 2).min(POLL_MAX) } else { POLL };
        if self.settle(session, reports)? {
            self.progress.set_trouble(None);
        } else if self.window.open() + self.passing_open() > 0
            && let Some(trouble) = session.trouble()
        {
            let trouble = format!("Kafka at {}: {trouble}", self.settings.brokers);
            self.progress.set_trouble(Some(trouble.clone()));
            if self.passing.as_ref().is_some_and(Passing::is_late) {
                return Err(unavailable(trouble).into());
            }
        }
        if !self.window.is_unsynced() {
            self.let_go();
        }
        let is_done = self.is_at_end && self.window.is_empty();
        // The search after a crash has to be bounded as well.
        let is_much = self.done.records >= self.options.window_records as u64;
        let is_due = self.committed_at.elapsed() >= self.options.commit_interval;
        if self.done.records > 0 && (is_done || is_due || is_much || self.doubts.is_denied()) {
            self.commit()?;
        } else if is_done && self.consumer.position() < self.next_undone() {
            // There are offsets without a record, such as those of a tail that a crash has torn. While the position stays
            // before them, the segment counts as unread, and a full disk gets no room.
            self.commit()?;
        }
        self.report(is_done);
        if is_done && self.done.records == 0 {
            // There is nothing that Kafka could refuse; otherwise only an answer shows that the trouble has passed.
            if self.passing.is_none() {
                self.progress.set_trouble(None);
            }
            self.pass(session)?;
        }
        if let Some(until) = self.stop.until() {
            // Nothing more can be delivered while Kafka is unreachable: the records are safe in the journal.
            let is_down = read == 0 && self.window.open() > 0 && session.trouble().is_some();
            return Ok(!(is_done || is_down || Instant::now() >= until));
        }
        if session.is_single && self.suspects.is_empty() && !self.window.is_unsynced() {
            return Err(End::Again);
        }
        if is_done && self.passing.is_none() {
            let was_passing = std::mem::take(&mut self.was_passing);
            self.reader.wait_more(if was_passing { POLL } else { WAIT });
        }
        Ok(true)
    }

    /// Waits a little for answers; for records, too, if they could be sent.
    fn pause_for_answers(&self, session: &Session) {
        if self.is_at_end && !self.is_full() && !session.is_single {
            self.reader.wait_more(self.poll);
        } else {
            thread::sleep(self.poll);
        }
    }

    fn is_full(&self) -> bool {
        self.window.records() >= self.options.window_records
            || self.window.bytes() >= self.options.window_bytes
    }

    fn passing_open(&self) -> usize {
        self.passing.as_ref().map_or(0, Passing::open)
    }

    /// Sends the batch from memory; answers for it when all of it has arrived.
    fn pass(&mut self, session: &Session) -> Result<(), End> {
        let Some(passing) = self.passing.as_mut().filter(|_| !session.is_single) else {
            return Ok(());
        };
        passing.send(&self.settings, session, &mut self.dead_letters)?;
        if let Some(passing) = self.passing.take_if(|passing| passing.is_done()) {
            let (records, bytes, dead) = passing.finish();
            self.progress.dead.fetch_add(dead, Ordering::Release);
            self.progress.delivered_bytes.fetch_add(bytes, Ordering::Release);
            self.progress.delivered.fetch_add(records, Ordering::Release);
            self.was_passing = true;
        }
        Ok(())
    }

    /// Reads and sends as long as there is room. Returns the number of records read.
    fn fill(&mut self, session: &Session) -> Result<usize, End> {
        for read in 0..READ_MAX {
            let is_busy = session.is_single && (self.window.open() > 0 || self.suspects.is_empty());
            if self.is_full() || is_busy {
                return Ok(read);
            }
            let item = self.reader.next().map_err(disk)?;
            self.is_at_end = matches!(item, Item::End);
            match item {
                // Read again after a failed commit.
                Item::Record(record) if record.offset < self.done_below => {}
                Item::Record(record) => {
                    let partition = record.partition % self.settings.partitions;
                    if let Some((of, offset)) = self.doubts.take(record.id) {
                        let entry = entry(&record, partition);
                        self.suspects.remove(entry);
                        self.window.push_arrived(entry, (of == partition).then_some(offset));
                        continue;
                    }
                    let work = Work {
                        settings: &self.settings,
                        session,
                        suspects: &mut self.suspects,
                        window: &mut self.window,
                        dead_letters: &mut self.dead_letters,
                    };
                    work.send(&record)?;
                }
                Item::Skipped(damage) => {
                    tracing::error!("records are lost, and not delivered: {damage}")
                }
                Item::End => return Ok(read),
            }
        }
        Ok(READ_MAX)
    }

    /// Settles the records that `reports` are about. Returns whether any was acknowledged.
    fn settle(&mut self, session: &Session, reports: Vec<DeliveryReport>) -> Result<bool, End> {
        let mut is_any = false;
        let mut end = None;
        for (number, outcome) in reports {
            if let Some(index) = number.checked_sub(PASSING) {
                is_any |= outcome.is_ok();
                let (settings, dead_letters) = (&self.settings, &mut self.dead_letters);
                if let Some(passing) = &mut self.passing {
                    let handled = passing.handle_outcome(index, outcome, settings, dead_letters);
                    end = handled.err().or(end);
                }
                continue;
            }
            let error = match outcome {
                Ok(offset) => {
                    is_any = true;
                    if let Some(entry) = self.window.entry(number).filter(|_| session.is_single) {
                        self.suspects.remove(entry);
                    }
                    self.window.acknowledge(number, offset);
                    continue;
                }
                Err(error) => error,
            };
            let is_refused = is_refused(&error);
            if session.is_single && is_refused {
                // It was sent alone, so it is the refused record.
                self.bury_number(number, &not_taken(&self.settings.topic, &error))?;
                continue;
            }
            self.suspect(number, is_refused);
            end = Some(if is_refused {
                End::Again
            } else {
                unavailable(not_taken(&self.settings.topic, &error)).into()
            });
        }
        match (end, session.fatal()) {
            (Some(end), _) => Err(end),
            (None, Some(reason)) => Err(unavailable(format!("Kafka: {reason}")).into()),
            (None, None) => Ok(is_any),
        }
    }

    fn suspect(&mut self, number: usize, is_refused: bool) {
        if let Some(entry) = self.window.entry(number).filter(|_| is_refused) {
            self.suspects.insert(entry);
        }
    }

    /// Buries a record, reading its body again.
    fn bury_number(&mut self, number: usize, reason: &str) -> Result<(), Error> {
        let Some(entry) = self.window.entry(number) else { return Ok(()) };
        let mut reader = self.consumer.reader();
        loop {
            match reader.next().map_err(disk)? {
                Item::Record(record) if record.offset == entry.offset => {
                    bury(&mut self.dead_letters, &self.settings, &record, reason)?;
                    break;
                }
                Item::Record(record) if record.offset < entry.offset => {}
                Item::Skipped(_) => {}
                _ => return Err(disk(format!("record {} cannot be read again", entry.offset))),
            }
        }
        self.suspects.remove(entry);
        self.window.bury(number);
        Ok(())
    }

    /// Releases finished records.
    fn let_go(&mut self) {
        let doubts = &mut self.doubts;
        let Done { records, bytes, dead } =
            self.window.pop_done(|partition, offset| doubts.pass(partition, offset));
        self.done.records += records;
        self.done.bytes += bytes;
        self.done.dead += dead;
        self.done_below = self.done_below.max(self.next_undone());
    }

    /// The first unfinished offset.
    fn next_undone(&self) -> u64 {
        self.window.first_offset().unwrap_or(self.reader.next_offset())
    }

    /// Commits finished records, durably, and counts them.
    fn commit(&mut self) -> Result<(), Error> {
        self.committed_at = Instant::now();
        let position = self.next_undone();
        self.consumer.commit(position).map_err(disk)?;
        self.doubts.committed(&self.settings);
        let Done { records, bytes, dead } = std::mem::take(&mut self.done);
        let progress = &self.progress;
        progress.position.store(self.consumer.position(), Ordering::Release);
        progress.dead.fetch_add(dead, Ordering::Release);
        progress.delivered_bytes.fetch_add(bytes, Ordering::Release);
        progress.delivered.fetch_add(records, Ordering::Release);
        Ok(())
    }

    fn report(&self, is_done: bool) {
        let oldest = self.window.oldest_us();
        // Between two reads of a long spool the window may be empty for a moment: then the last value stays.
        if oldest.is_some() || is_done {
            self.progress.oldest_us.store(oldest.unwrap_or(0), Ordering::Relaxed);
        }
        self.progress.is_idle.store(is_done && self.done.records == 0, Ordering::Release);
    }

    /// Reports the oldest waiting record, while no session reads.
    fn report_oldest(&self) {
        let mut reader = self.consumer.reader();
        if let Ok(Item::Record(record)) = reader.next() {
            self.progress.is_idle.store(false, Ordering::Release);
            self.progress.oldest_us.store(record.time_us, Ordering::Relaxed);
        }
    }
}

fn disk(error: impl ToString) -> Error {
    Error::new(ErrorKind::Disk, error.to_string())
}
