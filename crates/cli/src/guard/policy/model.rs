//! The policy, with its usual limiter, before models of servers that read ahead: the kernel sees
//! nothing of their queues.

use std::collections::VecDeque;

use highwater_core::limit::Knee;

use super::*;

/// The step of simulated time.
const TICK: Duration = Duration::from_millis(1);

/// The guard's turns and looks, in ticks.
const TURN: u64 = 25;
const LOOK: u64 = 50;

const MIN: u32 = 8;
const START: u32 = 256;
const MAX: u32 = 16_384;

/// How a server produces its answers.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// One core serves one request after the other, each for so many microseconds.
    Core { service_us: u64 },
    /// Each request takes the same time, up to a number of requests at once.
    Backend { latency_ms: u64, at_once: usize },
}

/// Clients that arrive at a rate, whether or not they are answered, and give up at their deadline;
/// a server that works for them all the same; and the guard between them.
struct Scene {
    kind: Kind,
    deadline: u64,
    policy: Policy,
    counted: Counted,
    /// When the admitted and unanswered requests arrived, in ticks.
    queue: VecDeque<u64>,
    /// Unused time of the core, in microseconds.
    core_us: u64,
    arriving: f64,
    now: u64,
    good: u64,
}

impl Scene {
    /// A guard that starts in front of a server with `queued` connections.
    fn attach(kind: Kind, deadline_ms: u64, queued: u64) -> Scene {
        Scene::attach_at(START, kind, deadline_ms, queued)
    }

    /// The same with another limit to start with.
    fn attach_at(start: u32, kind: Kind, deadline_ms: u64, queued: u64) -> Scene {
        let target = Duration::from_millis(10);
        let limit = Box::new(Knee::new(start, MAX, target).at_least(MIN));
        let bounds = (start, MIN, MAX);
        Scene {
            kind,
            deadline: deadline_ms,
            policy: Policy::new(limit, bounds, None, Instant::ZERO),
            counted: Counted { completed: Some(0), ..Counted::default() },
            queue: std::iter::repeat_n(0, queued as usize).collect(),
            core_us: 0,
            arriving: 0.0,
            now: 0,
            good: 0,
        }
    }

    /// Runs for `seconds` with `rate` arrivals per second; returns how many per second were answered in
    /// time.
    fn run(&mut self, seconds: u64, rate: f64) -> f64 {
        let before = self.good;
        for _ in 0..seconds * 1000 {
            self.now += 1;
            self.arrive(rate);
            self.serve();
            if self.now.is_multiple_of(TURN) {
                self.turn();
            }
        }
        (self.good - before) as f64 / seconds as f64
    }

    fn arrive(&mut self, rate: f64) {
        self.arriving += rate * TICK.as_secs_f64();
        while self.arriving >= 1.0 {
            self.arriving -= 1.0;
            if self.queue.len() < self.policy.limit() as usize {
                self.counted.admitted = self.counted.admitted.map(|before| before + 1);
                self.queue.push_back(self.now);
            } else {
                self.counted.refused += 1;
            }
        }
    }

    fn serve(&mut self) {
        match self.kind {
            Kind::Core { service_us } => {
                self.core_us += TICK.as_micros() as u64;
                while self.core_us >= service_us && !self.queue.is_empty() {
                    self.core_us -= service_us;
                    self.answer(0);
                }
                if self.queue.is_empty() {
                    self.core_us = 0;
                }
            }
            // As many requests are served at once as there are; each ends after its time, evenly
            // spread.
            Kind::Backend { latency_ms, at_once } => {
                let busy = self.queue.len().min(at_once) as u64;
                self.core_us += busy * TICK.as_micros() as u64;
                while self.core_us >= latency_ms * 1000 && !self.queue.is_empty() {
                    self.core_us -= latency_ms * 1000;
                    self.answer(latency_ms);
                }
            }
        }
    }

    /// Answers the oldest request, which has waited for at least `least`.
    fn answer(&mut self, least: u64) {
        let Some(came) = self.queue.pop_front() else { return };
        self.counted.completed = self.counted.completed.map(|count| count + 1);
        if (self.now - came).max(least) <= self.deadline {
            self.good += 1;
        }
    }

    fn turn(&mut self) {
        self.counted.in_flight = Some(self.queue.len() as u32);
        self.counted.waited = None;
        if self.now.is_multiple_of(LOOK) {
            let gone = |came: &&u64| self.now - **came > self.deadline;
            self.counted.abandoned = self.queue.iter().filter(gone).count() as u32;
            self.counted.waited = Some(Duration::ZERO);
        }
        let now = Instant::ZERO + Duration::from_millis(self.now);
        self.policy.on_turn(now, self.counted, []);
    }
}

/// Purpose: a guard that starts in the middle of an overload recovers on its own, whatever the
/// excess, the deadline and the speed of the server.
#[test]
fn a_cold_start_in_an_overload_recovers() {
    for (service_us, deadline_ms) in [(1100, 200), (1100, 500), (5000, 200), (100, 200)] {
        let capacity = 1e6 / service_us as f64;
        for excess in [2.0, 5.0, 10.0] {
            let kind = Kind::Core { service_us };
            // What a backlog of 4096 and two seconds of arrivals leave behind.
            let queued = 4096.min((capacity * 2.0) as u64);
            let mut scene = Scene::attach(kind, deadline_ms, queued);
            scene.run(8, capacity * excess);
            let good = scene.run(10, capacity * excess);
            let limit = scene.policy.limit();
            assert!(
                good > 0.9 * capacity,
                "{service_us} us, {deadline_ms} ms, {excess} times: {good} of {capacity}, limit {limit}"
            );
        }
    }
}

/// Purpose: a limit that starts so high that everybody waits in the server for a minute or longer comes down within minutes,
/// also where the server is full when the guard starts, and no client has given up yet.
#[test]
fn a_start_limit_beyond_all_patience_comes_down() {
    for (service_us, start) in [(20_000, 4096), (5_000, 16_384)] {
        let capacity = 1e6 / service_us as f64;
        let kind = Kind::Core { service_us };
        let mut scene = Scene::attach_at(start, kind, 60_000, u64::from(start));
        scene.run(300, 2.0 * capacity);
        let good = scene.run(30, 2.0 * capacity);
        let limit = scene.policy.limit();
        assert!(good > 0.9 * capacity && limit < start / 4, "{good} of {capacity}, limit {limit}");
    }
}

/// Purpose: where answers take long for another reason than load, a probe costs a moment, and then
/// as many are admitted as before.
#[test]
fn a_slow_server_is_asked_once() {
    let kind = Kind::Backend { latency_ms: 100, at_once: 200 };
    let mut scene = Scene::attach(kind, 200, 4000);
    scene.run(8, 4000.0);
    let good = scene.run(10, 4000.0);
    assert!(good > 0.8 * 2000.0, "{good} of 2000, limit {}", scene.policy.limit());
}

/// Purpose: a guard that starts in front of a server that keeps up refuses nothing.
#[test]
fn a_healthy_server_is_not_asked() {
    for (kind, rate) in [
        (Kind::Core { service_us: 1000 }, 700.0),
        (Kind::Backend { latency_ms: 100, at_once: 200 }, 1500.0),
    ] {
        let mut scene = Scene::attach(kind, 500, 20);
        scene.run(10, rate);
        assert_eq!(scene.counted.refused, 0, "{kind:?}");
        assert!(!scene.policy.service.is_probing());
    }
}
