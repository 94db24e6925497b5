//! Header fields: a view of them in the bytes a decoder has, and a copy that can be changed.

use alloc::vec::Vec;
use core::fmt;

use super::reply::FieldWriter;

/// The position of a field in the bytes it was decoded from. A decoder makes one only for a name that is a
/// token, and a value without surrounding white space.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    pub(crate) name: u32,
    pub(crate) name_len: u32,
    pub(crate) value: u32,
    pub(crate) value_len: u32,
}

impl Span {
    /// The field's name in the bytes it was decoded from.
    #[inline]
    pub(crate) fn name_in<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.name as usize..][..self.name_len as usize]
    }

    /// The field's value in the bytes it was decoded from.
    #[inline]
    pub(crate) fn value_in<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.value as usize..][..self.value_len as usize]
    }
}

/// The header fields of a request, in the order they came.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) spans: &'a [Span],
}

impl<'a> Fields<'a> {
    /// How many fields there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is no field.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The fields as (name as sent, value without surrounding white space).
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a> {
        let Fields { bytes, spans } = *self;
        spans.iter().map(move |span| (text(span.name_in(bytes)), span.value_in(bytes)))
    }

    /// The first value of the field `name`, whose case does not matter.
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.get_all(name).next()
    }

    /// Every value of the field `name`, whose case does not matter.
    pub fn get_all<'n>(self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        let Fields { bytes, spans } = self;
        spans
            .iter()
            .filter(move |span| span.name_in(bytes).eq_ignore_ascii_case(name.as_bytes()))
            .map(move |span| span.value_in(bytes))
    }
}

impl fmt::Debug for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.iter().map(|(name, value)| (name, value.escape_ascii()));
        f.debug_map().entries(fields.map(|(n, v)| (n, alloc::format!("{v}")))).finish()
    }
}

/// A decoder has accepted only ASCII where this is used.
pub(super) fn text(bytes: &[u8]) -> &str {
    core::str::from_utf8(bytes).expect("a decoder admits only ASCII here")
}

/// Fields that own their bytes: a copy of a request's, or those of a reply that is kept.
#[derive(Clone, Debug, Default)]
pub struct OwnedFields {
    /// Names and values, one after another.
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl OwnedFields {
    /// A copy of `fields`.
    pub fn copy(fields: Fields<'_>) -> Self {
        let mut copy = OwnedFields::default();
        copy.copy_from(fields);
        copy
    }

    /// Becomes a copy of `fields`, in the memory it has.
    pub fn copy_from(&mut self, fields: Fields<'_>) {
        let Fields { bytes, spans } = fields;
        // All of them in one piece, with what stands between them.
        let (mut start, mut end) = (u32::MAX, 0);
        for span in spans {
            start = start.min(span.name).min(span.value);
            end = end.max(span.name + span.name_len).max(span.value + span.value_len);
        }
        let start = start.min(end);
        self.clear();
        self.bytes.extend_from_slice(&bytes[start as usize..end as usize]);
        self.spans.extend(spans.iter().map(|span| Span {
            name: span.name - start,
            value: span.value - start,
            ..*span
        }));
    }

    /// The fields, in the order they were added.
    #[inline]
    pub fn fields(&self) -> Fields<'_> {
        Fields { bytes: &self.bytes, spans: &self.spans }
    }

    /// Bytes of memory they have allocated on the heap.
    pub fn allocated(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * core::mem::size_of::<Span>()
    }

    /// Replaces the fields of that name. The old bytes stay allocated until the whole copy is dropped.
    pub fn set(&mut self, name: &str, value: &[u8]) {
        let OwnedFields { bytes, spans } = self;
        spans.retain(|span| !span.name_in(bytes).eq_ignore_ascii_case(name.as_bytes()));
        self.push(name, value);
    }

    /// Removes all fields.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    fn append(&mut self, name: &[u8], value: &[u8]) {
        let at = |length: usize| u32::try_from(length).expect("heads are bounded far below 4 GiB");
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.spans.push(Span {
            name: at(start),
            name_len: at(name.len()),
            value: at(start + name.len()),
            value_len: at(value.len()),
        });
    }
}

impl FieldWriter for OwnedFields {
    fn push(&mut self, name: &str, value: &[u8]) {
        self.append(name.as_bytes(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(fields: &OwnedFields) -> Vec<(&str, &[u8])> {
        fields.fields().iter().collect()
    }

    /// Purpose: fields stay in the order they came, and a name is found whatever its case.
    #[test]
    fn found_in_order() {
        let mut fields = OwnedFields::default();
        assert!(fields.fields().is_empty());
        fields.push("Accept", b"a");
        fields.push("x", b"");
        fields.push("accept", b"b");
        let view = fields.fields();
        assert_eq!(view.len(), 3);
        assert_eq!(view.get("ACCEPT"), Some(&b"a"[..]));
        assert_eq!(view.get_all("accept").collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!((view.get("X"), view.get("y")), (Some(&b""[..]), None));
        assert_eq!(listed(&fields), [("Accept", &b"a"[..]), ("x", b""), ("accept", b"b")]);
    }

    /// Purpose: a field that is set replaces all of its name, and leaves the others as they are; what
    /// was copied from them does not change with them.
    #[test]
    fn set_replaces() {
        let mut fields = OwnedFields::default();
        for (name, value) in [("a", b"1"), ("B", b"2"), ("A", b"3")] {
            fields.push(name, value);
        }
        let copy = OwnedFields::copy(fields.fields());
        fields.set("a", b"four");
        assert_eq!(listed(&fields), [("B", &b"2"[..]), ("a", b"four")]);
        assert_eq!(listed(&copy), [("a", &b"1"[..]), ("B", b"2"), ("A", b"3")]);
        fields.clear();
        assert!(listed(&fields).is_empty());
    }
}
