//! Parses the query string of `GET /search` into a [`Range`].
//!
//! Both parameters are optional and bound the answer inclusively: an event must start at or after
//! `starts_at` and end at or before `ends_at`. Their forms, and how an offset compares with an
//! event's local time, are [`crate::civil::parse_bound`]'s. The decoding is that of HTML forms:
//! `%XX` escapes, and `+` for a space. A parameter with another name is an error (it may be a misspelt one), and so is
//! one that is empty, repeated or unreadable, because an answer to another question is worse than
//! none. A range that ends before it starts is valid, and its answer is empty.

use std::borrow::Cow;
use std::fmt;

use jiff::civil::DateTime;

use crate::civil::{Edge, parse_bound};

/// How many characters of a refused value its message repeats.
pub const VALUE_SHOWN_MAX: usize = 64;

/// Which events to answer. Equal ranges have equal answers, so this is what to cache by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Range {
    /// The earliest start, inclusive; `None` for no bound.
    pub from: Option<DateTime>,
    /// The latest end, inclusive; `None` for no bound.
    pub to: Option<DateTime>,
}

impl Range {
    /// Every event.
    pub const ALL: Range = Range { from: None, to: None };

    /// Reads what follows the `?` of a request's target (empty when there is none).
    pub fn parse(query: &str) -> Result<Range, InvalidParameter> {
        let mut range = Range::ALL;
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (parameter, edge, bound) = match decode(name).as_deref() {
                Some("starts_at") => ("starts_at", Edge::First, &mut range.from),
                Some("ends_at") => ("ends_at", Edge::Last, &mut range.to),
                Some("") if value.is_empty() => continue,
                _ => {
                    let (parameter, value) = (Cow::Owned(shown(name)), shown(value));
                    return Err(InvalidParameter { parameter, value, fault: Fault::Unknown });
                }
            };
            let refuse = |fault| {
                let (parameter, value) = (Cow::Borrowed(parameter), shown(value));
                InvalidParameter { parameter, value, fault }
            };
            if bound.is_some() {
                return Err(refuse(Fault::Repeated));
            }
            let text = decode(value).ok_or_else(|| refuse(Fault::Encoding))?;
            if text.is_empty() {
                return Err(refuse(Fault::Empty));
            }
            *bound = Some(parse_bound(&text, edge).ok_or_else(|| refuse(Fault::NotADate))?);
        }
        Ok(range)
    }
}

/// Why a query is refused. Its display form is the message for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidParameter {
    /// Its name: `starts_at`, `ends_at`, or one that is not known, as it was sent.
    pub parameter: Cow<'static, str>,
    /// The value as it was sent, at most [`VALUE_SHOWN_MAX`] characters of it.
    pub value: String,
    fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Empty,
    Repeated,
    Encoding,
    NotADate,
    Unknown,
}

impl fmt::Display for InvalidParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InvalidParameter { parameter, value, fault } = self;
        let example = if parameter == "starts_at" { "2024-06-01" } else { "2024-06-30" };
        match fault {
            Fault::Unknown => {
                return write!(
                    f,
                    "{parameter} is not a parameter of a search; use starts_at or ends_at"
                );
            }
            Fault::Empty => write!(f, "{parameter} is empty: give it a date or leave it out")?,
            Fault::Repeated => write!(f, "{parameter} is given more than once: give it once")?,
            Fault::Encoding => write!(f, "{parameter}={value} is not percent-encoded UTF-8")?,
            Fault::NotADate => write!(
                f,
                "{parameter} must be a valid RFC 3339 date-time, a local date-time or a date, not '{value}'"
            )?,
        }
        write!(f, "; for example {parameter}={example}T21:00:00Z or {parameter}={example}")
    }
}

impl std::error::Error for InvalidParameter {}

fn shown(value: &str) -> String {
    let mut shown: String = value.chars().take(VALUE_SHOWN_MAX).collect();
    if shown.len() < value.len() {
        shown.push('…');
    }
    shown
}

/// Undoes form encoding; `None` when an escape is broken or the result is not UTF-8.
fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Some(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut nibble = || char::from(bytes.next()?).to_digit(16);
                (nibble()? * 16 + nibble()?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::datetime;
    use proptest::prelude::*;

    fn message(query: &str) -> String {
        Range::parse(query).expect_err(query).to_string()
    }

    /// Purpose: nothing asked means every event.
    #[test]
    fn absent_means_all() {
        for query in ["", "&", "&&", "="] {
            assert_eq!(Range::parse(query), Ok(Range::ALL), "{query:?}");
        }
    }

    /// Purpose: a misspelt parameter is not taken for a search without bounds.
    #[test]
    fn unknown_parameters_are_refused() {
        assert_eq!(
            message("start_at=2024-06-01"),
            "start_at is not a parameter of a search; use starts_at or ends_at"
        );
        for query in [
            "page=2",
            "Starts_at=x",
            "starts_at2=x",
            "x=%zz",
            "%zz=1",
            "=1",
            "starts_at=2024-06-01&x",
        ] {
            assert!(message(query).ends_with("use starts_at or ends_at"), "{query}");
        }
    }

    /// Purpose: both bounds are read, in any order, with any encoding of names and values.
    #[test]
    fn bounds_are_read() {
        let expected = Range {
            from: Some(datetime(2024, 6, 1, 19, 0, 0, 0)),
            to: Some(datetime(2024, 6, 30, 23, 59, 59, 999_999_999)),
        };
        for query in [
            "starts_at=2024-06-01T19:00:00Z&ends_at=2024-06-30",
            "ends_at=2024-06-30&&starts_at=2024-06-01T19:00:00",
            "starts_at=2024-06-01T21%3A00%3A00%2B02:00&ends_at=2024%2d06%2D30",
            "starts_at=2024-06-01T21:00:00+02:00&ends_at=2024-06-30",
            "%73tarts_at=2024-06-01+19:00:00&ends%5Fat=2024-06-30&",
        ] {
            assert_eq!(Range::parse(query), Ok(expected), "{query}");
        }
    }

    /// Purpose: every way to be wrong names the parameter, and shows the value and a right one.
    #[test]
    fn errors_teach() {
        assert_eq!(
            message("starts_at=yesterday&ends_at=tomorrow"),
            "starts_at must be a valid RFC 3339 date-time, a local date-time or a date, not 'yesterday'; \
             for example starts_at=2024-06-01T21:00:00Z or starts_at=2024-06-01"
        );
        assert!(message("ends_at=2024-02-30").starts_with("ends_at must be a valid RFC 3339"));
        for query in ["ends_at=", "ends_at", "starts_at=2024-06-01&ends_at="] {
            assert!(message(query).starts_with("ends_at is empty"), "{query}");
        }
        assert!(
            message("starts_at=2024-06-01&starts_at=2024-06-01")
                .starts_with("starts_at is given more than once")
        );
        for query in
            ["starts_at=%", "starts_at=%2", "starts_at=%zz", "starts_at=%+1", "starts_at=%ff"]
        {
            assert!(
                message(query).contains("starts_at=%") && message(query).contains("percent"),
                "{query}"
            );
        }
    }

    /// Purpose: a huge value is not sent back whole.
    #[test]
    fn values_are_cut() {
        let error =
            Range::parse(&format!("starts_at={}", "ñ".repeat(5000))).expect_err("not a date");
        assert_eq!(error.value.chars().count(), VALUE_SHOWN_MAX + 1);
        let error = Range::parse(&format!("starts_at={}", "x".repeat(VALUE_SHOWN_MAX)))
            .expect_err("not a date");
        assert_eq!(error.value.len(), VALUE_SHOWN_MAX);
    }

    /// Purpose: a range that ends before it starts is answered, not refused.
    #[test]
    fn inverted_is_legal() {
        assert!(Range::parse("starts_at=2024-06-30&ends_at=2024-06-01").is_ok());
    }

    proptest! {
        /// Purpose: no query makes the reader panic, and every error names its parameter.
        #[test]
        fn total(noise in "\\PC{0,60}", value in "[0-9T:%+Zx&=-]{0,30}") {
            for query in [noise, format!("starts_at={value}"), format!("ends_at={value}&starts_at={value}")] {
                if let Err(error) = Range::parse(&query) {
                    prop_assert!(error.to_string().starts_with(&*error.parameter));
                }
            }
        }
    }
}
