//! Does a worker's queue stand, because more comes in than goes out?
//!
//! ```text
//!                 what waits does not fit into the patience, and more comes in than goes out
//!       ┌─ calm ───────────────────────────────────────────────────────────────▶ standing ─┐
//!       │  everything waits its turn, in order         short target, newest first          │
//!       └◀──────────── what was refused would have fit into the time without work ◀────────┘
//! ```
//!
//! A burst is no overload: whoever comes at once can be served one after the other, and a client that is
//! patient gets its answer. Only when work goes on coming faster than it is done, and what waits already
//! exceeds what clients wait for, must somebody be refused. Then it is better to refuse early.
//!
//! **Standing begins** when what waits, times what a request costs, exceeds the patience, and either
//!
//! * in each of [`WINDOWS`] windows in a row at least [`INFLOW`] times as much came in as went out, or
//! * the queue has exceeded it for [`STAND`] patiences in a row, and shrunk in none of them.
//!
//! The first sees an overload within a fraction of the patience. The second sees what the first does not:
//! many clients that each wait for their answer before they ask again, and loads just beyond the
//! capacity. A crowd that came at once fulfils neither: after its arrival nothing comes in.
//!
//! **Standing ends** when, over a patience, the time in which the queue was empty would have been enough
//! to serve what was refused: then capacity suffices. And at once when nothing has come for most of a
//! few windows.
//!
//! **The cost** of a request is the time the worker spent divided by the requests it started. While
//! something waits, all time counts, the kernel's included; so it is what a request costs on this
//! machine now, whatever else runs on it.
//!
//! Never here: a clock, what a request is, whom to refuse.
//!
//! Invariants: without waiting requests nothing stands for longer than a patience; a single burst, of
//! whatever size, never makes a queue stand; neither do so few that they are no crowd.

use core::time::Duration;

use crate::time::Instant;

/// A window is this part of the patience: 31 ms of one second. Shorter ones see an overload sooner;
/// in longer ones chance weighs less. Derived from 100 ms, CoDel's interval for the same decision.
/// Noticed by `tests/overload`: `an_overload_is_seen_in_time`, `chance_is_no_overload`.
const WINDOW_SHARE: u32 = 32;

/// A window lasts for at least so many times its longest turn, and the short target for so many requests:
/// what came during one slow request is no growth yet, and a queue of one or two of them is none. A guess;
/// noticed by `chance_is_no_overload` with requests of 300 ms.
pub(super) const REQUESTS: u32 = 4;

/// A queue of no more than so many requests fits, whatever they cost: two browsers that load pages with six
/// connections each are no overload, even where each request takes a core for longer than anybody likes to
/// wait. A guess; noticed by `a_page_is_no_overload`.
const CROWD: u32 = 16;

/// Windows in a row in which more must come in than goes out. Five: one slow request makes one window
/// of growth, and requests of heavy-tailed cost make two in a row every now and then.
/// Noticed by `chance_is_no_overload`.
const WINDOWS: u32 = 5;

/// So many times what went out must have come in, in percent. At twice the capacity it is 200; at less
/// than 150 nothing is lost by the slower way. Noticed by `an_overload_is_seen_in_time`.
const INFLOW_PERCENT: u64 = 150;

/// For so many patiences in a row must a queue exceed the patience, and shrink in none, to stand. Four, as a
/// crowd that comes makes the first one of growth. Noticed by `a_closed_loop_stands`, `a_page_is_no_overload`.
const STAND: u32 = 4;

/// A standing queue ends at once if it was empty for this part, in percent, of so many windows.
/// Noticed by `it_ends_with_the_load`.
const EMPTY_PERCENT: u32 = 50;

/// What happened in one turn of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// When its first event was seen, and when it ended.
    pub began: Instant,
    /// When it ended.
    pub ended: Instant,
    /// Requests that wait at its end.
    pub waiting: u32,
    /// Requests started in it.
    pub started: u32,
    /// Requests and connections that were refused for load since the turn before, here or at the gate.
    pub refused: u32,
}

/// Watches the queue of one worker.
#[derive(Clone, Debug)]
pub struct Standing {
    patience: Duration,
    stands: bool,
    /// The end of the turn before, and what waited then.
    before: Instant,
    waiting: u32,
    /// Time spent and requests started lately; see [`Standing::cost`].
    spent: Duration,
    started: u64,
    /// The window of growth at hand, the longest turn in it, and how many in a row have shown some.
    window: Window,
    longest: Duration,
    growing: u32,
    /// The patience at hand in which the queue has always exceeded it, and how many in a row have not
    /// shrunk it.
    excess: Option<Window>,
    stood: u32,
    /// The windows over which the end of standing is decided.
    brief: Relief,
    long: Relief,
    /// Time in which nothing waited, in all.
    empty: Duration,
}

/// A span of time, what waited at its begin and what was started since.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    began: Instant,
    waiting: u32,
    started: u64,
}

/// A span of time, how much of it nothing waited, and what was refused in it.
#[derive(Clone, Copy, Debug, Default)]
struct Relief {
    began: Instant,
    empty: Duration,
    refused: u64,
}

impl Standing {
    /// A watch over an empty queue, for clients that wait for `patience`. Time begins at `now`.
    pub fn new(patience: Duration, now: Instant) -> Self {
        let window = Window { began: now, ..Window::default() };
        let relief = Relief { began: now, ..Relief::default() };
        Standing {
            patience,
            stands: false,
            before: now,
            waiting: 0,
            spent: Duration::ZERO,
            started: 0,
            window,
            longest: Duration::ZERO,
            growing: 0,
            excess: None,
            stood: 0,
            brief: relief,
            long: relief,
            empty: Duration::ZERO,
        }
    }

    /// Whether the queue stands.
    #[inline]
    pub fn stands(&self) -> bool {
        self.stands
    }

    /// What a request costs the worker, lately; `None` before there was one.
    pub fn cost(&self) -> Option<Duration> {
        let started = u32::try_from(self.started).unwrap_or(u32::MAX);
        self.spent.checked_div(started)
    }

    /// Time in which nothing waited, since the beginning.
    pub fn empty(&self) -> Duration {
        self.empty
    }

    /// Takes in what happened in a turn. Answers whether the queue stands from now on.
    #[inline]
    pub fn on_turn(&mut self, turn: &Turn) -> bool {
        let waited = self.waiting > 0;
        let idle = if waited { Duration::ZERO } else { turn.began - self.before };
        let span = turn.ended - self.before;
        // Of a turn that started nothing while nothing waited, streams and tasks had all the time.
        if waited || turn.started > 0 {
            self.learn(span - idle, turn.started);
        }
        self.empty += idle;
        self.before = turn.ended;
        self.waiting = turn.waiting;
        if self.stands {
            self.look_for_relief(turn, idle);
        } else if turn.waiting == 0 {
            self.growing = 0;
            self.excess = None;
            self.stood = 0;
            self.window = Window { began: turn.ended, ..Window::default() };
            self.longest = Duration::ZERO;
        } else {
            self.look_for_growth(turn, span);
        }
        self.stands
    }

    /// Takes in that `started` requests took so long. Half of what is known is forgotten with every half
    /// patience that was spent: one slow request says little about those behind it.
    #[inline]
    fn learn(&mut self, spent: Duration, started: u32) {
        self.spent += spent;
        self.started += u64::from(started);
        // Not before there is a request to learn from: time without one says nothing of what one costs.
        if self.spent > self.patience && self.started > 1 {
            self.spent /= 2;
            self.started = self.started.div_ceil(2);
        }
    }

    /// Whether all that waits can be served within the patience, or is no crowd.
    fn fits(&self, waiting: u32) -> bool {
        waiting <= CROWD
            || self.cost().is_none_or(|cost| cost.saturating_mul(waiting) <= self.patience)
    }

    #[cold]
    fn look_for_growth(&mut self, turn: &Turn, span: Duration) {
        let started = u64::from(turn.started);
        self.window.started += started;
        self.longest = self.longest.max(span);
        let length = (self.patience / WINDOW_SHARE).max(self.longest.saturating_mul(REQUESTS));
        if turn.ended - self.window.began >= length {
            let came = self.window.came(turn.waiting);
            let grew = came * 100 >= self.window.started * INFLOW_PERCENT && came > 0;
            self.growing = if grew { self.growing + 1 } else { 0 };
            self.window = Window { began: turn.ended, waiting: turn.waiting, started: 0 };
            self.longest = Duration::ZERO;
        }
        if self.fits(turn.waiting) {
            self.excess = None;
            self.stood = 0;
            return;
        }
        let begin = Window { began: turn.ended, waiting: turn.waiting, started: 0 };
        let excess = self.excess.get_or_insert(begin);
        excess.started += started;
        if turn.ended - excess.began >= self.patience {
            // A tenth less may be chance.
            let shrank = excess.came(turn.waiting) * 10 < excess.started * 9;
            self.stood = if shrank { 0 } else { self.stood + 1 };
            self.excess = Some(begin);
        }
        if self.growing >= WINDOWS || self.stood >= STAND {
            self.begin_to_stand(turn.ended);
        }
    }

    fn begin_to_stand(&mut self, now: Instant) {
        self.stands = true;
        self.growing = 0;
        self.excess = None;
        self.stood = 0;
        self.brief = Relief { began: now, ..Relief::default() };
        self.long = self.brief;
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
            ends |= self.brief.suffices(cost) && self.brief.empty * 100 >= brief * EMPTY_PERCENT;
            self.brief = Relief { began: turn.ended, ..Relief::default() };
        }
        if turn.ended - self.long.began >= self.patience {
            ends |= self.long.suffices(cost);
            self.long = Relief { began: turn.ended, ..Relief::default() };
        }
        if ends {
            self.stands = false;
            self.window = Window { began: turn.ended, waiting: turn.waiting, ..Window::default() };
        }
    }
}

impl Window {
    /// How many came since it began, if so many wait now.
    fn came(&self, waiting: u32) -> u64 {
        (self.started + u64::from(waiting)).saturating_sub(u64::from(self.waiting))
    }
}

impl Relief {
    /// Whether what was refused could have been served in the time in which nothing waited.
    fn suffices(&self, cost: Duration) -> bool {
        let refused = u32::try_from(self.refused).unwrap_or(u32::MAX);
        !self.empty.is_zero() && cost.saturating_mul(refused) <= self.empty
    }
}
