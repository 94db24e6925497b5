//! Which limit follows from the kernel's counts and a source's answers?
//!
//! ```text
//!  the kernel's counts, every turn ─▶ Window ─┐
//!                                             ├─▶ Sample ─▶ Limit ─▶ the limit
//!  a source's answers, now and then ─▶ Watch ─┘
//! ```
//!
//! Without a source, the kernel's counts make the samples: closed connections count as completed
//! requests. With a source, its counter says how many were completed, over the time in which it
//! moved. In either case the kernel says how much was in flight and how long requests waited to be
//! read (`queue.rs`); the stay of connections says how long they waited after that (`service.rs`).
//!
//! Pure and deterministic: time and counts in, a limit and a report out.
//!
//! Invariants: the limit stays within its bounds. Before a source's first good answer it is the
//! start limit. While a source is in trouble, it is the limit of the last good answer: no failure
//! of a source opens the gate wider. Each change of a source's state is reported once.

use std::fmt;
use std::time::Duration;

use highwater_core::limit::{Limit, Sample};
use highwater_core::time::Instant;

use super::reading::{Reading, SourceError, Timed, Totals};
use super::service::{Circumstances, Service};
use super::source::Answer;
use super::window::{Counted, Window};
use crate::scrape::TIMEOUT;

/// A counter that stands still for this long, while many connections are served, counts something
/// else.
const STALE_AFTER: Duration = Duration::from_secs(5);
const STALE_COMPLETED: u64 = 100;

/// More answers per second than any server gives; 100 times what Highwater does with pipelining.
const RATE_MAX: f64 = 1e9;

/// The state of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// There is no source; only the kernel counts.
    Kernel,
    /// It has not answered yet.
    Waiting,
    /// It answers; the text names the metric.
    Good(String),
    /// It does not answer, or its answer cannot be used.
    Bad(SourceError),
}

impl State {
    /// Its name in metrics and JSON.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            State::Kernel => "kernel",
            State::Waiting => "waiting",
            State::Good(_) => "ok",
            State::Bad(error) => error.name(),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Kernel => f.write_str("kernel"),
            State::Waiting => f.write_str("waiting for its first answer"),
            State::Good(what) => write!(f, "ok ({what})"),
            State::Bad(error) => error.fmt(f),
        }
    }
}

/// Decides the limit of one server.
pub(crate) struct Policy {
    limit: Box<dyn Limit>,
    min: u32,
    max: u32,
    /// The limit in force: the start limit, then the result of the last good sample.
    safe: u32,
    service: Service,
    window: Window,
    source: Option<Watch>,
    /// The state that was last logged.
    logged: &'static str,
}

impl Policy {
    /// A policy that starts at `start` and stays between `min` and `max`. With a source that is
    /// asked every `interval`, only its answers move the limit.
    pub(crate) fn new(
        limit: Box<dyn Limit>,
        (start, min, max): (u32, u32, u32),
        interval: Option<Duration>,
        now: Instant,
    ) -> Self {
        Policy {
            limit,
            min,
            max,
            safe: start.clamp(min, max),
            service: Service::default(),
            window: Window::new(now),
            source: interval.map(|interval| Watch::new(interval, now)),
            logged: if interval.is_some() { State::Waiting.name() } else { State::Kernel.name() },
        }
    }

    /// The limit in force.
    pub(crate) fn limit(&self) -> u32 {
        self.safe
    }

    /// The limiter's name.
    pub(crate) fn limiter(&self) -> &'static str {
        self.limit.name()
    }

    /// The state of the source.
    pub(crate) fn state(&self) -> &State {
        self.source.as_ref().map_or(&State::Kernel, |source| &source.state)
    }

    /// Takes in the counts until `now`, and the source's answer since the last turn. Returns
    /// whether the kind of the source's state has changed, which is to be logged then.
    pub(crate) fn on_turn(
        &mut self,
        now: Instant,
        counted: Counted,
        answers: impl IntoIterator<Item = Answer>,
    ) -> bool {
        self.window.add(now, counted);
        self.end_probe(now, false);
        let Some(mut source) = self.source.take() else {
            if self.window.is_ripe(now) {
                let completed = self.window.completed();
                let sample = self.window.sample(now, completed as f64);
                self.learn(now, &sample);
                self.window.restart(now);
            }
            return false;
        };
        for answer in answers {
            match source.judge(answer, &self.window) {
                Verdict::Progress(progress) => {
                    let sample = progress.sample(&self.window, now);
                    self.learn(now, &sample);
                    self.window.restart(now);
                }
                Verdict::Restart => self.window.restart(now),
                Verdict::Nothing => {}
            }
        }
        source.check_silence(now);
        self.source = Some(source);
        // The limit of a good answer stays while the source is in trouble; a probe's limit does
        // not.
        self.end_probe(now, matches!(self.state(), State::Bad(_)));
        let state = self.state().name();
        std::mem::replace(&mut self.logged, state) != state
    }

    /// Restores the limit in force if a probe has lasted too long, or is hopeless.
    fn end_probe(&mut self, now: Instant, is_hopeless: bool) {
        if self.service.gives_up(now, is_hopeless) {
            self.safe = self.limit.limit().clamp(self.min, self.max);
        }
    }

    /// Moves the limit by a sample.
    fn learn(&mut self, now: Instant, sample: &Sample) {
        // A server that completes nothing is idle or stuck; more connections would help neither.
        if !sample.span.is_zero() && sample.completed > 0 {
            let mut sample = *sample;
            let circumstances = Circumstances {
                is_free: sample.refused == 0,
                is_least: self.safe <= self.min,
                has_room: has_room(&sample, self.safe),
                abandoned: self.window.abandoned_share(),
            };
            let waited = self.service.waited(now, &sample, circumstances);
            sample.queue_delay_min = sample.queue_delay_min.max(waited);
            sample.queue_delay_mean = sample.queue_delay_mean.max(waited);
            let limit = self.limit.on_sample(now, &sample).clamp(self.min, self.max);
            self.safe = if self.service.is_probing() { self.min } else { limit };
        }
    }
}

/// Whether the connections admitted before `limit` was in force have left. A few more than `limit`
/// do not contradict that: a refused connection takes a place for a moment.
fn has_room(sample: &Sample, limit: u32) -> bool {
    f64::from(sample.in_flight) <= f64::from(limit) * 1.1 + 1.0
}

/// The meaning of a source's answer.
enum Verdict {
    /// Requests were completed since the last progress.
    Progress(Progress),
    /// Counting restarts here: earlier values cannot be compared with later ones.
    Restart,
    /// Nothing, or nothing usable.
    Nothing,
}

/// What a source counted since its counter last moved.
struct Progress {
    /// How long ago that was.
    over: Duration,
    completed: f64,
    good: Option<f64>,
    latency: Option<Timed>,
    queue_delay: Option<Timed>,
}

impl Progress {
    fn sample(&self, window: &Window, now: Instant) -> Sample {
        // The source was asked a moment ago, and the window ends now: both have the same rate.
        let span = now.saturating_since(window.began);
        let scale = span.as_secs_f64() / self.over.as_secs_f64();
        let completed = self.completed * scale;
        let mut sample = window.sample(now, completed);
        if let Some(good) = self.good {
            sample.good = ((good * scale).round() as u64).min(sample.completed);
        }
        // A Highwater server knows how long requests waited after it had read them.
        let queued = self.queue_delay.and_then(mean).unwrap_or_default();
        sample.queue_delay_min = sample.queue_delay_min.max(queued);
        sample.queue_delay_mean = sample.queue_delay_mean.max(queued);
        // A server's own measurement begins when it reads.
        let measured = self.latency.and_then(mean);
        let latency = |measured| sample.queue_delay_mean.saturating_add(measured);
        sample.latency_mean = measured.map(latency).unwrap_or_default();
        sample
    }
}

fn mean(timed: Timed) -> Option<Duration> {
    let is_some = timed.count >= 1.0 && timed.seconds >= 0.0;
    is_some.then(|| Duration::try_from_secs_f64(timed.seconds / timed.count).ok())?
}

/// Follows a source over its answers.
#[derive(Debug)]
struct Watch {
    interval: Duration,
    state: State,
    /// When it last answered, good or bad.
    answered_at: Instant,
    /// Its values when its counter last moved, and when that was.
    last: Option<(Instant, Totals)>,
}

impl Watch {
    fn new(interval: Duration, now: Instant) -> Self {
        Watch { interval, state: State::Waiting, answered_at: now, last: None }
    }

    fn judge(&mut self, answer: Answer, window: &Window) -> Verdict {
        self.answered_at = answer.at;
        let reading = match answer.result {
            Ok(reading) => reading,
            Err(error) => return self.fail(error),
        };
        // After trouble, the increase between two answers cannot be assigned to a time.
        let is_first = !matches!(self.state, State::Good(_));
        match reading {
            Reading::Rate(rate) => self.judge_rate(answer.at, rate, is_first, window),
            Reading::Totals(totals) => self.judge_totals(answer.at, totals, is_first, window),
        }
    }

    fn judge_rate(&mut self, at: Instant, rate: f64, is_first: bool, window: &Window) -> Verdict {
        if rate > RATE_MAX {
            return self.fail(SourceError::Absurd(format!("{rate} requests per second")));
        }
        if rate == 0.0 && self.stands_still(at, window) {
            return self.fail(stale("the query's result is 0", window));
        }
        let over = at.saturating_since(window.began);
        if rate == 0.0 && self.is_stale() {
            return Verdict::Nothing;
        }
        self.state = State::Good("query".to_owned());
        if is_first || over.is_zero() {
            return Verdict::Restart;
        }
        if rate == 0.0 {
            return if window.is_quiet() { Verdict::Restart } else { Verdict::Nothing };
        }
        let completed = rate * over.as_secs_f64();
        let (good, latency, queue_delay) = (None, None, None);
        Verdict::Progress(Progress { over, completed, good, latency, queue_delay })
    }

    fn judge_totals(
        &mut self,
        at: Instant,
        totals: Totals,
        is_first: bool,
        window: &Window,
    ) -> Verdict {
        let Some((moved, last)) = &self.last else {
            return self.begin(at, totals);
        };
        let gained = totals.completed - last.completed;
        let over = at.saturating_since(*moved);
        if gained < 0.0 || totals.counter != last.counter {
            let (name, before, after) = (&totals.counter, last.completed, totals.completed);
            let text = format!("{name} went from {before} to {after}; was the server restarted?");
            self.last = Some((at, totals));
            return self.fail(SourceError::Reset(text));
        }
        if gained > RATE_MAX * over.as_secs_f64() {
            let (name, seconds) = (&totals.counter, over.as_secs_f64());
            let text = format!("{name} grew by {gained} in {seconds:.1} s");
            self.last = Some((at, totals));
            return self.fail(SourceError::Absurd(text));
        }
        if gained == 0.0 && self.stands_still(at, window) {
            return self.fail(stale(&format!("{} stands still", totals.counter), window));
        }
        if gained == 0.0 && self.is_stale() {
            return Verdict::Nothing;
        }
        if is_first || (gained == 0.0 && window.is_quiet()) {
            return self.begin(at, totals);
        }
        if gained == 0.0 {
            return Verdict::Nothing;
        }
        let progress = Progress {
            over,
            completed: gained,
            good: gain(totals.good, last.good),
            latency: gain_timed(totals.latency, last.latency),
            queue_delay: gain_timed(totals.queue_delay, last.queue_delay),
        };
        self.last = Some((at, totals));
        Verdict::Progress(progress)
    }

    /// Counts from here.
    fn begin(&mut self, at: Instant, totals: Totals) -> Verdict {
        self.state = State::Good(totals.counter.clone());
        self.last = Some((at, totals));
        Verdict::Restart
    }

    fn is_stale(&self) -> bool {
        matches!(self.state, State::Bad(SourceError::Stale(_)))
    }

    /// Whether connections come and go, but the counter has stood still for too long.
    fn stands_still(&self, at: Instant, window: &Window) -> bool {
        let patience = STALE_AFTER.max(self.interval * 3);
        at.saturating_since(window.began) >= patience && window.completed() >= STALE_COMPLETED
    }

    fn fail(&mut self, error: SourceError) -> Verdict {
        self.state = State::Bad(error);
        Verdict::Nothing
    }

    /// A source that does not answer at all is in trouble too.
    fn check_silence(&mut self, now: Instant) {
        let silent = now.saturating_since(self.answered_at);
        let is_silent = silent > self.interval * 3 + TIMEOUT;
        if is_silent && !matches!(self.state, State::Bad(_)) {
            let text = format!("no answer for {} s", silent.as_secs());
            self.state = State::Bad(SourceError::Silent(text));
        }
    }
}

fn stale(what: &str, window: &Window) -> SourceError {
    let count = window.completed();
    SourceError::Stale(format!(
        "{what} though {count} connections were closed; is it this server's?"
    ))
}

fn gain(now: Option<f64>, before: Option<f64>) -> Option<f64> {
    Some((now? - before?).max(0.0))
}

fn gain_timed(now: Option<Timed>, before: Option<Timed>) -> Option<Timed> {
    let (now, before) = (now?, before?);
    Some(Timed { seconds: now.seconds - before.seconds, count: now.count - before.count })
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
