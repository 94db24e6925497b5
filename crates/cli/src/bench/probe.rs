//! How far apart are two CPUs? The round trip of a cache line between them.
//!
//! On a shared machine the host moves virtual CPUs between cores with a common cache and cores without, and
//! every server's cost moves with them, by a third and more. Steal time does not show it; this does, in a few
//! milliseconds. Both CPUs should be idle.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use highwater_sys::cpu;

/// The median block is reported, so that a process that takes one of the CPUs for a while does not count.
const BLOCKS: u64 = 20;
/// Round trips in a block: 0.1 to 0.4 ms.
const TRIPS: u64 = 1000;
/// After this long, the blocks so far are enough: something else uses one of the CPUs.
const PATIENCE: Duration = Duration::from_millis(500);
/// Signals the end to the other side.
const OVER: u64 = u64::MAX;

/// Alone in its pair of cache lines: the prefetcher fetches two.
#[repr(align(128))]
struct Ball(AtomicU64);

/// The time of one round trip between `first` and `second`, in nanoseconds.
///
/// # Errors
/// A CPU may not be used, or both are the same: two spinning threads would then wait for the scheduler.
pub(super) fn round_trip_ns(first: usize, second: usize) -> Result<f64, String> {
    if first == second {
        return Err("a round trip needs two CPUs".to_owned());
    }
    let ball = Ball(AtomicU64::new(0));
    let pin = |cpu| cpu::pin_thread(cpu).map_err(|error| format!("CPU {cpu}: {error}"));
    std::thread::scope(|scope| {
        // Pinned before anyone spins: a wrong CPU must be an error, not a hang.
        let (ready, pinned) = mpsc::channel();
        let ball = &ball;
        scope.spawn(move || {
            let result = pin(second);
            let is_pinned = result.is_ok();
            if ready.send(result).is_ok() && is_pinned {
                give_back(ball);
            }
        });
        // A separate thread: the calling thread keeps its CPUs.
        let thrower = scope.spawn(move || {
            let other = pinned.recv().map_err(|_| "the other thread ended".to_owned())?;
            let result = other.and_then(|()| pin(first)).map(|()| throw(ball));
            ball.0.store(OVER, Ordering::Release);
            result
        });
        thrower.join().unwrap_or_else(|_| Err("the probe panicked".to_owned()))
    })
}

fn give_back(ball: &Ball) {
    let mut expected = 1;
    loop {
        match wait_for(ball, |value| value == expected || value == OVER) {
            OVER => return,
            value => ball.0.store(value + 1, Ordering::Release),
        }
        expected += 2;
    }
}

fn throw(ball: &Ball) -> f64 {
    let began = Instant::now();
    let mut blocks = Vec::new();
    for block in 0..BLOCKS {
        let start = Instant::now();
        for trip in block * TRIPS..(block + 1) * TRIPS {
            ball.0.store(2 * trip + 1, Ordering::Release);
            wait_for(ball, |value| value == 2 * trip + 2);
        }
        blocks.push(start.elapsed().as_nanos() as f64 / TRIPS as f64);
        if began.elapsed() > PATIENCE {
            break;
        }
    }
    super::stats::median(&blocks).expect("there is one block at least")
}

fn wait_for(ball: &Ball, is_wanted: impl Fn(u64) -> bool) -> u64 {
    loop {
        let value = ball.0.load(Ordering::Acquire);
        if is_wanted(value) {
            return value;
        }
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a round trip takes time, and an impossible measurement is an error, not a hang.
    #[test]
    fn round_trips() {
        let allowed = cpu::allowed().expect("a running thread has a core");
        assert!(round_trip_ns(allowed[0], allowed[0]).is_err());
        assert!(round_trip_ns(60_000, allowed[0]).is_err());
        assert!(round_trip_ns(allowed[0], 60_000).is_err());
        match allowed[..] {
            [first, second, ..] => {
                assert!(round_trip_ns(first, second).expect("both are ours") > 1.0)
            }
            _ => highwater_skip::skip("cpus", "there is one"),
        }
    }
}
