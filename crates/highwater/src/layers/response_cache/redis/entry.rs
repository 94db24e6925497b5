//! A kept answer as the bytes that Redis holds.
//!
//! ```text
//!  keep_ms u64 │ fresh_ms u64 │ fields u16 │ (name u16, value u16, their bytes) × fields │ content u32 │ content
//! ```
//!
//! A target that was changed has only `keep_ms` for a while. Integers are big-endian. Anything else is not an entry, such as a
//! truncated value, or one of another program.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderName, HeaderValue};

use super::super::kept::{CONTENT_BYTES_MAX, Kept, Times};

/// The version of this format, in keys.
pub(super) const FORMAT: u32 = 2;

/// The largest fields of an answer that is kept, in bytes.
const FIELDS_BYTES_MAX: usize = 64 << 10;

/// The largest entry. More is never asked for.
pub(super) const ENTRY_BYTES_MAX: usize = CONTENT_BYTES_MAX + FIELDS_BYTES_MAX + 22;

/// `kept` as bytes, of an entry that is removed after `keep_ms`; `None` if its fields are too large.
pub(super) fn encode(kept: &Kept, keep_ms: u64) -> Option<Vec<u8>> {
    let mut bytes = BytesMut::with_capacity(kept.content.len() + 512);
    bytes.put_u64(keep_ms);
    bytes.put_u64(u64::try_from(kept.times.lifetime.as_millis()).unwrap_or(u64::MAX).max(1));
    bytes.put_u16(kept.fields.len().try_into().ok()?);
    for (name, value) in &kept.fields {
        bytes.put_u16(name.as_str().len().try_into().ok()?);
        bytes.put_u16(value.len().try_into().ok()?);
        bytes.put_slice(name.as_str().as_bytes());
        bytes.put_slice(value.as_bytes());
    }
    if bytes.len() > FIELDS_BYTES_MAX || kept.content.len() > CONTENT_BYTES_MAX {
        return None;
    }
    bytes.put_u32(kept.content.len().try_into().ok()?);
    bytes.put_slice(&kept.content);
    Some(bytes.into())
}

/// The answer, and after how many milliseconds its entry is removed.
pub(super) fn decode(mut bytes: Bytes) -> Option<(Kept, u64)> {
    let (keep_ms, fresh_ms) = (bytes.try_get_u64().ok()?, bytes.try_get_u64().ok()?);
    let times = Times {
        lifetime: Duration::from_millis(fresh_ms),
        stale: Duration::from_millis(keep_ms.saturating_sub(fresh_ms)),
    };
    let count = bytes.try_get_u16().ok()?;
    let mut fields = Vec::new();
    for _ in 0..count {
        let (name, value) = (bytes.try_get_u16().ok()?, bytes.try_get_u16().ok()?);
        let name = HeaderName::from_bytes(&take(&mut bytes, name.into())?).ok()?;
        let value = HeaderValue::from_maybe_shared(take(&mut bytes, value.into())?).ok()?;
        fields.push((name, value));
    }
    let length = bytes.try_get_u32().ok()?;
    let is_whole = bytes.len() == usize::try_from(length).ok()?;
    is_whole.then_some((Kept { times, fields, content: bytes }, keep_ms))
}

fn take(bytes: &mut Bytes, count: usize) -> Option<Bytes> {
    (count <= bytes.len()).then(|| bytes.split_to(count))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMES: Times =
        Times { lifetime: Duration::from_secs(60), stale: Duration::from_secs(30) };

    fn kept(fields: &[(&'static str, &'static str)], content: &'static [u8]) -> Kept {
        let field = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let fields = fields.iter().map(field).collect();
        Kept { times: TIMES, fields, content: Bytes::from_static(content) }
    }

    /// Purpose: an answer comes back as it was, and no part of its bytes is taken for an answer.
    #[test]
    fn whole_or_nothing() {
        let kept =
            kept(&[("content-type", "text/plain"), ("etag", "\"1\""), ("link", "")], b"Hello");
        let bytes = Bytes::from(encode(&kept, 90_000).expect("it is small"));
        assert_eq!(decode(bytes.clone()), Some((kept, 90_000)));
        for size in 0..bytes.len() {
            assert_eq!(decode(bytes.slice(..size)), None, "{size} bytes");
        }
        assert_eq!(decode([&bytes[..], b"!"].concat().into()), None);
    }

    /// Purpose: what is too large is not kept, at the limit and beyond it, and no entry is larger than what is asked for.
    #[test]
    fn limits() {
        let of = |size: usize| {
            let content = vec![0; size].into();
            Kept { times: TIMES, fields: Vec::new(), content }
        };
        let largest = encode(&of(CONTENT_BYTES_MAX), 1).expect("it is allowed");
        assert!(largest.len() <= ENTRY_BYTES_MAX);
        assert_eq!(encode(&of(CONTENT_BYTES_MAX + 1), 1), None);
        let field = |size: usize| {
            let value = HeaderValue::try_from("x".repeat(size)).expect("it is visible");
            let fields = vec![(HeaderName::from_static("x"), value)];
            Kept { times: TIMES, fields, content: Bytes::new() }
        };
        let around = 8 + 8 + 2 + 4 + 1;
        assert!(encode(&field(FIELDS_BYTES_MAX - around), 1).is_some());
        assert_eq!(encode(&field(FIELDS_BYTES_MAX - around + 1), 1), None);
    }

    proptest! {
        /// Purpose: no bytes of somebody else's make it panic or allocate for what they only claim.
        #[test]
        fn anything(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let size = bytes.len();
            if let Some((kept, _)) = decode(bytes.into()) {
                prop_assert!(kept.content.len() <= size && kept.fields.len() <= size / 4);
            }
        }
    }
}
