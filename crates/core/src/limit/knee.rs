//! Where does more concurrency stop yielding more answers?
//!
//! For a back end, or a server that is not ours: requests queue where nobody measures. Two facts are
//! enough to find how many of them it can use at once:
//!
//! * Little's law: `in flight = rate × latency`. If the concurrency changes by a factor, the changes of
//!   the rate and of the latency multiply to that factor.
//! * Below the knee the rate takes all of the change and the latency none: everybody is served at once.
//!   Above it the latency takes all and the rate none: they queue.
//!
//! So one comparison of two windows tells on which side of the knee the back end is: whichever of the
//! two followed the concurrency. No ideal latency has to be known for that. It tells the service time,
//! too: the latency of the point below the knee. From that the limit follows without a search:
//!
//! ```text
//!   limit = rate × (service time + wait),   wait = the service time again, or what is given if more
//! ```
//!
//! With that many, the last waits as long as it is served, which bounds the latency and keeps every
//! place of the back end busy however uneven the requests are. A limit that is too low grows by itself,
//! since nobody waits and `rate × 2 × service time` is twice what is in flight; one that is too high
//! falls, since the rate does not depend on it.
//!
//! ```text
//!               slower by far for more in flight, or
//!               the limit grew in vain and the service time is not sure
//!   Watching ──────────────────────────────────────────────────────────▶ Searching ──┐ the latency
//!      ▲                                                                  │  ▲       │ followed:
//!      └─────────── the rate followed: this latency is service ───────────┘  └───────┘ halve again
//! ```
//!
//! A service time that was believed too short makes the limit fall until the rate follows; then it is
//! known better, and the step is taken back. One that was believed too long shows as soon as fewer are
//! under way; in an overload that does not end a search looks for it, ever more rarely. So concurrency
//! is never pinned to some low number, nobody is refused while nobody is kept out, and nothing that was
//! learnt is wrong for ever. If nobody was kept out for [`PATIENCE`], the limit returns to where it
//! began.
//!
//! While a queue grows or shrinks, the latency of those who are answered lags behind what newcomers
//! will see. What is compared is therefore `in flight / rate`, which does not; whether answers are slow
//! at all is told by what was measured, which no rush that merely waits makes longer; and the shorter
//! of the two is taken for service.
//!
//! Windows without an answer say nothing: a back end that hangs does not move the limit.

use core::time::Duration;

use super::{LIMIT_MAX, Limit, Sample};
use crate::time::Instant;

/// By how much a search lowers the concurrency, and how many times the service time an answer may take.
/// Trades the answers that a wrong step costs (half of them, for two windows) against steps so small
/// that chance hides what they do. A rule: half the places waiting keeps the other half busy.
/// Noticed by `it_finds_the_knee` and `a_slower_back_end_is_believed`.
const STEP: f64 = 2.0;

/// A window has this many answers, and four times as many while people are kept out. Trades how soon a slow back
/// end's change is seen against chance: the mean of 80 service times as uneven as their mean is off by
/// 11 %, and a search tells a rate that halved from one that did not. Arithmetic. Noticed by
/// `it_finds_the_knee`, with uneven back ends, and by `small_back_ends_are_kept_busy`.
const ANSWERS: u64 = 20;

/// The weight of a new window in the limit and in a service time that becomes shorter. Trades how soon
/// small changes are followed against a limit that swings; large changes are followed at once. A guess.
/// Noticed by `it_does_not_oscillate_for_an_hour`.
const WEIGHT: f64 = 0.3;

/// No limit that is found is lower. Trades a queue of three in front of a back end with one place
/// against places that are idle between an answer and the next request. A guess, as Envoy's probe of 3.
/// Noticed by `small_back_ends_are_kept_busy`.
const FLOOR: f64 = 4.0;

/// How long a window may take, and how long nobody must have been kept out before the limit is given up.
/// Trades the requests that a forgotten limit costs at the next rush against those that a remembered one
/// refuses. Clients that were told to come back in 1 to 4 s (`Retry-After`) have come back by then.
/// Noticed by `a_limit_is_given_up_when_nobody_needs_it`.
const PATIENCE: f64 = 5.0;

/// Two degrees of concurrency are the same within this factor. Trades comparisons that say nothing
/// against a limit that falls in steps too small to be compared. A guess: a refused connection takes a
/// place for a moment. Noticed by `a_slower_back_end_is_believed`.
const SAME: f64 = 1.1;

/// How much a limit that is felt must change the concurrency before the change is judged: the root of
/// [`STEP`], since the limit itself moves by that.
const FELT: f64 = core::f64::consts::SQRT_2;

/// The same while nobody is kept out: two steps, so that a mix of requests that changes is no alarm.
const UNFELT: f64 = STEP * STEP;

/// What was found is asked again after [`PATIENCE`] doubled twice (20 s of refusing), and twice as late
/// each time that the answer is the same, up to so many doublings (five minutes). False alarms silence
/// others for [`PATIENCE`], doubled likewise. Trades the answers that a
/// step below the knee costs against the time that a wrong service time is kept. A guess. Noticed by
/// `it_does_not_oscillate_for_an_hour` and `what_was_learnt_wrongly_is_unlearnt`.
const DOUBLED_MAX: u32 = 6;
const BELIEVED: u32 = 2;

/// The limit at the knee of the rate over the concurrency.
#[derive(Clone, Debug)]
pub struct Knee {
    limit: f64,
    start: f64,
    limit_min: f64,
    limit_max: f64,
    /// What a request may wait even if it is served in no time, in seconds.
    wait: f64,
    /// Samples since the last decision.
    window: Sample,
    /// What is left of the time in which the last change of the limit does not show yet, in seconds.
    settling: f64,
    /// How long nobody has been kept out, in seconds.
    unfelt: f64,
    /// What the next window is compared with.
    mark: Option<Point>,
    /// How long an answer takes if nobody else is there, as far as that is known, in seconds.
    service: Option<f64>,
    /// It was seen not to depend on the concurrency.
    is_sure: bool,
    search: Option<Search>,
    /// How long alarms are not believed, in seconds, and how many in a row were false.
    doubt: f64,
    false_alarms: u32,
    /// How long the service time is believed while people are kept out, in seconds, and how often it
    /// was confirmed in a row.
    belief: f64,
    confirmed: u32,
}

/// What a degree of concurrency yielded.
#[derive(Clone, Copy, Debug)]
struct Point {
    in_flight: f64,
    in_flight_max: f64,
    rate: f64,
    latency: f64,
    /// The part of the latency that is known to be waiting.
    waited: f64,
    is_felt: bool,
}

/// Which of the two followed the concurrency from one point to another.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Followed {
    Rate,
    Latency,
}

/// What came of a change of the concurrency.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    /// The next window is compared with this one.
    Learnt,
    /// The answers to those who came are yet to come, or an alarm is not to be believed.
    TooSoon,
    /// A search has begun.
    Search,
}

/// A lower limit is on trial.
#[derive(Clone, Copy, Debug)]
struct Search {
    before: Point,
    /// The highest rate that was seen in this search.
    rate: f64,
    /// Nobody was kept out when it began, and nothing has confirmed yet that anybody should be.
    is_alarm: bool,
}

impl Knee {
    /// A limit that begins at `start`, or at `limit_max` if that is less, and is at `start` whenever
    /// nothing shows that it should be lower. Requests may wait for `wait` even where the service time
    /// is shorter.
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

    /// The same, never to find less than `limit_min`. Without it, never less than 4.
    #[must_use]
    pub fn at_least(mut self, limit_min: u32) -> Self {
        self.limit_min = self.limit_min.max(f64::from(limit_min)).min(self.limit_max);
        self
    }

    /// Whether a window is complete with `sample`; if so, what it says.
    fn complete(&mut self, sample: &Sample) -> Option<Point> {
        // Those who came in under a higher limit must have gone, and their answers, too.
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
        // Those under way must have been replaced once: answers come in waves where requests did.
        let (answers, turnover) = match point.is_felt {
            true => (4 * ANSWERS, point.in_flight / point.rate),
            false => (ANSWERS, point.latency),
        };
        let is_enough = self.window.completed >= answers && span >= turnover;
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
        let bound = if point.is_felt { FELT } else { UNFELT };
        let grew = ratio >= bound || point.latency >= mark.latency * UNFELT;
        let shrank = ratio <= 1.0 / if point.is_felt { FELT } else { STEP };
        if grew || shrank {
            match self.judge(point, mark, grew) {
                Verdict::Search => return,
                Verdict::Learnt => self.mark = Some(point),
                Verdict::TooSoon => {}
            }
        } else if point.is_felt && ratio >= 1.0 {
            self.mark = Some(point);
        } else if (1.0 / SAME..SAME).contains(&ratio) {
            // What changes with time is not what concurrency changes.
            self.mark = Some(Point { in_flight: mark.in_flight, ..point });
        }
        if point.is_felt && self.belief <= 0.0 {
            self.is_sure = false;
            self.begin_search(Search { before: point, rate: point.rate, is_alarm: false });
            return self.move_to(point.in_flight / STEP, point);
        }
        self.follow(point);
    }

    /// Learns from a change of the concurrency.
    fn judge(&mut self, point: Point, mark: Point, grew: bool) -> Verdict {
        let (fewer, more) = if grew { (mark, point) } else { (point, mark) };
        if Followed::between(fewer, more) == Followed::Rate {
            let service = fewer.service().min(more.service());
            // If fewer are as slow, that is how long it takes.
            let is_known = self.is_sure && self.service.is_some_and(|known| known <= service);
            if !is_known || !grew && point.is_felt {
                self.service = Some(service);
            }
            self.is_sure = true;
            return Verdict::Learnt;
        }
        if !grew || point.is_felt && self.is_sure {
            return Verdict::Learnt;
        }
        let is_slow = point.latency > self.allowed(self.service.unwrap_or(point.latency));
        if !is_slow || self.doubt > 0.0 {
            return Verdict::TooSoon;
        }
        let reached = if point.is_felt { mark.in_flight } else { point.in_flight };
        self.begin_search(Search { before: point, rate: point.rate, is_alarm: !point.is_felt });
        self.move_to(reached / STEP, point);
        Verdict::Search
    }

    fn begin_search(&mut self, search: Search) {
        self.search = Some(search);
        self.unfelt = 0.0;
    }

    /// Takes in what a lower limit yielded.
    fn search(&mut self, point: Point, Search { before, rate, is_alarm }: Search) {
        let rate = rate.max(point.rate);
        if before.in_flight < point.in_flight * FELT {
            // More came before the limit was there: too little of a change to be judged.
            if self.limit > self.limit_min {
                return self.move_to(point.in_flight.min(self.limit) / STEP, point);
            }
            self.search = None;
            return self.confirm(point.service());
        }
        self.search = None;
        if Followed::between(point, before) == Followed::Rate {
            self.confirm(point.service());
            self.mark = Some(point);
            if is_alarm {
                // Latency is what it is. The step is taken back.
                self.doubt = PATIENCE * f64::from(1 << self.false_alarms);
                self.false_alarms = (self.false_alarms + 1).min(DOUBLED_MAX);
                self.mark = Some(before);
                return self.move_to(before.in_flight_max * STEP, point);
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
            // The knee is lower still. With this the limit stays where it is.
            return self.confirm(point.service() / STEP);
        }
        self.begin_search(Search { before: point, rate, is_alarm: false });
        self.move_to(point.in_flight.min(self.limit) / STEP, point);
    }

    /// A search found how long service takes.
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

    /// Takes in how long answers took.
    fn learn(&mut self, point: Point) {
        let seen = point.service();
        match &mut self.service {
            None => {
                // Whoever is alone waits for nobody.
                self.is_sure = point.in_flight_max <= 1.0;
                self.service = Some(seen);
            }
            Some(known) if seen < *known => *known += (seen - *known) * WEIGHT,
            Some(_) => {}
        }
    }

    /// The limit is felt from now on. If that is because far more came at once, their answers are yet
    /// to come.
    fn await_answers(&mut self, sample: &Sample) {
        let before = self.mark.map_or(0.0, |mark| mark.in_flight);
        if self.search.is_none() && f64::from(sample.in_flight_max) > before * FELT {
            self.settling = self.service.unwrap_or(0.0).min(PATIENCE);
            self.window = Sample::default();
        }
    }

    /// Moves the limit to where the service time says that it should be.
    fn follow(&mut self, point: Point) {
        let service = self.service.unwrap_or_else(|| point.service());
        let allowed = self.allowed(service);
        if !point.is_felt {
            // Whoever comes while nobody waits is not to be the first who is kept out.
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
            // Fewer wait for less long; more have to be answered first.
            self.settling = (point.shorter() * factor.min(1.0)).min(PATIENCE);
            self.window = Sample::default();
        }
        self.limit = limit;
    }
}

impl Point {
    fn of(window: &Sample, limit: u32) -> Option<Point> {
        let seconds = window.span.as_secs_f64();
        if window.completed == 0 || seconds <= 0.0 {
            return None;
        }
        let rate = window.completed as f64 / seconds;
        let latency = match window.latency_mean.is_zero() {
            true => f64::from(window.in_flight) / rate,
            false => window.latency_mean.as_secs_f64(),
        };
        // The mean is rounded: less than half of one is none.
        let in_flight = f64::from(window.in_flight).max(0.5);
        Some(Point {
            in_flight,
            in_flight_max: f64::from(window.in_flight_max).max(in_flight),
            rate,
            latency: latency.max(0.5 / rate / in_flight.max(1.0)).max(1e-6),
            // Who is said to have only waited has told nothing about service.
            waited: Some(window.queue_delay_mean.as_secs_f64())
                .filter(|waited| *waited < latency.min(in_flight / rate))
                .unwrap_or(0.0),
            is_felt: window.is_felt(limit),
        })
    }

    /// What was measured lags behind a queue that shrinks, and what Little's law says is too much while
    /// many have just come: the shorter is right.
    fn shorter(&self) -> f64 {
        self.latency.min(self.in_flight / self.rate)
    }

    /// What is not known to be waiting.
    fn service(&self) -> f64 {
        (self.shorter() - self.waited).max(1e-6)
    }
}

impl Followed {
    fn between(fewer: Point, more: Point) -> Followed {
        let rate = more.rate / fewer.rate;
        let latency = more.in_flight / fewer.in_flight / rate;
        if rate >= latency { Followed::Rate } else { Followed::Latency }
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
                // Nobody is kept out, so nothing is on trial.
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
