//! How are times shown? With three digits, everywhere.

use std::time::Duration;

/// Microseconds, as `850 us`, `13.9 ms`, `1.20 s`.
pub(crate) fn micros(micros: f64) -> String {
    let (value, unit) = match micros {
        ..999.5 => (micros, "us"),
        ..999_500.0 => (micros / 1e3, "ms"),
        _ => (micros / 1e6, "s"),
    };
    let decimals = match value {
        0.0 => 0,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

/// The same of a duration.
pub(crate) fn time(duration: Duration) -> String {
    micros(duration.as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: one time is always written in one way, with as many digits as mean something.
    #[test]
    fn three_digits() {
        for (given, shown) in [
            (0.0, "0 us"),
            (1.234, "1.23 us"),
            (34.0, "34.0 us"),
            (999.4, "999 us"),
            (999.6, "1.00 ms"),
            (13_894.0, "13.9 ms"),
            (200_000.0, "200 ms"),
            (999_700.0, "1.00 s"),
            (39_000_000.0, "39.0 s"),
            (120_000_000.0, "120 s"),
        ] {
            assert_eq!(micros(given), shown);
        }
        assert_eq!(time(Duration::from_millis(200)), "200 ms");
    }
}
