//! Which part of each source's attempts to connect may pass, if only accepted ones are seen?
//!
//! A full listen queue drops attempts at random. So the accepted connections are a sample of all attempts, except for those
//! that were held back on purpose, whose share is known: if a tenth of a source's attempts passes, each of its accepted
//! connections stands for ten times as many attempts as another source's. The kernel's count gives the sum of all attempts.
//! The level ([`Level`]) follows from these rates, and from the level the part of each busier source's attempts that may
//! pass from now on.
//!
//! Attempts that the full queue drops may have forged addresses. They are never accepted, and make all sources look busier. So
//! this count is used only once: while sources are held back, the queue is not full, and only accepted and held-back attempts
//! count. The rates of the first look are forgotten at the second, as are those of the next few looks if hardly any connection
//! was accepted.
//!
//! Pure: counts and time come in, parts come out.

use alloc::vec::Vec;
use core::time::Duration;

use super::Level;

/// Busy sources bring so many capacities, together with the others. Less: idle workers, as what passes is chance; more: the
/// workers refuse what is accepted beyond the capacity, at the cost of an answer. Tried with requests of 1 ms beside
/// ten times the capacity: with 1.05 workers idle for 6 % of the time.
const SURPLUS: f32 = 1.15;

/// So few connections say little about the sources in one of the first looks. Guesses; `forged_addresses_keep_nobody_out`
/// notices a wrong value.
const SEEN_MIN: u64 = 16;
const LOOKS_MAX: u32 = 5;

/// Finds the parts from counts of accepted connections.
#[derive(Clone, Debug)]
pub struct Thinning {
    level: Level,
    /// The accepted connections of each bucket at the last look.
    before: Vec<u64>,
    /// The attempts of each bucket so far, as far as they are known.
    attempts: Vec<f64>,
    /// The part of each bucket's attempts that passes since the last look.
    passes: Vec<f32>,
    /// Looks since [`Thinning::begin`].
    looks: u32,
    /// What the last look found does not count at the next.
    is_doubtful: bool,
    /// Room for what the accepted connections of each bucket stand for.
    weights: Vec<f64>,
}

impl Default for Thinning {
    fn default() -> Self {
        let (before, attempts, passes, weights) = Default::default();
        let level = Level::with_surplus(SURPLUS);
        Thinning { level, before, attempts, passes, looks: 0, is_doubtful: false, weights }
    }
}

impl Thinning {
    /// Connections are counted from `accepted` on: an overload begins.
    pub fn begin(&mut self, accepted: impl Iterator<Item = u64>) {
        self.before.clear();
        self.before.extend(accepted);
        self.attempts.clear();
        self.attempts.resize(self.before.len(), 0.0);
        self.passes.clear();
        self.passes.resize(self.before.len(), 1.0);
        self.level.begin(self.attempts.iter().map(|_| 0));
        self.looks = 0;
        self.is_doubtful = false;
    }

    /// Whether sources are held back since the last look.
    pub fn holds(&self) -> bool {
        self.passes.iter().any(|&passes| passes < 1.0)
    }

    /// Takes in the counts so far, `span` after the previous ones, and the number of `attempts` in that time: of those that
    /// were accepted or held back, if sources are held back ([`Thinning::holds`]); else of all. Returns the buckets that are
    /// above the level, if `capacity` connections can be served per second, with the part of their attempts that may pass: of
    /// the `held_max` busiest at most.
    pub fn look(
        &mut self,
        span: Duration,
        accepted: impl Iterator<Item = u64>,
        attempts: u64,
        (capacity, held_max): (f32, usize),
    ) -> impl Iterator<Item = (usize, f32)> {
        if self.is_doubtful {
            self.level.forget();
        }
        let (mut all, mut seen) = (0.0, 0);
        self.weights.clear();
        for ((count, before), passes) in accepted.zip(&mut self.before).zip(&self.passes) {
            let new = count.wrapping_sub(core::mem::replace(before, count));
            let weight = new as f64 / f64::from(*passes);
            all += weight;
            seen += new;
            self.weights.push(weight);
        }
        self.is_doubtful = self.looks == 0 || self.looks < LOOKS_MAX && seen < SEEN_MIN;
        self.looks = self.looks.saturating_add(1);
        if all > 0.0 {
            let each = attempts as f64 / all;
            self.attempts
                .iter_mut()
                .zip(&self.weights)
                .for_each(|(sum, weight)| *sum += weight * each);
        }
        let gap = self.level.look(span, self.attempts.iter().map(|&sum| sum as u64), capacity);
        let rates = self.level.rates();
        let level = gap.map_or(f32::INFINITY, |gap| 1.0 / gap.as_secs_f32());
        // Those that are not among the busiest pass, and so does one as busy as the last that fits.
        let passes_all = self.level.rank(held_max);
        let part = |&rate: &f32| if rate > passes_all { (level / rate).min(1.0) } else { 1.0 };
        let parts = rates.iter().map(part);
        self.passes.iter_mut().zip(parts).for_each(|(passes, part)| *passes = part);
        self.passes.iter().copied().enumerate().filter(|&(_, part)| part < 1.0)
    }

    /// Whether all attempts are from one bucket, as far as is known.
    pub fn is_alone(&self) -> bool {
        self.level.rates().iter().filter(|&&rate| rate > 0.0).nth(1).is_none()
    }

    /// No source is held back from now on, but counting continues.
    pub fn release(&mut self) {
        self.passes.fill(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    const SPAN: Duration = Duration::from_millis(100);
    const CAPACITY: f32 = 900.0;

    /// A listen queue that is full: each source's attempts per second, of which `CAPACITY` are accepted if so many pass.
    struct World {
        prng: Prng,
        thinning: Thinning,
        accepted: Vec<u64>,
        parts: Vec<f32>,
        held_max: usize,
        /// Attempts with forged addresses per look, which nobody accepts.
        forged: u64,
    }

    impl World {
        fn new(seed: u64, sources: usize) -> World {
            let mut thinning = Thinning::default();
            thinning.begin([0; 256].into_iter().take(sources));
            let (accepted, parts) = (alloc::vec![0; sources], alloc::vec![1.0; sources]);
            World {
                prng: Prng::from_seed(seed),
                thinning,
                accepted,
                parts,
                held_max: 64,
                forged: 0,
            }
        }

        /// A tenth of a second. Returns how many of each source's attempts passed the filter, per second.
        fn look(&mut self, rates: &[f32], room: f32) -> Vec<f32> {
            let holds = self.thinning.holds();
            let (mut attempts, mut held_back) = (self.forged, 0);
            let mut passed = alloc::vec![0_u64; rates.len()];
            for (source, rate) in rates.iter().enumerate() {
                let mean = rate * SPAN.as_secs_f32();
                let count = mean as u64 + u64::from(self.prng.unit() < f64::from(mean.fract()));
                attempts += count;
                let part = f64::from(self.parts[source]);
                passed[source] = (0..count).filter(|_| self.prng.unit() < part).count() as u64;
                held_back += count - passed[source];
            }
            let all: u64 = passed.iter().sum();
            let part = f64::from(room * SPAN.as_secs_f32()) / all.max(1) as f64;
            let before: u64 = self.accepted.iter().sum();
            for (accepted, passed) in self.accepted.iter_mut().zip(&passed) {
                *accepted += (0..*passed).filter(|_| self.prng.unit() < part).count() as u64;
            }
            if holds {
                attempts = self.accepted.iter().sum::<u64>() - before + held_back;
            }
            self.parts.fill(1.0);
            let accepted = self.accepted.iter().copied();
            for (source, part) in
                self.thinning.look(SPAN, accepted, attempts, (CAPACITY, self.held_max))
            {
                self.parts[source] = part;
            }
            passed.iter().map(|&count| count as f32 / SPAN.as_secs_f32()).collect()
        }
    }

    /// Purpose: a hundred sources that use half of the capacity together, and one that asks for ten times as much or for
    /// twice: it is held to what the others leave after a few looks, no other is, and it is let go with its load.
    #[test]
    fn the_busy_one_is_held() {
        for (seed, times) in [(1, 10.0), (2, 10.0), (3, 2.0), (4, 2.0)] {
            let mut rates = alloc::vec![4.5; 101];
            rates[0] = times * CAPACITY;
            let mut world = World::new(seed, rates.len());
            for look in 0..100 {
                let passed = world.look(&rates, CAPACITY * 1.1)[0];
                let others = world.parts[1..].iter().copied().fold(1.0, f32::min);
                if look > 10 {
                    assert!((250.0..1000.0).contains(&passed), "{times}, look {look}: {passed}");
                    assert!(others > 0.9, "{times}, look {look}: {others}");
                }
            }
            rates[0] = 0.0;
            (0..30).for_each(|_| drop(world.look(&rates, CAPACITY * 1.1)));
            assert!(world.parts.iter().all(|&part| part == 1.0));
        }
    }

    /// Purpose: a flood of forged addresses while the queue is full makes everybody look a hundred times as busy, for one look.
    #[test]
    fn forged_addresses_keep_nobody_out() {
        let mut rates = alloc::vec![4.5; 101];
        rates[0] = 2.0 * CAPACITY;
        let mut world = World::new(8, rates.len());
        world.forged = 20_000;
        for look in 0..50 {
            let passed: f32 = world.look(&rates, CAPACITY * 1.1).iter().sum();
            if look > 2 {
                assert!(passed > CAPACITY * 0.5, "look {look}: {passed}");
            }
        }
    }

    /// Purpose: if more sources are busy than can be held, those that ask for most are.
    #[test]
    fn the_busiest_are_held() {
        let mut rates: Vec<f32> = (0..40).map(|n| 100.0 + n as f32).collect();
        rates[7] = 9000.0;
        let mut world = World::new(7, rates.len());
        world.held_max = 3;
        for look in 0..50 {
            world.look(&rates, CAPACITY);
            let held = world.parts.iter().filter(|&&part| part < 1.0).count();
            assert!(
                (1..=3).contains(&held) && world.parts[7] < 0.1,
                "look {look}: {:?}",
                world.parts
            );
        }
    }

    /// Purpose: busy sources of different rates are held to the same rate.
    #[test]
    fn busy_ones_get_the_same() {
        let rates = [4500.0, 1500.0, 900.0, 90.0];
        let mut world = World::new(5, rates.len());
        let mut sums = [0.0; 4];
        for look in 0..100 {
            let passed = world.look(&rates, CAPACITY * 1.1);
            if look >= 10 {
                sums.iter_mut().zip(passed).for_each(|(sum, passed)| *sum += passed / 90.0);
            }
        }
        let expected = (CAPACITY * SURPLUS - 90.0) / 3.0;
        for sum in &sums[..3] {
            assert!((sum / expected - 1.0).abs() < 0.15, "{sums:?} of {expected}");
        }
    }

    /// Purpose: one source alone is held to what can be served, so that another is seen as soon as it comes.
    #[test]
    fn one_alone_leaves_room_for_another() {
        let mut world = World::new(6, 2);
        (0..20).for_each(|_| drop(world.look(&[9000.0, 0.0], CAPACITY)));
        assert!(world.thinning.is_alone() && world.parts[0] < 0.2, "{:?}", world.parts);
        let before = world.accepted[1];
        (0..2).for_each(|_| drop(world.look(&[9000.0, 100.0], CAPACITY)));
        assert!(world.accepted[1] >= before + 10 && !world.thinning.is_alone());
    }
}
