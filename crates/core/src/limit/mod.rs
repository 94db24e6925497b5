//! How much work may be in progress at once?
//!
//! A [`Limit`] receives a [`Sample`] of the events since the last one, and returns how many connections may have work. It
//! computes a number and does nothing else: other modules enforce the limit, pay for refusals and take the samples.
//!
//! It never reads a clock, starts a thread, does I/O or uses randomness. The same samples always
//! give the same limits.
//!
//! Invariants of every implementation: a limit is at least 1 (with a limit of 0 no request would be
//! served, so the limiter could learn nothing), and it never exceeds the bound given to the
//! constructor.
//!
//! # Which limit to use
//!
//! | limit | use it for | method |
//! |---|---|---|
//! | [`QueueDelay`], with [`Standing`] | this server's own cores; the default | arithmetic: the cost of a request says how many may wait |
//! | [`Knee`] | a back end behind handlers, or a server that is not Highwater | Little's law: does the rate or the latency change with the concurrency? |
//! | [`HillClimb`] | comparison; a server of which only the rate is known | fixed steps along the rate |
//! | [`Aimd`] | comparison | one more while all is well, a tenth less when not |
//! | [`Fixed`] | operators who know the number | none |
//!
//! # Every tuned constant
//!
//! "Trades" says what a smaller value costs, then what a larger value costs. Origins: *derived*
//! from another value, *rule* (follows from how the algorithm works), *arithmetic*, *measured* in
//! the model, *guess*, or *published* or *specified* (the algorithm is here as others wrote it, for
//! comparison, and must not be tuned). The last column names the tests that fail when the value is
//! wrong. They are in `tests/overload` for the first two limits, in `tests/limits` for `Knee`, and
//! in the module itself for the others.
//!
//! | limit | constant | value | meaning | trades | origin | test |
//! |---|---|---|---|---|---|---|
//! | `Standing` | `WINDOW_SHARE` | 1/32 | length of a window, as a share of the patience | longer: an overload is seen later; shorter: random variation counts more | derived from CoDel's 100 ms | `an_overload_is_seen_in_time`, `chance_is_no_overload` |
//! | `Standing` | `REQUESTS` | 4 | a window lasts at least 4 of its longest turns, the short target at least 4 requests | less: one slow request looks like growth; more: later decisions, longer waits | guess | `chance_is_no_overload` |
//! | `Standing` | `CROWD` | 16 | a queue of up to 16 requests is not an overload | less: page loads are refused; more: slow requests wait longer | guess: two browsers | `a_page_is_no_overload` |
//! | `Standing` | `WINDOWS` | 5 | windows of growth in a row that make a queue standing | less: false alarms; more: an overload is seen later | rule | `chance_is_no_overload` |
//! | `Standing` | `INFLOW_PERCENT` | 150 | arrivals as a percentage of starts, in a window of growth | less: false alarms; more: small overloads are seen only by `STAND` | rule | `an_overload_is_seen_in_time` |
//! | `Standing` | `STEEP_WINDOWS`, `STEEP_PERCENT` | 3, 400 | windows of steep growth in a row that make a queue standing, and arrivals as a percentage of starts in them | less: large bursts are refused; more: far above the capacity, hundreds are accepted only to be refused | guess | `a_page_is_no_overload`, `the_first_seconds` |
//! | `Standing` | `STAND` | 4 | patiences in a row with a queue too long that make it standing | less: a burst is refused; more: a closed loop waits in vain for longer | rule | `a_closed_loop_stands`, `a_page_is_no_overload` |
//! | `Standing` | `ABANDONED_PERCENT` | 50 | share of given-up requests among those started from which on the queue is too long for its clients | less: a few impatient clients count as many; more: work is done in vain | rule: most of them | `a_few_impatient_clients_are_no_overload` |
//! | `Standing` | `LEAVING` | 2 | windows of that in a row until such requests are dropped | less: false alarms; more: goodput lost at the onset | measured in the model | `a_few_impatient_clients_are_no_overload`, `the_first_seconds` |
//! | `Standing` | `OUTLASTING` | 4 | windows in a row in which clients leave after the wait of those who are started | less: false alarms; more: goodput lost at the onset | measured in the model | `a_few_clients_that_leave_are_no_overload`, `clients_that_leave_are_seen` |
//! | `Standing` | `GROWN_SHARE` | 1/16 | part of the patience from which on a queue that grows steadily is started newest first | less: chance changes the order; more: answers are late at the onset | guess | `the_first_seconds` |
//! | `Growth` | `WINDOWS`, `MOST`, `STILL`, `INFLOW_PERCENT` | 8, 6, 4, 108 | a queue grows steadily from when that many more arrive than are started in `MOST` of so many windows, until in fewer than `STILL` | fewer, or less: chance and crowds change the order; more: answers are late at the onset | guess | `a_crowd_that_comes_is_no_growth`, `the_first_seconds` |
//! | `Leavers` | `SHORTER`, `LONGER`, `OTHERS`, `WEIGHT` | 1/4, 1/16, 1/8, 1/8 | how near a wait must be to the mean wait of those who leave, how many may be elsewhere, and how much one more changes the mean | less: clients whose patience differs are not seen; more: impatient clients among patient ones are taken for an overload | guess | `a_few_clients_that_leave_are_no_overload`, `clients_that_leave_are_seen`, `some_leave_sooner` |
//! | `Leavers` | `SPREAD` | 2 | so many clients may leave a little sooner for each that leaves just before its turn | less: clients whose patience differs hide an overload; more: clients that leave at any time are taken for one | arithmetic: three, if they leave at any time | `leaving_at_any_time`, `some_leave_sooner` |
//! | `Standing` | `CHANCE_PERCENT` | 1 | share that may be chance: of clients that leave while requests are started after the same wait, of dropped requests after half a patience, of a standing queue's time without work, of refusals at the end of a trial | less: chance makes it standing, and longer; more: loads just above the capacity do not, and a worker idles beside refusals | rule: the excess; arithmetic (M/M/1/K) | `clients_that_give_up_are_seen`, `the_first_seconds` |
//! | `Standing` | `EMPTY_PERCENT` | 50 | share of time with an empty queue that ends standing at once | less: it ends in a pause of the overload; more: it lasts longer than the load | guess | `it_ends_with_the_load` |
//! | `Trial` | `FACTOR`, `STEPS_MAX` | 4, 3 | each step of a trial lets requests wait this many times as long as before | less: retrying crowds are taken for an overload; more: longer waits during a trial | guess | `clients_that_retry_at_once_keep_no_queue_standing` |
//! | `Trial` | `SHARE` | 1/8 | a step lasts for two such parts of the patience | more: chance decides; less: longer trials | rule: several reports of the gate | `clients_that_retry_at_once_keep_no_queue_standing` |
//! | `Trial` | `REST` | 32 | patiences between trials while refusals stay about as many | less: more long waits in a long overload; more: a crowd that is refused just as often is recognized later | guess | `trials_cost_an_overload_nothing` |
//! | `Trial` | `DEVIATIONS` | 4 | standard deviations by which refusals of a trial must be fewer for the next one to follow soon | less: trials in an overload that is one; more: a crowd that comes at the end of an overload is taken for it | rule: chance | `clients_that_retry_at_once_keep_no_queue_standing` |
//! | `QueueDelay` | `AIM_PERCENT` | 75 | part of the target that the limit aims at | less: idle workers; more: expensive refusals by the queue | measured in the model | `the_overload_table` |
//! | `QueueDelay` | `EMPTY_MAX` | 0.05 | share of time with an empty queue above which silent connections hold the places | less: too many are admitted; more: silent clients block others | guess | `silent_clients_hold_no_places` |
//! | `Shares` | `SLOTS` | 1024 | clients with an account of their own | less: a crowd of clients divides one share sooner; more: memory, and newcomers of a flood keep others waiting for longer | guess: 16 KiB | `many_addresses_keep_nobody_out` |
//! | `Lenience` | `LENIENCE` | 6 | for so many targets quiet clients may wait beside one that asks for too much | less: they are refused when costs vary or few fit; more: all wait for longer where all ask for too much | measured in the model | `each_client_gets_its_share`, `shares_cost_nothing_where_clients_are_alike` |
//! | `Lenience` | `PAUSE` | 4 | targets without a late request after which they may again | less: as more `LENIENCE`; more: a second cluster of requests is refused | measured in the model | `each_client_gets_its_share`, `shares_cost_nothing_where_clients_are_alike` |
//! | `Level` | `LEVEL_MIN` | 0.1/s | the lowest level | less: nothing; more: many addresses that connect once each look quiet | guess | `shares_cost_nothing_where_clients_are_alike` |
//! | `Level` | `SURPLUS` | 1.25 | capacities that the level brings | less: idle workers; more: busy sources take more places | guess | `each_client_gets_its_share` |
//! | `Level` | `MEMORY` | 0.5 s | weight of earlier rates of a source | less: sources that connect rarely are misjudged; more: changes are followed later | guess | `the_level_is_found` |
//! | `Level`, the server's capacity | `SPAN_MIN`, `BUSY_MIN`, `UNSURE` | 50 ms, 0.1, 2 | a shorter sample, or a smaller part of it with work, says little about what can be served; so many times that counts while workers are busy with refusing | less: chance decides, or workers idle at the onset of an overload; more: workers idle, or sources that ask for little are refused | guess | `the_capacity_is_what_can_be_served`, `sources_are_held_when_enough_is_known` |
//! | `Thinning`, the server's shares | `BUCKETS`, `HELD_MAX`, `SURPLUS`, `WIDENING`, `SEEN_MIN`, `LOOKS_MAX` | 512, 64, 1.15, 12, 16, 5 | buckets of sources, how many are held back at once, how many capacities they bring, how many limits are accepted meanwhile, and when a look is believed | less: sources are held back for others, or not at all, workers idle, the listen queue drops anybody's; more: memory, longer programs, more refusals | `SURPLUS` and `WIDENING` measured (`fairness`), the others guesses | `the_busy_one_is_held`, `the_busiest_are_held`, `forged_addresses_keep_nobody_out` |
//! | `Reuse` | `KEPT` | 4 | requests per connection from which on requests are refused, and no connections | less: short-lived connections cost more to refuse; more: a proxy's connections are refused | guess | `a_pool_is_recognized`, `clients_that_close_are_recognized` |
//! | `Reuse` | `HALF_LIFE` | 1 s | half of the counts are forgotten in this time | less: chance decides; more: other clients are recognized later | guess | `a_pool_is_recognized`, `clients_that_close_are_recognized` |
//! | `Reuse`, the server's policy | `EVIDENCE_MIN` | 16 | fewer requests say nothing about the kind of clients | less: chance decides; more: few clients are never judged | guess | `a_pause_changes_nothing` |
//! | `Knee` | `STEP` | 2 | a search halves the concurrency; an answer may take twice its service time | less: changes hide in random variation; more: a wrong step costs more answers | rule | `it_finds_the_knee`, `a_slower_back_end_is_believed` |
//! | `Knee` | `ANSWERS` | 20 | answers in a window: 4 times as many while requests are refused, 8 times to end a search | less: random errors; more: changes are seen later | arithmetic | `it_finds_the_knee`, `it_does_not_oscillate_for_an_hour` |
//! | `Knee` | `WEIGHT` | 0.3 | weight of a new window | less: small changes are followed late; more: the limit swings | guess | `it_does_not_oscillate_for_an_hour` |
//! | `Knee` | `FLOOR` | 4 | the lowest limit that is found | less: idle places in a small back end; more: a queue in front of it | guess | `small_back_ends_are_kept_busy` |
//! | `Knee` | `PATIENCE` | 5 s | a limit is dropped, a window ends, a doubt begins after this | less: a limit has to be found again; more: an old limit refuses needlessly | rule: `Retry-After` | `a_limit_is_dropped_when_it_is_not_needed` |
//! | `Knee` | `SAME` | 1.1 | two concurrencies count as equal within this factor | less: comparisons without meaning; more: small steps are never compared | guess | `a_slower_back_end_is_believed` |
//! | `Knee` | `BELIEVED` | 2 | while half is refused, measure again after `PATIENCE` doubled this often | less: answers lost to measuring; more: a wrong service time is kept for longer | guess | `what_was_learnt_wrongly_is_unlearnt`, `measuring_again_refuses_nothing_that_had_room` |
//! | `Knee` | `DOUBLED_MAX` | 6 | doublings at most, so every five minutes at the least | as `BELIEVED` | guess | `it_does_not_oscillate_for_an_hour` |
//! | `Aimd` | `START`, `FLOOR`, `DECREASE`, `INCREASE_PER_SECOND`, `BAD_MAX` | 20, 1, 0.9, 10, 0.05 | see `aimd.rs` | – | published (Netflix) | its unit tests |
//! | `HillClimb` | `START` to `MEMORY`: ten | see `hill_climb.rs` | steps, period, thresholds | – | specified; `MEMORY` is a guess | its unit tests |

mod aimd;
mod fixed;
mod growth;
mod hill_climb;
mod knee;
mod leavers;
mod lenience;
mod level;
mod queue_delay;
mod reuse;
mod shares;
mod spans;
mod standing;
mod thinning;
mod trial;
mod turn;

use core::time::Duration;

use crate::time::Instant;

pub use self::aimd::Aimd;
pub use self::fixed::Fixed;
pub use self::hill_climb::HillClimb;
pub use self::knee::Knee;
pub use self::lenience::Lenience;
pub use self::level::Level;
pub use self::queue_delay::QueueDelay;
pub use self::reuse::{EVIDENCE_MIN, Reuse};
pub use self::shares::{ClientKey, Place, SLOTS, Shares};
pub use self::standing::{CLASSES, Standing};
pub use self::thinning::Thinning;
pub use self::turn::Turn;

/// The largest possible limit: a million connections with work at once.
pub const LIMIT_MAX: u32 = 1 << 20;

/// What happened in a whole server since the last sample.
///
/// A field whose value is not known is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// The time covered.
    pub span: Duration,
    /// Answers to requests that were started. Refusals do not count.
    pub completed: u64,
    /// Of those, the answers within their deadline.
    pub good: u64,
    /// Requests and connections refused, by any layer.
    pub refused: u64,
    /// Of those, the requests that were admitted first and then waited too long.
    pub dropped: u64,
    /// Requests that were started.
    pub started: u64,
    /// How many workers there are.
    pub workers: u32,
    /// Workers with a standing queue.
    pub standing: u32,
    /// Workers with a queue that stands, or is so long that it may soon stand.
    pub long: u32,
    /// The cost of a request to a worker: the mean over the workers with a standing queue, or over
    /// all workers if there are none.
    pub cost: Duration,
    /// How long a request may wait in a standing queue: the mean over the workers with one.
    pub target: Duration,
    /// Requests that wait to be started now.
    pub queued: u32,
    /// Connections with work but without a waiting request: connections that have sent none yet, and a few that are being
    /// served.
    pub asleep: u32,
    /// The share of the time with an empty queue, 0 to 1: the mean over the workers with a standing
    /// queue.
    pub empty: f32,
    /// Connections with work: the mean over the span, rounded.
    pub in_flight: u32,
    /// The largest number of them at once. The limit took effect if this reached it.
    pub in_flight_max: u32,
    /// The shortest time that a request waited between being ready and being started.
    pub queue_delay_min: Duration,
    /// The mean of that time.
    pub queue_delay_mean: Duration,
    /// The mean time from ready to answered, over `completed`. If it is zero, use Little's law:
    /// `in_flight` divided by the rate.
    pub latency_mean: Duration,
    /// How busy the cores were, 0 to 1.
    pub busy: f32,
}

impl Sample {
    /// Merges this sample and `next`, which follows it, into one.
    pub fn and(&self, next: &Sample) -> Sample {
        let all = self.completed + next.completed;
        let by_count = |a: Duration, b: Duration| match all {
            0 => b,
            _ => {
                let sum = a.as_nanos() * u128::from(self.completed)
                    + b.as_nanos() * u128::from(next.completed);
                Duration::from_nanos((sum / u128::from(all)) as u64)
            }
        };
        let span = self.span + next.span;
        let by_time = |a: f64, b: f64| match span.is_zero() {
            true => b,
            false => {
                (a * self.span.as_secs_f64() + b * next.span.as_secs_f64()) / span.as_secs_f64()
            }
        };
        let least = match (self.queue_delay_min, next.queue_delay_min) {
            (least, _) if self.completed > 0 && next.completed == 0 => least,
            (_, least) if self.completed == 0 => least,
            (a, b) => a.min(b),
        };
        Sample {
            span,
            completed: all,
            good: self.good + next.good,
            refused: self.refused + next.refused,
            dropped: self.dropped + next.dropped,
            started: self.started + next.started,
            workers: next.workers,
            standing: next.standing,
            long: next.long,
            cost: next.cost,
            target: next.target,
            queued: next.queued,
            asleep: next.asleep,
            empty: by_time(self.empty.into(), next.empty.into()) as f32,
            in_flight: (by_time(self.in_flight.into(), next.in_flight.into()) + 0.5) as u32,
            in_flight_max: self.in_flight_max.max(next.in_flight_max),
            queue_delay_min: least,
            queue_delay_mean: by_count(self.queue_delay_mean, next.queue_delay_mean),
            latency_mean: by_count(self.latency_mean, next.latency_mean),
            busy: by_time(self.busy.into(), next.busy.into()) as f32,
        }
    }

    /// Whether `limit` refused connections, or nearly did.
    pub fn is_felt(&self, limit: u32) -> bool {
        self.refused > self.dropped || u64::from(self.in_flight_max) * 10 >= u64::from(limit) * 9
    }
}

/// An algorithm that finds how much work may be in progress at once.
pub trait Limit: Send {
    /// Takes in a sample and returns the new limit. `now` never goes back. Samples come about every
    /// tenth of a second, or later if nothing happens.
    fn on_sample(&mut self, now: Instant, sample: &Sample) -> u32;

    /// The limit after the last sample.
    fn limit(&self) -> u32;

    /// Its name in settings and metrics.
    fn name(&self) -> &'static str;
}
