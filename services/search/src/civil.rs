//! Dates and times as the feed writes them and as clients ask for them.
//!
//! An event happens at a local date-time without a zone. A client may ask with one, without one, or
//! with a date alone. The rule that joins the two: **an event's local time is compared as if it were
//! UTC**. A query without an offset is therefore compared as it stands, and a query with an offset
//! is first converted to UTC. It is the only rule under which `2024-06-30T21:00:00` and
//! `2024-06-30T21:00:00Z` mean the same, as clients that append `Z` by habit expect.
//!
//! Nothing here guesses: a text that is not exactly one of the documented forms is `None`.

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, Time};

/// Which end of a day a date stands for when a query gives no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The day's first instant, `00:00:00`.
    First,
    /// The day's last instant, `23:59:59.999999999`.
    Last,
}

/// Reads a feed's local date-time: `YYYY-MM-DDTHH:MM[:SS[.fraction]]`, with `T`, `t` or a space.
///
/// An offset is refused, because dropping it would move the event and applying it would need the
/// venue's zone. So are leap seconds, dates without a time, and days that do not exist.
/// Digits of a fraction after the ninth are ignored.
pub fn parse_local(text: &str) -> Option<DateTime> {
    let (date, rest) = split_date(text.as_bytes())?;
    let (clock, rest) = split_clock(strip_separator(rest)?)?;
    let time = Time::new(clock.hour, clock.minute, clock.second, clock.nanosecond).ok()?;
    rest.is_empty().then(|| DateTime::from_parts(date, time))
}

/// Reads a query's bound: an RFC 3339 date-time, a local date-time, or a date.
///
/// A date means the `edge` of its day. An offset (`Z`, `z`, `±HH:MM`) is converted to UTC. A space
/// before an offset's digits is read as the `+` that form decoding turned into it. A leap second
/// (RFC 3339 section 5.6) sorts after second 59 and before the next minute.
pub fn parse_bound(text: &str, edge: Edge) -> Option<DateTime> {
    let (date, rest) = split_date(text.as_bytes())?;
    if rest.is_empty() {
        return Some(match edge {
            Edge::First => DateTime::from_parts(date, Time::MIN),
            Edge::Last => DateTime::from_parts(date, Time::MAX),
        });
    }
    let (mut clock, rest) = split_clock(strip_separator(rest)?)?;
    if clock.second == 60 && clock.minute == 59 {
        (clock.second, clock.nanosecond) = (59, 999_999_999);
    }
    let time = Time::new(clock.hour, clock.minute, clock.second, clock.nanosecond).ok()?;
    let local = DateTime::from_parts(date, time);
    let offset = parse_offset(rest)?;
    if offset.is_zero() {
        return Some(local);
    }
    // Only the last hours of year 9999 can leave the calendar, and no event starts or ends later.
    Some(local.checked_sub(offset).unwrap_or(DateTime::MAX))
}

/// A time of day before it is known to exist: second 60 is still possible here.
struct Clock {
    hour: i8,
    minute: i8,
    second: i8,
    nanosecond: i32,
}

fn split_date(text: &[u8]) -> Option<(Date, &[u8])> {
    let (date, rest) = text.split_at_checked(10)?;
    if date[4] != b'-' || date[7] != b'-' {
        return None;
    }
    let (year, month, day) = (number(&date[..4])?, number(&date[5..7])?, number(&date[8..])?);
    let date =
        Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?);
    Some((date.ok()?, rest))
}

fn strip_separator(rest: &[u8]) -> Option<&[u8]> {
    match rest {
        [b'T' | b't' | b' ', rest @ ..] => Some(rest),
        _ => None,
    }
}

fn split_clock(text: &[u8]) -> Option<(Clock, &[u8])> {
    let (hour, minute, mut rest) = split_hour_minute(text)?;
    let (mut second, mut nanosecond) = (0, 0);
    if let [b':', tens, ones, after @ ..] = rest {
        second = i8::try_from(number(&[*tens, *ones])?).ok()?;
        rest = after;
        if let [b'.', fraction @ ..] = rest {
            (nanosecond, rest) = split_fraction(fraction)?;
        }
    }
    Some((Clock { hour, minute, second, nanosecond }, rest))
}

fn split_hour_minute(text: &[u8]) -> Option<(i8, i8, &[u8])> {
    let [h1, h2, b':', m1, m2, rest @ ..] = text else {
        return None;
    };
    let (hour, minute) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?);
    let exists = hour < 24 && minute < 60;
    exists.then_some((hour as i8, minute as i8, rest))
}

fn split_fraction(text: &[u8]) -> Option<(i32, &[u8])> {
    let len = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(len);
    let mut nanosecond = 0;
    for place in 0..9 {
        let digit = digits.get(place).map_or(0, |b| i32::from(b - b'0'));
        nanosecond = nanosecond * 10 + digit;
    }
    (len > 0).then_some((nanosecond, rest))
}

fn parse_offset(text: &[u8]) -> Option<SignedDuration> {
    let (sign, digits) = match text {
        [] | [b'Z' | b'z'] => return Some(SignedDuration::ZERO),
        [b'+' | b' ', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let (hour, minute, rest) = split_hour_minute(digits)?;
    let minutes = i64::from(hour) * 60 + i64::from(minute);
    rest.is_empty().then(|| SignedDuration::from_secs(sign * minutes * 60))
}

/// The value of one to four ASCII digits.
fn number(digits: &[u8]) -> Option<u32> {
    let mut value = 0;
    for byte in digits {
        if !byte.is_ascii_digit() {
            return None;
        }
        value = value * 10 + u32::from(byte - b'0');
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::ToSpan as _;
    use jiff::civil::{date, datetime};
    use proptest::prelude::*;

    /// Purpose: every form of a feed's local date-time is read to the instant it names.
    #[test]
    fn local_forms() {
        let nine = datetime(2024, 6, 30, 21, 0, 0, 0);
        for text in [
            "2024-06-30T21:00:00",
            "2024-06-30t21:00:00",
            "2024-06-30 21:00:00",
            "2024-06-30T21:00",
        ] {
            assert_eq!(parse_local(text), Some(nine), "{text}");
        }
        let fraction = datetime(2024, 6, 30, 21, 0, 0, 120_000_000);
        assert_eq!(parse_local("2024-06-30T21:00:00.12"), Some(fraction));
        assert_eq!(parse_local("2024-02-29T00:00:00"), Some(datetime(2024, 2, 29, 0, 0, 0, 0)));
    }

    /// Purpose: a feed's broken date is refused, never repaired into a neighbouring one.
    #[test]
    fn local_refuses() {
        for text in [
            "",
            "2024",
            "2024-06-30",
            "2021-02-30T20:00:00",
            "2023-02-29T20:00:00",
            "2024-13-01T00:00:00",
            "2024-00-10T00:00:00",
            "2024-06-30T24:00:00",
            "2024-06-30T21:60:00",
            "2024-06-30T21:59:60",
            "2024-06-30T21:00:00Z",
            "2024-06-30T21:00:00+02:00",
            "2024-06-30T21:00:00.",
            "2024-06-30T21:0",
            "2024-06-30T21:00:",
            "2024-06-30T21:00:0",
            "2024/06/30T21:00:00",
            "-024-06-30T21:00:00",
            " 2024-06-30T21:00:00",
            "2024-06-30T21:00:00 ",
            "2024-06-30TT21:00:00",
            "２024-06-30T21:00:00",
            "24-06-30T21:00:00",
            "12024-06-30T21:00:00",
            "tomorrow",
            "2024-06-30T+1:00:00",
        ] {
            assert_eq!(parse_local(text), None, "{text:?}");
        }
    }

    /// Purpose: a date alone means its first or last instant, by the parameter it is given for.
    #[test]
    fn date_means_its_edge() {
        assert_eq!(parse_bound("2024-06-30", Edge::First), Some(datetime(2024, 6, 30, 0, 0, 0, 0)));
        assert_eq!(
            parse_bound("2024-06-30", Edge::Last),
            Some(datetime(2024, 6, 30, 23, 59, 59, 999_999_999))
        );
    }

    /// Purpose: offsets are converted to UTC, across midnight and the year, and a decoded `+` counts.
    #[test]
    fn offsets_become_utc() {
        let cases = [
            ("2024-06-30T21:00:00Z", datetime(2024, 6, 30, 21, 0, 0, 0)),
            ("2024-06-30T21:00:00z", datetime(2024, 6, 30, 21, 0, 0, 0)),
            ("2024-06-30T21:00:00+02:00", datetime(2024, 6, 30, 19, 0, 0, 0)),
            ("2024-06-30T21:00:00 02:00", datetime(2024, 6, 30, 19, 0, 0, 0)),
            ("2024-12-31T21:00:00-05:30", datetime(2025, 1, 1, 2, 30, 0, 0)),
            ("2024-06-30T21:00:00.5-00:00", datetime(2024, 6, 30, 21, 0, 0, 500_000_000)),
            ("2024-06-30T21:00+02:00", datetime(2024, 6, 30, 19, 0, 0, 0)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_bound(text, Edge::First), Some(expected), "{text}");
        }
        assert_eq!(parse_bound("9999-12-31T23:59:59-01:00", Edge::Last), Some(DateTime::MAX));
        assert_eq!(
            parse_bound("0000-01-01T00:00:00+01:00", Edge::First),
            Some(datetime(-1, 12, 31, 23, 0, 0, 0))
        );
    }

    /// Purpose: RFC 3339's leap second is accepted and lies strictly between its neighbours.
    #[test]
    fn leap_second() {
        let leap = parse_bound("2016-12-31T23:59:60Z", Edge::First).expect("RFC 3339 allows it");
        assert!(
            leap > datetime(2016, 12, 31, 23, 59, 59, 0) && leap < datetime(2017, 1, 1, 0, 0, 0, 0)
        );
        assert_eq!(parse_bound("2016-12-31T23:58:60Z", Edge::First), None);
        assert_eq!(parse_bound("2016-12-31T23:59:61Z", Edge::First), None);
    }

    /// Purpose: a text that is not a bound is refused, not read in part.
    #[test]
    fn bound_refuses() {
        for text in [
            "",
            "2024-02-30",
            "2024-06",
            "2024-06-30T",
            "2024-06-30T21",
            "2024-06-30Z",
            "2024-06-30T21:00:00+2",
            "2024-06-30T21:00:00+0200",
            "2024-06-30T21:00:00+24:00",
            "2024-06-30T21:00:00+02:60",
            "1719781200",
            "2024-06-30T21:00:00Zz",
            "2024-06-30T21:00:00[Europe/Madrid]",
            "now",
        ] {
            assert_eq!(parse_bound(text, Edge::Last), None, "{text:?}");
        }
    }

    proptest! {
        /// Purpose: every date-time that exists is read back from its own text, by both readers.
        #[test]
        fn round_trip(days in 0i64..3_652_059, h in 0i8..24, m in 0i8..60, s in 0i8..60, ns in 0i32..1_000_000_000) {
            let day = date(0, 1, 1).checked_add(days.days()).expect("within year 9999");
            let expected = day.at(h, m, s, ns);
            let text = format!("{day}T{h:02}:{m:02}:{s:02}.{ns:09}");
            prop_assert_eq!(parse_local(&text), Some(expected));
            prop_assert_eq!(parse_bound(&text, Edge::Last), Some(expected));
        }

        /// Purpose: no text makes the readers panic.
        #[test]
        fn total(text in "\\PC{0,40}", digits in "[0-9T:.+Z -]{0,40}") {
            for text in [text, digits] {
                let _ = (parse_local(&text), parse_bound(&text, Edge::First), parse_bound(&text, Edge::Last));
            }
        }
    }
}
