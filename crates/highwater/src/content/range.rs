//! Which bytes does a client request? (`Range`, RFC 9110 §14)

use std::ops::Range;

/// A request for more ranges than this gets the whole content: browsers and download programs ask for fewer, and each
/// costs a part with a head (section 17.15).
pub(crate) const RANGES_MAX: usize = 16;

/// What to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Everything, with 200.
    Whole,
    /// These ranges, none of which is empty, with 206. There is at least one, and no two overlap.
    Parts(Vec<Range<u64>>),
    /// 416: none of them exists.
    Nothing,
}

/// The ranges that a value of `Range` asks for, of content of `size` bytes. Those that overlap are joined.
pub(crate) fn parse(value: &[u8], size: u64) -> Asked {
    let Some(set) = unit(value) else { return Asked::Whole };
    let mut ranges = Vec::new();
    let mut count = 0;
    for spec in set.split(',').map(str::trim_ascii).filter(|spec| !spec.is_empty()) {
        count += 1;
        let Some(range) = one(spec, size) else { return Asked::Whole };
        if count > RANGES_MAX {
            return Asked::Whole;
        }
        ranges.extend(range);
    }
    match (count, ranges.is_empty()) {
        (0, _) => Asked::Whole,
        (_, true) => Asked::Nothing,
        _ => Asked::Parts(join(ranges)),
    }
}

fn unit(value: &[u8]) -> Option<&str> {
    let (unit, set) = std::str::from_utf8(value).ok()?.split_once('=')?;
    unit.eq_ignore_ascii_case("bytes").then_some(set)
}

/// One range: `None` if it is malformed, `Some(None)` if no byte is in it.
fn one(spec: &str, size: u64) -> Option<Option<Range<u64>>> {
    let (first, last) = spec.split_once('-')?;
    let range = match (first.is_empty(), last.is_empty()) {
        (true, true) => return None,
        (true, false) => size.saturating_sub(number(last)?)..size,
        (false, true) => number(first)?..size,
        (false, false) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            first..last.saturating_add(1).min(size)
        }
    };
    Some((range.start < range.end).then_some(range))
}

/// A number; what is larger than any file is the largest.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

/// The ranges as they were asked for, unless some overlap or touch: then sorted and joined (section 15.3.7.2).
fn join(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut sorted = ranges.clone();
    sorted.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    if joined.len() == ranges.len() { ranges } else { joined }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Asked::*;
    use super::*;

    /// Purpose: the examples of RFC 9110 §14.1.2 and what surrounds them: bounds, joins, malformed sets, the most ranges.
    #[test]
    fn sets() {
        let parts = |ranges: &[(u64, u64)]| Parts(ranges.iter().map(|(a, b)| *a..*b).collect());
        for (value, asked) in [
            ("bytes=0-499", parts(&[(0, 500)])),
            ("bytes=500-999", parts(&[(500, 1000)])),
            ("bytes=-500", parts(&[(9500, 10_000)])),
            ("bytes=9500-", parts(&[(9500, 10_000)])),
            ("bytes=0-0,-1", parts(&[(0, 1), (9999, 10_000)])),
            ("bytes= 0-999, 4500-5499, -1000", parts(&[(0, 1000), (4500, 5500), (9000, 10_000)])),
            ("bytes=500-600,601-999", parts(&[(500, 1000)])),
            ("bytes=500-700,601-999", parts(&[(500, 1000)])),
            ("bytes=-1,0-0", parts(&[(9999, 10_000), (0, 1)])), // in the order asked for
            ("BYTES=1-1", parts(&[(1, 2)])),
            ("bytes=0-99999", parts(&[(0, 10_000)])),
            ("bytes=-99999", parts(&[(0, 10_000)])),
            ("bytes=0-18446744073709551615", parts(&[(0, 10_000)])),
            ("bytes=9999-99999999999999999999999", parts(&[(9999, 10_000)])),
            ("bytes=10000-", Nothing),
            ("bytes=10000-,-0", Nothing),
            ("bytes=10000-,5-5", parts(&[(5, 6)])),
            ("bytes=", Whole),
            ("bytes=,", Whole),
            ("bytes=a-b", Whole),
            ("bytes=5-4", Whole),
            ("bytes=-", Whole),
            ("bytes=--1", Whole),
            ("bytes=0x1-2", Whole),
            ("bytes=0-1;2", Whole),
            ("items=0-1", Whole),
            ("bytes", Whole),
        ] {
            assert_eq!(parse(value.as_bytes(), 10_000), asked, "{value}");
        }
        assert_eq!(parse(b"bytes=0-", 0), Nothing);
        assert_eq!(parse(b"bytes=\xff", 1), Whole);
        let many = |count: usize| {
            let specs: Vec<_> = (0..count).map(|n| format!("{}-{}", 10 * n, 10 * n)).collect();
            parse(format!("bytes={}", specs.join(",")).as_bytes(), 10_000)
        };
        assert!(matches!(many(RANGES_MAX), Parts(parts) if parts.len() == RANGES_MAX));
        assert_eq!(many(RANGES_MAX + 1), Whole);
    }

    proptest! {
        /// Purpose: whatever is asked for, no part is empty, outside of the content, or sent twice.
        #[test]
        fn parts_are_parts(value in "bytes=([0-9]{0,3}-[0-9]{0,3},? ?){0,20}", size in 0u64..300) {
            if let Parts(parts) = parse(value.as_bytes(), size) {
                prop_assert!((1..=RANGES_MAX).contains(&parts.len()));
                prop_assert!(parts.iter().all(|part| part.start < part.end && part.end <= size));
                let sent: u64 = parts.iter().map(|part| part.end - part.start).sum();
                prop_assert!(sent <= size);
            }
        }

        /// Purpose: no bytes make it panic.
        #[test]
        fn any_bytes(value in proptest::collection::vec(any::<u8>(), 0..60), size: u64) {
            parse(&value, size);
        }
    }
}
