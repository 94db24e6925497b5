//! What happened since a sample was last made, and what is a sample of it?
//!
//! Pure: the kernel's counts in, turn by turn, a [`Sample`] out.

use std::time::Duration;

use highwater_core::limit::Sample;
use highwater_core::time::Instant;

/// A sample without a source covers at least this, so that a burst is not taken for a rate.
const WINDOW_MIN: Duration = Duration::from_millis(100);

/// And at least so many completions, unless that takes [`WINDOW_MAX`]: fewer say little.
const WINDOW_COMPLETED_MIN: u64 = 20;

pub(crate) const WINDOW_MAX: Duration = Duration::from_secs(1);

/// A shorter backlog is no queue: a server that accepts in batches has one all the time.
const BACKLOG_MIN: f64 = 4.0;

/// What the kernel has counted since the guard began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Connections that were let in.
    pub(crate) admitted: u64,
    /// Connections that were refused.
    pub(crate) refused: u64,
    /// Connections that were closed; `None` if this mechanism cannot tell.
    pub(crate) completed: Option<u64>,
    /// Connections at this moment, but for idle ones; `None` if that is not known.
    pub(crate) in_flight: Option<u32>,
    /// How long requests waited when last looked at; `None` if nobody looked since the last turn.
    pub(crate) waited: Option<Duration>,
    /// Connections that the server had not accepted when last looked at.
    pub(crate) backlog: u32,
    /// Connections that their clients had given up when last looked at, and their server had not.
    pub(crate) abandoned: u32,
    /// Idle connections, which are not among those in flight.
    pub(crate) idle: u32,
}

/// What the kernel counted since a sample was last made.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) began: Instant,
    /// The last turn.
    turned: Instant,
    first: Option<Counted>,
    last: Counted,
    /// Connections times seconds.
    occupied: f64,
    in_flight_max: u32,
    waits: Waits,
    /// At the looks of this window: connections given up, and all.
    abandoned: (u64, u64),
}

/// What was seen of waiting.
#[derive(Clone, Copy, Debug)]
struct Waits {
    /// At the last look of the window before: what there is to go by until the next.
    before: Duration,
    last: Duration,
    least: Option<Duration>,
    sum: Duration,
    looks: u32,
    backlog: u64,
    backlog_least: u32,
}

impl Waits {
    fn new(before: Duration) -> Self {
        let (last, least, sum) = (before, None, Duration::ZERO);
        Waits { before, last, least, sum, looks: 0, backlog: 0, backlog_least: u32::MAX }
    }

    fn add(&mut self, waited: Duration, backlog: u32) {
        self.backlog += u64::from(backlog);
        self.backlog_least = self.backlog_least.min(backlog);
        self.last = waited;
        self.least = Some(self.least.map_or(waited, |least| least.min(waited)));
        self.sum = self.sum.saturating_add(waited);
        self.looks += 1;
    }

    fn mean(&self) -> Duration {
        self.sum.checked_div(self.looks).unwrap_or(self.before)
    }
}

impl Window {
    pub(crate) fn new(now: Instant) -> Self {
        Window {
            began: now,
            turned: now,
            first: None,
            last: Counted::default(),
            occupied: 0.0,
            in_flight_max: 0,
            waits: Waits::new(Duration::ZERO),
            abandoned: (0, 0),
        }
    }

    pub(crate) fn add(&mut self, now: Instant, counted: Counted) {
        let turn = now.saturating_since(self.turned).as_secs_f64();
        let (before, after) = (self.last.in_flight.unwrap_or(0), counted.in_flight.unwrap_or(0));
        // Between two turns it is taken to have changed evenly.
        self.occupied += turn * (f64::from(before) + f64::from(after)) / 2.0;
        self.in_flight_max = self.in_flight_max.max(after);
        self.first.get_or_insert(counted);
        if let Some(waited) = counted.waited {
            self.waits.add(waited, counted.backlog);
            let (abandoned, all) = self.abandoned;
            let seen = (u64::from(counted.abandoned), u64::from(after));
            self.abandoned = (abandoned + seen.0, all + seen.1);
        }
        (self.turned, self.last) = (now, counted);
    }

    /// Begins anew where the last turn ended.
    pub(crate) fn restart(&mut self, now: Instant) {
        let last = self.last;
        let in_flight_max = last.in_flight.unwrap_or(0);
        let waits = Waits::new(self.waits.last);
        *self = Window { first: Some(last), last, in_flight_max, waits, ..Window::new(now) };
    }

    /// Connections closed.
    pub(crate) fn completed(&self) -> u64 {
        let first = self.first.and_then(|first| first.completed).unwrap_or(0);
        self.last.completed.unwrap_or(0).saturating_sub(first)
    }

    /// Connections let in.
    pub(crate) fn admitted(&self) -> u64 {
        self.last.admitted.saturating_sub(self.first.map_or(0, |first| first.admitted))
    }

    /// Connections refused.
    pub(crate) fn refused(&self) -> u64 {
        self.last.refused.saturating_sub(self.first.map_or(0, |first| first.refused))
    }

    /// Whether nobody came or went.
    pub(crate) fn is_quiet(&self) -> bool {
        self.completed() == 0 && self.refused() == 0
    }

    /// Whether it says enough to make a sample of, by itself.
    pub(crate) fn is_ripe(&self, now: Instant) -> bool {
        let span = now.saturating_since(self.began);
        let is_full = span >= WINDOW_MIN && self.completed() >= WINDOW_COMPLETED_MIN;
        self.last.completed.is_some() && (is_full || span >= WINDOW_MAX)
    }

    /// The share of the connections whose clients had given them up, 0 to 1.
    pub(crate) fn abandoned_share(&self) -> f64 {
        let (abandoned, all) = self.abandoned;
        // The count and the list are not of quite the same moment.
        (abandoned as f64 / all.max(1) as f64).min(1.0)
    }

    /// The least and the mean time that connections waited to be accepted, by Little's law: as many come
    /// out of the backlog as are closed, on the whole. It holds for those too that have sent nothing.
    fn accepting(&self, span: Duration) -> (Duration, Duration) {
        let (completed, looks) = (self.completed(), self.waits.looks);
        if completed == 0 || looks == 0 {
            return (Duration::ZERO, Duration::ZERO);
        }
        let wait = |backlog: f64| {
            let queue = if backlog < BACKLOG_MIN { 0.0 } else { backlog };
            let seconds = queue * span.as_secs_f64() / completed as f64;
            Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
        };
        let mean = self.waits.backlog as f64 / f64::from(looks);
        (wait(self.waits.backlog_least.into()), wait(mean))
    }

    /// A sample of what happened, in which `completed` requests were.
    pub(crate) fn sample(&self, now: Instant, completed: f64) -> Sample {
        let span = now.saturating_since(self.began);
        let (accepting_least, accepting) = self.accepting(span);
        // Casts of floats saturate, and NaN becomes 0.
        let in_flight = self.occupied / span.as_secs_f64();
        Sample {
            span,
            completed: completed.round() as u64,
            good: completed.round() as u64,
            refused: self.refused(),
            in_flight: in_flight.round() as u32,
            in_flight_max: self.in_flight_max,
            queue_delay_min: self.waits.least.unwrap_or(self.waits.before).max(accepting_least),
            queue_delay_mean: self.waits.mean().max(accepting),
            ..Sample::default()
        }
    }
}
