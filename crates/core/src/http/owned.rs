//! A head that outlives the bytes it came in: for code that runs later, and for code that changes the head
//! for other code.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::deadline_field::names_deadline;
use super::fields::OwnedFields;
use super::head::{Head, Upgrade};
use super::method::Method;
use super::reply::FieldWriter;
use super::version::Version;

/// A copy of a head, which lends a [`Head`] again.
#[derive(Clone, Debug)]
pub struct OwnedHead {
    method: Method,
    version: Version,
    names_deadline: bool,
    upgrade: Upgrade,
    /// See [`Head::with_id`].
    given_id: Option<Box<[u8]>>,
    /// The method's token, and behind it the target.
    line: Vec<u8>,
    target_start: usize,
    /// The path, which is a part of the target.
    path_start: usize,
    path_len: usize,
    fields: OwnedFields,
}

impl OwnedHead {
    /// A copy of `head`.
    pub fn copy(head: &Head<'_>) -> Self {
        let mut copy = OwnedHead {
            method: head.method,
            version: head.version,
            names_deadline: false,
            upgrade: Upgrade::None,
            given_id: None,
            line: Vec::new(),
            target_start: 0,
            path_start: 0,
            path_len: 0,
            fields: OwnedFields::default(),
        };
        copy.copy_from(head);
        copy
    }

    /// Becomes a copy of `head`, in the memory it has.
    pub fn copy_from(&mut self, head: &Head<'_>) {
        self.method = head.method;
        self.version = head.version;
        self.names_deadline = head.names_deadline;
        self.upgrade = head.upgrade;
        self.given_id = head.given_id.map(Box::from);
        self.line.clear();
        self.line.reserve_exact(head.method_token.len() + head.target.len());
        self.line.extend_from_slice(head.method_token);
        self.line.extend_from_slice(head.target);
        self.target_start = head.method_token.len();
        self.path_start = self.line.len() - head.path_on.len();
        self.path_len = head.path_len;
        self.fields.copy_from(head.fields);
    }

    /// A head whose parts a decoder has found one by one: a method's token, a target in origin-form, and fields
    /// that obey the rules of [`FieldWriter::push`]. `None` if method or target is not valid.
    pub fn new(method: &str, target: &str, fields: OwnedFields) -> Option<Self> {
        let is_token = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
        let is_origin =
            target.starts_with('/') && target.bytes().all(|byte| byte.is_ascii_graphic());
        let names_deadline = fields.fields().iter().any(|(name, _)| names_deadline(name));
        (is_token && is_origin).then(|| OwnedHead {
            method: Method::from_token(method.as_bytes()),
            version: Version::Http11,
            names_deadline,
            upgrade: Upgrade::None,
            given_id: None,
            line: [method.as_bytes(), target.as_bytes()].concat(),
            target_start: method.len(),
            path_start: method.len(),
            path_len: target.find('?').unwrap_or(target.len()),
            fields,
        })
    }

    /// The head.
    #[inline]
    pub fn head(&self) -> Head<'_> {
        Head {
            method: self.method,
            method_token: &self.line[..self.target_start],
            target: &self.line[self.target_start..],
            path_on: &self.line[self.path_start..],
            path_len: self.path_len,
            version: self.version,
            names_deadline: self.names_deadline,
            // Fields may have changed; a lookup is cheap here.
            names_request_id: true,
            upgrade: self.upgrade,
            given_id: self.given_id.as_deref(),
            fields: self.fields.fields(),
        }
    }

    /// Bytes of memory it has allocated on the heap.
    pub fn allocated(&self) -> usize {
        let id = self.given_id.as_ref().map_or(0, |id| id.len());
        self.line.capacity() + id + self.fields.allocated()
    }

    /// Replaces the fields of that name. Whether the head asks for an upgrade does not change: that concerns
    /// the connection.
    pub fn set_field(&mut self, name: &str, value: &[u8]) {
        self.names_deadline |= names_deadline(name);
        self.fields.set(name, value);
    }

    /// Replaces all fields; otherwise as [`OwnedHead::set_field`].
    pub fn set_fields<'f>(&mut self, fields: impl IntoIterator<Item = (&'f str, &'f [u8])>) {
        self.names_deadline = false;
        self.fields.clear();
        for (name, value) in fields {
            self.names_deadline |= names_deadline(name);
            self.fields.push(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Purpose: a head that is made from its parts is read like one that was parsed; what is no head is none.
    #[test]
    fn a_head_from_its_parts() {
        let mut fields = OwnedFields::default();
        fields.push("request-timeout", b"3");
        let made = OwnedHead::new("POST", "/a?b=c", fields).expect("it is valid");
        let head = made.head();
        assert_eq!((head.method(), head.target()), (Method::Post, "/a?b=c"));
        assert_eq!((head.path(), head.query()), ("/a", Some("b=c")));
        assert!(head.names_deadline() && !head.asks_upgrade());
        for (method, target) in [("", "/"), ("get", "/"), ("GET", ""), ("GET", "a"), ("GET", "/ ")]
        {
            assert!(OwnedHead::new(method, target, OwnedFields::default()).is_none());
        }
    }

    /// Purpose: a change in a copy is visible in it, deadlines included; method and target stay.
    #[test]
    fn a_copy_can_be_changed() {
        let mut copy = OwnedHead::copy(&Head {
            method: Method::Other,
            method_token: b"BREW",
            target: b"http://pot/a%20b?c=d",
            path_on: b"/a%20b?c=d",
            path_len: 6,
            upgrade: Upgrade::Field,
            ..Head::default()
        });
        let seen = |copy: &OwnedHead| {
            let head = copy.head();
            assert_eq!((head.method(), head.method_token()), (Method::Other, "BREW"));
            assert_eq!(head.target(), "http://pot/a%20b?c=d");
            assert_eq!((head.path(), head.query()), ("/a%20b", Some("c=d")));
            assert!(head.asks_upgrade());
            let fields = head.headers().iter().map(|(name, value)| (name.into(), value.into()));
            let fields: Vec<(alloc::string::String, Vec<u8>)> = fields.collect();
            (head.names_deadline(), fields)
        };
        assert_eq!(seen(&copy), (false, Vec::new()));
        copy.set_field("X-Request-Deadline", b"7");
        copy.set_field("a", b"1");
        copy.set_field("A", b"2");
        let set = [("X-Request-Deadline".into(), b"7".to_vec()), ("A".into(), b"2".to_vec())];
        assert_eq!(seen(&copy), (true, set.to_vec()));
        copy.set_fields([("b", &b"3"[..])]);
        assert_eq!(seen(&copy), (false, [("b".into(), b"3".to_vec())].to_vec()));
        copy.set_fields([("request-timeout", &b"3"[..]), ("c", b"")]);
        assert!(seen(&copy).0);
    }

    /// Purpose: another target and an id replace what was sent, also in a copy; a target that would be refused is not taken.
    #[test]
    fn replaced_parts() {
        let mut fields = OwnedFields::default();
        fields.push("x-request-id", b"sent");
        let made = OwnedHead::new("GET", "/a?b=c", fields).expect("it is valid");
        let sent = made.head();
        assert_eq!((sent.request_id(), sent.given_id()), (Some(&b"sent"[..]), None));
        let replaced = sent.with_target("/d%20e?f").expect("it is a target").with_id("given");
        let copy = OwnedHead::copy(&replaced);
        for head in [replaced, copy.head()] {
            assert_eq!((head.method(), head.target()), (Method::Get, "/d%20e?f"));
            assert_eq!((head.path(), head.query()), ("/d%20e", Some("f")));
            assert_eq!((head.request_id(), head.given_id()), (Some(&b"given"[..]), Some("given")));
            assert_eq!(head.headers().get("x-request-id"), Some(&b"sent"[..]));
        }
        for target in ["", "*", "a", "?a", "/a b", "/é", "/a#b", "/a\\b", "/a\r\n", "http://a/"] {
            assert!(sent.with_target(target).is_none(), "{target:?}");
        }
        for target in ["/", "//", "/?", "/?\\", "/%zz"] {
            assert!(sent.with_target(target).is_some(), "{target:?}");
        }
    }
}
