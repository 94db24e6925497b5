//! Does a worker have a *standing queue* (CoDel's term): does more work arrive than it can do?
//!
//! ```text
//!                 the queue takes longer than the patience, and more arrives than is started
//!       ┌─ calm ───────────────────────────────────────────────────────────────▶ standing ─┐
//!       │  every request waits its turn, in order      short target, newest first          │
//!       └◀──────────── the refused requests would have fitted into the idle time ◀─────────┘
//! ```
//!
//! A burst is not an overload: the worker serves the requests one after the other, and a patient client
//! gets its answer. The server must refuse requests only when they keep arriving faster than it
//! serves them, and when the queue already takes longer than clients wait. Then it is better to
//! refuse early.
//!
//! **Standing begins** when the number of waiting requests, times the cost of a request, exceeds
//! the patience, and one of these holds:
//!
//! * In each of [`WINDOWS`] windows in a row, arrivals were at least [`INFLOW_PERCENT`] of starts; or in each of
//!   [`STEEP_WINDOWS`], at least [`STEEP_PERCENT`].
//! * The queue has exceeded the patience for [`STAND`] patiences in a row, and shrank in none of
//!   them.
//!
//! The first rule sees an overload within a fraction of the patience. The second sees what the
//! first misses: many clients that each wait for their answer before they ask again, and loads just
//! above the capacity. A single burst fulfils neither: after it has arrived, nothing more arrives.
//!
//! **A queue that grows steadily** will be too long for some clients long before it is too long for all: in order of arrival,
//! once the answer to one impatient client is late, all answers to such clients are. So from when it has grown for a quarter of
//! the patience (`growth.rs`), the newest requests are started first, except while the oldest has waited for half of the
//! patience, and requests whose clients have given up are dropped. This refuses no request, and ends with the growth. The
//! newest are mostly requests of the client that sends most: where clients have shares, the worker takes their turns into
//! account whenever [`Standing::overtaken_max`] is not zero.
//!
//! **Clients' patience may be shorter.** If most of the requests being started have already been
//! given up by their clients, the queue takes longer than the clients wait, whatever the setting.
//! If arrivals also exceed starts, in windows in a row as above, the queue is standing at once.
//! Otherwise such requests are *dropped* from then on instead of started, and the newest are
//! started first: in order of arrival, each would be started just when its client gives up. This
//! refuses no request, and is enough if the clients of one burst have disconnected. If clients
//! still give up after half a patience, and the queue was never short, the queue is standing.
//! The same follows if clients leave, their requests with them, and in windows in a row those that
//! are started have waited for just as long (`leavers.rs`).
//!
//! **Standing ends** when, over one patience, the time with an empty queue would have been enough
//! to serve the refused requests: then the capacity suffices. It also ends at once when the queue
//! was empty for most of a few windows.
//!
//! It ends as well when a trial has shown that all refused requests fit if they wait a little longer
//! (`trial.rs`): then they were not an overload but a few clients that retry at once.
//!
//! **The cost** of a request is the time that the worker spent, divided by the requests it started. While requests wait,
//! all time counts, including the kernel's. So it is the present cost of a request on this machine, including the effect of
//! other programs.
//!
//! It never reads a clock, never looks at requests, and never decides which request to refuse.
//!
//! Invariants: without waiting requests, a queue is standing for no longer than a patience. Neither
//! a single burst of any size nor a queue of at most [`CROWD`] requests makes a queue standing.

use core::mem;
use core::time::Duration;

use super::growth::Growth;
use super::leavers::{Finding, Leavers};
use super::spans::{Dropping, Relief, Window};
use super::trial::{FACTOR, Trial};
use super::turn::{CHANCE_PERCENT, CROWD, Turn, is_still};
use crate::time::Instant;

/// A window lasts for this part of the patience: 31 ms of one second. Shorter windows see an
/// overload sooner; in longer ones random variation weighs less. Derived from 100 ms, CoDel's
/// interval for the same decision. `an_overload_is_seen_in_time` and `chance_is_no_overload` in
/// `tests/overload` notice a wrong value.
const WINDOW_SHARE: u32 = 32;

/// A window lasts at least this many times its longest turn without its input, and the short target at least this
/// many requests: what arrives during one slow request is not yet growth, and a queue of one or two
/// requests is not an overload. A guess; `chance_is_no_overload` notices a wrong value, with requests
/// of 300 ms.
pub(super) const REQUESTS: u32 = 4;

/// Windows in a row in which more must arrive than is started. Five: one slow request makes one
/// window of growth, and requests of heavy-tailed cost make two in a row now and then.
/// `chance_is_no_overload` notices a wrong value.
const WINDOWS: u32 = 5;

/// Arrivals as a percentage of starts, in a window of growth. At twice the capacity it is 200.
/// Below 150 the slower rule ([`STAND`]) loses nothing. `an_overload_is_seen_in_time` notices a
/// wrong value.
const INFLOW_PERCENT: u64 = 150;

/// Three windows in a row are enough if in each of them arrivals were at least this percentage of starts, and the queue takes
/// longer than the patience: at ten times the capacity, two windows more are hundreds of requests that are accepted only to be
/// refused. `a_page_is_no_overload` and `the_first_seconds` notice a wrong value.
const STEEP_WINDOWS: u32 = 3;
const STEEP_PERCENT: u64 = 400;

/// A queue is standing after it has exceeded the patience for this many patiences in a row and
/// shrank in none of them. Four, because the arrival of a burst makes the first one look like
/// growth. `a_closed_loop_stands` and `a_page_is_no_overload` notice a wrong value.
const STAND: u32 = 4;

/// Two windows: in one, a third of impatient clients may be most of those started.
/// `a_few_impatient_clients_are_no_overload` and `the_first_seconds` notice a wrong value.
const LEAVING: u32 = 2;

/// Windows in a row in which clients leave after the wait of those who are started. Four: a burst whose clients are
/// impatient has two of them when its queue is as long as their patience. `a_few_clients_that_leave_are_no_overload` and
/// `clients_that_leave_are_seen` notice a wrong value.
const OUTLASTING: u32 = 4;

/// A queue that grows steadily matters once it takes longer than this part of the patience: 62 ms of one second. Shorter
/// ones come and go by chance just below the capacity. A guess; `the_first_seconds` notices a wrong value.
const GROWN_SHARE: u32 = 16;

/// How many classes of requests there are. While one of a higher class waits, none of a lower class is started, so that the
/// waits of one class say nothing about those of another.
pub const CLASSES: usize = 3;

/// A standing queue ends at once if it was empty for this percentage of [`WINDOWS`] windows. A
/// guess; `it_ends_with_the_load` notices a wrong value.
const EMPTY_PERCENT: u32 = 50;

/// Watches the queue of one worker.
#[derive(Clone, Debug)]
pub struct Standing {
    target: Duration,
    patience: Duration,
    stands: bool,
    /// Requests wait, and the fields from `window` to `dropping` are about them.
    is_watching: bool,
    /// The queue stands, or takes longer than a part of the patience ([`GROWN_SHARE`]).
    is_long: bool,
    /// The end of the previous turn, and how many requests waited then.
    before: Instant,
    waiting: u32,
    /// Recent time spent, in nanoseconds, and requests started; see [`Standing::cost`].
    spent: u64,
    started: u64,
    /// The current window, the longest turn in it, and how many windows in a row have shown growth.
    window: Window,
    longest: Duration,
    /// How much of the current turn was input.
    input: Duration,
    growing: u32,
    /// The same for steep growth.
    steep: u32,
    /// The current patience in which the queue has always been too long, and how many in a row have
    /// not shrunk it.
    excess: Option<Window>,
    stood: u32,
    growth: Growth,
    /// How many windows in a row had clients that give up; and since when their requests are
    /// dropped.
    leaving: u32,
    dropping: Option<Dropping>,
    /// How long those of each class who leave have waited; and how many windows in a row nobody of a class has outlasted them.
    leavers: [Leavers; CLASSES],
    outlasting: u32,
    /// The two spans that decide when standing ends.
    brief: Relief,
    long: Relief,
    trial: Trial,
    /// By how many short targets requests may wait longer, since the worker had nothing to do
    /// while requests were refused.
    slack: u32,
    /// Nanoseconds with an empty queue, in total.
    empty_nanos: u64,
}

impl Standing {
    /// A watch over an empty queue, for clients that wait for `patience`. While the queue stands,
    /// requests wait for `target`. Time begins at `now`.
    pub fn new(target: Duration, patience: Duration, now: Instant) -> Self {
        let window = Window { began: now, ..Window::default() };
        let relief = Relief { began: now, ..Relief::default() };
        Standing {
            target,
            patience,
            stands: false,
            is_watching: false,
            is_long: false,
            before: now,
            waiting: 0,
            spent: 0,
            started: 0,
            window,
            longest: Duration::ZERO,
            input: Duration::ZERO,
            growing: 0,
            steep: 0,
            excess: None,
            stood: 0,
            growth: Growth::default(),
            leaving: 0,
            dropping: None,
            leavers: Default::default(),
            outlasting: 0,
            brief: relief,
            long: relief,
            trial: Trial::from(now),
            slack: 0,
            empty_nanos: 0,
        }
    }

    /// Whether the queue is standing.
    #[inline]
    pub fn stands(&self) -> bool {
        self.stands
    }

    /// Whether the queue stands, or is so long that it may soon stand: time to look up the clients of the requests.
    #[inline]
    pub fn is_long(&self) -> bool {
        self.is_long
    }

    /// Whether abandoned requests are to be dropped instead of started.
    #[inline]
    pub fn drops_abandoned(&self) -> bool {
        self.stands || (self.is_watching && self.dropping.is_some())
    }

    /// For how long the oldest request may have waited if the newest one is to be started before it, because the queue grows
    /// or clients give up. Zero if requests are started in order, and while the queue stands.
    #[inline]
    pub fn overtaken_max(&self) -> Duration {
        match self.dropping.filter(|_| self.is_watching) {
            None => Duration::ZERO,
            Some(dropping) if dropping.is_growth => self.patience / 2,
            Some(_) => Duration::MAX,
        }
    }

    /// The recent cost of a request to the worker; `None` before the first request.
    pub fn cost(&self) -> Option<Duration> {
        self.spent.checked_div(self.started).map(Duration::from_nanos)
    }

    /// How long a request may wait in the queue while it stands: the target, but at least the cost of
    /// four requests, and at most the patience if that is larger than the target. A few times as
    /// long, up to half of the patience, during a trial or if the queue runs empty otherwise.
    pub fn short_target(&self) -> Duration {
        let cost = self.cost().unwrap_or_default();
        let short = self.target.max(cost.saturating_mul(REQUESTS).min(self.patience));
        let times = self.trial.widening().max(1 + self.slack);
        short.max(short.saturating_mul(times).min(self.patience / 2))
    }

    /// Total time with an empty queue.
    pub fn empty(&self) -> Duration {
        Duration::from_nanos(self.empty_nanos)
    }

    /// A request of `class` is started from the queue, after it has waited for `wait`.
    #[inline]
    pub fn on_start(&mut self, class: usize, wait: Duration) {
        self.leavers[class].on_start(wait);
    }

    /// A client has left that had waited for `wait`, and its request of `class` has left the queue with it.
    pub fn on_leave(&mut self, class: usize, wait: Duration) {
        self.leavers[class].on_leave(wait);
    }

    /// In this turn the worker read input for this long before it could start one of the waiting requests. Much input makes a
    /// turn long, and must not be mistaken for a slow request.
    #[cold]
    pub fn on_input(&mut self, took: Duration) {
        self.input = took;
    }

    /// Takes in one turn. Returns whether the queue is now standing.
    #[inline]
    pub fn on_turn(&mut self, turn: &Turn) -> bool {
        let waited = self.waiting > 0;
        // However long the worker slept before its first event, that is no part of the turn.
        let busy_from = if waited { self.before } else { self.before.max(turn.began) };
        let idle = busy_from.nanos_since(self.before);
        // If nothing waited and the turn started nothing, streams and tasks used its time.
        if waited || turn.started > 0 {
            self.learn(turn.ended.nanos_since(busy_from), turn.started);
        }
        self.empty_nanos += idle;
        self.before = turn.ended;
        self.waiting = turn.waiting;
        if self.stands {
            self.look_for_relief(turn, Duration::from_nanos(idle));
        } else if turn.waiting == 0 {
            self.is_watching = false;
            self.is_long = false;
        } else {
            self.look_for_growth(turn, busy_from);
        }
        self.stands
    }

    /// Adds `started` requests that took `spent` nanoseconds. Half of the history is forgotten with every half
    /// patience spent: one slow request says little about those behind it.
    #[inline]
    fn learn(&mut self, spent: u64, started: u32) {
        self.spent = self.spent.saturating_add(spent);
        self.started += u64::from(started);
        // Wait for a request first: time without one says nothing about what a request costs.
        if u128::from(self.spent) > self.patience.as_nanos() && self.started > 1 {
            self.spent /= 2;
            self.started = self.started.div_ceil(2);
        }
    }

    /// Whether the queue can be served within the patience, or is too short to matter.
    fn fits(&self, waiting: u32) -> bool {
        waiting <= CROWD
            || self.cost().is_none_or(|cost| cost.saturating_mul(waiting) <= self.patience)
    }

    /// Whether so many requests take longer than a part of the patience.
    fn takes_long(&self, waiting: u32) -> bool {
        let cost = self.cost().unwrap_or_default();
        waiting > CROWD && cost.saturating_mul(waiting) > self.patience / GROWN_SHARE
    }

    #[cold]
    fn look_for_growth(&mut self, turn: &Turn, busy_from: Instant) {
        self.is_long = self.takes_long(turn.waiting);
        if !self.is_watching {
            self.watch_from(busy_from);
        }
        let started = u64::from(turn.started);
        self.window.started += started;
        self.window.abandoned += u64::from(turn.abandoned);
        if self.drops_abandoned() {
            self.window.dropped += u64::from(turn.abandoned);
        }
        let input = mem::take(&mut self.input);
        self.longest = self.longest.max((turn.ended - busy_from).saturating_sub(input));
        let length = (self.patience / WINDOW_SHARE).max(self.longest.saturating_mul(REQUESTS));
        if turn.ended - self.window.began >= length {
            let came = self.window.came(turn.waiting);
            let grew = |percent| came * 100 >= self.window.started * percent && came > 0;
            self.growing = if grew(INFLOW_PERCENT) { self.growing + 1 } else { 0 };
            self.steep = if grew(STEEP_PERCENT) { self.steep + 1 } else { 0 };
            let is_steady = self.growth.on_window(came, self.window.started);
            self.follow_growth(is_steady, turn);
            self.leaving = if self.window.was_given_up() { self.leaving + 1 } else { 0 };
            match Finding::worst(self.leavers.each_mut().map(Leavers::take_finding)) {
                Finding::TooLong => self.outlasting += 1,
                Finding::Unchanged => {}
                Finding::ShortEnough => self.outlasting = 0,
            }
            let is_too_long_for_them = self.leaving > 0 && turn.waiting > CROWD;
            if is_too_long_for_them && self.growing >= WINDOWS {
                self.begin_to_stand(turn.ended);
                return;
            }
            self.window = Window { began: turn.ended, waiting: turn.waiting, ..Window::default() };
            self.longest = Duration::ZERO;
        }
        if self.still_leave(turn) {
            self.begin_to_stand(turn.ended);
            return;
        }
        if self.fits(turn.waiting) {
            self.excess = None;
            self.stood = 0;
            return;
        }
        let begin = Window { began: turn.ended, waiting: turn.waiting, ..Window::default() };
        let excess = self.excess.get_or_insert(begin);
        excess.started += started;
        if turn.ended - excess.began >= self.patience {
            // A tenth less may be random variation.
            let shrank = excess.came(turn.waiting) * 10 < excess.started * 9;
            self.stood = if shrank { 0 } else { self.stood + 1 };
            self.excess = Some(begin);
        }
        if self.growing >= WINDOWS || self.steep >= STEEP_WINDOWS || self.stood >= STAND {
            self.begin_to_stand(turn.ended);
        }
    }

    /// Requests wait since `began`, and nothing is known about them.
    fn watch_from(&mut self, began: Instant) {
        self.is_watching = true;
        self.window = Window { began, ..Window::default() };
        (self.longest, self.input) = (Duration::ZERO, Duration::ZERO);
        self.leavers = Default::default();
        self.outlasting = 0;
        self.forget();
    }

    /// What the windows so far say about the queue counts no more.
    fn forget(&mut self) {
        self.growing = 0;
        self.steep = 0;
        self.excess = None;
        self.stood = 0;
        self.growth = Growth::default();
        self.leaving = 0;
        self.dropping = None;
    }

    /// Requests of a queue that grows steadily are started in another order, until it does not.
    fn follow_growth(&mut self, is_steady: bool, turn: &Turn) {
        match self.dropping {
            Some(dropping) if dropping.is_growth && !is_steady => self.dropping = None,
            None if is_steady && self.is_long => {
                self.dropping = Some(Dropping::from(turn.ended, true));
            }
            _ => {}
        }
    }

    /// Whether clients have given up for a while, although their requests were dropped.
    fn still_leave(&mut self, turn: &Turn) -> bool {
        if turn.waiting <= CROWD {
            // Not an overload; but clients may still wait only because other requests are dropped.
            self.leaving = 0;
            self.outlasting = 0;
            let again = |dropping: Dropping| Dropping::from(turn.ended, dropping.is_growth);
            self.dropping = self.dropping.map(again);
            return false;
        }
        let is_leaving = self.leaving >= LEAVING || self.outlasting >= OUTLASTING;
        if is_leaving && self.dropping.is_none_or(|dropping| dropping.is_growth) {
            self.leaving = 0;
            self.outlasting = 0;
            self.dropping = Some(Dropping::from(turn.ended, false));
            return false;
        }
        let Some(dropping) = &mut self.dropping else { return false };
        let lasted = turn.ended - dropping.began;
        if lasted >= self.patience / 2 {
            dropping.dropped += u64::from(turn.abandoned);
            dropping.started += u64::from(turn.started);
        }
        if lasted < self.patience {
            return false;
        }
        let still = is_still(dropping.dropped, dropping.started);
        self.dropping = None;
        still
    }

    fn begin_to_stand(&mut self, now: Instant) {
        self.stands = true;
        self.is_long = true;
        self.forget();
        self.brief = Relief { began: now, ..Relief::default() };
        self.long = self.brief;
        self.trial = Trial::from(now);
        self.slack = 0;
    }

    #[cold]
    fn look_for_relief(&mut self, turn: &Turn, idle: Duration) {
        for relief in [&mut self.brief, &mut self.long] {
            relief.empty += idle;
            relief.refused += u64::from(turn.refused);
        }
        let cost = self.cost().unwrap_or_default();
        let brief = turn.ended - self.brief.began;
        let mut ends = false;
        if brief >= self.patience / WINDOW_SHARE * WINDOWS {
            ends |= self.brief.suffices(cost) && self.brief.was_empty_for(EMPTY_PERCENT, brief);
            if self.brief.empty.is_zero() {
                self.slack = self.slack.saturating_sub(1);
            } else if self.brief.refused > 0 && self.brief.was_empty_for(CHANCE_PERCENT, brief) {
                self.slack = (self.slack + 1).min(FACTOR - 1);
            }
            self.brief = Relief { began: turn.ended, ..Relief::default() };
        }
        if turn.ended - self.long.began >= self.patience {
            ends |= self.long.suffices(cost);
            self.long = Relief { began: turn.ended, ..Relief::default() };
        }
        ends |= self.trial.on_turn(turn, self.patience);
        if ends {
            self.trial = Trial::from(turn.ended);
            self.stands = false;
            self.is_long = self.takes_long(turn.waiting);
            self.window = Window { began: turn.ended, waiting: turn.waiting, ..Window::default() };
        }
    }
}
