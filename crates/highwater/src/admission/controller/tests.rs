//! The controller with a scripted limit and gate: what it reads, and what it commands.

use std::sync::atomic::{AtomicU32, AtomicU64};

use highwater_core::limit::LIMIT_MAX;
use highwater_sys::bpf::Sources;

use super::*;
use crate::admission::Refuse;
use crate::admission::gate::WorkerGate;
use crate::admission::kernel::{AdjustableGate, FixedCeiling};
use crate::metrics::Rejection;

/// A limit that returns a set value, and keeps the samples it was given.
#[derive(Clone, Default)]
struct StubLimit {
    returns: Arc<AtomicU32>,
    samples: Arc<Mutex<Vec<Sample>>>,
}

impl Limit for StubLimit {
    fn on_sample(&mut self, _now: Instant, sample: &Sample) -> u32 {
        self.samples.lock().expect("no test panics holding it").push(*sample);
        self.limit()
    }

    fn limit(&self) -> u32 {
        self.returns.load(Relaxed)
    }

    fn name(&self) -> &'static str {
        "puppet"
    }
}

/// A gate whose counts are set, and that records its commands.
#[derive(Clone, Default)]
struct StubGate {
    limit: Arc<AtomicU32>,
    reset: Arc<AtomicU64>,
    asked: Arc<Mutex<Vec<Refusal>>>,
}

impl StubGate {
    fn done(&self) -> io::Result<Counts> {
        Ok(Counts { reset: self.reset.load(Relaxed), ..Counts::default() })
    }
}

impl FixedCeiling for StubGate {
    fn mechanism(&self) -> Mechanism {
        Mechanism::Nft
    }

    fn counts(&mut self) -> io::Result<Counts> {
        self.done()
    }
}

impl AdjustableGate for StubGate {
    fn mechanism(&self) -> Mechanism {
        Mechanism::Ebpf
    }

    fn counts(&mut self) -> io::Result<Counts> {
        self.done()
    }

    fn set_limit(&mut self, limit: u32) -> io::Result<()> {
        self.limit.store(limit, Relaxed);
        Ok(())
    }

    fn refuse_by(&mut self, how: Refusal) -> io::Result<()> {
        self.asked.lock().expect("no test panics holding it").push(how);
        Ok(())
    }

    fn reconcile(&mut self, _now: Instant, _accepted: u64) {}

    fn occupancy(&self) -> Option<Occupancy> {
        None
    }

    fn sources(&self) -> Option<Sources> {
        None
    }
}

/// A controller over one worker, with everything around it in view.
struct Stage {
    controller: Controller,
    now: Instant,
    stub_limit: StubLimit,
    stub_gate: StubGate,
    metrics: Metrics,
    wakes: Arc<AtomicU32>,
}

impl Stage {
    fn new(is_adjustable: bool) -> Stage {
        Stage::with(is_adjustable, Refuse::Connections)
    }

    fn with(is_adjustable: bool, refuse: Refuse) -> Stage {
        let metrics = Metrics::new();
        metrics.begin(&["a"], 1);
        let stub_limit = StubLimit::default();
        stub_limit.returns.store(100, Relaxed);
        let stub_gate = StubGate::default();
        let gate = match is_adjustable {
            true => KernelGate::Adjustable(Box::new(stub_gate.clone())),
            false => KernelGate::Fixed(Box::new(stub_gate.clone())),
        };
        let wakes = Arc::new(AtomicU32::new(0));
        let wake = Arc::clone(&wakes);
        let bound = Bound::new(100);
        let admission = Admission::new(Shed::Kernel, "ebpf", String::new(), "puppet", bound);
        let controller = Controller::new(
            Arc::new(admission),
            Box::new(stub_limit.clone()),
            Entrance {
                gate: Some(gate),
                backlogs: Backlogs::default(),
                refusal: None,
                shares: None,
            },
            (Policy::new(refuse, None), Signal::new(Duration::from_millis(10))),
            &metrics,
            1,
            Box::new(move || {
                wake.fetch_add(1, Relaxed);
            }),
        );
        Stage { controller, now: Instant::ZERO, stub_limit, stub_gate, metrics, wakes }
    }

    fn tick(&mut self) -> Duration {
        self.tick_after(100)
    }

    fn tick_after(&mut self, millis: u64) -> Duration {
        self.now += Duration::from_millis(millis);
        self.controller.tick(self.now)
    }

    fn last_sample(&self) -> Sample {
        *self
            .stub_limit
            .samples
            .lock()
            .expect("no test panics holding it")
            .last()
            .expect("one tick")
    }
}

/// Purpose: the counts of the workers and the kernel become the sample of exactly this span.
#[test]
fn counters_become_a_sample() {
    let mut stage = Stage::new(true);
    let worker = stage.metrics.worker(0);
    stage.tick();
    for _ in 0..40 {
        worker.request(0, 200);
    }
    worker.good.add(30);
    worker.request(0, 503);
    worker.rejected(Rejection::QueueDelay);
    worker.rejected(Rejection::RequestLimit);
    worker.request(0, 503);
    worker.set_load(9);
    worker.set_load(4);
    worker.queue.waiting.set(3);
    worker.queue.stands.set(1);
    worker.queue.cost_nanos.set(2_000_000);
    worker.queue.target_nanos.set(15_000_000);
    worker.queue.empty_nanos.set(25_000_000);
    worker.queue_delay.record(3_000_000, 10);
    worker.queue_delay.record(1_000_000, 30);
    worker.latency_nanos.add(40 * 5_000_000);
    stage.stub_gate.reset.store(7, Relaxed);
    stage.tick();
    let millis = Duration::from_millis;
    let sample = Sample { busy: 0.0, ..stage.last_sample() };
    let expected = Sample {
        span: millis(100),
        completed: 40,
        good: 30,
        // Refusals at a route's limit do not count as the server's load.
        refused: 8,
        dropped: 1,
        started: 40,
        workers: 1,
        standing: 1,
        long: 1,
        cost: millis(2),
        target: millis(15),
        queued: 3,
        asleep: 1,
        empty: 0.25,
        in_flight: 2,
        in_flight_max: 9,
        queue_delay_min: millis(1),
        queue_delay_mean: Duration::from_micros(1500),
        latency_mean: millis(5),
        busy: 0.0,
    };
    assert_eq!(sample, expected);
    stage.tick();
    assert_eq!((stage.last_sample().completed, stage.last_sample().refused), (0, 0));
}

/// Purpose: a new limit reaches workers and kernel, and wakes workers only if it makes room for connections
/// that are held back.
#[test]
fn a_limit_is_published() {
    let mut stage = Stage::new(true);
    stage.stub_limit.returns.store(50, Relaxed);
    stage.tick();
    assert_eq!(stage.controller.admission.limit(), 50);
    assert_eq!(stage.stub_gate.limit.load(Relaxed), 50);
    stage.stub_limit.returns.store(60, Relaxed);
    stage.tick();
    assert_eq!(stage.wakes.load(Relaxed), 0, "no connection was held back");
    stage.metrics.worker(0).set_load(60);
    stage.stub_limit.returns.store(70, Relaxed);
    stage.tick();
    assert_eq!((stage.controller.admission.limit(), stage.wakes.load(Relaxed)), (70, 1));
}

/// Purpose: a gate that loses its count with every change must not be changed.
#[test]
fn a_fixed_ceiling_is_left_alone() {
    let mut stage = Stage::new(false);
    stage.stub_limit.returns.store(50, Relaxed);
    stage.tick();
    assert_eq!(stage.controller.admission.limit(), 50);
    assert_eq!(stage.stub_gate.limit.load(Relaxed), 0);
}

/// Purpose: refusals become silent when resets cost more than they may, and stay silent until ten calm
/// seconds have passed.
#[test]
fn refusing_escalates_and_calms_down() {
    let mut stage = Stage::new(true);
    let asked = Arc::clone(&stage.stub_gate.asked);
    let refuse = |stage: &mut Stage, per_second: u64, tenths: u32| {
        for _ in 0..tenths {
            stage.stub_gate.reset.fetch_add(per_second / 10, Relaxed);
            stage.tick();
        }
    };
    // 16.4 µs each: 2.5 % of a core are 1524 a second, 1 % are 609.
    refuse(&mut stage, 1500, 50);
    assert!(asked.lock().expect("held shortly").is_empty());
    refuse(&mut stage, 1550, 1);
    assert_eq!(*asked.lock().expect("held shortly"), [Refusal::Drop]);
    refuse(&mut stage, 600, 90);
    refuse(&mut stage, 700, 1);
    refuse(&mut stage, 600, 100);
    assert_eq!(stage.controller.admission.standing().refusal, Refusal::Drop);
    refuse(&mut stage, 600, 1);
    assert_eq!(*asked.lock().expect("held shortly"), [Refusal::Drop, Refusal::Reset]);
    assert_eq!(stage.controller.admission.standing().refusal, Refusal::Reset);
}

/// Purpose: where connections are kept for many requests, the gate in the kernel and the workers' gates admit every
/// connection, whatever the limiter says; where they are not, they follow it again.
#[test]
fn kept_connections_open_the_gates() {
    let mut stage = Stage::with(true, Refuse::Auto);
    let worker = stage.metrics.worker(0);
    stage.stub_limit.returns.store(8, Relaxed);
    let mut serve = |connections: u64, requests: u64| {
        worker.connections.add(connections);
        (0..requests).for_each(|_| worker.request(0, 200));
        worker.queue.stands.set(1);
        (0..10).for_each(|_| {
            stage.tick();
        });
        let scaling = stage.controller.admission.scaling();
        let gates = (stage.controller.admission.limit(), stage.stub_gate.limit.load(Relaxed));
        (gates, scaling.refuses_requests)
    };
    assert_eq!(serve(100, 100), ((8, 8), false));
    assert_eq!(serve(10, 1000), ((LIMIT_MAX, LIMIT_MAX), true));
    assert_eq!(serve(1000, 1000), ((8, 8), false));
}

/// Purpose: proxies that open a connection for each request are refused by resets, however many; silence would
/// make them wait, and count the server as broken. Silent refusals become resets as soon as that is known.
#[test]
fn proxies_are_refused_by_resets() {
    let mut stage = Stage::new(true);
    let worker = stage.metrics.worker(0);
    let mut refuse = |judged: u64, passed_on: u64| {
        worker.queue.judged.add(judged);
        worker.queue.passed_on.add(passed_on);
        stage.stub_gate.reset.fetch_add(1000, Relaxed);
        stage.tick();
        stage.controller.admission.standing().refusal
    };
    assert_eq!(refuse(100, 100), Refusal::Reset);
    assert_eq!(refuse(100, 0), Refusal::Drop);
    assert_eq!(refuse(100, 100), Refusal::Reset);
}

/// Purpose: a gate that only resets is not taken for a silent one.
#[test]
fn a_gate_that_cannot_be_silent_stays_loud() {
    let mut stage = Stage::new(false);
    stage.stub_gate.reset.store(1000, Relaxed);
    stage.tick();
    assert_eq!(stage.controller.admission.standing().refusal, Refusal::Reset);
    let standing = stage.controller.admission.standing();
    assert_eq!(standing.shed_cpu, Duration::from_micros(20_600));
    assert!((standing.refusing - 0.206).abs() < 1e-6);
}

/// Purpose: an idle server is sampled less often, and a busy one at the full rate at once.
#[test]
fn the_pace_follows_the_load() {
    let mut stage = Stage::new(true);
    for look in 1..=IDLE_LOOKS + 1 {
        let expected = if look > IDLE_LOOKS { PERIOD_IDLE } else { PERIOD };
        assert_eq!(stage.tick(), expected, "look {look}");
    }
    stage.metrics.worker(0).set_load(1);
    assert_eq!(stage.tick_after(100), PERIOD_IDLE - PERIOD, "no sample is due");
    assert_eq!(stage.tick_after(400), PERIOD);
}

/// Purpose: workers get the kernel's refusals, and decide by them when a standing queue ends.
#[test]
fn workers_are_told_what_the_kernel_refused() {
    let mut stage = Stage::new(true);
    let bound = Arc::clone(&stage.controller.admission.bound);
    let mut gate = WorkerGate::new(Shed::Kernel, &bound, (0, 1), stage.metrics.worker(0), None);
    stage.stub_gate.reset.store(7, Relaxed);
    stage.tick();
    assert_eq!((gate.take_refused(), gate.take_refused()), (7, 0));
    // While a queue stands, without waiting for the next sample.
    stage.metrics.worker(0).queue.stands.set(1);
    assert_eq!(stage.tick(), REPORT);
    stage.stub_gate.reset.store(9, Relaxed);
    assert_eq!(stage.tick_after(25), REPORT);
    assert_eq!(gate.take_refused(), 2);
    assert_eq!(stage.last_sample().refused, 0, "it was no sample");
}

/// Purpose: the kernel's refusals count as demand, and appear on the page for autoscalers. A thousand
/// refusals in a second, each of a hundredth's work, are ten times the capacity.
#[test]
fn signals_reach_the_page() {
    let mut stage = Stage::new(true);
    let (metrics, source) = (stage.metrics.clone(), Arc::clone(&stage.controller.admission));
    metrics.admission(move || source.scaling());
    let worker = metrics.worker(0);
    for _ in 0..100 {
        for _ in 0..10 {
            worker.request(0, 200);
        }
        worker.set_load(100);
        worker.turn(Duration::from_millis(100), 1);
        stage.stub_gate.reset.fetch_add(100, Relaxed);
        stage.tick();
    }
    let scaling = stage.controller.admission.scaling();
    assert!((10.5..11.5).contains(&scaling.signals.demand_ratio), "{scaling:?}");
    assert!(scaling.signals.needs_scaleout);
    assert_eq!((scaling.limit, scaling.in_flight, scaling.reset), (100, 100, 10_000));
    assert_eq!(scaling.signals.rejection_rate, 1000.0);
    let page = metrics.page();
    for line in [
        "http_scaling_needs_scaleout 1",
        "http_scaling_connection_limit 100",
        "http_scaling_total_rejections 10000",
        "http_rejections_total{layer=\"kernel\",reason=\"reset\"} 10000",
    ] {
        assert!(page.contains(&format!("\n{line}\n")), "{line}: {page}");
    }
}
