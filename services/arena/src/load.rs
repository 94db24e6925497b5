//! Routes whose cost can be chosen: `/work` burns the worker's CPU, `/sleep` only waits.

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

/// Adds `/work` and `/sleep`.
pub fn routes(router: Router) -> Router {
    router.get("/work", work).get("/sleep", sleep)
}

/// Burns `us` microseconds on the worker: the service time of an overload experiment.
fn work(Query(Work { us }): Query<Work>) -> Result<&'static str, Error> {
    let duration = checked("us", Duration::from_micros(us))?;
    let begun = Instant::now();
    while begun.elapsed() < duration {
        std::hint::spin_loop();
    }
    Ok("done")
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
