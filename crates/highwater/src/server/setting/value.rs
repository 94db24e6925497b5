//! How is a value written, and within what range?
//!
//! Each function here makes a parser for [`clap`]. A parser refuses a value with a reason and,
//! after a semicolon, what to write instead.

use core::fmt::{self, Display};
use core::ops::RangeInclusive;
use core::str::FromStr;
use core::time::Duration;
use std::net::SocketAddr;

use crate::choice::listed;
use crate::server::address;

/// Units of time, the largest first.
const TIME_UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Units of size, the largest first.
const SIZE_UNITS: [(&str, u64); 4] =
    [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("", 1)];

/// A duration within `range`, written like `250ms`, `10s`, `5m` or `1h`.
pub fn duration(
    range: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    let millis = |duration: &Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let range = millis(range.start())..=millis(range.end());
    let form = "written like 250ms, 10s or 5m";
    move |text| scaled(text, &TIME_UNITS, &range, form).map(Duration::from_millis)
}

/// A number of bytes within `range`, written like `1024`, `16KiB` or `1MiB`.
pub fn size(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| scaled(text, &SIZE_UNITS, &range, "written like 1024, 16KiB or 1MiB")
}

/// A whole number within `range`.
pub fn number<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let remedy = format!("use {} to {}", range.start(), range.end());
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!("not a whole number; {remedy}"));
        }
        match text.parse() {
            Ok(value) if range.contains(&value) => Ok(value),
            _ => Err(format!("out of range; {remedy}")),
        }
    }
}

/// One of the named choices.
pub fn one_of<T: Copy + Send + Sync + 'static>(
    choices: &'static [(&'static str, T)],
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let found = choices.iter().find(|(name, _)| *name == text);
        found.map(|&(_, choice)| choice).ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|&(name, _)| name).collect();
            format!("not a choice; use {}", listed(&names))
        })
    }
}

/// An IP address and a port to listen on.
///
/// # Errors
/// What is wrong with it, and what to write instead.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    address::parse(text)
}

/// The same, or `off`, which is `None`.
///
/// # Errors
/// As [`address`].
pub fn address_or_off(text: &str) -> Result<Option<SocketAddr>, String> {
    match text {
        "off" => Ok(None),
        _ => address(text).map(Some).map_err(|error| format!("{error}, or off")),
    }
}

/// A number with a unit, in the smallest unit.
fn scaled(
    text: &str,
    units: &'static [(&'static str, u64)],
    range: &RangeInclusive<u64>,
    form: &str,
) -> Result<u64, String> {
    let show = |value| Scaled { value, units };
    let remedy = || format!("use {} to {}, {form}", show(*range.start()), show(*range.end()));
    let refuse = |reason: &str| Err(format!("{reason}; {}", remedy()));
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, unit) = text.split_at(digits);
    let Some(&(_, scale)) = units.iter().find(|(name, _)| *name == unit) else {
        return refuse(match (digits, unit) {
            ("", _) => "not a number with a unit",
            (_, "") => "the unit is missing",
            (_, unit) if is_number(unit) => "not a whole number with a unit",
            _ => "the unit is unknown",
        });
    };
    if digits.is_empty() {
        return refuse("not a number with a unit");
    }
    // A number that overflows is beyond every range.
    match digits.parse::<u64>().ok().and_then(|value| value.checked_mul(scale)) {
        Some(value) if range.contains(&value) => Ok(value),
        Some(value) if value < *range.start() => refuse("too small"),
        _ => refuse("too large"),
    }
}

/// Whether what follows digits goes on as a number, such as `.5s` or `e6`.
fn is_number(rest: &str) -> bool {
    let digits = rest.strip_prefix(['.', ',', 'e', 'E', '_']).unwrap_or_default();
    digits.starts_with(|first: char| first.is_ascii_digit())
}

/// Shows a size as it would be written.
pub(super) fn bytes(value: u64) -> impl Display {
    Scaled { value, units: &SIZE_UNITS }
}

/// Shows a value in the largest unit that fits it exactly.
struct Scaled {
    value: u64,
    units: &'static [(&'static str, u64)],
}

impl Display for Scaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact =
            |&&(_, scale): &&(&str, u64)| self.value >= scale && self.value.is_multiple_of(scale);
        match self.units.iter().find(exact) {
            Some((unit, scale)) => write!(f, "{}{unit}", self.value / scale),
            None => write!(f, "0{}", self.units[self.units.len() - 1].0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: units mean what they say, and the ends of a range belong to it.
    #[test]
    fn durations_are_parsed_within_their_range() {
        let parse = duration(Duration::from_millis(100)..=Duration::from_secs(3600));
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(parse("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(parse("100ms"), Ok(Duration::from_millis(100)));
        let remedy = "use 100ms to 1h, written like 250ms, 10s or 5m";
        for (text, reason) in [
            ("0s", "too small"),
            ("99ms", "too small"),
            ("3600001ms", "too large"),
            ("18446744073709551615h", "too large"),
            ("99999999999999999999s", "too large"),
            ("10", "the unit is missing"),
            ("10 s", "the unit is unknown"),
            ("10S", "the unit is unknown"),
            ("1.5s", "not a whole number with a unit"),
            ("1e6", "not a whole number with a unit"),
            ("1_000ms", "not a whole number with a unit"),
            ("1e", "the unit is unknown"),
            ("", "not a number with a unit"),
            ("-1s", "not a number with a unit"),
            ("s", "not a number with a unit"),
        ] {
            assert_eq!(parse(text), Err(format!("{reason}; {remedy}")), "{text:?}");
        }
    }

    /// Purpose: as above, for sizes, whose unit may be left out.
    #[test]
    fn sizes_are_parsed_within_their_range() {
        let parse = size(256..=1 << 20);
        assert_eq!(parse("256"), Ok(256));
        assert_eq!(parse("16KiB"), Ok(16384));
        assert_eq!(parse("1MiB"), Ok(1 << 20));
        let remedy = "use 256 to 1MiB, written like 1024, 16KiB or 1MiB";
        for (text, reason) in [
            ("255", "too small"),
            ("1048577", "too large"),
            ("99999999999GiB", "too large"),
            ("16KB", "the unit is unknown"),
            ("KiB", "not a number with a unit"),
            ("", "not a number with a unit"),
        ] {
            assert_eq!(parse(text), Err(format!("{reason}; {remedy}")), "{text:?}");
        }
        assert_eq!(
            size(0..=1)("2"),
            Err("too large; use 0 to 1, written like 1024, 16KiB or 1MiB".to_owned())
        );
    }

    /// Purpose: a number is digits; signs and white space are errors.
    #[test]
    fn numbers_are_parsed_within_their_range() {
        let parse = number(1..=1024_u32);
        assert_eq!((parse("1"), parse("1024")), (Ok(1), Ok(1024)));
        for (text, reason) in [
            ("0", "out of range"),
            ("1025", "out of range"),
            ("99999999999", "out of range"),
            ("+4", "not a whole number"),
            (" 4", "not a whole number"),
            ("four", "not a whole number"),
            ("", "not a whole number"),
        ] {
            assert_eq!(parse(text), Err(format!("{reason}; use 1 to 1024")), "{text:?}");
        }
    }
}
