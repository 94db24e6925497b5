//! Latencies in nanoseconds, counted in buckets of at most 1.6 % width: constant memory, no
//! allocation on the way.

/// Buckets an octave is divided into: a power of two.
const STEPS: usize = 64;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Octaves of a `u64`.
const OCTAVES: usize = 64;

/// A histogram of `u64` values.
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    pub(crate) fn new() -> Histogram {
        let counts = vec![0; STEPS * OCTAVES];
        Histogram { counts, total: 0 }
    }

    pub(crate) fn record(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.total += 1;
    }

    /// The smallest value of the bucket that holds the `quantile` (0 to 1) of all values; 0 when
    /// there are none.
    pub(crate) fn quantile(&self, quantile: f64) -> u64 {
        let rank = ((self.total as f64 * quantile).ceil() as u64).max(1);
        let mut seen = 0;
        self.counts
            .iter()
            .position(|&count| {
                seen += count;
                seen >= rank
            })
            .map_or(0, lowest)
    }
}

/// Values below `STEPS` have a bucket each; above, the top bits choose it.
fn bucket(value: u64) -> usize {
    let octave = value.max(1).ilog2();
    if octave < STEP_BITS {
        return value as usize;
    }
    let step = (value >> (octave - STEP_BITS)) as usize - STEPS;
    octave as usize * STEPS + step
}

/// The smallest value in bucket `index`.
fn lowest(index: usize) -> u64 {
    let (octave, step) = (index / STEPS, index % STEPS);
    if octave < STEP_BITS as usize {
        return index as u64;
    }
    ((STEPS + step) as u64) << (octave as u32 - STEP_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a bucket's lowest value is never above the value, nor more than 1/64 below it.
    #[test]
    fn buckets_are_narrow() {
        for value in (0..5000).chain([u64::from(u32::MAX), u64::MAX / 3, u64::MAX]) {
            let low = lowest(bucket(value));
            assert!(
                low <= value && value - low <= value / STEPS as u64,
                "{value} fell to {low}"
            );
        }
    }

    /// Purpose: quantiles of 1 to 1000 are where a sorted list has them, within a bucket.
    #[test]
    fn quantiles_match_a_sorted_list() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.quantile(0.5), 0);
        (1..=1000).for_each(|value| histogram.record(value));
        for (quantile, exact) in [(0.0, 1), (0.5, 500), (0.9, 900), (0.99, 990), (1.0, 1000)] {
            let found = histogram.quantile(quantile);
            assert!(
                found <= exact && exact - found <= exact / 64,
                "{quantile}: {found}, not {exact}"
            );
        }
    }
}
