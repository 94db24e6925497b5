//! Does a `Range` ask for the bytes that RFC 9110 §14 says?
//!
//! The first byte of the input is the size of the content, the rest is the field. A byte-by-byte model says which bytes each
//! range names; what is to be sent must have exactly those, none twice, and no part may be empty or lead out of the content.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/highwater/src/content/range.rs"]
#[allow(dead_code, reason = "the server uses all of it")]
mod range;

use range::{Asked, RANGES_MAX, parse};

fuzz_target!(|input: &[u8]| {
    let Some((size, value)) = input.split_first() else { return };
    let size = u64::from(*size);
    let expected = model(value, size);
    match parse(value, size) {
        Asked::Whole => assert_eq!(expected, None),
        Asked::Nothing => assert!(expected.is_some_and(|bytes| !bytes.contains(&true))),
        Asked::Parts(parts) => {
            assert!((1..=RANGES_MAX).contains(&parts.len()));
            let mut sent = vec![false; size as usize];
            for part in parts {
                assert!(part.start < part.end && part.end <= size);
                for byte in part {
                    assert!(!std::mem::replace(&mut sent[byte as usize], true), "a byte is sent twice");
                }
            }
            assert_eq!(expected, Some(sent));
        }
    }
    // No size is so large that it breaks arithmetic.
    for size in [0, u64::MAX - 1, u64::MAX] {
        parse(value, size);
    }
});

/// The bytes that are named; `None` if the field is to be ignored.
fn model(value: &[u8], size: u64) -> Option<Vec<bool>> {
    let text = std::str::from_utf8(value).ok()?;
    let at = text.find('=')?;
    if !text[..at].eq_ignore_ascii_case("bytes") {
        return None;
    }
    let members = text[at + 1..].split(',').map(str::trim_ascii);
    let members: Vec<&str> = members.filter(|member| !member.is_empty()).collect();
    let mut named = vec![false; size as usize];
    for member in &members {
        let at = member.find('-')?;
        let digits = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            // What is larger than any file is the largest: of two such numbers neither is less.
            is_number.then(|| u128::from(text.parse::<u64>().unwrap_or(u64::MAX)))
        };
        let (first, last) = (&member[..at], &member[at + 1..]);
        let bounds = match (first, last) {
            ("", "") => return None,
            ("", last) => (u128::from(size).saturating_sub(digits(last)?), u128::from(size)),
            (first, "") => (digits(first)?, u128::from(size)),
            (first, last) if digits(last)? < digits(first)? => return None,
            (first, last) => (digits(first)?, digits(last)?.saturating_add(1)),
        };
        for (byte, named) in named.iter_mut().enumerate() {
            *named |= (bounds.0..bounds.1).contains(&(byte as u128));
        }
    }
    (1..=RANGES_MAX).contains(&members.len()).then_some(named)
}
