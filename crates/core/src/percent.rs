//! Percent-decoding (RFC 3986 §2.1). It is strict: malformed text is an error, never a guess.
//!
//! Decode each piece *after* the path was split and matched. Decoding first would turn `%2F` into a
//! separator. A `+` stays a `+`: that it means a space is a rule of HTML forms.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Why a text cannot be decoded. The fault is the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The `%` at this byte is not followed by two hexadecimal digits.
    BadEscape(usize),
    /// The decoded bytes are not UTF-8.
    NotUtf8,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::BadEscape(at) => {
                write!(f, "the `%` at byte {at} is not followed by two hexadecimal digits")
            }
            DecodeError::NotUtf8 => f.write_str("the decoded bytes are not UTF-8"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// `text` with every `%XX` replaced by the byte it stands for. Borrows if there is none.
///
/// # Errors
///
/// If a `%` begins no escape, or the result is not UTF-8. The result may hold any character,
/// including `/` and NUL: check it before you use it as a file name.
pub fn percent_decode(text: &str) -> Result<Cow<'_, str>, DecodeError> {
    let bytes = text.as_bytes();
    // The texts are short: a loop costs less than a search that prepares for long ones.
    let Some(first) = bytes.iter().position(|&byte| byte == b'%') else {
        return Ok(Cow::Borrowed(text));
    };
    let mut decoded = Vec::with_capacity(bytes.len());
    decoded.extend_from_slice(&bytes[..first]);
    let mut at = first;
    while let Some(&byte) = bytes.get(at) {
        if byte == b'%' {
            let escape = bytes.get(at + 1).zip(bytes.get(at + 2));
            let value = escape.and_then(|(&high, &low)| Some(hex(high)? << 4 | hex(low)?));
            decoded.push(value.ok_or(DecodeError::BadEscape(at))?);
            at += 3;
        } else {
            decoded.push(byte);
            at += 1;
        }
    }
    String::from_utf8(decoded).map(Cow::Owned).map_err(|_| DecodeError::NotUtf8)
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Purpose: escapes of every kind, beside characters that are not escaped.
    #[test]
    fn well_formed() {
        assert_eq!(percent_decode("").as_deref(), Ok(""));
        assert_eq!(percent_decode("%41").as_deref(), Ok("A"));
        assert_eq!(percent_decode("a%20b+c").as_deref(), Ok("a b+c"));
        assert_eq!(percent_decode("caf%c3%A9/é").as_deref(), Ok("café/é"));
        assert_eq!(percent_decode("%2F%00%25").as_deref(), Ok("/\0%"));
        // Decoded once, not until nothing is left to decode.
        assert_eq!(percent_decode("%2541").as_deref(), Ok("%41"));
    }

    /// Purpose: the usual text, without escapes, is not copied.
    #[test]
    fn borrows_if_it_can() {
        assert!(matches!(percent_decode("12345"), Ok(Cow::Borrowed("12345"))));
    }

    /// Purpose: malformed text is refused, with the position of the error.
    #[test]
    fn malformed() {
        assert_eq!(percent_decode("%"), Err(DecodeError::BadEscape(0)));
        assert_eq!(percent_decode("ab%4"), Err(DecodeError::BadEscape(2)));
        assert_eq!(percent_decode("%41%4g"), Err(DecodeError::BadEscape(3)));
        assert_eq!(percent_decode("%+1"), Err(DecodeError::BadEscape(0)));
        assert_eq!(percent_decode("%é"), Err(DecodeError::BadEscape(0)));
        assert_eq!(percent_decode("%ff"), Err(DecodeError::NotUtf8));
        assert_eq!(percent_decode("%c3"), Err(DecodeError::NotUtf8));
        // An overlong `/` (RFC 3629 §3) is how path checks used to be fooled.
        assert_eq!(percent_decode("%c0%af"), Err(DecodeError::NotUtf8));
    }

    proptest! {
        /// Purpose: encoded text decodes to the original, whichever bytes the encoder escaped.
        #[test]
        fn undoes_encoding(text in any::<String>(), escaped in any::<[bool; 7]>()) {
            let mut encoded = String::new();
            for (place, character) in text.chars().enumerate() {
                if character == '%' || escaped[place % 7] {
                    for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                        encoded.push_str(&std::format!("%{byte:02X}"));
                    }
                } else {
                    encoded.push(character);
                }
            }
            let decoded = percent_decode(&encoded);
            prop_assert_eq!(decoded.as_deref(), Ok(text.as_str()));
        }

        /// Purpose: no text makes it panic.
        #[test]
        fn never_panics(text in "(%|[0-9a-g]|é){0,20}") {
            let _ = percent_decode(&text);
        }
    }
}
