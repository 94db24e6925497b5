//! The arithmetic by hand, and the decision against simulated servers.

use highwater_core::prng::Prng;

use super::*;

const TICK: Duration = Duration::from_millis(100);
const QUEUE_TARGET: Duration = Duration::from_millis(10);

fn signal() -> Signal {
    Signal::new(QUEUE_TARGET)
}

/// The signals after `seconds` of such samples.
fn steady(signal: &mut Signal, seconds: u32, limit: u32, sample: Sample) -> Signals {
    let mut signals = Signals::default();
    for _ in 0..seconds * 10 {
        signals = signal.on_sample(&sample, limit);
    }
    signals
}

fn near(value: f64, expected: f64) {
    assert!((value - expected).abs() <= 0.01 * expected.abs(), "{value}, expected {expected}");
}

/// Purpose: without overload the demand is the occupancy: of the cores, or of the limit.
#[test]
fn without_refusals_demand_is_occupancy() {
    let cpu = Sample { span: TICK, completed: 40, busy: 0.4, in_flight: 1, ..Sample::default() };
    let signals = steady(&mut signal(), 20, 100, cpu);
    near(signals.demand_ratio, 0.4);
    assert_eq!(signals.demand_ratio, signals.demand_ratio_min);
    assert!(!signals.needs_scaleout);
    let waiting = Sample { busy: 0.05, in_flight: 700, completed: 1400, ..cpu };
    let signals = steady(&mut signal(), 20, 1000, waiting);
    near(signals.demand_ratio, 0.7);
    near(signals.saturation_ratio, 0.7);
    assert_eq!(signals.headroom, 300);
}

/// Purpose: ten times the capacity reads as ten, not as one: that is what the ratio is for.
#[test]
fn demand_is_not_capped_at_one() {
    for times in [2_u64, 5, 10, 100] {
        let refused = 90 * (times - 1);
        let full = Sample {
            span: TICK,
            completed: 90,
            refused,
            busy: 1.0,
            in_flight: 9,
            ..Sample::default()
        };
        let signals = steady(&mut signal(), 20, 10, full);
        near(signals.demand_ratio, times as f64);
        near(signals.rejection_rate, refused as f64 * 10.0);
        assert!(signals.needs_scaleout);
    }
}

/// Purpose: a server that sheds nothing collapses without a refusal; its growing queue is demand, too.
#[test]
fn a_growing_queue_is_demand() {
    let mut signal = signal();
    let mut signals = Signals::default();
    for step in 1..=100 {
        let sample = Sample {
            span: TICK,
            completed: 90,
            in_flight: step * 90,
            busy: 1.0,
            queue_delay_min: TICK * step,
            ..Sample::default()
        };
        signals = signal.on_sample(&sample, u32::MAX);
    }
    near(signals.demand_ratio, 2.0);
    assert!(signals.needs_scaleout);
}

/// Purpose: a burst keeps a server busy until it is served, and is not a reason to start another server: the
/// ratio shows the occupancy, not the size of the burst.
#[test]
fn a_crowd_is_no_demand() {
    for known in [false, true] {
        let mut signal = signal();
        let busy = Sample { span: TICK, busy: 1.0, ..Sample::default() };
        if known {
            // A request now and then, of 300 ms.
            steady(
                &mut signal,
                10,
                u32::MAX,
                Sample { completed: 1, busy: 0.3, span: TICK * 10, ..busy },
            );
        }
        for tick in 0..300 {
            // A hundred requests of 300 ms each.
            let done = tick / 3;
            let sample = Sample {
                completed: u64::from(tick % 3 == 2),
                in_flight: 100 - done,
                queue_delay_min: TICK * tick,
                ..busy
            };
            let signals = signal.on_sample(&sample, u32::MAX);
            assert!(signals.demand_ratio < 1.5, "{known}, tick {tick}: {signals:?}");
            assert!(!signals.needs_scaleout, "{known}, tick {tick}");
            assert!(tick < 60 || signals.saturation_ratio > 0.9, "{known}, {tick}: {signals:?}");
        }
    }
}

/// Purpose: on a shared machine a worker that is kept from its core looks half idle; its queue shows that it
/// is not.
#[test]
fn a_standing_queue_is_full_use() {
    let sample = Sample {
        span: TICK,
        completed: 50,
        refused: 50,
        busy: 0.5,
        queue_delay_min: QUEUE_TARGET * 2,
        ..Sample::default()
    };
    near(steady(&mut signal(), 20, 100, sample).demand_ratio, 2.0);
}

/// Purpose: the lower bound undoes the retries of clients that try three times, computed here the
/// other way round, from clients to attempts.
#[test]
fn the_lower_bound_undoes_three_tries() {
    for p in [0.9_f64, 0.5, 0.1] {
        // Of 1000 clients the share p is admitted at once, of the others the same share, and again.
        let tries = [1000.0, 1000.0 * (1.0 - p), 1000.0 * (1.0 - p) * (1.0 - p)];
        let attempts: f64 = tries.iter().sum();
        let completed = attempts * p;
        let sample = Sample {
            span: TICK,
            completed: completed as u64,
            refused: (attempts - completed) as u64,
            busy: 1.0,
            ..Sample::default()
        };
        let signals = steady(&mut signal(), 20, 1000, sample);
        near(signals.demand_ratio_min, 1000.0 / completed);
        near(signals.demand_ratio, attempts / completed);
    }
}

/// Purpose: a server that refuses everything because a dependency is broken must not ask to scale out, nor
/// divide by zero.
#[test]
fn nothing_completed_is_no_capacity() {
    let stuck = Sample { span: TICK, refused: 1000, in_flight: 10, ..Sample::default() };
    let mut signal = signal();
    let signals = steady(&mut signal, 10, 10, stuck);
    near(signals.demand_ratio, 1.0);
    near(signals.demand_ratio_min, 1.0 / 3.0);
    // A server that has completed requests before has a known cost.
    let mut signal = self::signal();
    let fine = Sample { span: TICK, completed: 100, busy: 1.0, ..Sample::default() };
    steady(&mut signal, 20, 10, fine);
    let signals = steady(&mut signal, 20, 10, Sample { busy: 1.0, ..stuck });
    near(signals.demand_ratio, 11.0);
}

/// Purpose: whatever the samples, the numbers stay what their invariants say.
#[test]
fn absurd_samples_give_sane_signals() {
    let mut prng = Prng::from_seed(1);
    let mut any = |max: u64| match prng.below(4) {
        0 => 0,
        1 => max,
        _ => prng.below(max),
    };
    let mut signal = signal();
    for _ in 0..100_000 {
        let sample = Sample {
            span: Duration::from_nanos(any(1 << 36)),
            completed: any(1 << 40),
            refused: any(u64::MAX),
            in_flight: any(u64::from(u32::MAX)) as u32,
            queue_delay_min: Duration::from_nanos(any(1 << 36)),
            busy: [0.0, 0.5, 1.0, 7.0, f32::NAN, -1.0][any(6).min(5) as usize],
            ..Sample::default()
        };
        let limit = any(u64::from(u32::MAX)) as u32;
        let signals = signal.on_sample(&sample, limit);
        assert!((0.0..=DEMAND_RATIO_MAX).contains(&signals.demand_ratio), "{signals:?}");
        assert!((0.0..=signals.demand_ratio).contains(&signals.demand_ratio_min), "{signals:?}");
        assert!((0.0..=1.0).contains(&signals.saturation_ratio), "{signals:?}");
        assert!(signals.rejection_rate.is_finite() && signals.rejection_rate >= 0.0);
        assert!(signal.window.samples.len() <= RATE_SAMPLES_MAX);
    }
}

/// Purpose: the rate is of the last second, however long or short its samples are.
#[test]
fn the_rejection_rate_forgets_after_a_second() {
    let mut window = RateWindow::default();
    for _ in 0..20 {
        window.push(TICK, 7);
        near(window.rate(), 70.0);
    }
    let rates: Vec<f64> = (0..10)
        .map(|_| {
            window.push(TICK, 0);
            window.rate().round()
        })
        .collect();
    assert_eq!(rates, [63.0, 56.0, 49.0, 42.0, 35.0, 28.0, 21.0, 14.0, 7.0, 0.0]);
    window.push(Duration::from_secs(20), 100);
    near(window.rate(), 5.0);
}

/// Purpose: the flag is cleared after the calm that the guide promises, and not before; load at the reference
/// rate is not calm.
#[test]
fn it_takes_a_calm_to_clear() {
    let mut signal = signal();
    let over = Sample { span: TICK, completed: 90, refused: 90, busy: 1.0, ..Sample::default() };
    assert!(steady(&mut signal, 10, 10, over).needs_scaleout);
    let brisk = Sample { span: TICK, completed: 81, busy: 0.9, ..Sample::default() };
    assert!(steady(&mut signal, 600, 10, brisk).needs_scaleout);
    let fine = Sample { span: TICK, completed: 36, busy: 0.4, ..Sample::default() };
    // 2 s owed, at 0.9 − 0.4 a second: calm (0.25 s) after 3.5 s, and then a minute.
    assert!(steady(&mut signal, 63, 10, fine).needs_scaleout);
    assert!(!steady(&mut signal, 1, 10, fine).needs_scaleout);
    assert!(!steady(&mut signal, 600, 10, brisk).needs_scaleout);
}

/// Purpose: a display of demand and flag must be able to show since when they differ: the flag stays for a
/// minute after the demand has gone, and "0.40 of capacity, needs another instance" would contradict itself.
#[test]
fn it_says_for_how_long_the_demand_has_been_low() {
    let mut signal = signal();
    let over = Sample { span: TICK, completed: 90, refused: 90, busy: 1.0, ..Sample::default() };
    assert_eq!(steady(&mut signal, 10, 10, over).calm_seconds, 0.0);
    let fine = Sample { span: TICK, completed: 36, busy: 0.4, ..Sample::default() };
    let mut before = 0.0;
    for _ in 0..300 {
        let signals = signal.on_sample(&fine, 10);
        assert!(signals.needs_scaleout);
        let expected = if signals.demand_ratio >= 0.9 { 0.0 } else { before + 0.1 };
        near(signals.calm_seconds, expected);
        before = signals.calm_seconds;
    }
    assert!(before > 20.0, "the smoothed demand has been low for most of 30 s: {before}");
    assert_eq!(steady(&mut signal, 5, 10, over).calm_seconds, 0.0);
}

/// A server with one core, a queue served in order, and a bound on how many are in it.
struct Server {
    prng: Prng,
    limit: usize,
    /// When each of those in it will be done.
    departures: VecDeque<f64>,
    next_arrival: f64,
    last_departure: f64,
    /// When the core was last known to be idle, and for how long it has been since the last tick.
    idle_since: f64,
}

/// How long one request takes, drawn.
type Service = fn(&mut Prng) -> f64;

fn exponential(prng: &mut Prng) -> f64 {
    -(1.0 - prng.unit()).ln()
}

/// A hundredth takes twenty times the mean.
fn heavy(prng: &mut Prng) -> f64 {
    match prng.below(1000) {
        0..10 => 20.0,
        _ => 0.8 / 0.99,
    }
}

impl Server {
    fn new(seed: u64, limit: usize) -> Self {
        Server {
            prng: Prng::from_seed(seed),
            limit,
            departures: VecDeque::new(),
            next_arrival: 0.0,
            last_departure: 0.0,
            idle_since: 0.0,
        }
    }

    /// The sample of a controller for the time up to `end` if requests of `mean` seconds come at `load` times
    /// the capacity.
    fn tick(&mut self, end: f64, mean: f64, load: f64, service: Service) -> Sample {
        let mut sample = Sample { span: TICK, ..Sample::default() };
        let (mut idle, mut delay_min) = (0.0, f64::INFINITY);
        while self.next_arrival < end {
            let now = self.next_arrival;
            idle += self.advance(now, &mut sample);
            self.next_arrival += exponential(&mut self.prng) * mean / load;
            if self.departures.len() >= self.limit {
                sample.refused += 1;
                continue;
            }
            let start = now.max(self.last_departure);
            delay_min = f64::min(delay_min, start - now);
            self.last_departure = start + mean * service(&mut self.prng);
            self.departures.push_back(self.last_departure);
        }
        idle += self.advance(end, &mut sample);
        sample.busy = (1.0 - idle / TICK.as_secs_f64()).clamp(0.0, 1.0) as f32;
        sample.in_flight = self.departures.len() as u32;
        if delay_min.is_finite() {
            sample.queue_delay_min = Duration::from_secs_f64(delay_min);
        }
        sample
    }

    /// Lets time pass until `now`; returns how long the core was idle.
    fn advance(&mut self, now: f64, sample: &mut Sample) -> f64 {
        while self.departures.front().is_some_and(|&at| at <= now) {
            self.departures.pop_front();
            sample.completed += 1;
        }
        let idle = if self.departures.is_empty() {
            now - self.idle_since.max(self.last_departure).min(now)
        } else {
            0.0
        };
        self.idle_since = now;
        idle
    }
}

/// Seconds until `needs_scaleout` after the load on a server of `mean` seconds per request steps from
/// half to `load`; `None` if not within ten minutes.
fn raised_after(seed: u64, limit: usize, mean: f64, load: f64, service: Service) -> Option<f64> {
    const ONSET: u32 = 300;
    let (mut server, mut signal) = (Server::new(seed, limit), signal());
    for tick in 1..ONSET + 6000 {
        let load = if tick <= ONSET { 0.5 } else { load };
        let end = f64::from(tick) * TICK.as_secs_f64();
        let sample = server.tick(end, mean, load, service);
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        if signal.on_sample(&sample, limit).needs_scaleout {
            assert!(tick > ONSET, "seed {seed}: raised before the onset");
            return Some(f64::from(tick - ONSET) * TICK.as_secs_f64());
        }
    }
    None
}

/// Purpose: real overload is reported within two seconds, however it shows: by refusals, or by a
/// queue in a server that sheds nothing.
#[test]
fn overload_is_reported_within_two_seconds() {
    for seed in 0..50 {
        for limit in [2, 10, 100, usize::MAX] {
            for load in [1.5, 2.0, 5.0, 10.0] {
                for (mean, service) in [
                    (0.001_1, exponential as Service),
                    (0.000_3, |_: &mut Prng| 1.0),
                    (0.001_1, heavy),
                ] {
                    let after = raised_after(seed, limit, mean, load, service);
                    assert!(
                        after.is_some_and(|seconds| seconds <= 2.0),
                        "seed {seed}, limit {limit}, {mean} s at {load}: {after:?}"
                    );
                }
            }
        }
    }
}

/// Purpose: ten minutes at 80 % of capacity raise no alarm, in any of 250 runs. Requests of
/// 11 ms are the hard case: a tenth as many as of 1.1 ms, so that chance weighs three times as much.
#[test]
fn load_of_eighty_percent_is_no_overload() {
    for seed in 0..250 {
        let (limit, service) = match seed % 2 {
            0 => (20, exponential as Service),
            _ => (usize::MAX, (|_| 1.0) as Service),
        };
        let after = raised_after(seed, limit, 0.011, 0.8, service);
        assert_eq!(after, None, "seed {seed}, limit {limit}");
    }
    for seed in 0..20 {
        for service in [exponential as Service, heavy] {
            assert_eq!(raised_after(seed, 10, 0.001_1, 0.8, service), None, "seed {seed}");
        }
    }
}

/// Purpose: the ratio of a simulated server is the load that it was put under, through the whole
/// range, with neither the limit nor the distribution of service times in it.
#[test]
fn the_ratio_is_the_load() {
    for load in [0.2, 0.5, 0.8, 1.2, 2.0, 5.0, 10.0] {
        for (limit, service) in [(10, (|_: &mut Prng| 1.0) as Service), (50, exponential)] {
            let (mut server, mut signal) = (Server::new(7, limit), signal());
            let ratios = (1..=600).map(|tick| {
                let sample = server.tick(f64::from(tick) * 0.1, 0.001_1, load, service);
                signal.on_sample(&sample, limit as u32).demand_ratio
            });
            let settled: Vec<f64> = ratios.skip(100).collect();
            let mean = settled.iter().sum::<f64>() / settled.len() as f64;
            assert!((mean / load - 1.0).abs() < 0.03, "{mean} at {load}, limit {limit}");
        }
    }
}
