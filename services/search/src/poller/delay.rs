//! When to poll next: a pure function of how the last poll went.

use std::time::Duration;

use fastrand::Rng;

use super::{Outcome, Settings};

/// The shortest pause between two polls, so that neither luck with the jitter nor a poll that took
/// as long as the interval turns polling into a flood.
pub const PAUSE_MIN: Duration = Duration::from_millis(100);

/// How long to wait after a poll that took `took` and was the `failures`-th failure in a row.
///
/// After a success: what is left of the interval. After a failure: exponential backoff with full
/// jitter, that is, anything up to `retry_base` · 2^(`failures` − 1), at most the interval; but no
/// less than the provider asked for with `Retry-After`, which itself counts for at most the
/// interval. Never less than [`PAUSE_MIN`].
pub fn next_delay(
    settings: &Settings,
    outcome: &Outcome,
    failures: u32,
    took: Duration,
    rng: &mut Rng,
) -> Duration {
    let delay = match outcome {
        Outcome::Fetched { .. } | Outcome::NotModified => settings.interval.saturating_sub(took),
        Outcome::Failed { retry_after, .. } => {
            let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
            let most = settings.retry_base.saturating_mul(doubled).min(settings.interval);
            let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
            let jittered = Duration::from_micros(rng.u64(..=micros));
            jittered.max(retry_after.unwrap_or_default().min(settings.interval))
        }
    };
    delay.max(PAUSE_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Applied;
    use crate::feed::Stats;

    const SECOND: Duration = Duration::from_secs(1);

    fn failed(retry_after: Option<Duration>) -> Outcome {
        let (feed, applied) = (Stats::default(), Applied::default());
        Outcome::Failed { reason: "status", detail: String::new(), retry_after, feed, applied }
    }

    /// Purpose: success keeps the rhythm from start to start, and never polls without a pause.
    #[test]
    fn success_keeps_the_interval() {
        let settings = Settings::new("http://a");
        let delay =
            |took| next_delay(&settings, &Outcome::NotModified, 0, took, &mut Rng::with_seed(1));
        assert_eq!(delay(Duration::ZERO), settings.interval);
        assert_eq!(delay(60 * SECOND), settings.interval - 60 * SECOND);
        assert_eq!(delay(2 * settings.interval), PAUSE_MIN);
    }

    /// Purpose: the n-th failure's pause fills 0 … base·2ⁿ⁻¹ and no more, up to the interval.
    #[test]
    fn backoff_has_full_jitter() {
        let settings = Settings::new("http://a");
        let mut rng = Rng::with_seed(7);
        for (failures, most) in [
            (1, 1),
            (2, 2),
            (3, 4),
            (8, 128),
            (9, 256),
            (10, 300),
            (11, 300),
            (40, 300),
            (u32::MAX, 300),
        ] {
            let most = most * SECOND;
            let drawn: Vec<Duration> = (0..1000)
                .map(|_| next_delay(&settings, &failed(None), failures, SECOND, &mut rng))
                .collect();
            let (least, longest) =
                (drawn.iter().min().expect("some"), drawn.iter().max().expect("some"));
            assert!(
                *least >= PAUSE_MIN && *least <= PAUSE_MIN.max(most / 10),
                "{failures}: {least:?}"
            );
            assert!(*longest <= most && *longest > most * 9 / 10, "{failures}: {longest:?}");
        }
    }

    /// Purpose: a provider that asks for a pause gets it, but cannot ask for ever.
    #[test]
    fn retry_after_is_honoured() {
        let settings = Settings::new("http://a");
        let delay = |seconds| {
            next_delay(&settings, &failed(Some(seconds)), 1, SECOND, &mut Rng::with_seed(3))
        };
        assert_eq!(delay(20 * SECOND), 20 * SECOND);
        assert_eq!(delay(Duration::MAX), settings.interval);
        assert!(delay(Duration::ZERO) <= SECOND);
    }
}
