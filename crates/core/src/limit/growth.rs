//! Does a queue grow steadily, from well before it takes longer than the patience?
//!
//! A burst grows a queue, too, but only for as long as it arrives, and clients that wait for their answers before they
//! ask again grow it only until all of them wait. An overload grows it in nearly every window; by
//! chance, fewer arrive in some.
//!
//! That a queue grows says that it will be too long, and not yet that anything must be refused.
//!
//! Never here: a clock.

/// The windows that count: a quarter of the patience. Fewer: random variation looks like growth. More: the queue of a
/// large overload is longer than impatient clients wait before it is noticed. A guess; `a_crowd_that_comes_is_no_growth`
/// and `the_first_seconds` notice a wrong value.
const WINDOWS: u32 = 8;

/// A queue grows steadily from when it grew in so many of those, until it grew in fewer than [`STILL`]. A guess; the same
/// tests notice a wrong value.
const MOST: u32 = 6;
const STILL: u32 = 4;

/// Arrivals as a percentage of starts, in a window in which the queue grew. Where each client asks again after its answer, as
/// many arrive as are started, but for chance. A guess; the same tests notice a wrong value.
const INFLOW_PERCENT: u64 = 108;

/// Whether the queue of a worker grows steadily.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Growth {
    /// A bit for each window, the last one lowest: the queue grew in it.
    grew: u32,
    is_steady: bool,
}

impl Growth {
    /// A window is over, in which so many requests arrived and were started. Returns whether the queue grows steadily.
    pub(super) fn on_window(&mut self, arrived: u64, started: u64) -> bool {
        let grew = arrived > 0 && arrived * 100 >= started * INFLOW_PERCENT;
        self.grew = (self.grew << 1 | u32::from(grew)) & ((1 << WINDOWS) - 1);
        let least = if self.is_steady { STILL } else { MOST };
        self.is_steady = self.grew.count_ones() >= least;
        self.is_steady
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Purpose: growth by example. It is noticed after six windows, chance may make up for it in some, a burst is none,
    /// nor are as many arrivals as starts, and it ends with what causes it.
    #[test]
    fn by_example() {
        let steady_at = |windows: &[u64]| {
            let mut growth = Growth::default();
            windows.iter().map(|&arrived| growth.on_window(arrived, 30)).collect::<Vec<_>>()
        };
        assert_eq!(steady_at(&[36; 7]), [false, false, false, false, false, true, true]);
        assert!(steady_at(&[36, 36, 30, 36, 36, 20, 36, 36]).ends_with(&[true]));
        assert!(steady_at(&[900, 600, 300, 10, 0, 0, 0, 0, 0, 0]).iter().all(|&steady| !steady));
        assert!(
            steady_at(&[900, 31, 29, 32, 30, 31, 32, 30, 29, 31]).iter().all(|&steady| !steady)
        );
        let ends = steady_at(&[36, 36, 36, 36, 36, 36, 0, 0, 0, 0, 0]);
        assert_eq!(ends[5..], [true, true, true, true, true, false]);
        assert!(steady_at(&[0; 20]).iter().all(|&steady| !steady));
    }
}
