//! How many places of the gate will be free again before the next look?
//!
//! Where the gate learns nothing about the end of connections, each packet that belongs to no connection takes a place, and
//! the guard sets the count to the kernel's list with each look. So a connection that comes and goes between two looks, and
//! a packet that belongs to no connection at all, hold a place needlessly until then. As many as at the highest rate of the
//! last second are expected in the next interval, and take no place.
//!
//! Pure: totals and time in, a number of places out.

use std::collections::VecDeque;
use std::time::Duration;

use highwater_core::time::Instant;

/// How long an interval counts.
const SPAN: Duration = Duration::from_secs(1);

/// The most that is expected, per millisecond of an interval. A guess; a stronger flood closes the gate for
/// part of the time.
const EXPECTED_PER_MS_MAX: f64 = 40.0;

/// Recent arrivals and departures.
#[derive(Debug, Default)]
pub(crate) struct Turnover {
    last: Option<(Instant, u64, u32)>,
    intervals: VecDeque<Interval>,
}

/// The time between two looks.
#[derive(Clone, Copy, Debug)]
struct Interval {
    ended: Instant,
    ms: f64,
    /// How much had gone in it.
    gone: f64,
}

impl Interval {
    /// How much goes in `ms` at the same rate. An interval may be longer than planned when the machine is busy, so a shorter
    /// one that is planned counts as one of that length.
    fn over(self, ms: f64) -> f64 {
        self.gone * (ms / self.ms).max(1.0)
    }
}

impl Turnover {
    /// Takes in that `came` packets have taken a place so far and that `open` connections exist at
    /// `now`; answers how many places will be free again at the next look, which comes after `next`.
    pub(crate) fn observe(&mut self, now: Instant, came: u64, open: u32, next: Duration) -> u32 {
        if let Some((before, came_before, open_before)) = self.last {
            let gone = (came - came_before + u64::from(open_before)).saturating_sub(open.into());
            let ms = millis(now.saturating_since(before)).max(1.0);
            self.intervals.push_back(Interval { ended: now, ms, gone: gone as f64 });
        }
        self.last = Some((now, came, open));
        let is_old = |interval: Option<&Interval>| {
            interval.is_some_and(|interval| now.saturating_since(interval.ended) >= SPAN)
        };
        while is_old(self.intervals.front()) {
            self.intervals.pop_front();
        }
        let ms = millis(next);
        let worst = self.intervals.iter().map(|interval| interval.over(ms)).fold(0.0, f64::max);
        worst.min(EXPECTED_PER_MS_MAX * ms) as u32
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use highwater_core::prng::Prng;

    use super::*;

    /// A gate with room for `limit`, before a server that ends a connection each millisecond in which
    /// it has one. `honest` clients and `strays` come per second, for ten seconds. Returns how many
    /// clients were refused in the last nine, how many were served, and the most connections at once.
    fn besieged(limit: i64, honest: u64, strays: u64) -> (u64, u64, u32) {
        let mut prng = Prng::from_seed(strays + honest);
        let (mut turnover, mut taken, mut came) = (Turnover::default(), 0_i64, 0_u64);
        let (mut open, mut open_max, mut refused, mut served) = (0_u32, 0, 0, 0);
        for ms in 0..10_000_u64 {
            let counts = ms >= 1000;
            served += u64::from(counts && open > 0);
            open = open.saturating_sub(1);
            for (is_client, rate) in [(false, strays), (true, honest)] {
                for _ in 0..rate / 1000 + u64::from(prng.chance(rate % 1000, 1000)) {
                    if taken >= limit {
                        refused += u64::from(is_client && counts);
                        continue;
                    }
                    taken += 1;
                    came += 1;
                    open += u32::from(is_client);
                }
            }
            open_max = open_max.max(open);
            if ms % 25 == 0 {
                let now = Instant::ZERO + Duration::from_millis(ms);
                let gone = turnover.observe(now, came, open, Duration::from_millis(25));
                taken = i64::from(open) - i64::from(gone);
            }
        }
        (refused, served, open_max)
    }

    /// Purpose: packets that belong to no connection refuse nobody, nor do short connections that come
    /// and go between two looks, although there is room for few at once.
    #[test]
    fn what_has_gone_takes_no_place() {
        for strays in [0, 20, 1000, 5000] {
            let (refused, ..) = besieged(32, 80, strays);
            assert_eq!(refused, 0, "{strays} strays per second");
        }
        assert_eq!(besieged(32, 800, 0).0, 0);
        assert_eq!(besieged(32, 800, 1000).0, 0);
    }

    /// Purpose: short connections refuse nobody where a look takes so long that the next one is far away. In the first second
    /// looks are frequent.
    #[test]
    fn rare_looks_refuse_nobody() {
        let (mut turnover, mut taken, mut came, mut refused) = (Turnover::default(), 0, 0, 0);
        let mut look_at = 0;
        for ms in 0..10_000_u64 {
            for _ in 0..5 {
                if taken < 256 {
                    (taken, came) = (taken + 1, came + 1);
                } else {
                    refused += 1;
                }
            }
            if ms == look_at {
                let next = if ms < 1000 { 25 } else { 400 };
                look_at += next;
                let now = Instant::ZERO + Duration::from_millis(ms);
                let gone = turnover.observe(now, came, 5, Duration::from_millis(next));
                taken = 5 - i64::from(gone);
            }
        }
        assert_eq!(refused, 0);
    }

    /// Purpose: in an overload the limit holds but for what is served between two looks, and the server
    /// always has work, with strays and without.
    #[test]
    fn the_limit_holds_in_an_overload() {
        for strays in [0, 1000] {
            let (refused, served, open_max) = besieged(32, 5000, strays);
            assert!(refused > 30_000 && served >= 8_990, "{refused} refused, {served} served");
            // 25 are served between two looks; strays come unevenly.
            let uneven = if strays > 0 { 40 } else { 0 };
            assert!(open_max <= 32 + 25 + 2 + uneven, "{open_max} with {strays}");
        }
    }
}
