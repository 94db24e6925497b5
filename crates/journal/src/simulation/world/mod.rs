//! One life of a journal, as a seed decides it. Failures are in `mishaps.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use highwater_core::prng::Prng;

use super::Seen;
use super::model::{Appended, Model, check_report};
use super::parser::{Found, Parsed, parse};
use crate::committer::{Committer, Turn};
use crate::storage::sim::{Disk, Faults};
use crate::{
    Batch, DamageKind, ErrorKind, Health, Item, Journal, Options, Producer, Reader, Receipt,
    Record, Retention, verify,
};

mod mishaps;

const PRODUCERS_MAX: u64 = 3;

pub(crate) struct World {
    prng: Prng,
    disk: Disk,
    options: Options,
    model: Model,
    next_id: u128,
    seen: Seen,
    /// Where bytes have rotted.
    rot: Vec<(String, usize)>,
    /// A consumer's position that is durable, and the highest that may be.
    position: (u64, u64),
    /// The clock, which advances by days and is sometimes set back.
    clock: Arc<AtomicU64>,
    /// In this life unread records may be removed.
    released: bool,
}

/// A journal that is open.
struct Life {
    journal: Journal,
    committer: Committer,
    producers: Vec<Producer>,
    reader: Reader,
    waiting: Vec<(Receipt, Vec<u128>)>,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let mut prng = Prng::from_seed(seed);
        let disk = Disk::new(prng.next_u64());
        let clock = Arc::new(AtomicU64::new(8 * WEEK_US));
        let options = options(&mut prng, &clock);
        World {
            prng,
            disk,
            options,
            model: Model::default(),
            next_id: 1,
            seen: Seen::default(),
            rot: Vec::new(),
            position: (0, 0),
            clock,
            released: false,
        }
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.prng.below(100) < percent
    }

    pub(crate) fn live(mut self) -> Seen {
        let rounds = 2 + self.prng.below(4);
        for _ in 0..rounds {
            let life = self.open();
            self.round(life);
            self.end_of_power();
        }
        self.disk.set_faults(Faults::default());
        let mut life = self.open();
        self.still_serves(&mut life);
        self.close(life);
        self.seen
    }

    /// Opens the journal and compares its report with the disk.
    fn open(&mut self) -> Life {
        if self.chance(25) {
            self.open_badly();
        }
        self.another_day();
        let contents = self.disk.contents();
        let parsed = parse(&contents);
        let deep = verify(&self.disk).expect("the disk gives no errors now");
        let storage = Arc::new(self.disk.clone());
        let (journal, committer) = Journal::open_idle(storage, self.options.clone())
            .expect("the disk gives no errors now");
        // Drop injected damage in removed or truncated regions.
        self.rot.retain(|(file, at)| {
            let end = match parsed.valid.get(file) {
                Some(valid) => Some(*valid),
                None => contents.get(file).map(Vec::len),
            };
            end.is_some_and(|end| *at < end)
        });
        check_report(&deep, &parsed, &self.rot);
        self.forget_rot_of_tail(&deep);
        self.opened(journal, committer, &parsed, &deep)
    }

    /// Opening writes a seal over the beginning of a tail.
    fn forget_rot_of_tail(&mut self, report: &crate::Report) {
        if let Some(tail) = &report.tail {
            self.rot.retain(|(file, at)| *file != tail.file || (*at as u64) < tail.at);
        }
    }

    /// The power fails while the journal is opened, or the disk gives errors. Nothing is lost by that.
    fn open_badly(&mut self) {
        let report = verify(&self.disk).expect("the disk gives no errors now");
        self.forget_rot_of_tail(&report);
        let faults = self.faults();
        self.disk.set_faults(faults);
        self.disk.cut_power_after(self.prng.below(60));
        let opened = Journal::open_idle(Arc::new(self.disk.clone()), self.options.clone());
        self.seen.opened_badly += u64::from(opened.is_err());
        drop(opened);
        self.disk.set_faults(Faults::default());
        if self.chance(70) {
            self.disk.restart();
        } else {
            self.disk.kill();
        }
        self.model.check_disk(&parse(&self.disk.contents()), &BTreeSet::new());
    }

    fn opened(
        &mut self,
        journal: Journal,
        committer: Committer,
        parsed: &Parsed,
        deep: &crate::Report,
    ) -> Life {
        let report = journal.recovery().report.clone();
        // A seal was trusted for bytes that were not read.
        assert!(report.unscanned_bytes > 0 || report.records == deep.records, "{report:?}");
        for damage in &deep.damage {
            match damage.kind {
                DamageKind::Torn => self.seen.torn += 1,
                DamageKind::File => self.seen.lost_files += 1,
                _ => self.seen.changed += 1,
            }
        }
        self.seen.tails += u64::from(report.tail.is_some());
        self.seen.unfinished += report.unfinished.len() as u64;
        self.seen.segments += report.segments as u64;
        let (served, skipped) = read_all(&journal);
        self.model.check_served(&served, parsed);
        let whole_files = deep.damage.iter().filter(|damage| damage.kind != DamageKind::Header);
        let missing = whole_files.filter(|damage| damage.next_offset > damage.first_offset).count();
        assert!(skipped >= missing, "the reader has reported {skipped} of {missing}: {deep}");
        assert!(skipped == 0 || !deep.is_intact(), "a loss was reported, and nothing is missing");
        self.check_position(&journal);
        let producers = (0..=self.prng.below(PRODUCERS_MAX))
            .map(|_| journal.producer().expect("there are few"))
            .collect();
        let reader = journal.reader(journal.stat().next_offset);
        Life { journal, committer, producers, reader, waiting: Vec::new() }
    }

    fn check_position(&mut self, journal: &Journal) {
        let found = journal.consumers().first().map_or(0, |(_, position)| *position);
        let (durable, tried) = self.position;
        assert!(
            (durable..=tried.max(durable)).contains(&found) || durable == 0,
            "the position is {found}; {durable} was committed, and {tried} tried"
        );
        self.position = (found, tried.max(found));
    }

    fn round(&mut self, mut life: Life) {
        let faults = self.faults();
        self.disk.set_faults(faults);
        if self.chance(70) {
            self.disk.cut_power_after(self.prng.below(120));
        }
        for _ in 0..10 + self.prng.below(60) {
            self.step(&mut life);
            if self.disk.is_down() {
                return;
            }
        }
        self.disk.set_faults(Faults::default());
        if self.chance(50) {
            self.still_serves(&mut life);
        }
        if self.chance(30) {
            self.fills_up(&mut life);
        }
        if self.chance(40) {
            self.close(life);
        }
    }

    fn faults(&mut self) -> Faults {
        let used: usize = self.disk.contents().values().map(Vec::len).sum();
        let mut percent = |likely: u64, max: u64| {
            if self.prng.below(100) < likely { self.prng.below(max) } else { 0 }
        };
        Faults {
            sync: percent(40, 40),
            write: percent(20, 20),
            cut: percent(40, 90),
            names: percent(20, 30),
            room: (percent(30, 2) == 1).then(|| (used + percent(100, 60_000) as usize) as u64),
            no_descriptors: percent(10, 2) == 1,
        }
    }

    fn step(&mut self, life: &mut Life) {
        match self.prng.below(20) {
            0..8 => self.append(life),
            8..14 => drop(life.committer.turn()),
            14..16 => self.read(life),
            16 => self.commit_position(life),
            17 if self.chance(5) => {
                life.journal.release_unread();
                self.released = true;
                self.seen.released += 1;
            }
            17 if self.chance(30) => {
                let faults = self.faults();
                self.disk.set_faults(faults);
            }
            _ => self.collect(life),
        }
    }

    fn append(&mut self, life: &mut Life) {
        let producer = self.prng.below(life.producers.len() as u64) as usize;
        let (mut batch, mut ids) = (Batch::new(), Vec::new());
        let records = 1 + self.prng.below(4);
        for _ in 0..records {
            let length = if self.chance(5) { self.prng.below(9_000) } else { self.prng.below(400) };
            let filling = self.prng.next_u64();
            let body: Vec<u8> =
                (0..length).map(|at| (filling >> (at % 57)) as u8 ^ at as u8).collect();
            let (id, time_us) = (self.next_id, (self.options.clock)());
            self.next_id += 1;
            // The partition says whose it is: its order is checked.
            let partition = producer as u32;
            batch.push(Record { partition, time_us, id, body: &body });
            self.model.append(id, Appended { producer: partition, time_us, body });
            ids.push(id);
        }
        match life.producers[producer].append(batch) {
            Ok(receipt) => life.waiting.push((receipt, ids)),
            Err(refused) => {
                let kind = refused.error.kind();
                let poisoned = matches!(life.journal.health(), Health::Poisoned(_));
                assert!(
                    matches!(kind, ErrorKind::Busy | ErrorKind::TooLarge)
                        || (kind == ErrorKind::Poisoned && poisoned),
                    "{kind:?}"
                );
                self.model.refuse(&ids);
                self.seen.refused += 1;
            }
        }
    }

    /// Collects the receipts. After a power failure they no longer count.
    fn collect(&mut self, life: &mut Life) {
        for (receipt, ids) in std::mem::take(&mut life.waiting) {
            match receipt.answer() {
                None => life.waiting.push((receipt, ids)),
                Some(Ok(committed)) => {
                    assert_eq!(committed.records, ids.len() as u64);
                    self.model.acknowledge(committed.first_offset, &ids);
                    self.seen.acknowledged += committed.records;
                }
                Some(Err(error)) => match error.kind() {
                    ErrorKind::Full => self.seen.full += 1,
                    ErrorKind::Descriptors => self.seen.no_descriptors += 1,
                    ErrorKind::Disk => self.seen.failed += 1,
                    ErrorKind::Poisoned => self.seen.poisoned += 1,
                    kind => panic!("{kind:?}: {error}"),
                },
            }
        }
    }

    fn read(&mut self, life: &mut Life) {
        for _ in 0..self.prng.below(20) {
            match life.reader.next() {
                Ok(Item::Record(record)) => {
                    let (offset, partition, time_us) =
                        (record.offset, record.partition, record.time_us);
                    self.model.shown(offset, partition, time_us, record.id, record.body);
                }
                Ok(Item::Skipped(damage)) => {
                    assert_eq!(damage.kind, DamageKind::Removed, "{damage}");
                    assert!(self.retained().is_some(), "{damage}");
                }
                Ok(Item::End) => {
                    let (at, end) = (life.reader.next_offset(), life.journal.stat().next_offset);
                    assert!(at >= end, "a reader at the end waits for a record that never comes");
                    return;
                }
                Err(error) => {
                    let is_passing = error.kind() == ErrorKind::Descriptors;
                    assert!(self.disk.is_down() || is_passing, "{error}");
                    return;
                }
            }
        }
    }

    fn commit_position(&mut self, life: &mut Life) {
        let Ok(consumer) = life.journal.consumer("c") else { return };
        let position = life.reader.next_offset();
        self.position.1 = self.position.1.max(position).max(consumer.position());
        // As a consumer would, it tries again.
        if (0..3).any(|_| consumer.commit(position).is_ok()) {
            let reached = consumer.position();
            assert!(reached >= position);
            self.position.0 = self.position.0.max(reached);
            self.seen.positions += 1;
        }
    }

    /// Without faults, and unless the disk has failed twice, it takes records and makes them durable.
    fn still_serves(&mut self, life: &mut Life) {
        while life.committer.turn() == Turn::Worked {}
        self.collect(life);
        if matches!(life.journal.health(), Health::Poisoned(_)) || self.disk.is_down() {
            return;
        }
        let before = life.waiting.len();
        self.append(life);
        while life.committer.turn() == Turn::Worked {}
        let acknowledged = self.seen.acknowledged;
        let taken = life.waiting.len() > before;
        let is_full = self.options.bytes_max.is_some();
        self.collect(life);
        assert!(
            !taken || is_full || self.seen.acknowledged > acknowledged || self.disk.is_down(),
            "with room and a disk that works, it must serve: {:?}",
            life.journal.health()
        );
    }

    fn close(&mut self, mut life: Life) {
        while life.committer.turn() == Turn::Worked {}
        self.collect(&mut life);
        assert!(life.waiting.is_empty(), "a receipt is left without an answer");
        if self.disk.is_down() {
            return;
        }
        life.committer.finish();
        self.seen.closes += 1;
    }
}

/// Everything a reader returns from the beginning on, and how often it reported a loss.
fn read_all(journal: &Journal) -> (Vec<Found>, usize) {
    let mut reader = journal.reader_from_start();
    let (mut served, mut skipped) = (Vec::new(), 0);
    loop {
        match reader.next().expect("the disk gives no errors now") {
            Item::Record(record) => served.push(Found {
                file: String::new(),
                at: 0,
                offset: record.offset,
                partition: record.partition,
                time_us: record.time_us,
                id: record.id,
                body: record.body.to_vec(),
            }),
            Item::Skipped(_) => skipped += 1,
            Item::End => {
                let (at, end) = (reader.next_offset(), journal.stat().next_offset);
                assert_eq!(at, end, "a reader at the end waits for a record that never comes");
                return (served, skipped);
            }
        }
    }
}

/// A week of the clock.
const WEEK_US: u64 = 7 * 86_400 * 1_000_000;

/// Retention by size, by age, by both or not at all, for a journal or for a spool.
fn retention(prng: &mut Prng) -> Retention {
    let bytes = match prng.below(4) {
        0 => Some(0),
        1 => Some(30_000 + prng.below(60_000)),
        _ => None,
    };
    let age = match prng.below(6) {
        0 => Some(Duration::from_micros(50 + prng.below(200))),
        1 => Some(Duration::from_secs(14 * 86_400)),
        _ => None,
    };
    Retention { bytes, age, keep_unread: prng.below(2) == 0 }
}

fn options(prng: &mut Prng, clock: &Arc<AtomicU64>) -> Options {
    let clock = Arc::clone(clock);
    let salts = prng.next_u64();
    let salt = AtomicU64::new(salts);
    Options {
        segment_bytes: (16 << 10) + prng.below(24 << 10),
        batch_bytes_max: 12 << 10,
        group_bytes_max: 1 + prng.below(12 << 10) as usize,
        queue_batches_max: 1 + prng.below(12) as usize,
        queue_bytes_max: 16 << 10,
        bytes_max: (prng.below(6) == 0).then(|| 100_000 + prng.below(50_000)),
        scan_bytes_max: if prng.below(3) == 0 { prng.below(100_000) } else { u64::MAX },
        retention: retention(prng),
        clock: Arc::new(move || clock.fetch_add(1, Ordering::Relaxed)),
        salt: Arc::new(move || Prng::from_seed(salt.fetch_add(1, Ordering::Relaxed)).next_u64()),
        ..Options::default()
    }
}
