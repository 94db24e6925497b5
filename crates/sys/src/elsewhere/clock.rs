//! What time is it? By the clocks of the standard library.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use highwater_core::time::{Clock, Instant, UnixSeconds};

/// The clock of the portable driver.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        monotonic()
    }

    fn unix_time(&self) -> UnixSeconds {
        realtime()
    }

    fn unix_millis(&self) -> u64 {
        u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Nanoseconds since a moment shortly before the first call, unaffected by changes of the date.
pub fn monotonic() -> Instant {
    static BEGAN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
    // So that a time before the first call can be expressed.
    let elapsed = BEGAN.elapsed() + Duration::from_secs(1);
    Instant::from_nanos(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
}

/// Whole seconds since 1970.
pub fn realtime() -> UnixSeconds {
    UnixSeconds(since_1970().as_secs())
}

fn since_1970() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// The CPU time that this thread has used so far: not known here, so none. The thread pool then takes every job for one
/// that waits, and grows as far as it may.
pub fn thread_cpu() -> Duration {
    Duration::ZERO
}

/// The CPU time that all threads of this process have used so far: not known here, so none.
pub fn process_cpu() -> Duration {
    Duration::ZERO
}
