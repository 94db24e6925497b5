//! One worker, its queue, the gate before it and its clients, turn by turn and without a wall clock.
//!
//! It is a model. From Highwater it uses only the two parts under test: [`Standing`], which looks
//! at every turn, and [`QueueDelay`], which gets a sample ten times a second and as soon as the
//! queue stands. It leaves out the network (a connection and its request arrive at once), memory,
//! and other workers.

use std::collections::VecDeque;
use std::time::Duration;

use highwater_core::limit::{Limit, QueueDelay, Sample, Standing, Turn};
use highwater_core::prng::Prng;
use highwater_core::time::Instant;

use super::shares::{Fair, Step};

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const S: u64 = 1_000_000_000;

/// The defaults of the server.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
pub(crate) const TARGET: Duration = Duration::from_millis(10);

/// The worker's cost of a refusal: by the gate (a reset), and by a 503.
const GATE_COST: u64 = 16_400;
const ANSWER_COST: u64 = 77 * US;
/// A 503 on a connection that stays open.
const ANSWER_KEPT_COST: u64 = 14 * US;
/// The cost of dropping a request that its client has given up.
const DROP_COST: u64 = 10 * US;

/// How long a refused client waits before it tries again, unless a test says otherwise.
const BACK_OFF: u64 = 50 * MS;

/// The refusals of the gate reach the worker in steps of this, while the queue stands.
const GATE_LOOK: u64 = 25 * MS;

/// How many requests a worker refuses in a row, and how long it thinks in a turn.
const REFUSALS_MAX: u32 = 16;
const THINK_MAX: u64 = MS;

/// How long a request takes the worker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Service {
    Constant(u64),
    /// The mean.
    Exponential(u64),
    /// Most take the first time, one in this many the second.
    Bimodal(u64, u64, u64),
    /// Mean and shape; cut at a thousand means.
    Pareto(u64, f64),
}

impl Service {
    pub(crate) fn draw(self, prng: &mut Prng) -> u64 {
        let u = 1.0 - prng.unit();
        match self {
            Service::Constant(time) => time,
            Service::Exponential(mean) => (-u.ln() * mean as f64) as u64,
            Service::Bimodal(quick, slow, one_in) => {
                if prng.below(one_in) == 0 {
                    slow
                } else {
                    quick
                }
            }
            Service::Pareto(mean, shape) => {
                let least = mean as f64 * (shape - 1.0) / shape;
                (least * u.powf(-1.0 / shape)).min(mean as f64 * 1000.0) as u64
            }
        }
    }

    pub(crate) fn mean(self) -> f64 {
        match self {
            Service::Constant(time) | Service::Exponential(time) | Service::Pareto(time, _) => {
                time as f64
            }
            Service::Bimodal(quick, slow, one_in) => {
                (quick as f64 * (one_in - 1) as f64 + slow as f64) / one_in as f64
            }
        }
    }
}

/// A request: when it was sent, whether its client sends another one after the answer, how long the client waits, and
/// who that is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) sent: u64,
    comes_again: bool,
    pub(crate) patience: u64,
    pub(crate) client: u32,
}

/// Requests that arrive at random, from clients drawn from a range.
#[derive(Clone, Copy, Debug)]
struct Stream {
    next: u64,
    gap: f64,
    clients: (u32, u32),
}

/// What became of the requests of some clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) good: u64,
    pub(crate) refused: u64,
    /// Those whose clients gave up before they were started.
    pub(crate) left: u64,
    pub(crate) latencies: Vec<u64>,
}

impl Tally {
    /// The share of requests that were lost, of those that wait no more.
    pub(crate) fn lost(&self) -> f64 {
        let asked = self.refused + self.left + self.latencies.len() as u64;
        1.0 - self.good as f64 / asked.max(1) as f64
    }
}

/// What happened in a tenth of a second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tenth {
    pub(crate) good: u64,
    /// Those of clients that ask once.
    pub(crate) good_once: u64,
    pub(crate) served: u64,
    pub(crate) refused: u64,
    pub(crate) dropped: u64,
    pub(crate) stood: bool,
}

pub(crate) struct World {
    pub(crate) prng: Prng,
    pub(crate) service: Service,
    deadline: u64,
    /// Clients in a thousand that give up after so long.
    pub(crate) impatient: (u64, u64),
    /// The patience of the others.
    pub(crate) patience: u64,
    /// Their requests leave the queue with them.
    pub(crate) leaves: bool,
    /// How long a refused client waits before it tries again.
    pub(crate) back_off: u64,
    /// Connections are kept, so that the gate is open and the queue refuses requests.
    pub(crate) are_kept: bool,
    pub(crate) now: u64,
    pub(crate) queue: VecDeque<Request>,
    /// Requests to come at a known time, in order.
    due: VecDeque<Request>,
    /// When the next of the open loop comes, and how long until the one after, on average.
    next_arrival: u64,
    gap: f64,
    streams: Vec<Stream>,
    /// Clients have shares, if the queue stands.
    pub(crate) fair: Option<Fair>,
    /// The requests of client 0, and of all others.
    pub(crate) tallies: [Tally; 2],
    pub(crate) standing: Standing,
    pub(crate) limit: QueueDelay,
    /// Places held by connections that send nothing.
    pub(crate) silent: u32,
    sampled_at: u64,
    look: Look,
    empty_before: Duration,
    /// What the gate has refused, and when the worker is told next.
    gate_refused: u32,
    gate_look: u64,
    tenth: Tenth,
    pub(crate) tenths: Vec<Tenth>,
    pub(crate) latencies: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Look {
    started: u64,
    refused: u64,
}

impl Request {
    fn new(sent: u64, patience: u64) -> Request {
        Request { sent, comes_again: false, patience, client: 0 }
    }
}

impl World {
    pub(crate) fn new(seed: u64, service: Service) -> World {
        World {
            prng: Prng::from_seed(seed),
            service,
            deadline: 200 * MS,
            impatient: (0, 0),
            patience: u64::MAX,
            leaves: false,
            back_off: BACK_OFF,
            are_kept: false,
            now: 0,
            queue: VecDeque::new(),
            due: VecDeque::new(),
            next_arrival: u64::MAX,
            gap: f64::INFINITY,
            streams: Vec::new(),
            fair: None,
            tallies: [Tally::default(), Tally::default()],
            standing: Standing::new(TARGET, PATIENCE, Instant::ZERO),
            limit: QueueDelay::new(PATIENCE, 1 << 20),
            silent: 0,
            sampled_at: 0,
            look: Look::default(),
            empty_before: Duration::ZERO,
            gate_refused: 0,
            gate_look: 0,
            tenth: Tenth::default(),
            tenths: Vec::new(),
            latencies: Vec::new(),
        }
    }

    /// Adds `count` requests that arrive within `spread`.
    pub(crate) fn burst(&mut self, count: u64, spread: u64) {
        self.crowd(count, spread, false);
    }

    /// Adds `count` clients that ask, and ask again as soon as they are answered.
    pub(crate) fn clients(&mut self, count: u64) {
        self.crowd(count, 0, true);
    }

    /// Adds `count` clients that come within `spread`.
    pub(crate) fn crowd(&mut self, count: u64, spread: u64, comes_again: bool) {
        for n in 0..count {
            let (sent, patience) = (self.now + spread * n / count, self.draw_patience());
            self.due.push_back(Request { comes_again, ..Request::new(sent, patience) });
        }
    }

    /// From now on requests arrive at random, `times` as fast as they can be served.
    pub(crate) fn load(&mut self, times: f64) {
        self.gap = self.service.mean() / times;
        self.next_arrival = if times > 0.0 { self.now + self.draw_gap() } else { u64::MAX };
    }

    /// From now on requests of clients drawn from `first..end` arrive at random, too: `times` as many as can be served.
    pub(crate) fn load_of(&mut self, (first, end): (u32, u32), times: f64) {
        let gap = self.service.mean() / times;
        self.streams.push(Stream { next: self.now, gap, clients: (first, end) });
    }

    fn draw_patience(&mut self) -> u64 {
        let (share, patience) = self.impatient;
        match share > 0 && self.prng.below(1000) < share {
            true => patience,
            false => self.patience,
        }
    }

    fn draw_gap(&mut self) -> u64 {
        (-(1.0 - self.prng.unit()).ln() * self.gap) as u64 + 1
    }

    /// Lets this much time pass.
    pub(crate) fn run(&mut self, time: u64) {
        let end = self.now + time;
        while self.now < end {
            self.turn(end);
        }
    }

    /// Runs until no request waits. Returns how long that took.
    pub(crate) fn settle(&mut self) -> u64 {
        let begin = self.now;
        while self.waiting() > 0 || !self.due.is_empty() {
            self.turn(u64::MAX);
        }
        self.now - begin
    }

    pub(crate) fn total(&self, of: impl Fn(&Tenth) -> u64) -> u64 {
        self.tenths.iter().map(&of).sum::<u64>() + of(&self.tenth)
    }

    pub(crate) fn has_stood(&self) -> bool {
        self.tenths.iter().any(|tenth| tenth.stood) || self.standing.stands()
    }

    fn turn(&mut self, end: u64) {
        if self.waiting() == 0 {
            let next = self.due.front().map_or(u64::MAX, |request| request.sent);
            let sample = self.sampled_at + S / 10;
            let next = self.streams.iter().map(|stream| stream.next).fold(next, u64::min);
            self.pass(next.min(self.next_arrival).min(end).min(sample).max(self.now));
        }
        let began = self.now;
        self.take_arrivals();
        let target = self.standing.short_target().as_nanos() as u64;
        let (mut refused, mut started, mut abandoned) = (0, 0, 0);
        abandoned += self.take_leavers();
        while self.waiting() > 0 && (self.now < began + THINK_MAX || started + refused == 0) {
            let stands = self.standing.stands();
            let overtaken = self.standing.overtaken_max().as_nanos() as u64;
            let is_long = self.standing.is_long();
            let is_divided = |fair: &Fair| is_long || overtaken > 0 || fair.len() > 0;
            if self.fair.as_ref().is_some_and(is_divided) {
                match self.step_by_shares(target, refused < REFUSALS_MAX) {
                    Step::Started { is_given_up } => {
                        started += 1;
                        abandoned += u32::from(is_given_up);
                    }
                    Step::Refused => refused += 1,
                    Step::Left => abandoned += 1,
                }
                continue;
            }
            let overdue = |request: &Request| self.now - request.sent > target;
            let given_up = |request: &Request| self.now - request.sent > request.patience;
            let drops = self.standing.drops_abandoned();
            if drops && self.queue.front().is_some_and(given_up) {
                let request = self.queue.pop_front().expect("there is one");
                abandoned += 1;
                self.leave(request);
                continue;
            }
            if stands && refused < REFUSALS_MAX && self.queue.front().is_some_and(overdue) {
                let request = self.queue.pop_front().expect("there is one");
                refused += 1;
                self.refuse(request, self.answer_cost());
                continue;
            }
            // Oldest first while the gate keeps the queue short, newest first while it is too long.
            let late = self.queue.front().is_some_and(|request| {
                self.now - request.sent < overtaken || stands && overdue(request)
            });
            let next = if late { self.queue.pop_back() } else { self.queue.pop_front() };
            let request = next.expect("there is one");
            if self.now - request.sent > request.patience {
                abandoned += 1;
                if drops {
                    self.leave(request);
                    continue;
                }
            }
            started += 1;
            self.standing.on_start(0, Duration::from_nanos(self.now - request.sent));
            self.serve(request);
        }
        let refused = refused + self.reported_by_gate();
        let waiting = self.waiting() as u32;
        let at = Instant::from_nanos;
        let (began, ended) = (at(began), at(self.now));
        let turn = Turn { began, ended, waiting, started, refused, abandoned };
        let stood = self.standing.stands();
        let stands = self.standing.on_turn(&turn);
        self.tenth.stood |= stands;
        self.look.started += u64::from(started);
        // The alarm: the limit is looked at as soon as the queue stands.
        if stands && !stood || self.now >= self.sampled_at + S / 10 {
            self.sample();
        }
    }

    /// The requests of clients that have left are gone.
    fn take_leavers(&mut self) -> u32 {
        if !self.leaves {
            return 0;
        }
        let (now, short) = (self.now, self.standing.short_target());
        let is_there = |request: &Request| now - request.sent <= request.patience;
        let (there, gone) = self.queue.drain(..).partition::<VecDeque<_>, _>(&is_there);
        self.queue = there;
        let placed = self.fair.as_mut().map(|fair| fair.take_leavers(is_there));
        let mut counted = 0;
        for request in gone.into_iter().chain(placed.unwrap_or_default()) {
            let wait = Duration::from_nanos(now - request.sent);
            if wait > short {
                self.standing.on_leave(0, wait);
                counted += 1;
            }
            self.leave(request);
        }
        counted
    }

    /// The gate's refusals that the worker learns of in this turn.
    fn reported_by_gate(&mut self) -> u32 {
        if self.now < self.gate_look {
            return 0;
        }
        self.gate_look = self.now + GATE_LOOK;
        std::mem::take(&mut self.gate_refused)
    }

    pub(crate) fn serve(&mut self, request: Request) {
        let time = self.service.draw(&mut self.prng);
        self.serve_for(request, time);
    }

    pub(crate) fn serve_for(&mut self, request: Request, time: u64) {
        self.pass(self.now + time);
        let latency = self.now - request.sent;
        self.latencies.push(latency);
        self.tenth.served += 1;
        let deadline = if request.patience == u64::MAX { self.deadline } else { request.patience };
        let is_good = u64::from(latency <= deadline);
        self.tenth.good += is_good;
        self.tenth.good_once += is_good * u64::from(!request.comes_again);
        let tally = &mut self.tallies[usize::from(request.client > 0)];
        tally.good += is_good;
        tally.latencies.push(latency);
        self.again(request, 0);
    }

    /// The client of a request has given up, and nothing is done for it.
    pub(crate) fn leave(&mut self, request: Request) {
        self.pass(self.now + DROP_COST);
        self.tallies[usize::from(request.client > 0)].left += 1;
        self.tenth.dropped += 1;
        self.again(request, self.back_off);
    }

    pub(crate) fn answer_cost(&self) -> u64 {
        if self.are_kept { ANSWER_KEPT_COST } else { ANSWER_COST }
    }

    pub(crate) fn refuse(&mut self, request: Request, cost: u64) {
        self.pass(self.now + cost);
        self.tallies[usize::from(request.client > 0)].refused += 1;
        self.tenth.refused += 1;
        self.look.refused += 1;
        self.again(request, self.back_off);
    }

    fn again(&mut self, request: Request, pause: u64) {
        if request.comes_again {
            let sent = self.now + pause;
            let place = self.due.partition_point(|other| other.sent <= sent);
            self.due.insert(place, Request { sent, ..request });
        }
    }

    fn take_arrivals(&mut self) {
        while let Some(request) = self.next_arrival() {
            let held = self.waiting() as u64 + u64::from(self.silent.min(self.limit.limit()));
            let limit = u64::from(self.limit.limit());
            let stands = self.standing.stands();
            let admits = match self.fair.as_mut().filter(|_| stands) {
                Some(fair) => fair.admits(&request, self.now, (held, limit)),
                None => held < limit,
            };
            if !self.are_kept && !admits {
                self.gate_refused += 1;
                self.refuse(request, GATE_COST);
                continue;
            }
            self.queue.push_back(request);
        }
    }

    fn waiting(&self) -> usize {
        self.queue.len() + self.fair.as_ref().map_or(0, Fair::len)
    }

    /// The next request that has arrived.
    fn next_arrival(&mut self) -> Option<Request> {
        let due = self.due.front().map_or(u64::MAX, |request| request.sent);
        let stream = (0..self.streams.len()).min_by_key(|&index| self.streams[index].next);
        let streamed = stream.map_or(u64::MAX, |index| self.streams[index].next);
        let sent = due.min(self.next_arrival).min(streamed);
        if sent > self.now {
            return None;
        }
        if due == sent {
            return self.due.pop_front();
        }
        let mut client = 0;
        if self.next_arrival == sent {
            self.next_arrival += self.draw_gap();
        } else {
            let index = stream.expect("its request has arrived");
            let Stream { gap, clients: (first, end), .. } = self.streams[index];
            client = first + self.prng.below(u64::from(end - first)) as u32;
            self.streams[index].next += (-(1.0 - self.prng.unit()).ln() * gap) as u64 + 1;
        }
        let patience = self.draw_patience();
        Some(Request { client, ..Request::new(sent, patience) })
    }

    fn pass(&mut self, until: u64) {
        self.now = until;
        while self.now >= (self.tenths.len() as u64 + 1) * (S / 10) {
            self.tenths.push(std::mem::take(&mut self.tenth));
            self.tenth.stood = self.standing.stands();
        }
    }

    fn sample(&mut self) {
        let span = (self.now - self.sampled_at).max(1);
        let empty = self.standing.empty() - self.empty_before;
        let queued = self.waiting() as u32;
        let sample = Sample {
            span: Duration::from_nanos(span),
            started: self.look.started,
            refused: self.look.refused,
            workers: 1,
            standing: u32::from(self.standing.stands()),
            cost: self.standing.cost().unwrap_or_default(),
            target: self.standing.short_target(),
            queued,
            in_flight: queued + self.silent.min(self.limit.limit()),
            asleep: self.silent.min(self.limit.limit()),
            empty: empty.as_nanos() as f32 / span as f32,
            ..Sample::default()
        };
        let limit = self.limit.on_sample(Instant::from_nanos(self.now), &sample);
        assert!(limit >= 1);
        if let Some(fair) = &mut self.fair {
            fair.on_sample(&sample);
        }
        self.look = Look::default();
        self.empty_before = self.standing.empty();
        self.sampled_at = self.now;
    }
}
