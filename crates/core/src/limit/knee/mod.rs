//! At which concurrency does more concurrency stop yielding more answers?
//!
//! This limit is for a back end, or for a server that is not Highwater: requests queue where
//! nothing measures the queue. Two facts are enough to find how many requests the back end can use
//! at once:
//!
//! * Little's law: `in flight = rate × latency`. If the concurrency changes by a factor, the
//!   changes of the rate and of the latency multiply to that factor.
//! * Below the knee the rate takes all of the change and the latency none: every request is served
//!   at once. Above the knee the latency takes all and the rate none: requests queue.
//!
//! So one comparison of two windows tells on which side of the knee the back end is: the rate or
//! the latency has followed the concurrency. No ideal latency has to be known. The comparison also
//! tells the service time: it is the latency of the point below the knee. The limit follows from it
//! without a search:
//!
//! ```text
//!   limit = rate × (service time + wait)
//!   wait  = the service time again, or the given `wait` if that is more
//! ```
//!
//! With that limit, the last request waits as long as it is then served. This bounds the latency,
//! and it keeps every place of the back end busy however uneven the requests are. A limit that is
//! too low grows automatically: no request waits, so `rate × 2 × service time` is twice the number in
//! flight. A limit that is too high falls, because the rate does not depend on it.
//!
//! ```text
//!               much slower with more in flight, or
//!               the limit grew without effect and the service time is uncertain
//!   Watching ──────────────────────────────────────────────────────────▶ Searching ──┐ the latency
//!      ▲                                                                  │  ▲       │ followed:
//!      └─────────── the rate followed: this latency is service ───────────┘  └───────┘ halve again
//! ```
//!
//! A search that begins with a known service time does not halve. It lowers the concurrency to
//! `rate × service time`, at which no request waits. If the rate stays, the service time was right.
//! If the rate falls, service takes longer, and the new window says how long.
//!
//! **Errors correct themselves.** If the service time is too short, the limit falls until the rate
//! follows; then the limiter knows better and takes the step back. If it is too long, fewer
//! requests in flight show that. While as many requests are refused as answered, a search measures
//! again: ever more rarely, or at once if the same concurrency suddenly yields twice or half as
//! much. While fewer are refused, no search begins, so no request that would have had room is
//! refused for the sake of a measurement. So the limit never stays at a low number for ever,
//! nothing is refused while there is room, and no error is permanent. If nothing was refused for
//! [`PATIENCE`], the limit returns to its start.
//!
//! **Windows.** While a queue shrinks, the latency of the answers lags behind the latency that new
//! requests will see: it exceeds `in flight / rate` (Little's law). A window lasts until the two
//! agree. While a queue grows, the latency is below that value. The measured latency says whether
//! answers are slow; requests that only wait do not make it longer.
//!
//! Windows without an answer say nothing: a back end that hangs does not move the limit.

mod point;

use core::time::Duration;

use self::point::Point;
use super::{LIMIT_MAX, Limit, Sample};
use crate::time::Instant;

/// By which factor a search lowers the concurrency, and how many times the service time an answer
/// may take. Larger: a wrong step costs more answers (at 2, half of them for two windows). Smaller:
/// random variation hides the effect of a step. A rule: half of the places waiting keeps the other
/// half busy. `it_finds_the_knee` and `a_slower_back_end_is_believed` notice a wrong value.
const STEP: f64 = 2.0;

/// A window has this many answers, four times as many while requests are refused, and eight times
/// as many to end a search. More: a change of the back end is seen later. Fewer: random errors. The
/// mean of 80 service times as uneven as their mean is off by 11 %, of 160 by 8 %; a search must
/// tell a rate that halved from one that did not. Arithmetic. `it_finds_the_knee`, with uneven back
/// ends, and `it_does_not_oscillate_for_an_hour` notice a wrong value.
const ANSWERS: u64 = 20;

/// The weight of a new window in the limit, and in a service time that becomes shorter. Smaller:
/// small changes are followed late (large ones are followed at once). Larger: the limit swings. A
/// guess. `it_does_not_oscillate_for_an_hour` notices a wrong value.
const WEIGHT: f64 = 0.3;

/// The lowest limit that is found. Larger: a queue of three in front of a back end with one place.
/// Smaller: places are idle between an answer and the next request. A guess, similar to Envoy's
/// probe of 3. `small_back_ends_are_kept_busy` notices a wrong value.
const FLOOR: f64 = 4.0;

/// How long a window may take, and how long nothing must have been refused before the limit is
/// dropped. Shorter: the limit has to be found again at the next rush. Longer: an old limit refuses
/// requests needlessly. Clients that got a `Retry-After` of 1 to 4 s have come back by then.
/// `a_limit_is_dropped_when_it_is_not_needed` notices a wrong value.
const PATIENCE: f64 = 5.0;

/// Two concurrencies count as equal within this factor. Smaller: comparisons that say nothing.
/// Larger: the limit falls in steps too small to be compared. A guess: a refused connection takes a
/// place for a moment. `a_slower_back_end_is_believed` notices a wrong value.
const SAME: f64 = 1.1;

/// By which factor the concurrency must change before the change is judged, while requests are
/// refused: the root of [`STEP`], because the limit itself moves by that.
const FELT: f64 = core::f64::consts::SQRT_2;

/// The same while nothing is refused: two steps, so that a changing mix of requests raises no
/// alarm.
const UNFELT: f64 = STEP * STEP;

/// In an overload of which half or more is refused, the service time is measured again after
/// [`PATIENCE`] doubled this often (20 s of refusing). Smaller: a step below the knee costs half of
/// the answers for two windows, more often. Larger: a service time that is too long is kept for
/// longer. A guess. `what_was_learnt_wrongly_is_unlearnt` and
/// `measuring_again_refuses_nothing_that_had_room` notice a wrong value.
const BELIEVED: u32 = 2;

/// Each time the measurement confirms the service time, the next one comes twice as late, up to
/// this many doublings (five minutes). After a false alarm, alarms are ignored for [`PATIENCE`],
/// doubled likewise. A guess. `it_does_not_oscillate_for_an_hour` notices a wrong value.
const DOUBLED_MAX: u32 = 6;

/// The limit at the knee of the rate over the concurrency.
#[derive(Clone, Debug)]
pub struct Knee {
    limit: f64,
    start: f64,
    limit_min: f64,
    limit_max: f64,
    /// How long a request may wait even if service takes no time, in seconds.
    wait: f64,
    /// The samples since the last decision.
    window: Sample,
    /// How much longer the last change of the limit is not visible in the samples, in seconds.
    settling: f64,
    /// For how long nothing has been refused, in seconds.
    unfelt: f64,
    /// The point that the next window is compared with.
    mark: Option<Point>,
    /// How long an answer takes when no other request is in flight, in seconds, if known.
    service: Option<f64>,
    /// Whether `service` was seen not to depend on the concurrency.
    is_sure: bool,
    search: Option<Search>,
    /// For how long alarms are ignored, in seconds, and how many in a row were false.
    doubt: f64,
    false_alarms: u32,
    /// For how long the service time is trusted while requests are refused, in seconds, and how
    /// often it was confirmed in a row.
    belief: f64,
    confirmed: u32,
}

/// The result of comparing two concurrencies.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    /// The next window is compared with this one.
    Learnt,
    /// The answers to the new requests have not come yet, or alarms are ignored.
    TooSoon,
    /// A search has begun.
    Search,
}

/// A lower limit is being tried.
#[derive(Clone, Copy, Debug)]
struct Search {
    before: Point,
    /// The highest rate seen in this search.
    rate: f64,
    /// Nothing was refused when the search began, and nothing has confirmed yet that requests must
    /// be.
    is_alarm: bool,
}

impl Knee {
    /// A limit that starts at `start`, or at `limit_max` if that is less. It returns to its start
    /// whenever nothing shows that it should be lower. Requests may wait for `wait` even if the
    /// service time is shorter.
    pub fn new(start: u32, limit_max: u32, wait: Duration) -> Self {
        let limit_max = f64::from(limit_max.clamp(1, LIMIT_MAX));
        let start = f64::from(start.max(1)).min(limit_max);
        Knee {
            limit: start,
            start,
            limit_min: FLOOR.min(limit_max),
            limit_max,
            wait: wait.as_secs_f64(),
            window: Sample::default(),
            settling: 0.0,
            unfelt: 0.0,
            mark: None,
            service: None,
            is_sure: false,
            search: None,
            doubt: 0.0,
            false_alarms: 0,
            belief: PATIENCE * f64::from(1 << BELIEVED),
            confirmed: BELIEVED,
        }
    }

    /// Sets the lowest limit that can be found. The default is 4.
    #[must_use]
    pub fn at_least(mut self, limit_min: u32) -> Self {
        self.limit_min = self.limit_min.max(f64::from(limit_min)).min(self.limit_max);
        self
    }

    /// Whether `sample` completes a window; if so, what the window says.
    fn complete(&mut self, sample: &Sample) -> Option<Point> {
        // Requests admitted under a higher limit must have left, and their answers too.
        let has_room = f64::from(sample.in_flight) <= self.limit * SAME + 1.0;
        if !has_room || self.settling > 0.0 {
            if has_room {
                self.settling -= sample.span.as_secs_f64();
            }
            self.window = Sample::default();
            return None;
        }
        self.window = self.window.and(sample);
        let point = Point::of(&self.window, self.limit())?;
        let span = self.window.span.as_secs_f64();
        // The requests in flight must have been replaced once: answers come in waves if requests
        // did.
        let turnover = match self.service {
            // Without a measured latency, this would wait for a queue that grows as fast as it
            // waits.
            Some(service) if !point.is_felt && self.window.latency_mean.is_zero() => {
                point.latency.min(self.allowed(service))
            }
            _ if point.is_felt => point.in_flight / point.rate,
            _ => point.latency,
        };
        // One window shows that a step changed nothing. A step that changed something is checked
        // again.
        let is_found = self.search.is_some_and(|search| point.is_below(search.before));
        let answers = match point.is_felt {
            true if is_found => 8 * ANSWERS,
            true => 4 * ANSWERS,
            false => ANSWERS,
        };
        let is_enough = self.window.completed >= answers && span >= turnover && point.is_steady();
        if !is_enough && span < PATIENCE {
            return None;
        }
        self.window = Sample::default();
        Some(point)
    }

    fn watch(&mut self, point: Point) {
        self.learn(point);
        let mark = *self.mark.get_or_insert(point);
        let ratio = point.in_flight / mark.in_flight;
        if point.has_changed_since(mark) {
            self.belief = 0.0;
        }
        let bound = if point.is_felt { FELT } else { UNFELT };
        let grew = ratio >= bound || point.latency >= mark.latency * UNFELT;
        let shrank = ratio <= 1.0 / if point.is_felt { FELT } else { STEP };
        if grew || shrank {
            let is_too_soon = grew && !point.is_felt && point.is_shorter_than_answers(mark);
            let verdict =
                if is_too_soon { Verdict::TooSoon } else { self.judge(point, mark, grew) };
            match verdict {
                Verdict::Search => return,
                Verdict::Learnt => self.mark = Some(point),
                Verdict::TooSoon => {}
            }
        } else if point.is_felt && ratio >= 1.0 {
            self.mark = Some(point);
        } else if (1.0 / SAME..SAME).contains(&ratio) {
            // The same concurrency: time has changed the result, not concurrency.
            self.mark = Some(Point { in_flight: mark.in_flight, ..point });
        }
        if point.is_doubled && self.belief <= 0.0 {
            self.is_sure = false;
            return self.try_limit(point.in_flight / STEP, point, false);
        }
        self.follow(point);
    }

    /// Learns from a change of the concurrency.
    fn judge(&mut self, point: Point, mark: Point, grew: bool) -> Verdict {
        let (fewer, more) = if grew { (mark, point) } else { (point, mark) };
        let (rate, latency) = fewer.growth(more);
        // More requests came, so there are more answers, even from a back end that queues them now.
        let is_below = if grew && !point.is_felt { rate >= latency } else { fewer.is_below(more) };
        if is_below {
            return self.believe(fewer.service().min(more.service()), point, grew);
        }
        if !grew || point.is_felt && self.is_sure {
            return Verdict::Learnt;
        }
        let is_slow = point.latency > self.allowed(self.service.unwrap_or(point.latency));
        if !is_slow || self.doubt > 0.0 {
            return Verdict::TooSoon;
        }
        let reached = if point.is_felt { mark.in_flight } else { point.in_flight };
        let service = self.service.unwrap_or_else(|| mark.service());
        // If this many suffice, the rate stays. If not, service takes longer than assumed.
        self.try_limit((point.rate * service).min(reached / STEP), point, !point.is_felt);
        Verdict::Search
    }

    /// Takes in the service time of a point below the knee.
    fn believe(&mut self, service: f64, point: Point, grew: bool) -> Verdict {
        let known = self.service.filter(|_| self.is_sure);
        if point.is_felt && known.is_some_and(|known| service > known * STEP) {
            // That may be random variation. The next step decides.
            self.try_limit(point.in_flight / STEP, point, false);
            return Verdict::Search;
        }
        // If fewer requests are as slow, then service takes that long.
        let may_be_longer = !grew && point.is_felt;
        let is_known =
            |known: f64| known < service * FELT && (!may_be_longer || service < known * FELT);
        if !known.is_some_and(is_known) {
            self.service = Some(service);
        }
        self.is_sure = true;
        Verdict::Learnt
    }

    /// Begins a search after `point`.
    fn try_limit(&mut self, limit: f64, point: Point, is_alarm: bool) {
        self.search = Some(Search { before: point, rate: point.rate, is_alarm });
        self.unfelt = 0.0;
        self.move_to(limit, point);
    }

    /// Takes in the result of a lower limit.
    fn search(&mut self, point: Point, Search { before, rate, is_alarm }: Search) {
        let rate = rate.max(point.rate);
        if before.in_flight < point.in_flight * FELT {
            // More requests came before the limit applied: the change is too small to be judged.
            if self.limit > self.limit_min {
                return self.move_to(point.in_flight.min(self.limit) / STEP, point);
            }
            self.search = None;
            return self.confirm(point.service());
        }
        self.search = None;
        if point.is_below(before) {
            self.confirm(point.service());
            self.mark = Some(point);
            if is_alarm {
                // The back end is that slow, and nothing had to be refused.
                self.doubt = PATIENCE * f64::from(1 << self.false_alarms);
                self.false_alarms = (self.false_alarms + 1).min(DOUBLED_MAX);
                self.mark = Some(before);
            }
            return self.move_to(rate * self.allowed(point.service()), point);
        }
        self.false_alarms = 0;
        let known = self.service.filter(|known| self.is_sure && *known <= point.service());
        self.mark = Some(point);
        if let Some(service) = known {
            return self.move_to(rate * self.allowed(service), point);
        }
        if self.limit <= self.limit_min {
            // The knee is lower still. This keeps the limit where it is.
            return self.confirm(point.service() / STEP);
        }
        self.try_limit(point.in_flight.min(self.limit) / STEP, point, false);
        self.search = self.search.map(|search| Search { rate, ..search });
    }

    /// Stores the service time that a search found.
    fn confirm(&mut self, service: f64) {
        let ratio = service / self.service.unwrap_or(service);
        let is_same = (1.0 / FELT..FELT).contains(&ratio);
        self.confirmed = if is_same { (self.confirmed + 1).min(DOUBLED_MAX) } else { BELIEVED };
        self.belief = PATIENCE * f64::from(1 << self.confirmed);
        self.service = match self.service {
            Some(known) if is_same => Some(known + (service - known) * WEIGHT),
            _ => Some(service),
        };
        self.is_sure = true;
    }

    /// Learns from how long answers took.
    fn learn(&mut self, point: Point) {
        let seen = point.service();
        let is_alike = self.mark.is_some_and(|mark| point.in_flight <= mark.in_flight * SAME);
        match &mut self.service {
            None => {
                // A request that is alone does not wait.
                self.is_sure = point.in_flight_max <= 1.0;
                self.service = Some(seen);
            }
            Some(known) if seen < *known || !point.is_felt && is_alike => {
                *known += (seen - *known) * WEIGHT;
            }
            Some(_) => {}
        }
    }

    /// Called when the limit begins to refuse requests. If far more came at once, wait for their
    /// answers.
    fn await_answers(&mut self, sample: &Sample) {
        let before = self.mark.map_or(0.0, |mark| mark.in_flight);
        if self.search.is_none() && f64::from(sample.in_flight_max) > before * FELT {
            self.settling = self.service.unwrap_or(0.0).min(PATIENCE);
            self.window = Sample::default();
        }
    }

    /// Moves the limit to where the service time says it should be.
    fn follow(&mut self, point: Point) {
        let service = self.service.unwrap_or_else(|| point.service());
        let allowed = self.allowed(service);
        if !point.is_felt {
            // While no request waits, the limit must not be what refuses the next one.
            if point.latency <= service.midpoint(allowed) {
                self.limit = self.limit.max(STEP * point.in_flight_max).min(self.limit_max);
            }
            return;
        }
        let wanted = point.rate * allowed;
        let is_large = wanted > self.limit * FELT || wanted < self.limit / FELT;
        let weight = if is_large { 1.0 } else { WEIGHT };
        let reached = self.limit.min(point.in_flight_max);
        let limit = self.limit + (wanted - self.limit) * weight;
        self.move_to(limit.max(reached / STEP), point);
    }

    /// How long an answer may take.
    fn allowed(&self, service: f64) -> f64 {
        service + (service * (STEP - 1.0)).max(self.wait)
    }

    fn move_to(&mut self, limit: f64, point: Point) {
        let limit = limit.clamp(self.limit_min, self.limit_max);
        let factor = limit / self.limit;
        if !(1.0 / SAME..SAME).contains(&factor) {
            // With a lower limit, requests wait less; with a higher one, they have to be answered
            // first.
            self.settling = (point.shorter() * factor.min(1.0)).min(PATIENCE);
            self.window = Sample::default();
        }
        self.limit = limit;
    }
}

impl Limit for Knee {
    fn on_sample(&mut self, _now: Instant, sample: &Sample) -> u32 {
        let seconds = sample.span.as_secs_f64();
        self.doubt -= seconds;
        if !sample.is_felt(self.limit()) {
            self.unfelt += seconds;
        } else if self.unfelt > 0.0 {
            self.unfelt = 0.0;
            self.await_answers(sample);
        }
        if self.unfelt == 0.0 {
            self.belief -= seconds;
        }
        if self.unfelt >= PATIENCE && self.limit < self.start {
            self.limit = self.start;
            (self.search, self.mark) = (None, None);
        }
        if let Some(point) = self.complete(sample) {
            match self.search {
                Some(search) if point.is_felt => self.search(point, search),
                // Nothing is refused, so no lower limit is being tried.
                _ => {
                    self.search = None;
                    self.watch(point);
                }
            }
        }
        self.limit()
    }

    fn limit(&self) -> u32 {
        (self.limit + 0.5) as u32
    }

    fn name(&self) -> &'static str {
        "knee"
    }
}
