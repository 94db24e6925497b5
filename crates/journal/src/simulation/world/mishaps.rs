//! The faults in a journal's life: weeks pass, the disk fills up, the power fails, bytes rot.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use super::{Found, Life, Parsed, WEEK_US, World, parse, retention};
use crate::committer::Turn;
use crate::storage::sim::Faults;
use crate::{Health, Retention};

impl World {
    /// Weeks may have passed, or the clock was set back; the service may have another sink, and so another retention.
    pub(super) fn another_day(&mut self) {
        if self.chance(20) {
            let weeks = 1 + self.prng.below(4);
            let now = self.clock.load(Ordering::Relaxed);
            let then = if self.chance(70) { now + weeks * WEEK_US } else { now - weeks * WEEK_US };
            self.clock.store(then.max(4 * WEEK_US), Ordering::Relaxed);
            self.seen.weeks += 1;
        }
        if self.chance(20) {
            self.options.retention = retention(&mut self.prng);
            self.seen.other_sinks += 1;
        }
        self.released = false;
    }

    /// The disk is full for good; all records are read and committed. A spool must continue then.
    pub(super) fn fills_up(&mut self, life: &mut Life) {
        while life.committer.turn() == Turn::Worked {}
        self.collect(life);
        let Retention { bytes, keep_unread, .. } = self.options.retention;
        let is_spool = bytes.is_some() && keep_unread && !self.released;
        let is_open = !matches!(life.journal.health(), Health::Poisoned(_));
        if !is_spool || !is_open || self.disk.is_down() || life.journal.consumer("c").is_err() {
            return;
        }
        let used: usize = self.disk.contents().values().map(Vec::len).sum();
        self.disk.set_faults(Faults { room: Some(used as u64), ..Faults::default() });
        for _ in 0..3 {
            self.append(life);
            while life.committer.turn() == Turn::Worked {}
            self.collect(life);
        }
        life.reader = life.journal.reader(life.journal.stat().next_offset);
        self.commit_position(life);
        // All but the header is freed for the next segment's header, two seals, and the largest batch.
        let stat = life.journal.stat();
        let is_worth_it = stat.bytes - 8192 * stat.segments as u64 > 8192 + 2 * 80 + (12 << 10);
        let acknowledged = self.seen.acknowledged;
        self.append(life);
        let is_taken = !life.waiting.is_empty();
        while life.committer.turn() == Turn::Worked {}
        self.collect(life);
        assert!(
            !is_worth_it
                || !is_taken
                || self.seen.acknowledged > acknowledged
                || self.disk.is_down(),
            "everything is read, and the disk is full of it: {:?}",
            life.journal.health()
        );
        self.seen.moved_on += u64::from(is_worth_it && is_taken);
        self.disk.set_faults(Faults::default());
    }

    /// What was open is gone. The power comes back, or another process begins; something may have rotted.
    pub(super) fn end_of_power(&mut self) {
        if self.chance(70) {
            self.disk.restart();
            self.seen.power_cuts += 1;
        } else {
            self.disk.kill();
            self.seen.kills += 1;
        }
        self.disk.set_faults(Faults::default());
        if let Some(kept) = self.retained() {
            self.model.removable_below = self.model.removable_below.max(kept);
        }
        let before = parse(&self.disk.contents());
        self.model.check_disk(&before, &BTreeSet::new());
        if self.chance(15) {
            self.rot(&before);
        }
    }

    /// Below which offset retention may have removed records, as the options' documentation says it.
    pub(super) fn retained(&self) -> Option<u64> {
        let Retention { bytes, age, keep_unread } = &self.options.retention;
        (bytes.is_some() || age.is_some()).then_some(())?;
        // A consumer that comes later has read nothing yet.
        let is_kept = *keep_unread && !self.released;
        Some(if is_kept { self.position.1 } else { self.model.end() })
    }

    fn rot(&mut self, before: &Parsed) {
        let contents = self.disk.contents();
        let files: Vec<_> = contents.iter().filter(|(name, _)| name.ends_with(".hwj")).collect();
        if files.is_empty() {
            return;
        }
        let (name, bytes) = files[self.prng.below(files.len() as u64) as usize];
        if bytes.is_empty() {
            return;
        }
        let at = self.prng.below(bytes.len() as u64) as usize;
        // Sometimes both copies of a header, which is what it takes to lose a file.
        let places = if self.chance(20) { vec![at % 64, 4096 + at % 64] } else { vec![at] };
        for at in places {
            let place = (name.clone(), at);
            if at < bytes.len() && !self.rot.contains(&place) {
                self.disk.rot(name, at, 1 << self.prng.below(8));
                self.rot.push(place);
            }
        }
        let after = parse(&self.disk.contents());
        // Those that seem to be in another file now are lost, too: a sync had failed there, and they may not be durable.
        let left: BTreeSet<(&str, u64)> = after.records.iter().map(Found::place).collect();
        let is_lost = |found: &&Found| !left.contains(&found.place());
        let lost = before.records.iter().filter(is_lost).map(|found| found.offset);
        self.model.check_disk(&after, &lost.collect());
        // The room that is left of a file says how many records it had. Where groups had failed, offsets are higher than that,
        // and may be given again.
        let own = before.records.iter().filter(|found| found.file == *name);
        let first = own.clone().next().map_or(0, |found| found.offset);
        let behind_gap = (first..).zip(own).filter(|(at, found)| found.offset > *at);
        let forgotten = behind_gap.map(|(_, found)| found).filter(is_lost);
        forgotten.for_each(|found| self.model.forget(found.offset));
        self.seen.rot += 1;
    }
}
