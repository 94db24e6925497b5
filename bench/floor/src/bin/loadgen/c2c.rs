//! How far apart two CPUs are: the round trip of a cache line between them.
//!
//! On a shared machine the host moves virtual CPUs between cores with a common cache (here 50 to
//! 130 ns) and cores without (320 ns and more), and every server's cost moves with them, by a third
//! and more. Steal time does not show it; this does, in a few milliseconds.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use highwater_floor::socket;

/// The median block is reported, so that a process that takes one of the CPUs for a while does not
/// count.
const BLOCKS: u64 = 20;
/// Round trips in a block: 0.1 to 0.4 ms.
const TRIPS: u64 = 1000;

/// Alone in its pair of cache lines: the prefetcher fetches two.
#[repr(align(128))]
struct Ball(AtomicU64);

/// The time of one round trip between `first` and `second`, in nanoseconds.
///
/// # Errors
/// A CPU is not ours to use, or both are the same: two spinning threads would then wait for the
/// scheduler.
pub(crate) fn round_trip_ns(first: usize, second: usize) -> io::Result<f64> {
    if first == second {
        return Err(io::Error::other("the CPUs must differ"));
    }
    let ball = Ball(AtomicU64::new(0));
    socket::pin(first)?;
    std::thread::scope(|scope| {
        // Pinned before anyone spins: a wrong CPU must be an error, not a hang.
        let (ready, pinned) = std::sync::mpsc::channel();
        let ball = &ball;
        scope.spawn(move || {
            let result = socket::pin(second);
            let failed = result.is_err();
            let _ = ready.send(result);
            if !failed {
                give_back(ball);
            }
        });
        pinned.recv().map_err(io::Error::other)??;
        Ok(throw(ball))
    })
}

fn give_back(ball: &Ball) {
    for trip in 0..BLOCKS * TRIPS {
        wait_for(ball, 2 * trip + 1);
        ball.0.store(2 * trip + 2, Ordering::Release);
    }
}

fn throw(ball: &Ball) -> f64 {
    let mut blocks: Vec<f64> = (0..BLOCKS)
        .map(|block| {
            let start = Instant::now();
            for trip in block * TRIPS..(block + 1) * TRIPS {
                ball.0.store(2 * trip + 1, Ordering::Release);
                wait_for(ball, 2 * trip + 2);
            }
            start.elapsed().as_nanos() as f64 / TRIPS as f64
        })
        .collect();
    blocks.sort_by(f64::total_cmp);
    blocks[blocks.len() / 2]
}

fn wait_for(ball: &Ball, value: u64) {
    while ball.0.load(Ordering::Acquire) != value {
        std::hint::spin_loop();
    }
}
