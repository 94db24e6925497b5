//! What time is it? The clock of drivers and workers: they read no other, and the simulator
//! replaces it by a [`Clock`] of its own. Threads that serve no connection (log, thread pool,
//! start-up, gates) use the clocks of the standard library.

use std::time::Duration;

use highwater_core::time::{Clock, Instant, UnixSeconds};

/// The clock of the drivers.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Instant {
        monotonic()
    }

    #[inline]
    fn unix_time(&self) -> UnixSeconds {
        realtime()
    }

    fn unix_millis(&self) -> u64 {
        let time = read(libc::CLOCK_REALTIME);
        u64::try_from(time.tv_sec).unwrap_or(0) * 1000 + time.tv_nsec as u64 / 1_000_000
    }
}

/// `CLOCK_MONOTONIC`: nanoseconds since the system started, unaffected by changes of the date.
#[inline]
pub fn monotonic() -> Instant {
    let time = read(libc::CLOCK_MONOTONIC);
    Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// `CLOCK_REALTIME`, in whole seconds since 1970.
#[inline]
pub fn realtime() -> UnixSeconds {
    UnixSeconds(u64::try_from(read(libc::CLOCK_REALTIME).tv_sec).unwrap_or(0))
}

/// The CPU time that this thread has used so far.
pub fn thread_cpu() -> Duration {
    elapsed(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The CPU time that all threads of this process have used so far.
pub fn process_cpu() -> Duration {
    elapsed(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn elapsed(clock: libc::clockid_t) -> Duration {
    let time = read(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

#[inline]
fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes for the duration of the call.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    debug_assert_eq!(result, 0, "these clocks exist on every Linux");
    time
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: CPU time passes for a thread that computes, and for its process at least as much.
    #[test]
    fn cpu_time_is_counted() {
        // In this order: what the thread uses between the two readings then counts for the process only.
        let (process, thread) = (process_cpu(), thread_cpu());
        while thread_cpu() < thread + Duration::from_millis(2) {}
        assert!(process_cpu() >= process + Duration::from_millis(2));
    }

    /// Purpose: seconds and nanoseconds are combined in the right unit, against std's own clock.
    #[test]
    fn agrees_with_std() {
        let (ours, theirs) = (monotonic(), std::time::Instant::now());
        while theirs.elapsed().as_millis() < 2 {}
        let elapsed = monotonic() - ours;
        assert!(elapsed.as_millis() >= 2 && elapsed <= theirs.elapsed() + elapsed / 2);

        let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        assert!(realtime().0.abs_diff(unix.as_secs()) <= 1);
    }
}
