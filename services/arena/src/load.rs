//! Routes whose cost can be chosen: `/work` burns the worker's CPU, `/sleep` only waits.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use highwater::{Error, Query, Router};
use serde::Deserialize;

/// Longest time that may be asked for; beyond it 400.
const DURATION_MAX: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct Work {
    /// Microseconds of CPU time.
    us: u64,
}

#[derive(Deserialize)]
struct Sleep {
    /// Milliseconds.
    ms: u64,
}

/// Adds `/work` and `/sleep`. Takes a few milliseconds: `/work` has to know how fast this CPU is.
pub fn routes(router: Router) -> Router {
    steps_per_us();
    router.get("/work", work).get("/sleep", sleep)
}

/// Burns `us` microseconds of CPU on the worker: the service time of an overload experiment.
///
/// It counts steps and does not read the clock. A clock keeps running while the kernel interrupts the handler to refuse
/// a connection, so with a clock, refusing would seem to cost nothing.
fn work(Query(Work { us }): Query<Work>) -> Result<&'static str, Error> {
    checked("us", Duration::from_micros(us))?;
    burn(us * steps_per_us());
    Ok("done")
}

/// How many steps of [`burn`] this CPU takes per microsecond without interruption: the fastest of several tries.
fn steps_per_us() -> u64 {
    static MEASURED: OnceLock<u64> = OnceLock::new();
    const TRIES: u32 = 20;
    const STEPS: u64 = 100_000;
    *MEASURED.get_or_init(|| {
        let quickest = (0..TRIES)
            .map(|_| {
                let begun = Instant::now();
                burn(STEPS);
                begun.elapsed()
            })
            .min()
            .unwrap_or_default();
        (STEPS * 1_000 / quickest.as_nanos().max(1) as u64).max(1)
    })
}

/// Each step of a linear congruential generator (Knuth's MMIX constants) needs the one before it, so a CPU cannot run them side by side.
fn burn(steps: u64) {
    let mut state = steps;
    for _ in 0..steps {
        state = black_box(
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407),
        );
    }
}

async fn sleep(Query(Sleep { ms }): Query<Sleep>) -> Result<&'static str, Error> {
    tokio::time::sleep(checked("ms", Duration::from_millis(ms))?).await;
    Ok("done")
}

fn checked(name: &str, duration: Duration) -> Result<Duration, Error> {
    if duration > DURATION_MAX {
        return Err(Error::bad_request(format!("{name} is more than a minute; ask for less")));
    }
    Ok(duration)
}
