//! A request's head as a view: slices of the bytes it arrived in, nothing copied.

use core::fmt;

/// A request method (RFC 9110 §9, RFC 5789).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs, reason = "the variants are the methods")]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Connect,
    Options,
    Trace,
    Patch,
    /// A valid token that is none of the above; see [`Head::method_token`].
    Other,
}

impl Method {
    /// The methods that have a name here, in the order of their discriminants.
    pub const NAMED: [Method; 9] = [
        Method::Get,
        Method::Head,
        Method::Post,
        Method::Put,
        Method::Delete,
        Method::Connect,
        Method::Options,
        Method::Trace,
        Method::Patch,
    ];

    /// Recognizes a method token. Methods are case-sensitive (RFC 9110 §9.1).
    #[inline]
    pub const fn from_token(token: &[u8]) -> Method {
        match token {
            b"GET" => Method::Get,
            b"POST" => Method::Post,
            b"HEAD" => Method::Head,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"CONNECT" => Method::Connect,
            b"OPTIONS" => Method::Options,
            b"TRACE" => Method::Trace,
            b"PATCH" => Method::Patch,
            _ => Method::Other,
        }
    }

    /// The method's token; `?` for [`Method::Other`], whose token only the head knows.
    pub const fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Connect => "CONNECT",
            Method::Options => "OPTIONS",
            Method::Trace => "TRACE",
            Method::Patch => "PATCH",
            Method::Other => "?",
        }
    }
}

/// A protocol version this server speaks. HTTP/1.2 and later minor versions count as 1.1
/// (RFC 9110 §2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the variants are the versions")]
pub enum Version {
    Http10,
    Http11,
}

/// Where a field stands in the head's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) name: u32,
    pub(crate) name_len: u32,
    pub(crate) value: u32,
    pub(crate) value_len: u32,
}

/// The fields of a head, in the order they came.
#[derive(Clone, Copy)]
pub struct Headers<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) spans: &'a [Span],
}

impl<'a> Headers<'a> {
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
        let Headers { bytes, spans } = *self;
        spans.iter().map(move |span| (text(name(bytes, span)), value(bytes, span)))
    }

    /// The first value of the field `wanted`, whose case does not matter.
    pub fn get(&self, wanted: &str) -> Option<&'a [u8]> {
        self.get_all(wanted).next()
    }

    /// Every value of the field `wanted`, whose case does not matter.
    pub fn get_all<'w>(self, wanted: &'w str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'w> {
        let Headers { bytes, spans } = self;
        spans
            .iter()
            .filter(move |span| name(bytes, span).eq_ignore_ascii_case(wanted.as_bytes()))
            .map(move |span| value(bytes, span))
    }
}

impl fmt::Debug for Headers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.iter().map(|(name, value)| (name, value.escape_ascii()));
        f.debug_map().entries(fields.map(|(n, v)| (n, alloc::format!("{v}")))).finish()
    }
}

fn name<'a>(bytes: &'a [u8], span: &Span) -> &'a [u8] {
    &bytes[span.name as usize..][..span.name_len as usize]
}

fn value<'a>(bytes: &'a [u8], span: &Span) -> &'a [u8] {
    &bytes[span.value as usize..][..span.value_len as usize]
}

/// The parser has admitted only ASCII where this is used.
fn text(bytes: &[u8]) -> &str {
    core::str::from_utf8(bytes).expect("the parser admits only ASCII here")
}

/// A request's head: request line and fields.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    pub(crate) method: Method,
    pub(crate) method_token: &'a [u8],
    pub(crate) target: &'a [u8],
    /// Length of the path within `path_on`, which begins where the path does.
    pub(crate) path_on: &'a [u8],
    pub(crate) path_len: usize,
    pub(crate) version: Version,
    pub(crate) names_deadline: bool,
    pub(crate) asks_upgrade: bool,
    pub(crate) headers: Headers<'a>,
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

    /// The target's path, still percent-encoded. `/` for an absolute-form target without a path,
    /// `*` for the asterisk-form, empty for the authority-form.
    #[inline]
    pub fn path(&self) -> &'a str {
        text(self.path_bytes())
    }

    /// The bytes of [`Head::path`], which need not be checked to be text.
    #[inline]
    pub fn path_bytes(&self) -> &'a [u8] {
        // Only an absolute-form target can lack a path while it has one (RFC 9110 §4.2.3).
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

    /// The header fields. Where the target is in absolute-form, the value of `Host` is the target's
    /// authority, whatever was received (RFC 9112 §3.2.2).
    #[inline]
    pub fn headers(&self) -> Headers<'a> {
        self.headers
    }

    /// Whether the peer offers to speak other protocols on this connection: `Upgrade` names them, and
    /// `Connection` says that it is meant for us. Never in HTTP/1.0, where the field must be ignored
    /// (RFC 9110 §7.8).
    #[inline]
    pub fn asks_upgrade(&self) -> bool {
        self.asks_upgrade
    }
}

impl fmt::Debug for Head<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head")
            .field("method", &self.method_token())
            .field("target", &self.target())
            .field("version", &self.version)
            .field("headers", &self.headers)
            .finish()
    }
}
