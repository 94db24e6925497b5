//! Prices, exactly.
//!
//! A price is a count of millionths, never a floating-point number, so the smallest and the largest
//! of many prices and the text a client reads are what the feed wrote. In JSON a price is a number
//! in its shortest decimal form: `20.00` is `20`, `19.50` is `19.5`.

use std::fmt;

/// How many digits a price may have before its point. With [`DECIMALS_MAX`] that makes fifteen,
/// which is what every reader of JSON numbers keeps (RFC 8259 section 6: IEEE 754 binary64).
pub const INTEGER_DIGITS_MAX: usize = 9;

/// How many digits a price may have after its point, not counting zeros at the end.
pub const DECIMALS_MAX: usize = 6;

const MILLIONTHS: u64 = 1_000_000;

/// A price that is zero or more, in millionths of the feed's currency unit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Price(u64);

impl Price {
    /// Reads `digits` or `digits.digits`, with blanks around it.
    ///
    /// Refused as broken: a sign, an exponent, a bare point, a comma, anything that is not a number,
    /// and more digits than [`INTEGER_DIGITS_MAX`] (after leading zeros) and [`DECIMALS_MAX`] (before
    /// trailing zeros) allow.
    pub fn parse(text: &str) -> Option<Price> {
        let text = text.trim_ascii();
        let (whole, decimals) = match text.split_once('.') {
            Some((whole, decimals)) if !decimals.is_empty() => (whole, decimals),
            Some(_) => return None,
            None => (text, ""),
        };
        let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !all_digits(whole) || !all_digits(decimals) {
            return None;
        }
        let (whole, decimals) = (whole.trim_start_matches('0'), decimals.trim_end_matches('0'));
        if whole.len() > INTEGER_DIGITS_MAX || decimals.len() > DECIMALS_MAX {
            return None;
        }
        let value = |part: &str| part.bytes().fold(0, |value, b| value * 10 + u64::from(b - b'0'));
        let scale = 10_u64.pow((DECIMALS_MAX - decimals.len()) as u32);
        Some(Price(value(whole) * MILLIONTHS + value(decimals) * scale))
    }

    /// The price of so many millionths, if it is one that [`Price::parse`] could have read.
    pub fn from_millionths(millionths: i64) -> Option<Price> {
        let millionths = u64::try_from(millionths).ok()?;
        (millionths < 10_u64.pow((INTEGER_DIGITS_MAX + DECIMALS_MAX) as u32))
            .then_some(Price(millionths))
    }

    /// The price in millionths: at most fifteen digits, so it fits an `i64`.
    pub fn millionths(self) -> i64 {
        self.0 as i64
    }
}

/// The shortest decimal form, which is also valid as a JSON number.
impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, millionths) = (self.0 / MILLIONTHS, self.0 % MILLIONTHS);
        if millionths == 0 {
            return write!(f, "{whole}");
        }
        let decimals = format!("{millionths:06}");
        write!(f, "{whole}.{}", decimals.trim_end_matches('0'))
    }
}

impl fmt::Debug for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Purpose: a price is printed in its shortest form and loses nothing on the way.
    #[test]
    fn shortest_form() {
        let cases = [
            ("20.00", "20"),
            ("19.50", "19.5"),
            ("0", "0"),
            ("0.00", "0"),
            ("007.10", "7.1"),
            ("0.1", "0.1"),
            ("0.000001", "0.000001"),
            ("999999999.999999", "999999999.999999"),
            (" 15 ", "15"),
            ("1.0000000000", "1"),
            ("100", "100"),
            ("1234.05", "1234.05"),
        ];
        for (text, expected) in cases {
            assert_eq!(
                Price::parse(text).map(|p| p.to_string()).as_deref(),
                Some(expected),
                "{text}"
            );
        }
    }

    /// Purpose: a broken price is refused, not guessed.
    #[test]
    fn refuses() {
        for text in [
            "",
            " ",
            "abc",
            "1e999",
            "1e2",
            "-1",
            "+1",
            "NaN",
            "inf",
            ".",
            ".5",
            "5.",
            "1.2.3",
            "1,50",
            "€20",
            "20 €",
            "0x10",
            "1_000",
            "1000000000",
            "0.0000001",
            "２０",
        ] {
            assert_eq!(Price::parse(text), None, "{text:?}");
        }
    }

    /// Purpose: the bounds hold exactly, in text and in millionths.
    #[test]
    fn bounds() {
        assert!(Price::parse("999999999").is_some() && Price::parse("1000000000").is_none());
        assert_eq!(Price::from_millionths(-1), None);
        assert_eq!(Price::from_millionths(999_999_999_999_999), Price::parse("999999999.999999"));
        assert_eq!(Price::from_millionths(1_000_000_000_000_000), None);
    }

    proptest! {
        /// Purpose: text → price → text → price is the identity, order included, and the text is a JSON number.
        #[test]
        fn round_trip(a in 0i64..1_000_000_000_000_000, b in 0i64..1_000_000_000_000_000) {
            let price = |m| Price::from_millionths(m).expect("in range");
            prop_assert_eq!(Price::parse(&price(a).to_string()), Some(price(a)));
            prop_assert_eq!(price(a).cmp(&price(b)), a.cmp(&b));
            let read: f64 = serde_json::from_str(&price(a).to_string()).expect("a JSON number");
            prop_assert_eq!((read * 1e6).round() as i64, a);
        }

        /// Purpose: no text makes the reader panic.
        #[test]
        fn total(text in "\\PC{0,30}") {
            let _ = Price::parse(&text);
        }
    }
}
