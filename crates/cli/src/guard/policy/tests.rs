//! The policy against sources that fail in every way, with a limit that would open the gate wide at
//! the first sample.

use proptest::prelude::*;

use super::super::window::WINDOW_MAX;
use super::*;

/// Doubles with every sample, so that each sample shows.
#[derive(Debug)]
struct Eager {
    limit: u32,
    samples: std::sync::Arc<std::sync::Mutex<Vec<Sample>>>,
}

impl Limit for Eager {
    fn on_sample(&mut self, _now: Instant, sample: &Sample) -> u32 {
        self.samples.lock().expect("no panic").push(*sample);
        self.limit = self.limit.saturating_mul(2);
        self.limit
    }

    fn limit(&self) -> u32 {
        self.limit
    }

    fn name(&self) -> &'static str {
        "eager"
    }
}

/// A guarded server, in simulated time.
struct Scene {
    policy: Policy,
    now: Instant,
    counted: Counted,
    samples: std::sync::Arc<std::sync::Mutex<Vec<Sample>>>,
    /// The reported states, in order.
    states: Vec<String>,
}

const TURN: Duration = Duration::from_millis(100);
const BOUNDS: (u32, u32, u32) = (64, 8, 1000);

impl Scene {
    fn new(interval: Option<Duration>) -> Self {
        let samples = std::sync::Arc::default();
        let limit = Eager { limit: BOUNDS.0, samples: std::sync::Arc::clone(&samples) };
        let now = Instant::from_nanos(1_000_000_000_000);
        let policy = Policy::new(Box::new(limit), BOUNDS, interval, now);
        let counted = Counted { completed: Some(0), in_flight: Some(0), ..Counted::default() };
        Scene { policy, now, counted, samples, states: Vec::new() }
    }

    fn sourced() -> Self {
        Scene::new(Some(Duration::from_secs(1)))
    }

    /// A tenth of a second in which `closed` connections end and `in_flight` are open.
    fn turn(
        &mut self,
        closed: u64,
        in_flight: u32,
        result: Option<Result<Reading, SourceError>>,
    ) -> u32 {
        self.now += TURN;
        self.counted.completed = self.counted.completed.map(|before| before + closed);
        self.counted.in_flight = self.counted.in_flight.map(|_| in_flight);
        let answer = result.map(|result| Answer { at: self.now, result });
        if self.policy.on_turn(self.now, self.counted, answer) {
            self.states.push(self.policy.state().name().to_owned());
        }
        self.policy.limit()
    }

    /// A second under load, at the end of which the source answers `result`.
    fn second(&mut self, result: Result<Reading, SourceError>) -> u32 {
        for _ in 0..9 {
            self.turn(20, 10, None);
        }
        self.turn(20, 10, Some(result))
    }

    fn samples(&self) -> Vec<Sample> {
        self.samples.lock().expect("no panic").clone()
    }
}

fn totals(completed: f64) -> Result<Reading, SourceError> {
    let counter = "http_requests_total".to_owned();
    let (good, latency, queue_delay, taken_ms) = (None, None, None, None);
    Ok(Reading::Totals(Totals { counter, completed, good, latency, queue_delay, taken_ms }))
}

fn every_error() -> Vec<SourceError> {
    let why = String::new;
    vec![
        SourceError::Silent(why()),
        SourceError::Wrong(why()),
        SourceError::Missing(why()),
        SourceError::Stale(why()),
        SourceError::Absurd(why()),
    ]
}

/// Purpose: without a source the kernel's counts make the samples: connections in flight, and
/// connections closed.
#[test]
fn the_kernels_counts_suffice() {
    let mut scene = Scene::new(None);
    for _ in 0..3 {
        scene.turn(20, 10, None);
    }
    let sample = *scene.samples().last().expect("some");
    assert_eq!((sample.span, sample.completed, sample.in_flight), (TURN, 20, 10));
    assert_eq!(sample.in_flight_max, 10);
    assert_eq!(scene.policy.state(), &State::Kernel);
    assert!(scene.states.is_empty());
}

/// Purpose: an idle server, or one that serves a request now and then, gives no samples of bursts
/// and no endless ones.
#[test]
fn windows_are_neither_tiny_nor_endless() {
    let mut scene = Scene::new(None);
    for _ in 0..100 {
        scene.turn(0, 0, None);
    }
    assert!(scene.samples().is_empty());
    for _ in 0..100 {
        scene.turn(1, 1, None);
    }
    let spans: Vec<Duration> = scene.samples().iter().map(|sample| sample.span).collect();
    assert_eq!(spans.len(), 10);
    assert!(spans.iter().all(|span| *span == WINDOW_MAX), "{spans:?}");
}

/// Purpose: a stuck server that refuses more and more does not get more connections.
#[test]
fn a_stuck_server_gets_no_more() {
    let mut scene = Scene::new(None);
    for _ in 0..100 {
        scene.counted.refused += 500;
        assert_eq!(scene.turn(0, BOUNDS.0, None), BOUNDS.0);
    }
}

/// Purpose: a source's counter says how many requests were completed, over the time in which it
/// moved; its goodput and queue delay are used if it has them.
#[test]
fn a_source_is_followed() {
    let mut scene = Scene::sourced();
    let ours = |completed: f64| {
        let Ok(Reading::Totals(totals)) = totals(completed) else { unreachable!("made so") };
        let queue_delay = Some(Timed { seconds: completed / 100.0, count: completed });
        Ok(Reading::Totals(Totals { good: Some(completed / 2.0), queue_delay, ..totals }))
    };
    assert_eq!(scene.second(ours(0.0)), 64, "one answer says nothing about rates");
    assert_eq!(scene.second(ours(1000.0)), 128);
    let sample = scene.samples()[0];
    assert_eq!((sample.completed, sample.good, sample.in_flight), (1000, 500, 10));
    assert_eq!(sample.queue_delay_mean, Duration::from_millis(10));
    assert_eq!(scene.states, ["ok"]);
}

/// Purpose: an exporter that is refreshed less often than it is asked gives samples over the time
/// between its changes, not zeros and bursts.
#[test]
fn a_slow_exporter_is_no_burst() {
    let mut scene = Scene::sourced();
    for second in 0..16 {
        scene.second(totals(f64::from(second / 3) * 600.0));
    }
    let rates: Vec<f64> = scene
        .samples()
        .iter()
        .skip(1)
        .map(|sample| sample.completed as f64 / sample.span.as_secs_f64())
        .collect();
    assert_eq!(rates, [200.0; 4]);
}

/// Purpose: a source that never answers usefully leaves the start limit, and the operator is told
/// once.
#[test]
fn before_the_first_answer_the_start_limit_holds() {
    for error in every_error() {
        let mut scene = Scene::sourced();
        for _ in 0..20 {
            assert_eq!(scene.second(Err(error.clone())), BOUNDS.0);
        }
        assert_eq!(scene.states, [error.name()]);
    }
    let mut scene = Scene::sourced();
    for _ in 0..100 {
        assert_eq!(scene.turn(20, 10, None), BOUNDS.0);
    }
    assert_eq!(scene.states, ["silent"], "one that says nothing at all");
}

/// Purpose: after any failure the last good limit is kept and the failure is reported once; the
/// increase across a failure is never used as a rate.
#[test]
fn trouble_keeps_the_last_safe_limit() {
    for error in every_error() {
        let mut scene = Scene::sourced();
        scene.second(totals(0.0));
        assert_eq!(scene.second(totals(200.0)), 128);
        for _ in 0..10 {
            assert_eq!(scene.second(Err(error.clone())), 128);
        }
        assert_eq!(
            scene.second(totals(5000.0)),
            128,
            "the first good answer only restarts the count"
        );
        assert_eq!(scene.second(totals(5200.0)), 256);
        assert_eq!(scene.samples().last().expect("some").completed, 200);
        assert_eq!(scene.states, ["ok", error.name(), "ok"]);
    }
}

/// Purpose: a restarted server does not give a negative rate, and a change of the counter does not
/// give a jump.
#[test]
fn a_counter_that_goes_back_begins_anew() {
    let mut scene = Scene::sourced();
    scene.second(totals(1_000_000.0));
    scene.second(totals(1_000_200.0));
    assert_eq!(scene.second(totals(50.0)), 128);
    assert_eq!(scene.second(totals(250.0)), 128);
    assert_eq!(scene.second(totals(450.0)), 256);
    assert_eq!(scene.states, ["ok", "reset", "ok"]);

    let Ok(Reading::Totals(other)) = totals(9e9) else { unreachable!("made so") };
    let other = Totals { counter: "other_total".to_owned(), ..other };
    assert_eq!(scene.second(Ok(Reading::Totals(other))), 256);
    assert_eq!(scene.policy.state().name(), "reset");
}

/// Purpose: a counter that stands still while connections come and go belongs to another server, or
/// to a cached page; one that stands still while nothing happens is right.
#[test]
fn a_counter_that_stands_still_is_stale() {
    let mut scene = Scene::sourced();
    scene.second(totals(100.0));
    scene.second(totals(300.0));
    for _ in 0..10 {
        assert_eq!(scene.second(totals(300.0)), 128);
    }
    assert_eq!(scene.states, ["ok", "stale"]);
    scene.second(totals(500.0));
    assert_eq!(scene.second(totals(700.0)), 256);

    for turn in 0..600 {
        scene.turn(0, 0, (turn % 10 == 0).then(|| totals(700.0)));
    }
    assert_eq!(scene.states, ["ok", "stale", "ok"]);
    // The quiet minute is not part of the rate that follows.
    scene.second(totals(900.0));
    let sample = *scene.samples().last().expect("some");
    assert!(sample.span <= Duration::from_secs(2), "{sample:?}");
}

/// Purpose: numbers that no server reaches move nothing; a rate from a query is used directly.
#[test]
fn rates_are_judged() {
    let mut scene = Scene::sourced();
    scene.second(totals(0.0));
    assert_eq!(scene.second(totals(1e15)), BOUNDS.0);
    assert_eq!(scene.states, ["ok", "absurd"]);

    let mut scene = Scene::sourced();
    assert_eq!(scene.second(Ok(Reading::Rate(2e9))), BOUNDS.0);
    assert_eq!(scene.second(Ok(Reading::Rate(200.0))), BOUNDS.0);
    assert_eq!(scene.second(Ok(Reading::Rate(200.0))), 128);
    assert_eq!(scene.samples().last().expect("some").completed, 200);
    for _ in 0..10 {
        assert_eq!(scene.second(Ok(Reading::Rate(0.0))), 128);
    }
    assert_eq!(scene.states, ["absurd", "ok", "stale"]);
}

/// Purpose: the wait of a sample is averaged over the whole sample, and the server's own
/// measurement is added.
#[test]
fn waits_are_averaged() {
    let mut scene = Scene::sourced();
    let timed = |completed: f64| {
        let Ok(Reading::Totals(totals)) = totals(completed) else { unreachable!("made so") };
        let latency = Some(Timed { seconds: completed / 20.0, count: completed });
        Ok(Reading::Totals(Totals { latency, ..totals }))
    };
    scene.second(timed(0.0));
    for waited_ms in [20, 40] {
        scene.counted.waited = Some(Duration::from_millis(waited_ms));
        scene.turn(20, 10, None);
    }
    scene.counted.waited = None;
    scene.second(timed(200.0));
    let sample = scene.samples()[0];
    assert_eq!(sample.queue_delay_min, Duration::from_millis(20));
    assert_eq!(sample.queue_delay_mean, Duration::from_millis(30));
    assert_eq!(sample.latency_mean, Duration::from_millis(30 + 50));
}

/// Purpose: a connection that waits to be accepted counts as waiting, although it has sent nothing
/// yet.
#[test]
fn a_backlog_is_a_queue() {
    let mut scene = Scene::new(None);
    for (backlog, delay_ms) in [(0, 0), (3, 0), (40, 200)] {
        scene.counted.waited = Some(Duration::ZERO);
        scene.counted.backlog = backlog;
        for _ in 0..3 {
            scene.turn(20, 100, None);
        }
        let sample = *scene.samples().last().expect("some");
        let delay = Duration::from_millis(delay_ms);
        assert_eq!((sample.queue_delay_min, sample.queue_delay_mean), (delay, delay), "{backlog}");
    }
}

fn any_said() -> impl Strategy<Value = Option<Result<Reading, SourceError>>> {
    let number = prop_oneof![0.0..1e6, Just(0.0), Just(1e300), Just(f64::MAX), Just(5e-324)];
    let error = prop::sample::select(every_error());
    prop_oneof![
        3 => Just(None),
        3 => number.clone().prop_map(|completed| Some(totals(completed))),
        1 => number.prop_map(|rate| Some(Ok(Reading::Rate(rate)))),
        1 => error.prop_map(|error| Some(Err(error))),
    ]
}

proptest! {
    /// Purpose: for any answers and counts, the limit stays within its bounds and moves only while
    /// the source is good, and nothing overflows.
    #[test]
    fn no_story_opens_the_gate(
        story in prop::collection::vec((0_u64..1000, 0_u32..2000, any_said()), 1..200),
        counts in any::<bool>(),
    ) {
        let mut scene = Scene::sourced();
        if !counts {
            scene.counted = Counted::default();
        }
        let mut before = BOUNDS.0;
        for (closed, in_flight, result) in story {
            let limit = scene.turn(closed, in_flight, result);
            prop_assert!((BOUNDS.1..=BOUNDS.2).contains(&limit));
            let is_good = matches!(scene.policy.state(), State::Good(_));
            prop_assert!(is_good || limit == before, "moved in {:?}", scene.policy.state());
            before = limit;
        }
        for pair in scene.states.windows(2) {
            prop_assert_ne!(&pair[0], &pair[1]);
        }
    }
}
