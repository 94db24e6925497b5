//! What holds for every limit, with any samples.

use std::time::Duration;

use highwater_core::limit::{Aimd, Fixed, HillClimb, Knee, Limit, QueueDelay, Sample};
use highwater_core::time::Instant;
use proptest::prelude::*;

fn all(limit_max: u32) -> Vec<Box<dyn Limit>> {
    let target = Duration::from_millis(10);
    vec![
        Box::new(Fixed::new(limit_max)),
        Box::new(HillClimb::new(limit_max)),
        Box::new(Aimd::new(limit_max, target)),
        Box::new(Knee::new(1024, limit_max, target)),
        Box::new(QueueDelay::new(Duration::from_secs(1), limit_max)),
    ]
}

/// Any sample, even one that contradicts itself.
fn sample() -> impl Strategy<Value = Sample> {
    let count = || prop_oneof![Just(0), 0..200_u64, any::<u32>().prop_map(u64::from)];
    let time = || prop_oneof![Just(0), 0..50_000_000_u64, 0..u64::from(u32::MAX) * 100];
    (
        (time(), count(), count(), count(), count()),
        (count(), any::<u32>(), any::<u32>(), time(), time(), time(), -1.0..2.0_f32),
        (0..5_u32, 0..6_u32, time(), time(), any::<u32>(), -1.0..2.0_f32),
    )
        .prop_map(|((span, completed, good, refused, dropped), rest, queues)| {
            let (workers, standing, cost, target, queued, empty) = queues;
            let (started, in_flight, in_flight_max, min, mean, latency, busy) = rest;
            Sample {
                span: Duration::from_nanos(span),
                completed,
                good,
                refused,
                dropped,
                started,
                workers,
                standing,
                long: standing,
                cost: Duration::from_nanos(cost),
                target: Duration::from_nanos(target),
                queued,
                asleep: in_flight_max,
                empty,
                in_flight,
                in_flight_max,
                queue_delay_min: Duration::from_nanos(min),
                queue_delay_mean: Duration::from_nanos(mean),
                latency_mean: Duration::from_nanos(latency),
                busy,
            }
        })
}

proptest! {
    /// Purpose: no sample, however absurd, closes a server for good or exceeds its bound; and the
    /// same samples always give the same decisions.
    #[test]
    fn limits_keep_their_bounds(
        samples in prop::collection::vec(sample(), 1..80),
        limit_max in prop_oneof![0..3_u32, 1..5000_u32, Just(u32::MAX)],
    ) {
        for (mut limit, mut twin) in all(limit_max).into_iter().zip(all(limit_max)) {
            let mut now = Instant::ZERO;
            for sample in &samples {
                now += sample.span;
                let returned = limit.on_sample(now, sample);
                prop_assert_eq!(returned, limit.limit());
                prop_assert_eq!(returned, twin.on_sample(now, sample));
                prop_assert!(returned >= 1 && returned <= limit_max.max(1), "{}: {}", limit.name(), returned);
            }
        }
    }
}
