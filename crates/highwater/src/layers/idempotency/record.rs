//! What is written about keys, to the byte.
//!
//! ```text
//! version (1) · kind (1) · fingerprint (16) · length of the key (2) · key · what the kind has
//!   begun       nothing
//!   answered    status (2) · number of fields (2) · each: length (2) · name · length (4) · value · content
//!   status      status (2): answered, and the answer is not kept
//!   released    nothing
//! ```
//!
//! Numbers are little-endian.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};

use super::kept::{Answer, Happened, Kept};

const VERSION: u8 = 1;

const BEGUN: u8 = 1;
const ANSWERED: u8 = 2;
const STATUS: u8 = 3;
const RELEASED: u8 = 4;

/// The bytes of a record.
pub(super) fn write(key: &[u8], fingerprint: u128, happened: &Happened) -> Vec<u8> {
    let kind = match happened {
        Happened::Begun => BEGUN,
        Happened::Answered(kept) => match **kept {
            Kept::Whole(_) => ANSWERED,
            Kept::Status(_) => STATUS,
        },
        Happened::Released => RELEASED,
    };
    let mut record = vec![VERSION, kind];
    record.extend_from_slice(&fingerprint.to_le_bytes());
    record.extend_from_slice(&length16(key).to_le_bytes());
    record.extend_from_slice(key);
    let Happened::Answered(kept) = happened else { return record };
    record.extend_from_slice(&kept.status().as_u16().to_le_bytes());
    if let Kept::Whole(answer) = &**kept {
        let fields = u16::try_from(answer.fields.len()).unwrap_or(u16::MAX);
        record.extend_from_slice(&fields.to_le_bytes());
        for (name, value) in answer.fields.iter().take(usize::from(fields)) {
            let name = name.as_str().as_bytes();
            record.extend_from_slice(&length16(name).to_le_bytes());
            record.extend_from_slice(name);
            record.extend_from_slice(&(value.len() as u32).to_le_bytes());
            record.extend_from_slice(value.as_bytes());
        }
        record.extend_from_slice(&answer.content);
    }
    record
}

fn length16(bytes: &[u8]) -> u16 {
    u16::try_from(bytes.len()).expect("keys and names of fields are shorter, by their limits")
}

/// The key, the fingerprint and what happened; `None` for bytes that are not a record.
pub(super) fn read(record: &[u8]) -> Option<(&[u8], u128, Happened)> {
    let mut rest = record;
    let [version, kind] = take(&mut rest)?;
    if version != VERSION {
        return None;
    }
    let fingerprint = u128::from_le_bytes(take(&mut rest)?);
    let key = take_bytes16(&mut rest)?;
    let happened = match kind {
        BEGUN => Happened::Begun,
        RELEASED => Happened::Released,
        STATUS => Happened::Answered(Arc::new(Kept::Status(status(&mut rest)?))),
        ANSWERED => Happened::Answered(Arc::new(Kept::Whole(answer(rest)?))),
        _ => return None,
    };
    Some((key, fingerprint, happened))
}

fn answer(mut rest: &[u8]) -> Option<Answer> {
    let status = status(&mut rest)?;
    let count = u16::from_le_bytes(take(&mut rest)?);
    let mut fields = Vec::new();
    for _ in 0..count {
        let name = HeaderName::from_bytes(take_bytes16(&mut rest)?).ok()?;
        let length = u32::from_le_bytes(take(&mut rest)?);
        let value = HeaderValue::from_bytes(take_bytes(&mut rest, length as usize)?).ok()?;
        fields.push((name, value));
    }
    Some(Answer { status, fields, content: Bytes::copy_from_slice(rest) })
}

fn status(rest: &mut &[u8]) -> Option<StatusCode> {
    StatusCode::from_u16(u16::from_le_bytes(take(rest)?)).ok()
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, more) = rest.split_first_chunk()?;
    *rest = more;
    Some(*taken)
}

fn take_bytes<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, more) = rest.split_at_checked(length)?;
    *rest = more;
    Some(taken)
}

fn take_bytes16<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u16::from_le_bytes(take(rest)?);
    take_bytes(rest, usize::from(length))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn happened() -> impl Strategy<Value = Happened> {
        let status = (200u16..600).prop_map(|code| StatusCode::from_u16(code).expect("a status"));
        let field = ("[a-z][a-z0-9-]{0,20}", "[ -~]{0,40}").prop_map(|(name, value)| {
            let name = HeaderName::try_from(name).expect("a name");
            (name, HeaderValue::try_from(value).expect("a value"))
        });
        let content = proptest::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from);
        let whole = (status.clone(), proptest::collection::vec(field, 0..6), content)
            .prop_map(|(status, fields, content)| Kept::Whole(Answer { status, fields, content }));
        prop_oneof![
            Just(Happened::Begun),
            Just(Happened::Released),
            whole.prop_map(|kept| Happened::Answered(Arc::new(kept))),
            status.prop_map(|status| Happened::Answered(Arc::new(Kept::Status(status)))),
        ]
    }

    proptest! {
        /// Purpose: what was written is read, whatever it is; a part of it is refused or read, and never a panic.
        #[test]
        fn written_and_read(
            key in proptest::collection::vec(any::<u8>(), 0..80),
            fingerprint in any::<u128>(),
            happened in happened(),
            cut in any::<proptest::sample::Index>(),
        ) {
            let record = write(&key, fingerprint, &happened);
            prop_assert_eq!(read(&record), Some((&key[..], fingerprint, happened)));
            let _ = read(&record[..cut.index(record.len())]);
        }

        /// Purpose: bytes that nobody wrote as a record are refused or read, and never a panic.
        #[test]
        fn any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), kind in 0u8..6) {
            if bytes.len() >= 2 {
                bytes[..2].copy_from_slice(&[VERSION, kind]);
            }
            let _ = read(&bytes);
        }
    }
}
