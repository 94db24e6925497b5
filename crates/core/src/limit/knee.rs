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
//! A search that begins where a service time is believed does not halve: it lowers the concurrency to
//! `rate × service time`, with nobody waiting. If the rate stays, the belief was right; if it falls,
//! service takes longer, and this is how long.
//!
//! A service time that was believed too short makes the limit fall until the rate follows; then it is
//! known better, and the step is taken back. One that was believed too long shows as soon as fewer are
//! under way. While as many are kept out as are answered, a search looks for it, ever more rarely, or
//! at once if the same concurrency suddenly yields twice or half as much; with fewer kept out, none
//! does, so nobody is refused for the sake of knowledge who would have had room. So concurrency is
//! never pinned to some low number, nobody is refused while nobody is kept out, and nothing that was
//! learnt is wrong for ever. If nobody was kept out for [`PATIENCE`], the limit returns to where it
//! began.
//!
//! While a queue shrinks, the latency of those who are answered lags behind what newcomers will see: it
//! is more than `in flight / rate`, Little's law. A window lasts until the two agree. While a queue
//! grows, it is less, and whether answers are slow at all is told by what was measured, which no rush
//! that merely waits makes longer.
//!
//! Windows without an answer say nothing: a back end that hangs does not move the limit.

mod point;

use core::time::Duration;

use self::point::Point;
use super::{LIMIT_MAX, Limit, Sample};
use crate::time::Instant;

/// By how much a search lowers the concurrency, and how many times the service time an answer may take.
/// Trades the answers that a wrong step costs (half of them, for two windows) against steps so small
/// that chance hides what they do. A rule: half the places waiting keeps the other half busy.
/// Noticed by `it_finds_the_knee` and `a_slower_back_end_is_believed`.
const STEP: f64 = 2.0;

/// A window has this many answers, four times as many while people are kept out, and twice that to end a
/// search. Trades how soon a slow back end's change is seen against chance: the mean of 80 service times
/// as uneven as their mean is off by 11 %, of 160 by 8 %, and a search tells a rate that halved from one
/// that did not. Arithmetic. Noticed by `it_finds_the_knee`, with uneven back ends, and by
/// `it_does_not_oscillate_for_an_hour`.
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

/// In an overload of which half or more is refused, what was found is asked again after [`PATIENCE`]
/// doubled so often (20 s of refusing). Trades the answers that a step below the knee costs, half of
/// them for two windows, against the time that a service time is kept which was believed too long. A
/// guess. Noticed by `what_was_learnt_wrongly_is_unlearnt` and `asking_again_refuses_nobody_who_had_room`.
const BELIEVED: u32 = 2;

/// It is asked again twice as late each time that the answer is the same, up to so many doublings (five
/// minutes). False alarms silence others for [`PATIENCE`], doubled likewise. A guess. Noticed by
/// `it_does_not_oscillate_for_an_hour`.
const DOUBLED_MAX: u32 = 6;

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
        let turnover = match self.service {
            // Who knows no latency would wait for a queue that grows as fast as it is waited for.
            Some(service) if !point.is_felt && self.window.latency_mean.is_zero() => {
                point.latency.min(self.allowed(service))
            }
            _ if point.is_felt => point.in_flight / point.rate,
            _ => point.latency,
        };
        // A step that changed nothing is known soon; one that found something is looked at again.
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
        // More came, so there are more answers, even from a back end in which they queue now.
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
        // If so many suffice, the rate stays. If not, service takes longer than was believed.
        self.try_limit((point.rate * service).min(reached / STEP), point, !point.is_felt);
        Verdict::Search
    }

    /// Takes in the latency of a point that is below the knee.
    fn believe(&mut self, service: f64, point: Point, grew: bool) -> Verdict {
        let known = self.service.filter(|_| self.is_sure);
        if point.is_felt && known.is_some_and(|known| service > known * STEP) {
            // That may be chance. The next step tells.
            self.try_limit(point.in_flight / STEP, point, false);
            return Verdict::Search;
        }
        // If fewer are as slow, that is how long it takes.
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
        if point.is_below(before) {
            self.confirm(point.service());
            self.mark = Some(point);
            if is_alarm {
                // Latency is what it is, and nobody need have been kept out.
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
            // The knee is lower still. With this the limit stays where it is.
            return self.confirm(point.service() / STEP);
        }
        self.try_limit(point.in_flight.min(self.limit) / STEP, point, false);
        self.search = self.search.map(|search| Search { rate, ..search });
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
        let is_alike = self.mark.is_some_and(|mark| point.in_flight <= mark.in_flight * SAME);
        match &mut self.service {
            None => {
                // Whoever is alone waits for nobody.
                self.is_sure = point.in_flight_max <= 1.0;
                self.service = Some(seen);
            }
            Some(known) if seen < *known || !point.is_felt && is_alike => {
                *known += (seen - *known) * WEIGHT;
            }
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
