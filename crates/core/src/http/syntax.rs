//! Which bytes are allowed where (RFC 9110 §5.6, RFC 9112 §2.2), for all decoders of heads and of a body's
//! framing.

const TOKEN: u8 = 1;
const TARGET: u8 = 2;
const VALUE: u8 = 4;
const HOST: u8 = 8;
const LOWER: u8 = 16;
const PATH: u8 = 32;

static CLASS: [u8; 256] = classes();

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
            table[byte] |= if b == b'?' || b == b'\\' { 0 } else { PATH };
        }
        if b == b'\t' || (b >= b' ' && b != 0x7f) {
            table[byte] |= VALUE;
        }
        if alphanumeric || is_one_of(b, b"-._~%!$&'()*+;=") {
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

/// Length of the leading run of bytes of a class. Where eight bytes are of it, they are looked up without a branch.
#[inline]
fn run(bytes: &[u8], class: u8) -> usize {
    let mut rest = bytes;
    while let Some((chunk, behind)) = rest.split_first_chunk::<8>() {
        if chunk.iter().fold(class, |all, &byte| all & CLASS[byte as usize]) == 0 {
            break;
        }
        rest = behind;
    }
    let more = rest.iter().position(|&b| CLASS[b as usize] & class == 0).unwrap_or(rest.len());
    bytes.len() - rest.len() + more
}

/// Whether `name` is a token in lower case, as all names of fields are in HTTP/2 (RFC 9113 §8.2.1).
#[inline]
pub(crate) fn is_lower_token(name: &[u8]) -> bool {
    !name.is_empty() && run(name, LOWER) == name.len()
}

/// Eight bytes as one number, the first byte lowest ("Bit Twiddling Hacks": hasless, haszero).
///
/// Each function returns a number in which the high bit of a byte is set if that byte matches. A borrow may
/// set bits of later bytes, too, so only the lowest set bit counts: [`first`].
mod eight {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;

    #[inline]
    pub(super) const fn below(word: u64, bound: u8) -> u64 {
        word.wrapping_sub(ONES * bound as u64) & !word & HIGHS
    }

    #[inline]
    pub(super) const fn equal(word: u64, byte: u8) -> u64 {
        let zero = word ^ (ONES * byte as u64);
        zero.wrapping_sub(ONES) & !zero & HIGHS
    }

    /// Exact for all bytes.
    #[inline]
    pub(super) const fn not_letter(word: u64) -> u64 {
        let lower = word | (ONES * 0x20);
        let low = lower & !HIGHS; // So that no sum carries into the next byte.
        let from_a = low + ONES * (0x80 - b'a' as u64);
        let beyond_z = low + ONES * (0x7f - b'z' as u64);
        (!from_a | beyond_z | word) & HIGHS
    }

    #[inline]
    pub(super) const fn not_ascii(word: u64) -> u64 {
        word & HIGHS
    }

    /// Control characters, the tab among them: below the space, or 0x7f.
    #[inline]
    pub(super) const fn control(word: u64) -> u64 {
        let del = (word ^ (ONES * 0x7f)).wrapping_sub(ONES);
        (word.wrapping_sub(ONES * b' ' as u64) | del) & !word & HIGHS
    }

    /// All that no path has, and `!` and `"`, which few have: up to `#`, `?`, the backslash, 0x7f, and what is not ASCII.
    #[inline]
    pub(super) const fn path_end(word: u64) -> u64 {
        let low = word.wrapping_sub(ONES * (b'#' + 1) as u64);
        // `?` and 0x7f differ in one bit.
        let mark = ((word | (ONES * 0x40)) ^ (ONES * 0x7f)).wrapping_sub(ONES);
        let backslash = (word ^ (ONES * b'\\' as u64)).wrapping_sub(ONES);
        (low | mark | backslash | word) & HIGHS
    }

    /// The index of the first byte found; 8 if none was.
    #[inline]
    pub(super) const fn first(found: u64) -> usize {
        found.trailing_zeros() as usize / 8
    }
}

/// The index of the first byte that `find` finds, eight bytes at a time; or where fewer than eight are left.
#[inline]
fn skip_eights(bytes: &[u8], find: impl Fn(u64) -> u64) -> usize {
    let mut rest = bytes;
    while let Some((chunk, behind)) = rest.split_first_chunk::<8>() {
        let found = find(u64::from_le_bytes(*chunk));
        if found != 0 {
            return bytes.len() - rest.len() + eight::first(found);
        }
        rest = behind;
    }
    bytes.len() - rest.len()
}

/// Length of the leading run of bytes of a class. `find` finds all others, and perhaps a few of the class.
#[inline(always)]
fn run_by_eights(bytes: &[u8], class: u8, find: impl Fn(u64) -> u64) -> usize {
    let mut rest = bytes;
    while let Some((chunk, behind)) = rest.split_first_chunk::<8>() {
        let found = find(u64::from_le_bytes(*chunk));
        if found == 0 {
            rest = behind;
            continue;
        }
        let at = eight::first(found) % 8;
        if CLASS[chunk[at] as usize] & class == 0 {
            return bytes.len() - rest.len() + at;
        }
        rest = &rest[at + 1..];
    }
    bytes.len() - rest.len() + run(rest, class)
}

/// Length of the leading run of token bytes. Names of fields are letters, mostly.
#[inline]
pub(crate) fn token_run(bytes: &[u8]) -> usize {
    run_by_eights(bytes, TOKEN, eight::not_letter)
}

/// Length of the leading run of bytes that a request target may have.
#[inline]
pub(crate) fn target_run(bytes: &[u8]) -> usize {
    run_by_eights(bytes, TARGET, |word| {
        let number = eight::equal(word, b'#') | eight::equal(word, 0x7f);
        eight::below(word, b'!') | number | eight::not_ascii(word)
    })
}

/// Length of the leading run of bytes that the path of a request target may have: neither `?` nor a backslash.
#[inline]
pub(crate) fn path_run(bytes: &[u8]) -> usize {
    run_by_eights(bytes, PATH, eight::path_end)
}

/// The index of the first `?` or backslash in a target, if there is one.
#[inline]
pub(crate) fn path_end(target: &[u8]) -> Option<usize> {
    let taken = skip_eights(target, |word| eight::equal(word, b'?') | eight::equal(word, b'\\'));
    let rest = target[taken..].iter().position(|&b| matches!(b, b'?' | b'\\'));
    rest.map(|at| taken + at)
}

/// Length of the leading run of field-value bytes.
#[inline]
pub(crate) fn value_run(bytes: &[u8]) -> usize {
    run_by_eights(bytes, VALUE, eight::control)
}

#[inline]
pub(crate) fn is_token_byte(byte: u8) -> bool {
    CLASS[byte as usize] & TOKEN != 0
}

pub(crate) fn is_value_byte(byte: u8) -> bool {
    CLASS[byte as usize] & VALUE != 0
}

/// `uri-host [ ":" port ]` (RFC 9110 §7.2), without the comma that RFC 3986 allows in a name: two merged
/// `Host` fields look like that.
pub(crate) fn is_host(value: &[u8]) -> bool {
    let (name_ok, rest) = match value.strip_prefix(b"[") {
        Some(literal) => {
            let Some(end) = literal.iter().position(|&b| b == b']') else {
                return false;
            };
            let inner = &literal[..end];
            let ok = inner.iter().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.'));
            (ok && !inner.is_empty(), &literal[end + 1..])
        }
        None => {
            let len = run(value, HOST);
            (len > 0, &value[len..])
        }
    };
    let port_ok = match rest {
        [] => true,
        [b':', port @ ..] => port.len() <= 5 && port.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    name_ok && port_ok
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: eight bytes at a time finds the same end as one at a time, for every byte value at every place,
    /// beside every other byte value.
    #[test]
    fn runs_agree_with_the_table() {
        for byte in 0..=255u8 {
            for (at, before) in (0..20).flat_map(|at| (0..=255u8).map(move |before| (at, before))) {
                let mut text = [b'x'; 20];
                text[at] = byte;
                if let Some(place) = at.checked_sub(1) {
                    text[place] = before;
                }
                let by_table = |class| {
                    text.iter().position(|&b| CLASS[b as usize] & class == 0).unwrap_or(text.len())
                };
                for (name, found, class) in [
                    ("value", value_run(&text), VALUE),
                    ("target", target_run(&text), TARGET),
                    ("path", path_run(&text), PATH),
                    ("token", token_run(&text), TOKEN),
                    ("host", run(&text, HOST), HOST),
                ] {
                    assert_eq!(found, by_table(class), "{name}: {before} {byte} at {at}");
                }
                let end = text.iter().position(|b| matches!(b, b'?' | b'\\'));
                assert_eq!(path_end(&text), end, "{before} {byte} at {at}");
            }
        }
    }
}
