//! The weight of a preference.

/// A weight (RFC 9110 §12.4.2) in thousandths: 0 to 1, with at most three digits behind the point.
pub(crate) fn thousandths(text: &str) -> Option<u16> {
    let (whole, digits) = text.split_once('.').unwrap_or((text, ""));
    let is_valid = matches!(whole, "0" | "1")
        && digits.len() <= 3
        && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_valid {
        return None;
    }
    let fraction = digits.bytes().chain(std::iter::repeat(b'0')).take(3);
    let fraction = fraction.fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    let weight = u16::from(whole == "1") * 1000 + fraction;
    (weight <= 1000).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a weight is what the grammar says, and nothing else.
    #[test]
    fn weights() {
        for (text, weight) in
            [("0", 0), ("1", 1000), ("1.000", 1000), ("0.5", 500), ("0.", 0), ("0.05", 50)]
        {
            assert_eq!(thousandths(text), Some(weight), "{text}");
        }
        for text in ["", "2", "1.001", "0.1234", "-1", "0.x", "é", "01"] {
            assert_eq!(thousandths(text), None, "{text}");
        }
    }
}
