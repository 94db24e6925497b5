//! The results of requests: counters, distributions, and a series over time; no clock, no I/O.
//!
//! A request is *measured* if it was meant to be sent within the measured span; its result counts whenever it
//! comes. Every measured request that was sent ends as exactly one of: answered (2xx or not), refused, timed
//! out, failed. The series counts everything when it happens, the warm-up and the end too, since it is there
//! to show change; what is reported of it begins with the measured span.

use std::time::Duration;

use highwater_core::histogram::Histogram;
use highwater_core::time::Instant;

use super::counts::{Counts, Outcome};
use super::frames::{Closes, Frames};
use super::handshakes::Handshakes;
use super::hlog::Intervals;
use super::schedule::Due;
use super::series::{Series, Span};

/// Different reasons of bad responses that are kept.
pub(crate) const REASONS_MAX: usize = 5;
/// Bad responses whose reasons are looked at: writing each down would cost a client that gets nothing else.
const REASONS_LOOKED: usize = 1000;

/// The measured results of one kind of request.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) counts: Counts,
    /// As [`Tally::latency`].
    pub(crate) latency: Histogram,
}

/// The results of one client.
pub(crate) struct Tally {
    span: Span,
    deadline: Option<Duration>,
    pub(crate) counts: Counts,
    /// Requests that were due, in an open loop.
    pub(crate) asked: u64,
    /// Of those, the ones that were never sent: this client did not get to them in time, or had no connection free.
    pub(crate) not_sent: u64,
    /// Of those, the ones without a free connection.
    pub(crate) crowded: u64,
    /// Of those that were sent, the ones that had to wait for a connection.
    pub(crate) waited: u64,
    /// Of those that timed out, the ones whose connection had not been made.
    pub(crate) unconnected: u64,
    /// Connections that were made, the warm-up's too.
    pub(crate) connected: u64,
    /// Answers that were what was expected of them, the warm-up's too.
    pub(crate) met: u64,
    /// The longest time in which this client should have run but did not.
    pub(crate) stood: Duration,
    pub(crate) bytes: u64,
    /// Statuses by number, from 100.
    pub(crate) statuses: Vec<u64>,
    /// Nanoseconds from the intended send to the end of the answer, of 2xx.
    pub(crate) latency: Histogram,
    /// The same of other answers and of refusals and resets: how quickly a request is refused.
    pub(crate) rejection: Histogram,
    /// Nanoseconds from the intended to the actual send.
    pub(crate) lag: Histogram,
    series: Series,
    /// One for each request of a mix; empty without one.
    pub(crate) rows: Vec<Row>,
    /// The latencies of 2xx over time, if a log of them is written.
    pub(crate) intervals: Option<Intervals>,
    /// What was wrong with the first bad responses; each reason once.
    pub(crate) reasons: Vec<String>,
    reasons_looked: usize,
    /// Measured requests whose end is still open.
    pub(crate) open: u64,
    /// The error in the first malformed answer.
    pub(crate) malformation: Option<&'static str>,
    /// The first error number that has no counter of its own.
    pub(crate) errno: Option<i32>,
    /// The handshakes of TLS.
    pub(crate) tls: Option<Handshakes>,
    /// The frames of HTTP/2.
    pub(crate) http2: Option<Frames>,
    /// Those of WebSocket.
    pub(crate) ws: Option<Closes>,
}

/// Statuses that can be counted.
const STATUSES: usize = 500;

impl Tally {
    pub(crate) fn new(span: Span, deadline: Option<Duration>) -> Tally {
        Tally {
            span,
            deadline,
            counts: Counts::default(),
            asked: 0,
            not_sent: 0,
            crowded: 0,
            waited: 0,
            unconnected: 0,
            connected: 0,
            met: 0,
            stood: Duration::ZERO,
            bytes: 0,
            statuses: vec![0; STATUSES],
            latency: Histogram::new(),
            rejection: Histogram::new(),
            lag: Histogram::new(),
            series: Series::new(span),
            rows: Vec::new(),
            intervals: None,
            reasons: Vec::new(),
            reasons_looked: 0,
            open: 0,
            malformation: None,
            errno: None,
            tls: None,
            http2: None,
            ws: None,
        }
    }

    /// With results for each of `rows` requests, and with a log of latencies if `logs`.
    pub(crate) fn with_details(mut self, rows: usize, logs: bool) -> Tally {
        let row = Row { counts: Counts::default(), latency: Histogram::new() };
        self.rows = vec![row; rows];
        self.intervals = logs.then(|| Intervals::new(self.span.from, self.span.interval));
        self
    }

    /// A request became due.
    pub(crate) fn due(&mut self, intended: Instant) {
        if self.span.measures(intended) {
            self.asked += 1;
            self.open += 1;
        }
    }

    /// A request that was due expired before it could be sent.
    pub(crate) fn expired(&mut self, intended: Instant) {
        if self.span.measures(intended) {
            self.not_sent += 1;
            self.open -= 1;
        }
    }

    /// Expired requests had no free connection.
    pub(crate) fn crowded(&mut self, intended: Instant) {
        self.crowded += u64::from(self.span.measures(intended));
    }

    /// Requests timed out before they had a connection.
    pub(crate) fn unconnected(&mut self, intended: Instant, count: usize) {
        if self.span.measures(intended) {
            self.unconnected += count as u64;
        }
    }

    /// This client ran again at `now`, this long after it should have.
    pub(crate) fn stood(&mut self, now: Instant, late: Duration) {
        if now >= self.span.from {
            self.stood = self.stood.max(late);
        }
    }

    /// A request that was due, number `request` of the mix, is sent at `now`, or its connection has failed. It was
    /// given to that connection when it was `begun`.
    pub(crate) fn sent(&mut self, request: usize, due: Due, begun: Instant, now: Instant) {
        self.series.at(now).sent += 1;
        if self.span.measures(due.intended) {
            self.counts.sent += 1;
            if let Some(row) = self.rows.get_mut(request) {
                row.counts.sent += 1;
            }
            self.waited += u64::from(begun > due.seen);
            self.lag.record((begun - due.intended).as_nanos() as u64);
        }
    }

    /// A response was not what was expected.
    pub(crate) fn wrong(&mut self, reason: impl FnOnce() -> String) {
        if self.reasons.len() < REASONS_MAX && self.reasons_looked < REASONS_LOOKED {
            self.reasons_looked += 1;
            self.keep_reason(reason());
        }
    }

    fn keep_reason(&mut self, reason: String) {
        if self.reasons.len() < REASONS_MAX && !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }

    /// A request that was sent, number `request` of the mix, has ended.
    #[inline]
    pub(crate) fn ended(
        &mut self,
        request: usize,
        intended: Instant,
        now: Instant,
        outcome: Outcome,
    ) {
        let took = now - intended;
        let in_time = self.deadline.is_none_or(|deadline| took <= deadline);
        self.series.at(now).count(outcome, in_time);
        if !self.span.measures(intended) {
            return;
        }
        self.open -= 1;
        self.counts.count(outcome, in_time);
        let nanos = took.as_nanos() as u64;
        if let Some(row) = self.rows.get_mut(request) {
            row.counts.count(outcome, in_time);
        }
        match outcome {
            Outcome::Answered(status) | Outcome::Wrong(status) => {
                self.statuses[usize::from(status - 100)] += 1;
                if !(200..300).contains(&status) {
                    return self.rejection.record(nanos);
                }
                self.succeeded(request, now, nanos);
            }
            Outcome::Message | Outcome::WrongMessage => self.succeeded(request, now, nanos),
            Outcome::Refused | Outcome::Reset => self.rejection.record(nanos),
            Outcome::Malformed(what) => {
                self.malformation.get_or_insert(what);
            }
            Outcome::Failed(errno) => {
                self.errno.get_or_insert(errno);
            }
            Outcome::StreamReset | Outcome::StreamRefused => self.rejection.record(nanos),
            Outcome::TimedOut | Outcome::Truncated | Outcome::Handshake | Outcome::NoPort => {}
            Outcome::Closed | Outcome::Unupgraded => {}
        }
    }

    /// The time of a 2xx, or of a message.
    #[inline]
    fn succeeded(&mut self, request: usize, now: Instant, nanos: u64) {
        self.latency.record(nanos);
        if let Some(row) = self.rows.get_mut(request) {
            row.latency.record(nanos);
        }
        if let Some(intervals) = &mut self.intervals {
            intervals.record(now, nanos);
        }
    }

    /// Bytes arrived.
    #[inline]
    pub(crate) fn received(&mut self, now: Instant, bytes: usize) {
        if self.span.measures(now) {
            self.bytes += bytes as u64;
        }
    }

    /// The series from the beginning of the measured span on.
    pub(crate) fn measured_series(&self) -> &[Counts] {
        self.series.measured()
    }

    /// Everything, including the warm-up.
    pub(crate) fn total(&self) -> Counts {
        self.series.total()
    }

    /// Measures the warm-up too, in a run that ended before it was over.
    pub(crate) fn measure_all(&mut self) {
        self.counts = self.total();
        (self.asked, self.not_sent, self.open) = (self.counts.sent, 0, 0);
        self.series.measure_all();
    }

    /// Adds the results of another client in the same span.
    pub(crate) fn merge(&mut self, mut other: Tally) {
        self.counts.add(&other.counts);
        self.asked += other.asked;
        self.not_sent += other.not_sent;
        self.crowded += other.crowded;
        self.unconnected += other.unconnected;
        self.connected += other.connected;
        self.met += other.met;
        self.stood = self.stood.max(other.stood);
        self.waited += other.waited;
        self.bytes += other.bytes;
        for (mine, theirs) in self.statuses.iter_mut().zip(&other.statuses) {
            *mine += theirs;
        }
        self.latency.merge(&other.latency);
        self.rejection.merge(&other.rejection);
        self.lag.merge(&other.lag);
        self.series.merge(&other.series);
        for (mine, theirs) in self.rows.iter_mut().zip(&other.rows) {
            mine.counts.add(&theirs.counts);
            mine.latency.merge(&theirs.latency);
        }
        if let (Some(mine), Some(theirs)) = (&mut self.intervals, other.intervals.take()) {
            mine.merge(theirs);
        }
        other.reasons.drain(..).for_each(|reason| self.keep_reason(reason));
        self.open += other.open;
        self.malformation = self.malformation.or(other.malformation);
        self.errno = self.errno.or(other.errno);
        match (&mut self.tls, other.tls.take()) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (mine, theirs) => *mine = mine.take().or(theirs),
        }
        match (&mut self.ws, other.ws.take()) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (mine, theirs) => *mine = mine.take().or(theirs),
        }
        match (&mut self.http2, other.http2.take()) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (mine, theirs) => *mine = mine.take().or(theirs),
        }
    }
}
