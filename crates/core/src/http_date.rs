//! Dates as HTTP writes them (RFC 9110 §5.6.7): one format to send, three to understand.
//!
//! It never reads a clock; the time zone is always GMT. A server formats at most once a second and
//! keeps the 29 bytes.

use crate::time::UnixSeconds;

/// The length of a formatted date.
pub const LENGTH: usize = 29;

/// The last second that a four-digit year can express: 9999-12-31T23:59:59Z.
pub const LATEST: UnixSeconds = UnixSeconds(253_402_300_799);

const SECONDS_PER_DAY: u64 = 86_400;
const DAY_NAMES: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTH_NAMES: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// `time` as an IMF-fixdate, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
///
/// A time later than [`LATEST`] is written as [`LATEST`].
pub fn format(time: UnixSeconds) -> [u8; LENGTH] {
    let seconds = time.0.min(LATEST.0);
    let (days, second) = (seconds / SECONDS_PER_DAY, seconds % SECONDS_PER_DAY);
    let (year, month, day) = civil_from_days(days);
    // The epoch was a Thursday.
    let day_name = DAY_NAMES[((days + 4) % 7) as usize].as_bytes();

    let mut text = *b"Day, 00 Mon 0000 00:00:00 GMT";
    text[0..3].copy_from_slice(&day_name[0..3]);
    text[5..7].copy_from_slice(&two_digits(day));
    text[8..11].copy_from_slice(MONTH_NAMES[month as usize - 1]);
    text[12..14].copy_from_slice(&two_digits(year / 100));
    text[14..16].copy_from_slice(&two_digits(year % 100));
    text[17..19].copy_from_slice(&two_digits(second / 3600));
    text[20..22].copy_from_slice(&two_digits(second / 60 % 60));
    text[23..25].copy_from_slice(&two_digits(second % 60));
    text
}

/// Parses `text` in any of the three formats a recipient must accept: IMF-fixdate, RFC 850
/// (`Sunday, 06-Nov-94 08:49:37 GMT`) and asctime (`Sun Nov  6 08:49:37 1994`).
///
/// `None` if it has none of these formats, or if the day or the hour does not exist; a field with
/// such a date is to be ignored (RFC 9110 §13.1.3). Names are case-sensitive. The day's name must
/// be valid, but need not match the date: the rest is unambiguous, and §5.6.7 asks for robustness.
/// A leap second counts as the second after it. A date before 1970 becomes the epoch: no
/// modification time is older, so comparisons give the same result.
///
/// `now` determines the century of RFC 850's two-digit year: a date that would be more than 50
/// years in the future is in the century before.
pub fn parse(text: &[u8], now: UnixSeconds) -> Option<UnixSeconds> {
    parse_imf_fixdate(text).or_else(|| parse_rfc850(text, now)).or_else(|| parse_asctime(text))
}

fn parse_imf_fixdate(text: &[u8]) -> Option<UnixSeconds> {
    let mut scan = Scan(text);
    scan.short_day_name()?;
    scan.literal(b", ")?;
    let day = scan.digits(2)?;
    scan.literal(b" ")?;
    let month = scan.month()?;
    scan.literal(b" ")?;
    let year = scan.digits(4)?;
    scan.literal(b" ")?;
    let second = scan.time_of_day()?;
    scan.literal(b" GMT")?;
    scan.end()?;
    time_from_parts(year, month, day, second)
}

fn parse_rfc850(text: &[u8], now: UnixSeconds) -> Option<UnixSeconds> {
    let mut scan = Scan(text);
    DAY_NAMES.iter().find_map(|name| scan.literal(name.as_bytes()))?;
    scan.literal(b", ")?;
    let day = scan.digits(2)?;
    scan.literal(b"-")?;
    let month = scan.month()?;
    scan.literal(b"-")?;
    let year_of_century = scan.digits(2)?;
    scan.literal(b" ")?;
    let second = scan.time_of_day()?;
    scan.literal(b" GMT")?;
    scan.end()?;

    // The same instant fifty years on, near enough: the calendar repeats its leap years except
    // around 2100, and a day more or less is lost in a rule about half a century.
    let (this_year, this_month, this_day) = civil_from_days(now.0.min(LATEST.0) / SECONDS_PER_DAY);
    let this_second = now.0.min(LATEST.0) % SECONDS_PER_DAY;
    let latest = (this_year + 50, this_month, this_day, this_second);
    let century = (this_year + 50) / 100 * 100;
    let mut year = century + year_of_century;
    if (year, month, day, second) > latest {
        year -= 100;
    }
    time_from_parts(year, month, day, second)
}

fn parse_asctime(text: &[u8]) -> Option<UnixSeconds> {
    let mut scan = Scan(text);
    scan.short_day_name()?;
    scan.literal(b" ")?;
    let month = scan.month()?;
    scan.literal(b" ")?;
    let day = match scan.literal(b" ") {
        Some(()) => scan.digits(1)?,
        None => scan.digits(2)?,
    };
    scan.literal(b" ")?;
    let second = scan.time_of_day()?;
    scan.literal(b" ")?;
    let year = scan.digits(4)?;
    scan.end()?;
    time_from_parts(year, month, day, second)
}

/// The unread text. Each method takes the part it names, or nothing at all.
struct Scan<'a>(&'a [u8]);

impl Scan<'_> {
    fn literal(&mut self, expected: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(expected)?;
        Some(())
    }

    fn short_day_name(&mut self) -> Option<()> {
        DAY_NAMES.iter().find_map(|name| self.literal(&name.as_bytes()[..3]))
    }

    /// 1 for January.
    fn month(&mut self) -> Option<u64> {
        (1..).zip(MONTH_NAMES).find_map(|(number, name)| self.literal(name).map(|()| number))
    }

    fn digits(&mut self, count: usize) -> Option<u64> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        let mut value = 0;
        for digit in digits {
            value = value * 10 + u64::from(digit.is_ascii_digit().then(|| digit - b'0')?);
        }
        self.0 = rest;
        Some(value)
    }

    /// Seconds since midnight, of `hh:mm:ss`. A leap second makes it 86 400: the next midnight.
    fn time_of_day(&mut self) -> Option<u64> {
        let hour = self.digits(2)?;
        self.literal(b":")?;
        let minute = self.digits(2)?;
        self.literal(b":")?;
        let second = self.digits(2)?;
        let exists = hour < 24 && minute < 60 && second < 60;
        let leaps = (hour, minute, second) == (23, 59, 60);
        (exists || leaps).then_some(hour * 3600 + minute * 60 + second)
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

fn two_digits(value: u64) -> [u8; 2] {
    debug_assert!(value < 100);
    [b'0' + (value / 10) as u8, b'0' + (value % 10) as u8]
}

fn time_from_parts(year: u64, month: u64, day: u64, second: u64) -> Option<UnixSeconds> {
    if day == 0 || day > days_in_month(year, month) {
        return None;
    }
    let Some(days) = days_from_civil(year, month, day) else {
        return Some(UnixSeconds(0));
    };
    Some(UnixSeconds(days * SECONDS_PER_DAY + second))
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in_month(year: u64, month: u64) -> u64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days from 0000-03-01 to 1970-01-01.
///
/// Both conversions count years from March, so that the leap day is a year's last, in eras of 400
/// years (H. Hinnant, "chrono-compatible low-level date algorithms", `days_from_civil`).
const DAYS_TO_EPOCH: u64 = 719_468;
const DAYS_PER_ERA: u64 = 146_097;

/// Days since the epoch; `None` before it.
fn days_from_civil(year: u64, month: u64, day: u64) -> Option<u64> {
    let march_year = year.checked_sub(u64::from(month <= 2))?;
    let (era, year_of_era) = (march_year / 400, march_year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * DAYS_PER_ERA + day_of_era).checked_sub(DAYS_TO_EPOCH)
}

/// Year, month (1 for January) and day of the month, `days` after 1970-01-01.
pub fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_TO_EPOCH;
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = (march_month + 2) % 12 + 1;
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::String;

    const NOW: UnixSeconds = UnixSeconds(1_772_323_200); // 2026-03-01T00:00:00Z

    fn formatted(seconds: u64) -> String {
        String::from_utf8(format(UnixSeconds(seconds)).to_vec()).expect("dates are ASCII")
    }

    fn parsed(text: &str) -> Option<u64> {
        parse(text.as_bytes(), NOW).map(|time| time.0)
    }

    /// Purpose: the RFC's one instant in its three formats (RFC 9110 §5.6.7).
    #[test]
    fn the_rfcs_example() {
        assert_eq!(formatted(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(parsed("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(parsed("Sunday, 06-Nov-94 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(parsed("Sun Nov  6 08:49:37 1994"), Some(784_111_777));
    }

    /// Purpose: instants known from elsewhere (`date -u -d @N`), at the calendar's corners.
    #[test]
    fn known_instants() {
        let known = [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (68_169_599, "Mon, 28 Feb 1972 23:59:59 GMT"),
            (68_169_600, "Tue, 29 Feb 1972 00:00:00 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_078_099_200, "Mon, 01 Mar 2004 00:00:00 GMT"),
            (2_147_483_648, "Tue, 19 Jan 2038 03:14:08 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (LATEST.0, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ];
        for (seconds, text) in known {
            assert_eq!(formatted(seconds), text);
            assert_eq!(parsed(text), Some(seconds), "{text}");
        }
        assert_eq!(formatted(LATEST.0 + 1), formatted(LATEST.0));
        assert_eq!(formatted(u64::MAX), formatted(LATEST.0));
    }

    /// Purpose: every day for 500 years is named as by a calendar that simply counts.
    #[test]
    fn agrees_with_a_counted_calendar() {
        let (mut year, mut month, mut day, mut weekday) = (1970_u32, 1_usize, 1_u32, 4_usize);
        // Miri would take half an hour for all of them.
        let years = if cfg!(miri) { 5 } else { 500 };
        for days in 0..years * 366 {
            let expected = std::format!(
                "{}, {day:02} {} {year} 12:34:56 GMT",
                ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"][weekday],
                "JanFebMarAprMayJunJulAugSepOctNovDec".get(month * 3 - 3..month * 3).unwrap_or("?"),
            );
            assert_eq!(formatted(days * 86_400 + 45_296), expected);
            let february =
                if year % 400 == 0 || (year % 4 == 0 && year % 100 != 0) { 29 } else { 28 };
            let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            weekday = (weekday + 1) % 7;
            day += 1;
            if day > lengths[month - 1] {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
        }
    }

    /// Purpose: days and hours that do not exist are refused, those at the edge are not.
    #[test]
    fn impossible_dates_are_refused() {
        assert_eq!(parsed("Wed, 29 Feb 2023 00:00:00 GMT"), None);
        assert_eq!(parsed("Mon, 29 Feb 2100 00:00:00 GMT"), None);
        assert_eq!(parsed("Tue, 31 Apr 2024 00:00:00 GMT"), None);
        assert_eq!(parsed("Tue, 00 Apr 2024 00:00:00 GMT"), None);
        assert_eq!(parsed("Mon, 01 Jan 2024 24:00:00 GMT"), None);
        assert_eq!(parsed("Mon, 01 Jan 2024 00:60:00 GMT"), None);
        assert_eq!(parsed("Mon, 01 Jan 2024 00:00:60 GMT"), None);
        // The leap second at the end of 2016 is the first second of 2017.
        assert_eq!(parsed("Sat, 31 Dec 2016 23:59:60 GMT"), Some(1_483_228_800));
    }

    /// Purpose: text that is almost a date is refused.
    #[test]
    fn other_texts_are_refused() {
        let texts = [
            "",
            "Sun",
            "sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            " Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov +994 08:49:37 GMT",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sun Nov 6 08:49:37 1994",
            "Sun Nov  6 08:49:37 1994 GMT",
            "784111777",
        ];
        for text in texts {
            assert_eq!(parsed(text), None, "{text:?}");
        }
        assert_eq!(parse(b"Sun, 06 Nov 1994 08:49:37 \xff\xff\xff", NOW), None);
    }

    /// Purpose: a wrong day name and a date before the epoch are understood, as documented.
    #[test]
    fn robust_where_the_rfc_asks_for_it() {
        assert_eq!(parsed("Mon, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(parsed("Wed, 31 Dec 1969 23:59:59 GMT"), Some(0));
        assert_eq!(parsed("Sat, 01 Jan 0000 00:00:00 GMT"), Some(0));
        assert_eq!(parsed("Wed Nov 16 08:49:37 1994"), Some(784_975_777));
    }

    /// Purpose: two digits of year mean at most 50 years ahead, else the century before.
    #[test]
    fn rfc850_years_have_a_horizon_of_fifty_years() {
        let at_horizon = parsed("Sun, 01 Mar 2076 00:00:00 GMT");
        assert!(at_horizon.is_some());
        assert_eq!(parsed("Sunday, 01-Mar-76 00:00:00 GMT"), at_horizon);
        assert_eq!(
            parsed("Sunday, 01-Mar-76 00:00:01 GMT"),
            parsed("Mon, 01 Mar 1976 00:00:01 GMT"),
        );
        assert_eq!(
            parsed("Friday, 31-Dec-99 00:00:00 GMT"),
            parsed("Fri, 31 Dec 1999 00:00:00 GMT")
        );
        assert_eq!(
            parsed("Saturday, 01-Jan-00 00:00:00 GMT"),
            parsed("Sat, 01 Jan 2000 00:00:00 GMT")
        );
    }

    static DATES: [&[u8]; 3] = [
        b"Sun, 06 Nov 1994 08:49:37 GMT",
        b"Sunday, 06-Nov-94 08:49:37 GMT",
        b"Sun Nov  6 08:49:37 1994",
    ];

    proptest! {
        /// Purpose: a formatted date parses back to the same second.
        #[test]
        fn round_trip(seconds in 0..=LATEST.0) {
            prop_assert_eq!(parse(&format(UnixSeconds(seconds)), NOW), Some(UnixSeconds(seconds)));
        }

        /// Purpose: no text makes the parser panic, not even one that is nearly a date.
        #[test]
        fn never_panics(
            text in prop::sample::select(&DATES[..]),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            now in any::<u64>(),
        ) {
            let mut text = text.to_vec();
            for (place, byte) in changes {
                let place = place.index(text.len());
                text[place] = byte;
            }
            let _ = parse(&text, UnixSeconds(now));
        }
    }
}
