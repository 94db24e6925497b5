//! What does a server answer to the key of a handshake (RFC 6455 §4.2.2)?
//!
//! The base64 form of a SHA-1 hash, which proves that the server speaks WebSocket and nothing else: there is no secret in
//! it. Twenty lines of a hash that nothing else here needs are less than a dependency of the core.

/// What a server appends to a key before it hashes it (RFC 6455 §1.3).
const GUID: &[u8; 36] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Characters of a key: sixteen bytes in base64.
const KEY_LEN: usize = 24;

/// The value of `Sec-WebSocket-Accept` for the value of `Sec-WebSocket-Key`; `None` if that is not a key.
///
/// ```
/// use highwater_core::websocket::accept;
///
/// let value = accept(b"dGhlIHNhbXBsZSBub25jZQ==").unwrap();
/// assert_eq!(&value, b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
/// assert_eq!(accept(b"dGhlIHNhbXBsZQ=="), None);
/// ```
pub fn accept(key: &[u8]) -> Option<[u8; 28]> {
    if !is_key(key) {
        return None;
    }
    // Together with its padding, the text takes exactly two blocks.
    let mut text = [0; 128];
    let len = KEY_LEN + GUID.len();
    text[..KEY_LEN].copy_from_slice(key);
    text[KEY_LEN..len].copy_from_slice(GUID);
    text[len] = 0x80;
    text[120..].copy_from_slice(&(len as u64 * 8).to_be_bytes());
    let (blocks, _) = text.as_chunks::<64>();
    let start = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    Some(base64(blocks.iter().fold(start, compress)))
}

/// Whether this is a key: sixteen bytes in base64 (RFC 6455 §4.1).
pub fn is_key(key: &[u8]) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    key.len() == KEY_LEN && key.ends_with(b"==") && key[..KEY_LEN - 2].iter().all(is_digit)
}

/// One block of SHA-1 (RFC 3174 §6.1).
fn compress(state: [u32; 5], block: &[u8; 64]) -> [u32; 5] {
    let mut words = [0_u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    for at in 16..80 {
        let mixed = words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16];
        words[at] = mixed.rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = state;
    for (at, word) in words.iter().enumerate() {
        let (mixed, constant) = match at {
            0..20 => ((b & c) | (!b & d), 0x5a82_7999_u32),
            20..40 => (b ^ c ^ d, 0x6ed9_eba1),
            40..60 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6),
        };
        let first = a.rotate_left(5).wrapping_add(mixed).wrapping_add(e);
        let first = first.wrapping_add(constant).wrapping_add(*word);
        (a, b, c, d, e) = (first, a, b.rotate_left(30), c, d);
    }
    let added = [a, b, c, d, e];
    core::array::from_fn(|at| state[at].wrapping_add(added[at]))
}

/// Twenty bytes in base64 (RFC 4648 §4).
fn base64(words: [u32; 5]) -> [u8; 28] {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let byte = |at: usize| words.get(at / 4).map_or(0, |word| word.to_be_bytes()[at % 4]);
    let mut text = core::array::from_fn(|at| {
        let first = at / 4 * 3;
        let group = [0, byte(first), byte(first + 1), byte(first + 2)];
        let shift = 18 - 6 * (at % 4);
        DIGITS[(u32::from_be_bytes(group) >> shift) as usize & 63]
    });
    text[27] = b'=';
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the example of RFC 6455 §1.3, and a second one computed by another implementation (Python's hashlib).
    #[test]
    fn keys_of_others() {
        let text = |key: &[u8]| {
            accept(key).map(|text| std::string::String::from_utf8(text.to_vec()).unwrap())
        };
        let expected = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
        assert_eq!(text(b"dGhlIHNhbXBsZSBub25jZQ==").as_deref(), Some(expected));
        let expected = "ICX+Yqv66kxgM0FcWaLWlFLwTAI=";
        assert_eq!(text(b"AAAAAAAAAAAAAAAAAAAAAA==").as_deref(), Some(expected));
    }

    /// Purpose: only sixteen bytes in base64 are a key; a client that sends anything else is not one.
    #[test]
    fn what_is_not_a_key() {
        for key in [
            &b""[..],
            b"dGhlIHNhbXBsZSBub25jZQ=",
            b"dGhlIHNhbXBsZSBub25jZQ===",
            b"dGhlIHNhbXBsZSBub25jZQAA",
            b"dGhlIHNhbXBsZSBub25jZ!==",
            b"dGhlIHNhbXBsZSBub25jZ===",
        ] {
            assert_eq!(accept(key), None, "{}", key.escape_ascii());
        }
    }
}
