//! How is a number written so that its unit is never in doubt?
//!
//! For people: about three digits, and the unit behind a space. Never wider than a table's column.

use std::time::Duration;

use super::histogram::{Known, Quantile};

/// What stands where nothing is known.
pub(crate) const UNKNOWN: &str = "–";

/// A number of things, or of things per second: `0`, `3.4`, `412`, `15.2 k`, `1.08 M`.
pub(crate) fn count(value: f64) -> String {
    match value {
        _ if !value.is_finite() => UNKNOWN.to_owned(),
        _ if value == 0.0 => "0".to_owned(),
        _ if value < 9.95 && value.fract() != 0.0 => format!("{value:.1}"),
        _ if value < 9_999.5 => format!("{value:.0}"),
        _ if value < 999_500.0 => format!("{} k", three(value / 1e3)),
        _ if value < 999.5e6 => format!("{} M", three(value / 1e6)),
        _ => format!("{} G", three(value / 1e9)),
    }
}

/// The same, where there may be none.
pub(crate) fn rate(value: Option<f64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), count)
}

/// A number of bytes: `512 B`, `13.7 MiB`.
pub(crate) fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = value;
    for unit in &units[..4] {
        if scaled < 999.5 {
            return format!("{} {unit}", three(scaled));
        }
        scaled /= 1024.0;
    }
    format!("{} {}", three(scaled), units[4])
}

/// A duration as a measurement: `87 µs`, `1.25 ms`, `2.5 s`.
pub(crate) fn seconds(value: f64) -> String {
    match value {
        _ if value < 999.5e-6 => format!("{} µs", three(value * 1e6)),
        _ if value < 999.5e-3 => format!("{} ms", three(value * 1e3)),
        _ => format!("{} s", three(value)),
    }
}

/// A quantile; `< 5 µs` if it is in the first bucket, `> 10 s` if it is in the last.
pub(crate) fn quantile(value: Option<Quantile>) -> String {
    let Some(Quantile { seconds: value, known }) = value else { return UNKNOWN.to_owned() };
    match known {
        Known::AtMost => format!("< {}", seconds(value)),
        Known::Between => seconds(value),
        Known::AtLeast => format!("> {}", seconds(value)),
    }
}

/// A time that has passed: `12 s`, `3 min 12 s`, `2 h 5 min`, `3 d 4 h`.
pub(crate) fn passed(time: Duration) -> String {
    let whole = time.as_secs();
    let (minutes, hours, days) = (whole / 60, whole / 3600, whole / 86_400);
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{minutes} min {} s", whole % 60),
        3600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// A share of one: `63 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Three digits, fewer if the rest are zeros.
fn three(value: f64) -> String {
    let text = match value {
        _ if value < 9.995 => format!("{value:.2}"),
        _ if value < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: every number has its unit, and no meaningless digits.
    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.2"),
            (3.0, "3"),
            (412.4, "412"),
            (9_999.0, "9999"),
            (15_209.0, "15.2 k"),
            (999_499.0, "999 k"),
            (1_081_234.0, "1.08 M"),
            (2.5e9, "2.5 G"),
            (f64::NAN, UNKNOWN),
        ] {
            assert_eq!(count(value), text);
        }
        for (value, text) in [
            (0.0, "0 B"),
            (512.0, "512 B"),
            (1536.0, "1.5 KiB"),
            (14_323_712.0, "13.7 MiB"),
            (9e15, "8185 TiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
        for (value, text) in [
            (0.0, "0 µs"),
            (87e-6, "87 µs"),
            (0.001_25, "1.25 ms"),
            (0.2, "200 ms"),
            (0.999_9, "1 s"),
            (12.5, "12.5 s"),
        ] {
            assert_eq!(seconds(value), text);
        }
        let quantile_of = |seconds, known| quantile(Some(Quantile { seconds, known }));
        assert_eq!(quantile_of(10.0, Known::AtLeast), "> 10 s");
        assert_eq!(quantile_of(5e-6, Known::AtMost), "< 5 µs");
        assert_eq!(quantile(None), UNKNOWN);
        assert_eq!(percent(0.631), "63 %");
    }

    /// Purpose: a time since is read at a glance, whether seconds or days.
    #[test]
    fn times_have_two_units() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (192, "3 min 12 s"),
            (7_500, "2 h 5 min"),
            (273_600, "3 d 4 h"),
        ] {
            assert_eq!(passed(Duration::from_secs(seconds)), text);
        }
    }
}
