//! How many requests of one route, or of a group of them, may be answered at once?
//!
//! Counted over all workers. A permit is taken before the handler is called and given back when the
//! response's head is made, or when the work on it is dropped. Routes without a limit never come here.
//!
//! An automatic limit ([`Concurrency::Auto`]) measures how many permits are held, how many answers there are,
//! and how long they take. Workers pass the time at the end of their turns, and the first one that finds a
//! sample due takes it; there is no thread and no clock here. All times are by the clock that the workers share. It goes on
//! while they are kept from running; a worker that was says so, and what was measured meanwhile does not count.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use highwater_core::limit::{Knee, LIMIT_MAX, Limit, Sample};
use highwater_core::time::Instant;

use http::StatusCode;

use super::scarcity::Scarcity;

/// How many requests may be answered at once: a number, or [`Concurrency::Auto`].
///
/// ```
/// use highwater::{Concurrency, Handler, Router};
///
/// async fn report() -> &'static str {
///     // … asks a database
///     "a report"
/// }
///
/// let app = Router::new()
///     .get("/report", report.concurrency_limit(8))
///     .get("/search", report.concurrency_limit(Concurrency::Auto));
/// # app.build().unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concurrency {
    /// This many; at least 1.
    Fixed(u32),
    /// As many as the back end can use: no limit until answers become slow because more requests are under
    /// way, then the concurrency at which they take about twice as long as alone. For handlers that wait for
    /// something else, such as a database; overload of the server's own cores is refused without it.
    Auto,
}

impl From<u32> for Concurrency {
    fn from(max: u32) -> Self {
        Concurrency::Fixed(max)
    }
}

/// How often an automatic limit gets a sample.
const PERIOD: Duration = Duration::from_millis(100);

/// Latency that is always allowed, even if the back end takes no time: scheduling alone causes less.
const WAIT: Duration = Duration::from_millis(10);

/// The limit of a route or a group, and how many permits are held.
#[derive(Debug)]
pub(crate) struct RouteLimit {
    own: Arc<Own>,
    /// The limit of the group around it: a permit is one of both.
    outer: Option<Arc<RouteLimit>>,
}

/// A limit without what is around it.
#[derive(Debug)]
struct Own {
    held: AtomicU32,
    max: AtomicU32,
    search: Option<Mutex<Search>>,
    /// Recent refusals.
    scarcity: Scarcity,
}

/// Permission to answer one request. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Permit {
    limit: Arc<RouteLimit>,
    since: Instant,
    is_answered: bool,
}

impl RouteLimit {
    pub(crate) fn new(concurrency: Concurrency, outer: Option<Arc<RouteLimit>>) -> Arc<Self> {
        let (max, search) = match concurrency {
            Concurrency::Fixed(max) => (max, None),
            Concurrency::Auto => (LIMIT_MAX, Some(Mutex::new(Search::new()))),
        };
        let (held, max) = (AtomicU32::new(0), AtomicU32::new(max));
        let own = Own { held, max, search, scarcity: Scarcity::default() };
        Arc::new(RouteLimit { own: Arc::new(own), outer })
    }

    /// The same limit and the same count, for a route within another group.
    pub(crate) fn within(&self, outer: Option<Arc<RouteLimit>>) -> Arc<Self> {
        Arc::new(RouteLimit { own: Arc::clone(&self.own), outer })
    }

    /// A permit, if there is one left.
    pub(crate) fn enter(self: &Arc<Self>, now: Instant) -> Option<Permit> {
        self.take(now).then(|| Permit { limit: Arc::clone(self), since: now, is_answered: false })
    }

    fn take(&self, now: Instant) -> bool {
        if self.outer.as_ref().is_some_and(|outer| !outer.take(now)) {
            return false;
        }
        let max = self.own.max.load(Relaxed);
        let below = |held: u32| (held < max).then_some(held + 1);
        let taken = self.own.held.fetch_update(Relaxed, Relaxed, below);
        if let Some(mut search) = self.search() {
            match taken {
                Ok(before) => search.held_max = search.held_max.max(before + 1),
                Err(_) => search.refused += 1,
            }
        }
        if taken.is_err() {
            self.own.scarcity.note(now);
            if let Some(outer) = &self.outer {
                outer.give_back(now, false);
            }
        }
        taken.is_ok()
    }

    fn give_back(&self, since: Instant, is_answered: bool) {
        self.own.held.fetch_sub(1, Relaxed);
        if let Some(mut search) = self.search()
            && is_answered
        {
            search.ended.push(since);
        }
        if let Some(outer) = &self.outer {
            outer.give_back(since, is_answered);
        }
    }

    /// A worker's turn ends: its finished answers are counted, and the limit changes if a sample is due.
    pub(crate) fn on_turn(&self, now: Instant) {
        let Some(mut search) = self.search() else { return };
        if let Some(limit) = search.on_turn(now, self.own.held.load(Relaxed)) {
            self.own.max.store(limit, Relaxed);
        }
    }

    /// A worker was kept from running.
    pub(crate) fn forget_sample(&self) {
        if let Some(mut search) = self.search() {
            search.is_void = true;
        }
    }

    fn search(&self) -> Option<MutexGuard<'_, Search>> {
        let search = self.own.search.as_ref()?;
        Some(search.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The limit at this moment.
    pub(crate) fn limit(&self) -> u32 {
        self.own.max.load(Relaxed)
    }

    /// Whether this limit, or that of a group around it, is found by measuring.
    fn is_found(&self) -> bool {
        self.own.search.is_some() || self.outer.as_ref().is_some_and(|outer| outer.is_found())
    }

    /// How many permits are held.
    pub(crate) fn held(&self) -> u32 {
        self.own.held.load(Relaxed)
    }

    /// By which factor the minimum rate of an upload rises, here and in the group.
    pub(crate) fn scarcity(&self, now: Instant) -> u32 {
        let outer = self.outer.as_ref().map_or(0, |outer| outer.scarcity(now));
        self.own.scarcity.factor(now).max(outer)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limit.give_back(self.since, self.is_answered);
    }
}

impl Permit {
    /// The request is answered with `status`.
    ///
    /// A failure is not counted as capacity: a back end that is down fails quickly.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.is_answered = !status.is_server_error();
    }

    /// The permit of a request that another protocol follows, which may last for days: it counts against numbers. A
    /// limit that is found would learn nothing from it, and gets it back.
    pub(crate) fn kept(self) -> Option<Permit> {
        (!self.limit.is_found()).then_some(self)
    }
}

/// The counts of an automatic limit.
#[derive(Debug)]
struct Search {
    knee: Knee,
    /// When the permits of answers that ended since the last turn were taken.
    ended: Vec<Instant>,
    refused: u64,
    held_max: u32,
    completed: u64,
    /// The sum of the latencies of answers that nothing but the back end delayed, and how many those are.
    latency: Duration,
    measured: u32,
    /// Permits times seconds.
    occupied: f64,
    /// At the end of the last turn.
    turned: Option<Instant>,
    held: u32,
    sampled: Instant,
    /// A worker was kept from running since the last sample, so there will be none of this time.
    is_void: bool,
    /// When that was last known: requests that began before took longer than the back end did.
    resumed: Instant,
}

impl Search {
    fn new() -> Self {
        Search {
            knee: Knee::new(LIMIT_MAX, LIMIT_MAX, WAIT),
            ended: Vec::new(),
            refused: 0,
            held_max: 0,
            completed: 0,
            latency: Duration::ZERO,
            measured: 0,
            occupied: 0.0,
            turned: None,
            held: 0,
            sampled: Instant::ZERO,
            is_void: false,
            resumed: Instant::ZERO,
        }
    }

    /// Brings the counts up to `now`, while `held` permits are held. Returns the limit if it was computed.
    fn on_turn(&mut self, now: Instant, held: u32) -> Option<u32> {
        for since in self.ended.drain(..) {
            self.completed += 1;
            if since >= self.resumed {
                self.measured += 1;
                self.latency += now - since;
            }
        }
        if std::mem::take(&mut self.is_void) {
            self.begin_sample(now, held);
            (self.turned, self.held, self.resumed) = (Some(now), held, now);
            return None;
        }
        let turned = *self.turned.get_or_insert_with(|| {
            self.sampled = now;
            now
        });
        // Between two turns no request begins, and each end wakes a worker.
        self.occupied += (now - turned).as_secs_f64() * f64::from(self.held);
        self.turned = Some(turned.max(now));
        self.held = held;
        let span = now - self.sampled;
        if span < PERIOD {
            return None;
        }
        let sample = Sample {
            span,
            completed: self.completed,
            good: self.completed,
            refused: self.refused,
            in_flight: (self.occupied / span.as_secs_f64()).round() as u32,
            in_flight_max: self.held_max.max(held),
            latency_mean: self.latency.checked_div(self.measured).unwrap_or_default(),
            ..Sample::default()
        };
        self.begin_sample(now, held);
        Some(self.knee.on_sample(now, &sample))
    }

    fn begin_sample(&mut self, now: Instant, held: u32) {
        (self.sampled, self.held_max) = (now, held);
        (self.completed, self.refused) = (0, 0);
        (self.latency, self.measured, self.occupied) = (Duration::ZERO, 0, 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// Purpose: a fixed limit is never exceeded, and a permit that is given back can be taken again.
    #[test]
    fn a_number_is_kept_to() {
        let limit = RouteLimit::new(2.into(), None);
        let first = limit.enter(at(0));
        let second = limit.enter(at(0));
        assert!(first.is_some() && second.is_some() && limit.enter(at(0)).is_none());
        drop(first);
        assert!(limit.enter(at(0)).is_some());
        assert_eq!(limit.held(), 1);
    }

    /// Purpose: a permit of a route is one of its group, too; a request that gets no permit of one takes none
    /// of the other.
    #[test]
    fn a_group_shares_its_limit() {
        let group = RouteLimit::new(2.into(), None);
        let one = RouteLimit::new(1.into(), Some(Arc::clone(&group)));
        let two = RouteLimit::new(5.into(), Some(Arc::clone(&group)));
        let first = one.enter(at(0));
        assert!(first.is_some() && one.enter(at(0)).is_none());
        assert_eq!(group.held(), 1, "the refused one holds nothing");
        let second = two.enter(at(0));
        assert!(second.is_some() && two.enter(at(0)).is_none());
        assert_eq!((two.held(), group.held()), (1, 2));
        drop((first, second));
        assert_eq!((one.held(), two.held(), group.held()), (0, 0, 0));
    }

    /// Purpose: what goes on behind an answer counts against a number, and never against a limit that is found by how
    /// long answers take, not even that of a group.
    #[test]
    fn kept_permits() {
        let group = RouteLimit::new(1.into(), None);
        let kept = group.enter(at(0)).and_then(Permit::kept);
        assert!(kept.is_some() && group.enter(at(0)).is_none());
        drop(kept);
        assert_eq!(group.held(), 0);
        let found = RouteLimit::new(Concurrency::Auto, None);
        let within = RouteLimit::new(1.into(), Some(Arc::clone(&found)));
        assert!(within.enter(at(0)).and_then(Permit::kept).is_none());
        assert_eq!((within.held(), found.held()), (0, 0));
    }

    /// Purpose: a limit that is found follows a back end of 16 places, in time that is an argument; it
    /// refuses no request before, and failed answers do not count.
    #[test]
    fn a_limit_is_found_in_the_given_time() {
        let limit = RouteLimit::new(Concurrency::Auto, None);
        let mut held: std::collections::VecDeque<Permit> = std::collections::VecDeque::new();
        let mut refused = 0;
        for millis in 0..20_000 {
            // First 5 a tick of 50 ms each would be 100/s; then 3200/s.
            let arriving = if millis < 3000 { u64::from(millis % 10 == 0) } else { 3 };
            for _ in 0..arriving {
                match limit.enter(at(millis)) {
                    Some(permit) => held.push_back(permit),
                    None => refused += 1,
                }
            }
            // 16 places of 50 ms: 0.32 per millisecond, and none before 50 ms.
            let due = u64::from(millis % 25 < 8);
            for _ in 0..due {
                if held
                    .front()
                    .is_some_and(|permit| at(millis) - permit.since >= Duration::from_millis(50))
                {
                    held.pop_front().expect("it is there").end_well();
                }
            }
            limit.on_turn(at(millis));
            if millis < 3000 {
                assert_eq!(refused, 0);
            }
        }
        assert!((16..=64).contains(&limit.limit()), "{}", limit.limit());
    }

    /// Purpose: a process that was stopped for a minute has not found its back end slow, neither in the sample of that
    /// minute nor by the answers that come after it.
    #[test]
    fn a_process_that_was_stopped_learns_nothing_from_it() {
        let limit = RouteLimit::new(Concurrency::Auto, None);
        let steady = |from: u64| {
            for millis in from..from + 2000 {
                let permits: Vec<Permit> = (0..4).filter_map(|_| limit.enter(at(millis))).collect();
                limit.on_turn(at(millis));
                permits.into_iter().for_each(Permit::end_well);
                limit.on_turn(at(millis + 1));
            }
        };
        steady(0);
        let held: Vec<Permit> = (0..64).filter_map(|_| limit.enter(at(2000))).collect();
        limit.on_turn(at(2000));
        limit.forget_sample();
        limit.on_turn(at(62_000));
        let latency = |limit: &RouteLimit| limit.search().expect("it is found").latency;
        held.into_iter().for_each(Permit::end_well);
        limit.on_turn(at(62_001));
        assert_eq!(latency(&limit), Duration::ZERO);
        steady(62_100);
        assert_eq!((limit.limit(), limit.held()), (LIMIT_MAX, 0));
    }

    impl Permit {
        fn end_well(mut self) {
            self.is_answered = true;
        }
    }
}
