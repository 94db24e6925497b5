//! A turn of the worker: its time, and its results.
//!
//! The clock is read when a turn finds its first event, and when it ends; besides that the turn's budget is
//! checked (`admission::budget`), and handlers are timed while one is suspected of blocking. Everything else
//! takes `now`.

use std::time::Duration;

use highwater_core::driver::Wait;
use highwater_core::time::{Clock, Instant};

use super::blocking::BlockingDetector;
use super::served_time::ServedTime;
use super::statistics::Statistics;

/// A worker that was kept from running for long first only reads, for at most this many turns, before it
/// judges any deadline: enough for some ten thousand connections with input, as each turn reports a few
/// hundred. It ends with the first turn without events.
const CATCH_UP_TURNS: u32 = 32;

/// The current turn.
pub(super) struct Turn<C> {
    pub(super) clock: ServedTime<C>,
    pub(super) now: Instant,
    /// When the driver was last polled: all input that had come by then is reported. Deadlines are judged by
    /// it, so that a client does not pay for the time that a handler took.
    pub(super) looked_at: Instant,
    /// Nothing has happened in this turn yet: the clock is to be read.
    is_stale: bool,
    /// Turns that may still pass before deadlines are judged again, since much input may be unread.
    catching_up: u32,
    events: u32,
    pub(super) statistics: Statistics,
    pub(super) blocking: BlockingDetector,
}

impl<C: Clock> Turn<C> {
    pub(super) fn new(clock: C) -> Self {
        let clock = ServedTime::new(clock);
        let now = clock.now();
        Turn {
            clock,
            now,
            looked_at: now,
            is_stale: true,
            catching_up: 0,
            events: 0,
            statistics: Statistics::default(),
            blocking: BlockingDetector::default(),
        }
    }

    /// A turn begins, which waits as `wait` says. Returns how long to wait by the driver's clock.
    #[inline]
    pub(super) fn begin(&mut self, wait: Wait) -> Wait {
        self.is_stale = true;
        self.events = 0;
        self.clock.plan(wait)
    }

    /// Whether the clock was not read in this turn yet: [`Turn::freshen`] does that.
    #[inline]
    pub(super) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Reads the clock. Returns the time that was lost since the last turn: it does not count for clients.
    #[inline]
    pub(super) fn freshen(&mut self) -> Duration {
        self.is_stale = false;
        let look = self.clock.look();
        self.now = look.now;
        self.looked_at = look.now;
        if look.is_behind && self.catching_up == 0 {
            self.catching_up = CATCH_UP_TURNS;
        }
        self.statistics.begin(look.now);
        look.lost
    }

    /// Makes the next use read the clock again, between two turns.
    pub(super) fn expire(&mut self) {
        self.is_stale = true;
    }

    /// Reads the clock in the middle of the turn.
    pub(super) fn look(&mut self) {
        self.now = self.clock.now();
    }

    /// The driver has reported something.
    #[inline]
    pub(super) fn count_event(&mut self) {
        self.events += 1;
    }

    /// How often the driver has reported something in this turn.
    #[inline]
    pub(super) fn events(&self) -> u32 {
        self.events
    }

    /// Whether deadlines may be judged in this turn: not while unread input may meet them.
    #[inline]
    pub(super) fn may_judge(&mut self) -> bool {
        let just_began = self.catching_up == CATCH_UP_TURNS;
        if self.catching_up > 1 && (just_began || self.events > 0) {
            self.catching_up -= 1;
            return false;
        }
        self.catching_up = 0;
        true
    }

    /// Whether the worker was kept from running for long, and so reads input before it judges deadlines.
    pub(super) fn is_catching_up(&self) -> bool {
        self.catching_up > 0
    }

    /// The turn ends. Returns when it began, and when it ended.
    #[inline]
    pub(super) fn end(&mut self) -> (Instant, Instant) {
        let end = self.clock.now();
        self.clock.leave(end);
        let began = self.statistics.began();
        self.blocking.end_turn(end - began);
        (began, end)
    }
}
