//! Time as a value. The owner of a clock converts its readings to these types; this crate reads no
//! clock.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A point on a monotonic clock, in nanoseconds since an origin that the clock's owner chose.
///
/// Only differences between instants of one clock mean anything. It holds 584 years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The clock's origin.
    pub const ZERO: Instant = Instant(0);
    /// Later than every real instant: "never" for a deadline.
    pub const MAX: Instant = Instant(u64::MAX);

    /// The instant `nanos` nanoseconds after the clock's origin.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Instant(nanos)
    }

    /// Nanoseconds since the clock's origin.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The instant `duration` before this one, unless that is before the clock's origin.
    #[inline]
    pub fn checked_sub(self, duration: Duration) -> Option<Instant> {
        let nanos = u64::try_from(duration.as_nanos()).ok()?;
        self.0.checked_sub(nanos).map(Instant)
    }

    /// Nanoseconds from `earlier` to `self`, where a [`Duration`] would cost a division; zero if `earlier` is in fact
    /// later.
    #[inline]
    pub const fn nanos_since(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The instant so many nanoseconds after this one; [`Instant::MAX`] if that is beyond it.
    #[inline]
    pub const fn plus_nanos(self, nanos: u64) -> Instant {
        Instant(self.0.saturating_add(nanos))
    }

    /// Time from `earlier` to `self`; zero if `earlier` is in fact later.
    #[inline]
    pub const fn saturating_since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    #[inline]
    fn add(self, duration: Duration) -> Instant {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.plus_nanos(nanos)
    }
}

impl AddAssign<Duration> for Instant {
    #[inline]
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub for Instant {
    type Output = Duration;
    /// Saturates at zero, like [`Instant::saturating_since`].
    #[inline]
    fn sub(self, earlier: Instant) -> Duration {
        self.saturating_since(earlier)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Instant::MAX => f.write_str("never"),
            Instant(nanos) => write!(f, "{}.{:09}s", nanos / 1_000_000_000, nanos % 1_000_000_000),
        }
    }
}

/// A source of time. Implemented where a clock is read, never in this crate.
pub trait Clock: Clone {
    /// The monotonic clock.
    fn now(&self) -> Instant;

    /// The wall clock.
    fn unix_time(&self) -> UnixSeconds;

    /// The wall clock, in milliseconds since 1970-01-01T00:00:00Z: clients send deadlines in this
    /// unit.
    fn unix_millis(&self) -> u64;
}

/// Seconds since 1970-01-01T00:00:00Z, as the `Date` header needs them (no leap seconds).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct UnixSeconds(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a deadline of "for ever" must not wrap into the past.
    #[test]
    fn addition_saturates() {
        assert_eq!(Instant::from_nanos(5) + Duration::MAX, Instant::MAX);
        assert_eq!(Instant::ZERO - Instant::from_nanos(5), Duration::ZERO);
    }
}
