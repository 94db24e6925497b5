//! The client's own deadline for its answer.
//!
//! Two fields are in use for this, neither of them standardized: `Request-Timeout`, in seconds from when the
//! request arrives, with decimals if wanted; and `X-Request-Deadline`, in milliseconds since
//! 1970-01-01T00:00:00Z. Both are advice. An invalid one is ignored, like any unknown field: refusing the
//! request for it would help no client. If several are valid, the earliest counts.
//!
//! It does not decide what happens once the deadline has passed.

use core::time::Duration;

use super::head::Head;

/// Names, in lower case.
pub(crate) const REQUEST_TIMEOUT: &[u8] = b"request-timeout";
pub(crate) const REQUEST_DEADLINE: &[u8] = b"x-request-deadline";

/// Whether a field may carry a client's deadline; its name's case does not matter.
pub(super) fn names_deadline(name: &str) -> bool {
    [REQUEST_TIMEOUT, REQUEST_DEADLINE]
        .iter()
        .any(|field| field.eq_ignore_ascii_case(name.as_bytes()))
}

impl Head<'_> {
    /// Whether there is a field that may carry the client's deadline. Known from parsing, so the call costs
    /// nothing.
    #[inline]
    pub fn names_deadline(&self) -> bool {
        self.names_deadline
    }

    /// How long the client waits from when its request had arrived, if it sent a deadline; zero if that had passed then.
    /// `unix_millis` is the wall clock at that time.
    pub fn patience(&self, unix_millis: u64) -> Option<Duration> {
        if !self.names_deadline {
            return None;
        }
        let relative = self.fields.get_all("request-timeout").filter_map(seconds);
        let absolute = self.fields.get_all("x-request-deadline").filter_map(number);
        let left = absolute.map(|at| Duration::from_millis(at.saturating_sub(unix_millis)));
        relative.chain(left).min()
    }
}

/// `1*DIGIT [ "." 1*DIGIT ]` seconds, to the nanosecond.
fn seconds(value: &[u8]) -> Option<Duration> {
    let (whole, fraction) = match value.iter().position(|&byte| byte == b'.') {
        Some(point) => (&value[..point], &value[point + 1..]),
        None => (value, &b"0"[..]),
    };
    let whole = number(whole)?;
    // Checked before the digits are added up: other bytes would overflow.
    if fraction.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = fraction.iter().copied().chain(core::iter::repeat(b'0')).take(9);
    let nanos = digits.fold(0, |sum: u32, digit| sum * 10 + u32::from(digit - b'0'));
    Some(Duration::new(whole, nanos))
}

/// `1*DIGIT`; a number that does not fit becomes the largest one that does.
fn number(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    digits.then(|| value.iter().fold(0, add))
}

#[cfg(test)]
mod tests {
    use super::super::{Method, OwnedHead};
    use super::*;
    use alloc::vec::Vec;

    /// The deadline of a request with these fields at the wall time of 1000 ms.
    fn patience(fields: &[(&str, &str)]) -> Option<Duration> {
        let mut head = OwnedHead::copy(&Head {
            method: Method::Get,
            method_token: b"GET",
            target: b"/",
            path_on: b"/",
            path_len: 1,
            ..Head::default()
        });
        head.set_fields(fields.iter().map(|(name, value)| (*name, value.as_bytes())));
        assert_eq!(head.head().names_deadline(), !fields.is_empty());
        head.head().patience(1000)
    }

    /// Purpose: both fields are understood, whatever their case and precision.
    #[test]
    fn says_how_long() {
        let millis = |millis| Some(Duration::from_millis(millis));
        for (field, expected) in [
            (&[("Request-Timeout", "2")][..], millis(2000)),
            (&[("request-timeout", "0.25")][..], millis(250)),
            (&[("REQUEST-TIMEOUT", "00.0010000000009")][..], millis(1)),
            (&[("Request-Timeout", "0")][..], millis(0)),
            (&[("X-Request-Deadline", "1500")][..], millis(500)),
            (&[("x-request-deadline", "999")][..], millis(0)),
            (
                &[("Request-Timeout", "99999999999999999999")][..],
                Some(Duration::from_secs(u64::MAX)),
            ),
            (&[("Request-Timeout", "9"), ("X-Request-Deadline", "1300")][..], millis(300)),
            (&[("Request-Timeout", "3"), ("Request-Timeout", "2")][..], millis(2000)),
        ] {
            assert_eq!(patience(field), expected, "{field:?}");
        }
    }

    /// Purpose: an invalid field is ignored, and does not hide a valid one.
    #[test]
    fn nonsense_is_ignored() {
        assert_eq!(patience(&[]), None);
        let odd = [
            "1.zzzzzzzzz",
            "1.\x7e\x7e\x7e\x7e\x7e\x7e\x7e\x7e\x7e",
            "0.00000000z",
            "1.999999999 9",
        ];
        let plain = ["", "soon", "-1", "+1", "1.", ".5", "1.5.5", "1,5", "1s", "1e3", "NaN"];
        for value in plain.into_iter().chain(odd) {
            assert_eq!(patience(&[("Request-Timeout", value)]), None, "{value}");
            let beside = [("X-Request-Deadline", value), ("Request-Timeout", "1")];
            assert_eq!(patience(&beside), Some(Duration::from_secs(1)), "{value}");
        }
    }

    /// Purpose: no value, however long or strange, overflows or panics, and the result is that of an
    /// independent reading of the grammar. (Overflow checks are on in tests.)
    #[test]
    fn any_value_is_read_or_ignored() {
        use crate::prng::Prng;
        let alphabet = b"0123456789999999.....z~/:- ";
        let mut random = Prng::from_seed(7);
        for _ in 0..20_000 {
            let length = 1 + random.below(40);
            let pick = |random: &mut Prng| alphabet[random.below(alphabet.len() as u64) as usize];
            let value: Vec<u8> = (0..length).map(|_| pick(&mut random)).collect();
            let text = core::str::from_utf8(&value).expect("the alphabet is ASCII");
            let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
            let is_number = |digits: &str| {
                !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
            };
            let expected = (is_number(whole) && is_number(fraction)).then(|| {
                let nanos = alloc::format!("{fraction:0<9}")[..9].parse().expect("nine digits");
                Duration::new(whole.parse().unwrap_or(u64::MAX), nanos)
            });
            assert_eq!(seconds(&value), expected, "{text:?}");
        }
    }
}
