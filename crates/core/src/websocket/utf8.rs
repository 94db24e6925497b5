//! Is text UTF-8, as far as it has come?

/// Whether a whole text is UTF-8. Most messages are short, and their text is ASCII: then two numbers say so.
#[inline]
pub(super) fn is_utf8(text: &[u8]) -> bool {
    const NOT_ASCII: u64 = u64::from_le_bytes([0x80; 8]);
    let is_ascii = match (text.first_chunk(), text.last_chunk()) {
        (Some(first), Some(last)) if text.len() <= 16 => {
            (u64::from_le_bytes(*first) | u64::from_le_bytes(*last)) & NOT_ASCII == 0
        }
        _ => false,
    };
    is_ascii || core::str::from_utf8(text).is_ok()
}

/// The check of one message's text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Utf8 {
    /// The beginning of a character that is not whole yet.
    partial: [u8; 4],
    len: usize,
}

impl Utf8 {
    /// More of it. False: no text can begin like that.
    #[inline]
    pub(super) fn add(&mut self, mut bytes: &[u8]) -> bool {
        while self.len > 0 {
            let Some((byte, rest)) = bytes.split_first() else { return true };
            self.partial[self.len] = *byte;
            self.len += 1;
            bytes = rest;
            match core::str::from_utf8(&self.partial[..self.len]) {
                Ok(_) => self.len = 0,
                Err(error) if error.error_len().is_some() => return false,
                Err(_) => {}
            }
        }
        let Err(error) = core::str::from_utf8(bytes) else { return true };
        let rest = &bytes[error.valid_up_to()..];
        if error.error_len().is_some() {
            return false;
        }
        self.partial[..rest.len()].copy_from_slice(rest);
        self.len = rest.len();
        true
    }

    /// Whether it may end here. The next text can be checked afterwards.
    pub(super) fn end(&mut self) -> bool {
        core::mem::take(&mut self.len) == 0
    }
}

#[cfg(test)]
mod tests {
    use std::string::String;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// Whether `parts` are text, and how many of them were taken.
    fn check(parts: &[&[u8]]) -> (bool, usize) {
        let mut utf8 = Utf8::default();
        let taken = parts.iter().take_while(|part| utf8.add(part)).count();
        (taken == parts.len() && utf8.end(), taken)
    }

    /// Purpose: wrong bytes are found with the first of them, also in the middle of a character (Autobahn's 6.4).
    #[test]
    fn wrong_bytes() {
        for (bytes, at) in [
            (&[0xce, 0xba, 0xf4, 0x90][..], 3), // above U+10FFFF
            (&[b'a', 0x80], 1),                 // begins with a later byte
            (&[0xed, 0xa0], 1),                 // a surrogate
            (&[0xc0], 0),                       // too long a form
            (&[0xe2, 0x82, b'a'], 2),           // cut short
        ] {
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(check(&single), (false, at), "{bytes:02x?}");
            assert!(!check(&[bytes]).0);
        }
        assert_eq!(check(&[&[0xe2, 0x82]]), (false, 1), "it ends within a character");
    }

    proptest! {
        /// Purpose: the answer is that of the standard library, wherever the text is split.
        #[test]
        fn splits(bytes in prop_oneof![any::<String>().prop_map(String::into_bytes), proptest::collection::vec(any::<u8>(), 0..20)]) {
            let expected = core::str::from_utf8(&bytes).is_ok();
            for at in 0..=bytes.len() {
                prop_assert_eq!(check(&[&bytes[..at], &bytes[at..]]).0, expected);
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(check(&single).0, expected);
            prop_assert_eq!(is_utf8(&bytes), expected);
        }
    }
}
