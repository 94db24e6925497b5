//! A limit that the operator chose.

use super::{LIMIT_MAX, Limit, Sample};
use crate::time::Instant;

/// The same limit for every sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed(u32);

impl Fixed {
    /// The limit `limit`, clamped to 1 to [`LIMIT_MAX`].
    pub fn new(limit: u32) -> Self {
        Fixed(limit.clamp(1, LIMIT_MAX))
    }
}

impl Limit for Fixed {
    fn on_sample(&mut self, _now: Instant, _sample: &Sample) -> u32 {
        self.0
    }

    fn limit(&self) -> u32 {
        self.0
    }

    fn name(&self) -> &'static str {
        "fixed"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a limit of 0 would refuse every request for ever, and no sample moves a fixed
    /// limit.
    #[test]
    fn it_stays_where_it_was_put() {
        for (asked, given) in [(0, 1), (1, 1), (64, 64), (u32::MAX, LIMIT_MAX)] {
            let mut limit = Fixed::new(asked);
            assert_eq!(limit.limit(), given);
            let overloaded = Sample { refused: 1000, in_flight: given, ..Sample::default() };
            assert_eq!(limit.on_sample(Instant::ZERO, &overloaded), given);
        }
    }
}
