//! Random numbers from a seed: the same seed gives the same numbers, on every machine, for ever.
//!
//! The generator is xoshiro256++ (D. Blackman and S. Vigna, "Scrambled linear pseudorandom number
//! generators", ACM TOMS 47(4), 2021; <https://prng.di.unimi.it/>), its state filled by SplitMix64
//! as its authors recommend. Simulations, jitter and sampling use it. It is *not* for secrets: four
//! outputs reveal all the others.
//!
//! It never reads entropy. For unpredictable numbers, pass an unpredictable seed.

use core::ops::Range;

/// A seeded generator. A clone repeats what the original would produce.
#[derive(Clone, Debug)]
pub struct Prng {
    state: [u64; 4],
}

impl Prng {
    /// The generator with this seed. Every seed is as good as every other, including zero.
    pub fn from_seed(seed: u64) -> Self {
        let mut mixer = SplitMix64(seed);
        // SplitMix64 is a bijection of its counter, so four outputs in a row are never all zero,
        // which is the one state xoshiro cannot leave.
        Prng { state: [mixer.next(), mixer.next(), mixer.next(), mixer.next()] }
    }

    /// 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = &mut self.state;
        let result = s0.wrapping_add(*s3).rotate_left(23).wrapping_add(*s0);
        let shifted = *s1 << 17;
        *s2 ^= *s0;
        *s3 ^= *s1;
        *s1 ^= *s2;
        *s0 ^= *s3;
        *s2 ^= shifted;
        *s3 = s3.rotate_left(45);
        result
    }

    /// A number in `0..bound`, every one equally likely.
    ///
    /// The method is Lemire's ("Fast random integer generation in an interval", ACM TOMACS 29(1),
    /// 2019): one multiplication, and a division only when the first draw might be biased.
    ///
    /// # Panics
    ///
    /// If `bound` is zero: there is no number below zero to return.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "below(0) has no possible answer");
        let mut product = u128::from(self.next_u64()) * u128::from(bound);
        if (product as u64) < bound {
            // The 2^64 mod `bound` lowest fractions make some results likelier: redraw.
            let biased = bound.wrapping_neg() % bound;
            while (product as u64) < biased {
                product = u128::from(self.next_u64()) * u128::from(bound);
            }
        }
        (product >> 64) as u64
    }

    /// A number in `range`, every one equally likely.
    ///
    /// # Panics
    ///
    /// If `range` is empty.
    #[inline]
    pub fn range(&mut self, range: Range<u64>) -> u64 {
        assert!(range.start < range.end, "range({range:?}) has no possible answer");
        range.start + self.below(range.end - range.start)
    }

    /// True with probability `numerator` / `denominator`; always true if the numerator is not
    /// smaller.
    ///
    /// # Panics
    ///
    /// If `denominator` is zero.
    #[inline]
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// A number in `0.0 ..1.0`, a multiple of 2⁻⁵³, every one equally likely.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
        (self.next_u64() >> 11) as f64 * STEP
    }

    /// Reorders `items`, every order equally likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let chosen = self.below(last as u64 + 1) as usize;
            items.swap(last, chosen);
        }
    }
}

/// The generator that fills the state (<https://prng.di.unimi.it/splitmix64.c>).
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Purpose: the numbers are those of the authors' xoshiro256plusplus.c from state 1, 2, 3, 4.
    #[test]
    fn agrees_with_the_reference_implementation() {
        let mut prng = Prng { state: [1, 2, 3, 4] };
        let expected = [
            41_943_041,
            58_720_359,
            3_588_806_011_781_223,
            3_591_011_842_654_386,
            9_228_616_714_210_784_205,
            9_973_669_472_204_895_162,
            14_011_001_112_246_962_877,
            12_406_186_145_184_390_807,
            15_849_039_046_786_891_736,
            10_450_023_813_501_588_000,
        ];
        for value in expected {
            assert_eq!(prng.next_u64(), value);
        }
    }

    /// Purpose: the state is filled as by the authors' splitmix64.c, here from seed 1234567.
    #[test]
    fn seeding_agrees_with_the_reference_implementation() {
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
        ];
        assert_eq!(Prng::from_seed(1_234_567).state, expected);
    }

    /// Purpose: a clone replays the original, so that a failing seed can be replayed from anywhere.
    #[test]
    fn a_clone_repeats_the_original() {
        let mut original = Prng::from_seed(7);
        original.next_u64();
        let mut copy = original.clone();
        assert!((0..100).all(|_| original.next_u64() == copy.next_u64()));
    }

    /// Purpose: `below` is uniform. Chi-squared over ten cells with nine degrees of freedom: 27.9 is
    /// exceeded once in a thousand seeds, and the seed here is fixed.
    #[test]
    fn below_is_uniform() {
        let mut prng = Prng::from_seed(1);
        let mut cells = [0_u32; 10];
        for _ in 0..100_000 {
            cells[prng.below(10) as usize] += 1;
        }
        let chi2: f64 =
            cells.iter().map(|&n| (f64::from(n) - 1e4) * (f64::from(n) - 1e4) / 1e4).sum();
        assert!(chi2 < 27.9, "{cells:?} has chi-squared {chi2}");
    }

    /// Purpose: bias shows where a plain multiplication would have it most: for a bound of ¾·2⁶⁴
    /// every third answer would come up twice as often as the others.
    #[test]
    fn below_is_uniform_for_a_huge_bound() {
        let mut prng = Prng::from_seed(2);
        let mut thirds = [0_u32; 3];
        for _ in 0..30_000 {
            thirds[(prng.below(3 << 62) % 3) as usize] += 1;
        }
        // Five standard deviations of a binomial with n = 30 000, p = ⅓ are 408.
        assert!(thirds.iter().all(|&n| n.abs_diff(10_000) < 408), "{thirds:?}");
    }

    /// Purpose: the ends of every interval are reached and never passed.
    #[test]
    fn intervals_hold_their_ends() {
        let mut prng = Prng::from_seed(3);
        let drawn: Vec<u64> = (0..1000).map(|_| prng.range(5..8)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&5), Some(&7)));
        assert_eq!(prng.range(u64::MAX - 1..u64::MAX), u64::MAX - 1);
        assert_eq!(prng.below(1), 0);
        assert!(prng.chance(1, 1) && prng.chance(9, 2) && !prng.chance(0, 1));
        assert!((0..1000).map(|_| prng.unit()).all(|x| (0.0..1.0).contains(&x)));
    }

    /// Purpose: `chance` and `unit` have the mean they promise, within five standard deviations.
    #[test]
    fn means_are_as_promised() {
        let mut prng = Prng::from_seed(4);
        let hits = (0..100_000).filter(|_| prng.chance(3, 10)).count();
        assert!(hits.abs_diff(30_000) < 725, "{hits}");
        let mean = (0..100_000).map(|_| prng.unit()).sum::<f64>() / 1e5;
        assert!((mean - 0.5).abs() < 0.0046, "{mean}");
    }

    /// Purpose: all six orders of three items come up equally often, within five standard deviations.
    #[test]
    fn shuffle_is_uniform() {
        let mut prng = Prng::from_seed(5);
        let mut orders = std::collections::BTreeMap::<[u8; 3], u32>::new();
        for _ in 0..60_000 {
            let mut items = [1, 2, 3];
            prng.shuffle(&mut items);
            *orders.entry(items).or_default() += 1;
        }
        assert_eq!(orders.len(), 6);
        assert!(orders.values().all(|&n| n.abs_diff(10_000) < 457), "{orders:?}");
    }

    /// Purpose: an impossible request is the caller's bug and says so.
    #[test]
    #[should_panic(expected = "no possible answer")]
    fn below_zero_is_refused() {
        Prng::from_seed(0).below(0);
    }
}
