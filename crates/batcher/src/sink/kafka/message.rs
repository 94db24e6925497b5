//! A record as Kafka's message.

use highwater_journal::Record;
use rdkafka::message::{Header, Headers as _, Message, OwnedHeaders};
use rdkafka::producer::BaseRecord;
use rdkafka::util::IntoOpaque;

/// The header with the record's id.
const ID_HEADER: &str = "id";
/// An id in hexadecimal digits.
const ID_DIGITS: usize = 32;
/// The size of a batch's header in Kafka's format version 2.
const BATCH_HEADER_BYTES: usize = 61;

/// `record` as a message to `topic`, which has so many partitions.
pub(crate) fn message<'a, T: IntoOpaque>(
    topic: &'a str,
    partitions: u32,
    record: &Record<'a>,
    tag: T,
) -> BaseRecord<'a, (), [u8], T> {
    let digits = digits(record.id);
    let id = Header { key: ID_HEADER, value: Some(&digits[..]) };
    // Records spooled for more partitions than now exist keep their order as well.
    let partition = (record.partition % partitions) as i32;
    BaseRecord::with_opaque_to(topic, tag)
        .payload(record.body)
        .partition(partition)
        .timestamp(i64::try_from(record.time_us / 1000).unwrap_or(0))
        .headers(OwnedHeaders::new_with_capacity(1).insert(id))
}

/// The id of a message's record, if the message was made here.
pub(crate) fn id_of(message: &impl Message) -> Option<u128> {
    let headers = message.headers()?;
    let id = headers.iter().find(|header| header.key == ID_HEADER)?.value?;
    let digits = std::str::from_utf8(id).ok().filter(|digits| digits.len() == ID_DIGITS)?;
    u128::from_str_radix(digits, 16).ok()
}

/// The size of a batch that holds a record with a body of `body` bytes and nothing else: compared with the topic's
/// `max.message.bytes`.
pub(crate) fn bytes_alone(body: usize) -> usize {
    batch_bytes(0, body, [(ID_HEADER.len(), ID_DIGITS)])
}

/// The size of a batch that holds one message and nothing else: with a key and a value of so many bytes, and these lengths of
/// its headers' names and values.
pub fn batch_bytes(
    key: usize,
    value: usize,
    headers: impl IntoIterator<Item = (usize, usize)>,
) -> usize {
    let with_length = |bytes: usize| varint_bytes(bytes) + bytes;
    let headers = headers.into_iter().map(|(name, value)| with_length(name) + with_length(value));
    // Attributes, the differences of time and offset, and the number of headers: a byte each. So is the length of no key (-1).
    let record = 4 + with_length(key) + with_length(value) + headers.sum::<usize>();
    BATCH_HEADER_BYTES + with_length(record)
}

/// The bytes of a length, zigzag-encoded, seven bits per byte.
fn varint_bytes(length: usize) -> usize {
    let bits = usize::BITS - (length * 2).leading_zeros();
    bits.div_ceil(7).max(1) as usize
}

fn digits(id: u128) -> [u8; ID_DIGITS] {
    let mut digits = [0; ID_DIGITS];
    for (byte, pair) in id.to_be_bytes().into_iter().zip(digits.chunks_exact_mut(2)) {
        pair[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
        pair[1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: consumers find the id as the journal's command writes it.
    #[test]
    fn ids_are_32_digits() {
        for id in [0, 1, 0x0123_4567_89ab_cdef, u128::MAX, 1 << 127] {
            assert_eq!(digits(id), format!("{id:032x}").as_bytes());
        }
    }

    /// Purpose: the sizes follow the varints of the format; a broker checks the sum in the tests with a real one.
    #[test]
    fn lengths_are_varints() {
        for (length, bytes) in [(0, 1), (63, 1), (64, 2), (8191, 2), (8192, 3), (1 << 20, 4)] {
            assert_eq!(varint_bytes(length), bytes, "{length}");
        }
    }
}
