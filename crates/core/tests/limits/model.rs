//! A server, its clients and the gate between them, in events and without a wall clock.
//!
//! It is a model: it knows the limits only through their trait, and its expectations follow from
//! queueing theory. It leaves out the network (a connection arrives at once) and memory.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use highwater_core::limit::{Limit, Sample};
use highwater_core::prng::Prng;
use highwater_core::time::Instant;

pub(crate) const MS: f64 = 1e-3;
pub(crate) const US: f64 = 1e-6;

/// How long a request takes a core, or the back end, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Service {
    Constant(f64),
    /// Most are quick, some are slow: the two times, and the share of the slow ones.
    Bimodal(f64, f64, f64),
    /// Mean and shape. A shape of 1.5 has no variance: now and then one request takes as long as a
    /// thousand others.
    Pareto(f64, f64),
}

impl Service {
    fn draw(self, prng: &mut Prng) -> f64 {
        match self {
            Service::Constant(time) => time,
            Service::Bimodal(quick, slow, share) => {
                if prng.unit() < share {
                    slow
                } else {
                    quick
                }
            }
            Service::Pareto(mean, shape) => {
                let least = mean * (shape - 1.0) / shape;
                // The tail is cut at a thousand means: no handler computes for ever.
                (least * (1.0 - prng.unit()).powf(-1.0 / shape)).min(mean * 1000.0)
            }
        }
    }

    pub(crate) fn mean(self) -> f64 {
        match self {
            Service::Constant(time) | Service::Pareto(time, _) => time,
            Service::Bimodal(quick, slow, share) => quick * (1.0 - share) + slow * share,
        }
    }
}

/// The core's cost of refusing a connection.
const REFUSAL: f64 = 16.4 * US;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    pub(crate) seed: u64,
    /// Time on a core, with no waiting in it.
    pub(crate) service: Service,
    pub(crate) cores: usize,
    /// Time spent waiting for a back end after that, and how many requests the back end serves at
    /// once; the others queue there, unmeasured.
    pub(crate) backend: Option<(Service, usize)>,
    pub(crate) deadline: f64,
    /// How many attempts a refused client makes in all.
    pub(crate) tries: u32,
    /// Whether the limit knows queue delay, latency and lateness; if not, it knows only counts.
    pub(crate) sighted: bool,
}

impl Scene {
    /// One core, 1.1 ms per request, 200 ms deadline, an open loop: as the real experiment.
    pub(crate) fn plain() -> Scene {
        Scene {
            seed: 1,
            service: Service::Constant(1.1 * MS),
            cores: 1,
            backend: None,
            deadline: 200.0 * MS,
            tries: 1,
            sighted: true,
        }
    }

    /// Requests per second that the cores and the back end could serve if none had to be refused.
    pub(crate) fn capacity(&self) -> f64 {
        let cores = self.cores as f64 / self.service.mean();
        match self.backend {
            Some((service, slots)) => cores.min(slots as f64 / service.mean()),
            None => cores,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Request {
    /// Of the first attempt.
    sent: f64,
    ready: f64,
    started: f64,
    tries_left: u32,
}

/// Non-negative times sort like their bits.
type Key = Reverse<(u64, u64)>;

/// A tenth of a second of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tenth {
    pub(crate) good: u64,
    pub(crate) completed: u64,
    pub(crate) limit: u32,
    pub(crate) refused: u64,
}

pub(crate) struct World<'a> {
    scene: Scene,
    /// Arrivals, times on a core in the order of their start, and times behind it: three sequences,
    /// so that two limits under one seed are compared over the same work.
    arrivals: Prng,
    services: Prng,
    backend_services: Prng,
    limit: &'a mut dyn Limit,
    now: f64,
    in_flight: u32,
    waiting: VecDeque<Request>,
    cores: Vec<Option<(f64, Request)>>,
    /// Core time spent on refusals that no running request has been charged for yet.
    stolen: f64,
    in_backend: BinaryHeap<Key>,
    backend_requests: Vec<Request>,
    backend_free: Vec<usize>,
    backend_queue: VecDeque<Request>,
    retries: BinaryHeap<Key>,
    retry_requests: Vec<Request>,
    retry_free: Vec<usize>,
    speed: f64,
    look: Counters,
    before_in_flight: u32,
    /// When the last sample was, and when the next is due.
    sampled_at: f64,
    look_at: f64,
    tenth: Tenth,
    pub(crate) tenths: Vec<Tenth>,
}

#[derive(Clone, Copy, Debug)]
struct Counters {
    completed: u64,
    good: u64,
    refused: u64,
    started: u64,
    in_flight_max: u32,
    wait_sum: f64,
    wait_min: f64,
    latency_sum: f64,
    busy: f64,
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            completed: 0,
            good: 0,
            refused: 0,
            started: 0,
            in_flight_max: 0,
            wait_sum: 0.0,
            wait_min: f64::INFINITY,
            latency_sum: 0.0,
            busy: 0.0,
        }
    }
}

/// The span of one record, in seconds.
const TICK: f64 = 0.1;

/// How long a refused client waits before it tries again.
const PAUSE: f64 = 0.020;

/// How often the limit gets a sample.
const PERIOD: f64 = 0.1;

impl<'a> World<'a> {
    pub(crate) fn new(scene: Scene, limit: &'a mut dyn Limit) -> World<'a> {
        World {
            arrivals: Prng::from_seed(scene.seed),
            services: Prng::from_seed(scene.seed + 1000),
            backend_services: Prng::from_seed(scene.seed + 2000),
            cores: vec![None; scene.cores],
            scene,
            limit,
            now: 0.0,
            in_flight: 0,
            waiting: VecDeque::new(),
            stolen: 0.0,
            in_backend: BinaryHeap::new(),
            backend_requests: Vec::new(),
            backend_free: Vec::new(),
            backend_queue: VecDeque::new(),
            retries: BinaryHeap::new(),
            retry_requests: Vec::new(),
            retry_free: Vec::new(),
            speed: 1.0,
            look: Counters::default(),
            before_in_flight: 0,
            sampled_at: 0.0,
            look_at: PERIOD,
            tenth: Tenth::default(),
            tenths: Vec::new(),
        }
    }

    /// From now on everything takes the cores, or the back end, `factor` times as long.
    pub(crate) fn slow_down(&mut self, factor: f64) {
        self.speed = 1.0 / factor;
    }

    /// Lets `seconds` pass with `rate` new requests per second.
    pub(crate) fn run(&mut self, seconds: f64, rate: f64) {
        let end = self.now + seconds;
        let mut arrival = self.now + self.gap(rate);
        loop {
            let tick = (self.tenths.len() + 1) as f64 * TICK;
            let core = self.next_core();
            let backend =
                self.in_backend.peek().map_or(f64::INFINITY, |key| f64::from_bits(key.0.0));
            let retry = self.retries.peek().map_or(f64::INFINITY, |key| f64::from_bits(key.0.0));
            let done = core.map_or(f64::INFINITY, |(_, at)| at);
            let next = tick.min(self.look_at).min(done).min(backend).min(retry).min(arrival);
            if next > end {
                self.now = end;
                return;
            }
            self.now = next;
            if next == self.look_at {
                self.look();
            } else if next == tick {
                let limit = self.limit.limit();
                self.tenths.push(Tenth { limit, ..std::mem::take(&mut self.tenth) });
            } else if next == done {
                self.leave_core(core.expect("it is due").0);
            } else if next == backend {
                self.leave_backend();
            } else if next == retry {
                let Reverse((_, index)) = self.retries.pop().expect("it is due");
                self.retry_free.push(index as usize);
                self.arrive(self.retry_requests[index as usize]);
            } else {
                let tries_left = self.scene.tries;
                self.arrive(Request { sent: next, ready: next, started: next, tries_left });
                arrival = next + self.gap(rate);
            }
        }
    }

    fn gap(&mut self, rate: f64) -> f64 {
        -(1.0 - self.arrivals.unit()).ln() / rate
    }

    fn next_core(&self) -> Option<(usize, f64)> {
        let busy = self.cores.iter().enumerate();
        let due = busy.filter_map(|(core, job)| job.map(|(at, _)| (core, at)));
        due.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn arrive(&mut self, mut request: Request) {
        if self.in_flight >= self.limit.limit() {
            self.refuse(request);
            return;
        }
        self.in_flight += 1;
        self.look.in_flight_max = self.look.in_flight_max.max(self.in_flight);
        request.ready = self.now;
        self.waiting.push_back(request);
        self.start();
    }

    fn refuse(&mut self, mut request: Request) {
        self.look.refused += 1;
        self.tenth.refused += 1;
        self.steal(REFUSAL);
        request.tries_left -= 1;
        if request.tries_left > 0 {
            let index = self.retry_free.pop().unwrap_or(self.retry_requests.len());
            if index == self.retry_requests.len() {
                self.retry_requests.push(request);
            }
            self.retry_requests[index] = request;
            self.retries.push(Reverse(((self.now + PAUSE).to_bits(), index as u64)));
        }
    }

    /// Takes core time from the running request, or from the next one.
    fn steal(&mut self, time: f64) {
        match self.cores.iter_mut().flatten().next() {
            Some((at, _)) => *at += time,
            None => self.stolen = time,
        }
        self.look.busy += time;
    }

    fn start(&mut self) {
        while let Some(core) = self.cores.iter().position(Option::is_none) {
            let Some(mut request) = self.waiting.pop_front() else { return };
            request.started = self.now;
            let wait = self.now - request.ready;
            self.look.wait_sum += wait;
            self.look.wait_min = self.look.wait_min.min(wait);
            self.look.started += 1;
            let time = self.scene.service.draw(&mut self.services) / self.speed;
            self.look.busy += time;
            let stolen = std::mem::take(&mut self.stolen);
            self.cores[core] = Some((self.now + time + stolen, request));
        }
    }

    fn leave_core(&mut self, core: usize) {
        let (_, request) = self.cores[core].take().expect("it was running");
        match self.scene.backend {
            None => self.answer(request),
            Some((_, slots)) if self.in_backend.len() >= slots => {
                self.backend_queue.push_back(request);
            }
            Some(_) => self.enter_backend(request),
        }
        self.start();
    }

    fn enter_backend(&mut self, request: Request) {
        let (service, _) = self.scene.backend.expect("there is one");
        let time = service.draw(&mut self.backend_services) / self.speed;
        let index = self.backend_free.pop().unwrap_or(self.backend_requests.len());
        if index == self.backend_requests.len() {
            self.backend_requests.push(request);
        }
        self.backend_requests[index] = request;
        self.in_backend.push(Reverse(((self.now + time).to_bits(), index as u64)));
    }

    fn leave_backend(&mut self) {
        let Reverse((_, index)) = self.in_backend.pop().expect("it is due");
        self.backend_free.push(index as usize);
        self.answer(self.backend_requests[index as usize]);
        if let Some(next) = self.backend_queue.pop_front() {
            self.enter_backend(next);
        }
    }

    fn answer(&mut self, request: Request) {
        self.in_flight -= 1;
        self.look.completed += 1;
        self.tenth.completed += 1;
        // The server cannot know when its client first tried, so this measures from `ready`.
        self.look.good += u64::from(self.now - request.ready <= self.scene.deadline);
        self.tenth.good += u64::from(self.now - request.sent <= self.scene.deadline);
        self.look.latency_sum += self.now - request.ready;
    }

    /// Gives the limit its sample.
    fn look(&mut self) {
        let sample = self.sample();
        let now = Instant::from_nanos((self.now * 1e9) as u64);
        let limit = self.limit.on_sample(now, &sample);
        assert!(limit >= 1, "a limit of nothing");
        self.look = Counters::default();
        (self.before_in_flight, self.sampled_at) = (self.in_flight, self.now);
        self.look_at = self.now + PERIOD;
    }

    /// What happened since the last sample.
    fn sample(&self) -> Sample {
        let look = self.look;
        let span = (self.now - self.sampled_at).max(1e-6);
        let mean = |sum: f64, count: u64| match count {
            0 => Duration::ZERO,
            _ => Duration::from_secs_f64(sum / count as f64),
        };
        let sample = Sample {
            span: Duration::from_secs_f64(span),
            completed: look.completed,
            good: look.good,
            refused: look.refused,
            started: look.started,
            in_flight: self.in_flight.midpoint(self.before_in_flight),
            in_flight_max: look.in_flight_max.max(self.in_flight),
            queue_delay_mean: mean(look.wait_sum, look.started),
            queue_delay_min: match look.started {
                0 => Duration::ZERO,
                _ => Duration::from_secs_f64(look.wait_min),
            },
            latency_mean: mean(look.latency_sum, look.completed),
            busy: (look.busy / span / self.scene.cores as f64).min(1.0) as f32,
            ..Sample::default()
        };
        if self.scene.sighted {
            return sample;
        }
        Sample {
            good: sample.completed,
            started: 0,
            queue_delay_mean: Duration::ZERO,
            queue_delay_min: Duration::ZERO,
            latency_mean: Duration::ZERO,
            busy: 0.0,
            ..sample
        }
    }
}

/// Per second, over the tenths from `from` to `to` seconds.
pub(crate) fn rate(tenths: &[Tenth], from: f64, to: f64, of: impl Fn(&Tenth) -> u64) -> f64 {
    let span = &tenths[(from * 10.0) as usize..(to * 10.0) as usize];
    span.iter().map(of).sum::<u64>() as f64 / (to - from)
}
