//! How many connections per second may each source open, so that together they bring what can be served?
//!
//! The *water level*: the rate at which the sum of what each source gets, its demand or the level if that is less,
//! equals the capacity (max-min fairness). Sources below the level get all they ask for; those above get
//! equal rates. For a gate that sees single attempts to connect and has no queue that could be put in order.
//!
//! Sources are counted in a fixed number of buckets. Two in one bucket count as one here, which makes the level a
//! little higher than needed.
//!
//! Pure: counts and time come in, a level comes out.

use alloc::vec::Vec;
use core::time::Duration;

/// How long a rate counts: shorter follows changes sooner; longer knows more about sources that connect a few times
/// per second. A guess; `the_level_is_found` notices a wrong value.
const MEMORY: Duration = Duration::from_millis(500);

/// The level is that of so many capacities, so that the limit of the gate and not the level is what keeps the workers
/// busy: attempts come at random moments. Less: idle workers; more: busy sources take more places. A guess;
/// `each_client_gets_its_share` in `tests/overload` notices a wrong value.
const SURPLUS: f32 = 1.25;

/// The lowest level: one connection in ten seconds. Below it the limit of the gate decides alone.
const LEVEL_MIN: f32 = 0.1;

/// Finds the level from counts of attempts.
#[derive(Clone, Debug)]
pub struct Level {
    /// The level is that of so many capacities.
    surplus: f32,
    /// The counts of each bucket at the last look.
    before: Vec<u64>,
    /// The rate of each bucket, per second.
    rates: Vec<f32>,
    /// Room for sorting.
    sorted: Vec<f32>,
    is_known: bool,
}

impl Default for Level {
    fn default() -> Self {
        Level::with_surplus(SURPLUS)
    }
}

impl Level {
    /// A level at which sources bring so many capacities.
    pub(super) fn with_surplus(surplus: f32) -> Level {
        let (before, rates, sorted) = Default::default();
        Level { surplus, before, rates, sorted, is_known: false }
    }

    /// Attempts are counted from `counts` on: an overload begins.
    pub fn begin(&mut self, counts: impl Iterator<Item = u64>) {
        self.before.clear();
        self.before.extend(counts);
        self.rates.clear();
        self.rates.resize(self.before.len(), 0.0);
        self.is_known = false;
    }

    /// Takes in the counts so far, `span` after the previous ones. Returns the time between two connections of a
    /// source at the level, if `capacity` connections can be served per second; `None` if all of them can.
    pub fn look(
        &mut self,
        span: Duration,
        counts: impl Iterator<Item = u64>,
        capacity: f32,
    ) -> Option<Duration> {
        let seconds = span.as_secs_f32().max(1e-6);
        // All that is known at first is the first span.
        let weight = if self.is_known { seconds / (seconds + MEMORY.as_secs_f32()) } else { 1.0 };
        self.is_known = true;
        for ((count, before), rate) in counts.zip(&mut self.before).zip(&mut self.rates) {
            let recent = count.wrapping_sub(*before) as f32 / seconds;
            *before = count;
            *rate += (recent - *rate) * weight;
        }
        self.sorted.clear();
        self.sorted.extend(self.rates.iter().filter(|&&rate| rate > 0.0));
        let level = water_level(&mut self.sorted, capacity * self.surplus)?;
        Some(Duration::from_secs_f32(1.0 / level.max(LEVEL_MIN)))
    }

    /// The rates of the last look do not count at the next one.
    pub(super) fn forget(&mut self) {
        self.is_known = false;
    }

    /// The rate of each bucket, per second, at the last look.
    pub(super) fn rates(&self) -> &[f32] {
        &self.rates
    }

    /// The highest of these rates behind the `first` ones; 0 if there are no more.
    pub(super) fn rank(&self, first: usize) -> f32 {
        let at = self.sorted.len().checked_sub(first + 1);
        at.map_or(0.0, |at| self.sorted[at])
    }
}

/// The level at which `demands` use `capacity` up; `None` if they do not.
fn water_level(demands: &mut [f32], capacity: f32) -> Option<f32> {
    demands.sort_unstable_by(f32::total_cmp);
    let mut left = capacity;
    for (index, &demand) in demands.iter().enumerate() {
        let share = left / (demands.len() - index) as f32;
        if demand > share {
            return Some(share);
        }
        left -= demand;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    /// Purpose: the level by example.
    #[test]
    fn by_example() {
        let level = |demands: &[f32], capacity| water_level(&mut demands.to_vec(), capacity);
        assert_eq!(level(&[], 10.0), None);
        assert_eq!(level(&[4.0, 6.0], 10.0), None, "all fit");
        assert_eq!(level(&[10.0, 10.0], 10.0), Some(5.0), "equal demands");
        assert_eq!(level(&[100.0, 1.0, 2.0], 10.0), Some(7.0), "one has the rest");
        assert_eq!(level(&[100.0, 100.0, 2.0], 10.0), Some(4.0), "two divide it");
        assert_eq!(level(&[3.0], 0.0), Some(0.0));
    }

    /// Purpose: at the level exactly the capacity is used, whatever the demands.
    #[test]
    fn the_capacity_is_used() {
        for seed in 0..1000 {
            let mut prng = Prng::from_seed(seed);
            let count = 1 + prng.below(50);
            let mut demands: Vec<f32> = (0..count).map(|_| prng.below(1000) as f32).collect();
            let (sum, capacity) = (demands.iter().sum::<f32>(), prng.below(20_000) as f32);
            match water_level(&mut demands, capacity) {
                None => assert!(sum <= capacity + 0.5, "seed {seed}"),
                Some(level) => {
                    let used: f32 = demands.iter().map(|demand| demand.min(level)).sum();
                    assert!((used - capacity).abs() < 1.0, "seed {seed}: {used} of {capacity}");
                }
            }
        }
    }

    /// Purpose: a hundred sources that use half of the capacity together, and one that asks for ten times as much:
    /// its level is found at the second look at the latest, stays within a fifth, and is gone with it.
    #[test]
    fn the_level_is_found() {
        let (mut prng, mut level) = (Prng::from_seed(1), Level::default());
        let (mut counts, span) = ([0_u64; 2048], Duration::from_millis(100));
        level.begin(counts.iter().copied());
        for look in 0..200 {
            for count in &mut counts[1..=100] {
                *count += u64::from(prng.chance(45, 100));
            }
            counts[0] += if look < 100 { 900 } else { 0 };
            let gap = level.look(span, counts.iter().copied(), 900.0);
            match look {
                0 => {}
                1..100 => {
                    let rate = 1.0 / gap.expect("there is too much").as_secs_f32();
                    assert!((540.0..810.0).contains(&rate), "look {look}: {rate}");
                }
                150.. => assert_eq!(gap, None),
                _ => {}
            }
        }
    }
}
