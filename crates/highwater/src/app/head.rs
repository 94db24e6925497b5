//! A request's head, where it stands: in the bytes it arrived in, or in a copy of what matters.
//!
//! A handler that answers at once reads the received bytes. What has to outlive them (an async
//! middleware's request, a hook that runs after an async handler) works on an [`OwnedHead`].

use highwater_core::http1::{Head, Method, Version};
use std::ops::Range;

/// A head, borrowed from either place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HeadRef<'a> {
    Wire(&'a Head<'a>),
    Owned(&'a OwnedHead),
}

impl<'a> HeadRef<'a> {
    #[inline]
    pub(crate) fn method(self) -> Method {
        match self {
            HeadRef::Wire(head) => head.method(),
            HeadRef::Owned(head) => head.method,
        }
    }

    pub(crate) fn method_token(self) -> &'a str {
        match self {
            HeadRef::Wire(head) => head.method_token(),
            HeadRef::Owned(head) => &head.text[head.method_token.clone()],
        }
    }

    pub(crate) fn target(self) -> &'a str {
        match self {
            HeadRef::Wire(head) => head.target(),
            HeadRef::Owned(head) => &head.text[head.target.clone()],
        }
    }

    #[inline]
    pub(crate) fn path(self) -> &'a str {
        match self {
            HeadRef::Wire(head) => head.path(),
            HeadRef::Owned(head) => &head.text[head.path.clone()],
        }
    }

    #[inline]
    pub(crate) fn query(self) -> Option<&'a str> {
        match self {
            HeadRef::Wire(head) => head.query(),
            HeadRef::Owned(head) => head.query.clone().map(|query| &head.text[query]),
        }
    }

    pub(crate) fn version(self) -> Version {
        match self {
            HeadRef::Wire(head) => head.version(),
            HeadRef::Owned(head) => head.version,
        }
    }

    pub(crate) fn headers(self) -> Headers<'a> {
        Headers(self)
    }
}

/// The header fields of a request, in the order they came.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a>(HeadRef<'a>);

impl<'a> Headers<'a> {
    /// How many fields there are.
    pub fn len(&self) -> usize {
        match self.0 {
            HeadRef::Wire(head) => head.headers().len(),
            HeadRef::Owned(head) => head.fields.len(),
        }
    }

    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The fields as (name as sent, value without surrounding white space).
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a> {
        // Two kinds of iterator, of which one is empty: cheaper than a box, simpler than an enum.
        let (wire, owned) = match self.0 {
            HeadRef::Wire(head) => (Some(head.headers().iter()), None),
            HeadRef::Owned(head) => (None, Some(head.fields())),
        };
        wire.into_iter().flatten().chain(owned.into_iter().flatten())
    }

    /// The first value of the field `name`, whose case does not matter.
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        match self.0 {
            HeadRef::Wire(head) => head.headers().get(name),
            HeadRef::Owned(_) => self.get_all(name).next(),
        }
    }

    /// Every value of the field `name`, whose case does not matter.
    pub fn get_all(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.iter()
            .filter(move |(existing, _)| existing.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }
}

/// A copy of a head.
#[derive(Clone, Debug)]
pub(crate) struct OwnedHead {
    method: Method,
    version: Version,
    /// Method, target, path and query, one behind the other.
    text: Box<str>,
    method_token: Range<usize>,
    target: Range<usize>,
    path: Range<usize>,
    query: Option<Range<usize>>,
    /// Names and values, likewise.
    section: Vec<u8>,
    fields: Vec<Field>,
}

#[derive(Clone, Copy, Debug)]
struct Field {
    name: u32,
    value: u32,
    end: u32,
}

impl OwnedHead {
    pub(crate) fn copy(head: HeadRef<'_>) -> Self {
        let mut text = String::with_capacity(
            head.method_token().len()
                + head.target().len()
                + head.path().len()
                + head.query().map_or(0, str::len),
        );
        let mut append = |part: &str| {
            text.push_str(part);
            text.len() - part.len()..text.len()
        };
        let method_token = append(head.method_token());
        let target = append(head.target());
        let path = append(head.path());
        let query = head.query().map(append);
        let mut owned = OwnedHead {
            method: head.method(),
            version: head.version(),
            text: text.into_boxed_str(),
            method_token,
            target,
            path,
            query,
            section: Vec::new(),
            fields: Vec::with_capacity(head.headers().len()),
        };
        let lengths = head.headers().iter().map(|(name, value)| name.len() + value.len());
        owned.section.reserve_exact(lengths.sum());
        for (name, value) in head.headers().iter() {
            owned.push_field(name, value);
        }
        owned
    }

    /// Puts a field in place of those of that name. The bytes of those stay until the head is
    /// dropped.
    pub(crate) fn set_field(&mut self, name: &str, value: &[u8]) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.retain(|field| !self.field(*field).0.eq_ignore_ascii_case(name));
        self.fields = fields;
        self.push_field(name, value);
    }

    /// Puts other fields in place of all of them.
    #[cfg(feature = "tower")]
    pub(crate) fn set_fields(&mut self, fields: &http::HeaderMap) {
        self.section.clear();
        self.fields.clear();
        for (name, value) in fields {
            self.push_field(name.as_str(), value.as_bytes());
        }
    }

    fn push_field(&mut self, name: &str, value: &[u8]) {
        let at = |length: usize| u32::try_from(length).expect("heads are bounded far below 4 GiB");
        let start = at(self.section.len());
        self.section.extend_from_slice(name.as_bytes());
        let middle = at(self.section.len());
        self.section.extend_from_slice(value);
        self.fields.push(Field { name: start, value: middle, end: at(self.section.len()) });
    }

    fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter().map(|field| self.field(*field))
    }

    fn field(&self, field: Field) -> (&str, &[u8]) {
        let name = &self.section[field.name as usize..field.value as usize];
        let name = std::str::from_utf8(name).expect("it was text when it was pushed");
        (name, &self.section[field.value as usize..field.end as usize])
    }
}
