//! A request's head as a view: slices of the bytes it arrived in, nothing copied.

use core::fmt;

use super::fields::{Fields, text};
use super::method::Method;
use super::runs::{path_end, target_run};
use super::version::Version;

/// The name, in lower case, of the field with a request's id.
pub(crate) const REQUEST_ID: &[u8] = b"x-request-id";

/// How a request asks to go on in another protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Upgrade {
    #[default]
    None,
    /// By the field `Upgrade` (RFC 9110 §7.8).
    Field,
    /// By extended CONNECT (RFC 8441 §4).
    Connect,
}

impl Upgrade {
    /// [`Upgrade::Field`] for a request that may have a valid `Upgrade` field.
    #[inline]
    pub(crate) fn by_field(has_field: bool) -> Self {
        if has_field { Upgrade::Field } else { Upgrade::None }
    }
}

/// A request's head: method, target and fields. The decoder of a protocol makes it; method, target and the
/// fields' names are ASCII.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    pub(crate) method: Method,
    pub(crate) method_token: &'a [u8],
    pub(crate) target: &'a [u8],
    /// The target from where its path begins, or would begin if there is none.
    pub(crate) path_on: &'a [u8],
    /// How much of `path_on` is the path. A `?` and the query may follow.
    pub(crate) path_len: usize,
    pub(crate) version: Version,
    /// There is a field that may carry the client's deadline.
    pub(crate) names_deadline: bool,
    /// There is a field with the request's id.
    pub(crate) names_request_id: bool,
    pub(crate) upgrade: Upgrade,
    /// The id that the server has given the request; mostly none.
    pub(crate) given_id: Option<&'a [u8]>,
    pub(crate) fields: Fields<'a>,
}

impl Default for Head<'_> {
    /// An empty head, to be overwritten.
    #[inline]
    fn default() -> Self {
        Head {
            method: Method::Other,
            method_token: &[],
            target: &[],
            path_on: &[],
            path_len: 0,
            version: Version::Http11,
            names_deadline: false,
            names_request_id: false,
            upgrade: Upgrade::None,
            given_id: None,
            fields: Fields { bytes: &[], spans: &[] },
        }
    }
}

impl<'a> Head<'a> {
    /// The method.
    #[inline]
    pub fn method(&self) -> Method {
        self.method
    }

    /// The method's token as sent.
    pub fn method_token(&self) -> &'a str {
        text(self.method_token)
    }

    /// The request target as sent: origin-form, absolute-form, authority-form or `*`.
    pub fn target(&self) -> &'a str {
        text(self.target)
    }

    /// The requested server, as `host [":" port]`: the target of a `CONNECT` that names a server, else the value of
    /// `Host`. If a protocol sends it in another way, its decoder writes it as that field. `None` if it is missing, as
    /// HTTP/1.0 allows.
    pub fn authority(&self) -> Option<&'a str> {
        if self.method == Method::Connect && !self.is_extended_connect() {
            return Some(self.target());
        }
        self.fields.get("host").and_then(|host| core::str::from_utf8(host).ok())
    }

    /// The target's path, still percent-encoded. `/` for an absolute-form target without a path,
    /// `*` for the asterisk-form, empty for the authority-form.
    #[inline]
    pub fn path(&self) -> &'a str {
        text(self.path_bytes())
    }

    /// The bytes of [`Head::path`], without a check that they are text.
    #[inline]
    pub fn path_bytes(&self) -> &'a [u8] {
        // Only in absolute-form can the path be missing; it then counts as `/` (RFC 9110 §4.2.3).
        if self.path_len == 0 && self.method != Method::Connect {
            return b"/";
        }
        &self.path_on[..self.path_len]
    }

    /// The target's query, without the `?` and still percent-encoded.
    #[inline]
    pub fn query(&self) -> Option<&'a str> {
        self.path_on.get(self.path_len + 1..).map(text)
    }

    /// The protocol version.
    #[inline]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The request's id: the one that it was [given](Head::with_id) here, else the one that a proxy or the client has
    /// sent with it (`X-Request-Id`, a convention). Whether there is one is known from parsing, so the call costs
    /// nothing if there is none.
    #[inline]
    pub fn request_id(&self) -> Option<&'a [u8]> {
        if self.given_id.is_some() || !self.names_request_id {
            return self.given_id;
        }
        self.fields.get("x-request-id")
    }

    /// The id that the request was [given](Head::with_id) here.
    pub fn given_id(&self) -> Option<&'a str> {
        self.given_id.map(text)
    }

    /// The same head with the id `id`, whatever id was sent. Its fields stay the same.
    #[must_use]
    pub fn with_id(self, id: &'a str) -> Self {
        Head { given_id: Some(id.as_bytes()), ..self }
    }

    /// The same head with another target: a path that begins with `/`, and perhaps a query. `None` if a request with
    /// that target would be refused (RFC 9112 §3.2.1).
    pub fn with_target(self, target: &'a str) -> Option<Self> {
        let target = target.as_bytes();
        let path_len = path_end(target).unwrap_or(target.len());
        let is_origin = target.first() == Some(&b'/')
            && target_run(target) == target.len()
            && target.get(path_len) != Some(&b'\\');
        is_origin.then_some(Head { target, path_on: target, path_len, ..self })
    }

    /// The header fields. Where the target is in absolute-form, the value of `Host` is the target's
    /// authority, whatever was received (RFC 9112 §3.2.2).
    #[inline]
    pub fn headers(&self) -> Fields<'a> {
        self.fields
    }

    /// Whether the peer asks to switch to another protocol. In HTTP/1.1 it offers some: `Upgrade` names them, and
    /// `Connection` names `Upgrade`. Never in HTTP/1.0, where the field must be ignored (RFC 9110 §7.8). HTTP/2 has no such
    /// field, but [extended CONNECT](Head::is_extended_connect).
    #[inline]
    pub fn asks_upgrade(&self) -> bool {
        self.upgrade != Upgrade::None
    }

    /// Whether it is an extended CONNECT: a request with a path whose stream is to carry WebSocket
    /// (RFC 8441 §4, §5). Its method is `CONNECT`.
    #[inline]
    pub fn is_extended_connect(&self) -> bool {
        self.upgrade == Upgrade::Connect
    }
}

impl fmt::Debug for Head<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head")
            .field("method", &self.method_token())
            .field("target", &self.target())
            .field("version", &self.version)
            .field("headers", &self.fields)
            .finish()
    }
}
