//! Collects the kernel's counts, and makes samples of them.
//!
//! Pure: the kernel's counts in, turn by turn, a [`Sample`] out.

use std::time::Duration;

use highwater_core::limit::Sample;
use highwater_core::time::Instant;

/// Without a source, a sample covers at least this time, so that a burst is not taken for a rate.
const WINDOW_MIN: Duration = Duration::from_millis(100);

/// And at least this many completions, unless that takes [`WINDOW_MAX`]: fewer say little.
const WINDOW_COMPLETED_MIN: u64 = 20;

pub(crate) const WINDOW_MAX: Duration = Duration::from_secs(1);

/// A shorter backlog is not a queue: a server that accepts in batches always has one.
const BACKLOG_MIN: f64 = 4.0;

/// What the kernel has counted since the guard began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Sockets that listened on the port at the last look.
    pub(crate) listeners: u32,
    /// Connections admitted; `None` if this mechanism cannot tell.
    pub(crate) admitted: Option<u64>,
    /// Connections that were refused.
    pub(crate) refused: u64,
    /// Connections that were closed; `None` if this mechanism cannot tell.
    pub(crate) completed: Option<u64>,
    /// Connections at this moment, without idle ones; `None` if that is not known.
    pub(crate) in_flight: Option<u32>,
    /// How long requests waited at the last look; `None` if there was no look since the last turn.
    pub(crate) waited: Option<Duration>,
    /// Connections that the server had not accepted at the last look.
    pub(crate) backlog: u32,
    /// Connections that the client had closed and the server had not, at the last look.
    pub(crate) abandoned: u32,
    /// Idle connections, which are not among those in flight.
    pub(crate) idle: u32,
}

/// The kernel's counts since the last sample.
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
    /// Summed over the looks of this window: abandoned connections, and all connections.
    abandoned: (u64, u64),
}

/// The observed waiting.
#[derive(Clone, Copy, Debug)]
struct Waits {
    /// At the last look of the previous window; used until the next look.
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
        // Between two turns the number is assumed to have changed evenly.
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

    /// Starts a new window at the last turn.
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

    /// Connections refused.
    pub(crate) fn refused(&self) -> u64 {
        self.last.refused.saturating_sub(self.first.map_or(0, |first| first.refused))
    }

    /// Whether no connection began or ended.
    pub(crate) fn is_quiet(&self) -> bool {
        self.completed() == 0 && self.refused() == 0
    }

    /// Whether it covers enough for a sample, without a source.
    pub(crate) fn is_ripe(&self, now: Instant) -> bool {
        let span = now.saturating_since(self.began);
        let is_full = span >= WINDOW_MIN && self.completed() >= WINDOW_COMPLETED_MIN;
        self.last.completed.is_some() && (is_full || span >= WINDOW_MAX)
    }

    /// The share of connections that their clients had abandoned, 0 to 1.
    pub(crate) fn abandoned_share(&self) -> f64 {
        let (abandoned, all) = self.abandoned;
        // The count and the list are not of quite the same moment.
        (abandoned as f64 / all.max(1) as f64).min(1.0)
    }

    /// The shortest and the mean time that connections waited to be accepted, by Little's law: on
    /// average, as many leave the backlog as are closed. This includes connections that have sent
    /// nothing.
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

    /// A sample of the window, with `completed` requests.
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
