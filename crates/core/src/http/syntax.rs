//! Which bytes are allowed where (RFC 9110 §5.6, RFC 9112 §2.2), for all decoders of heads and of a body's
//! framing. (`runs.rs`: how many in a row are.)

pub(super) const TOKEN: u8 = 1;
pub(super) const TARGET: u8 = 2;
pub(super) const VALUE: u8 = 4;
pub(super) const HOST: u8 = 8;
pub(super) const LOWER: u8 = 16;
pub(super) const PATH: u8 = 32;
/// All but the two that no path has: `?`, and the backslash.
pub(super) const UNMARKED: u8 = 64;

/// By byte, the classes that it belongs to.
pub(super) static CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        let alphanumeric = b.is_ascii_alphanumeric();
        if alphanumeric || is_one_of(b, b"!#$%&'*+-.^_`|~") {
            table[byte] |= TOKEN;
            table[byte] |= if b.is_ascii_uppercase() { 0 } else { LOWER };
        }
        if b > b' ' && b < 0x7f && b != b'#' {
            table[byte] |= TARGET;
            table[byte] |= if is_one_of(b, b"?\\") { 0 } else { PATH };
        }
        table[byte] |= if is_one_of(b, b"?\\") { 0 } else { UNMARKED };
        if b == b'\t' || (b >= b' ' && b != 0x7f) {
            table[byte] |= VALUE;
        }
        if alphanumeric || is_one_of(b, b"-._~!$&'()*+;=") {
            table[byte] |= HOST;
        }
        byte += 1;
    }
    table
}

const fn is_one_of(byte: u8, set: &[u8]) -> bool {
    let mut i = 0;
    while i < set.len() {
        if set[i] == byte {
            return true;
        }
        i += 1;
    }
    false
}

#[inline]
pub(crate) fn is_token_byte(byte: u8) -> bool {
    CLASS[byte as usize] & TOKEN != 0
}

pub(crate) fn is_value_byte(byte: u8) -> bool {
    CLASS[byte as usize] & VALUE != 0
}
