//! Parts of a request's head.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};

use super::{FromRequest, Requirements};
use crate::app::error::Error;
use crate::app::peer_certificates::PeerCertificates;
use crate::app::request::{Application, Request};
use crate::app::target::Target;

impl FromRequest for Method {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        Ok(request.method())
    }
}

impl FromRequest for Version {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        Ok(request.version())
    }
}

/// The target; 400 if it is a valid one that the `http` crate cannot represent. Of a request that was
/// [rewritten](crate::Router::rewrite) it is the new one.
impl FromRequest for Uri {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        uri(request.target())
    }
}

/// The target as it was sent, before any [rewrite](crate::Router::rewrite); 400 if it is a valid target that the `http`
/// crate cannot represent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginalUri(pub Uri);

impl FromRequest for OriginalUri {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        uri(request.original_target()).map(OriginalUri)
    }
}

fn uri(target: &str) -> Result<Uri, Error> {
    Uri::try_from(target).map_err(|error| {
        Error::bad_request(format!("the request target is not understood: {error}"))
    })
}

/// A copy of all header fields; 400 if there is one that the `http` crate cannot represent.
impl FromRequest for HeaderMap {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let mut headers = HeaderMap::with_capacity(request.headers().len());
        for (name, value) in request.headers().iter() {
            let field = HeaderName::from_bytes(name.as_bytes())
                .ok()
                .zip(HeaderValue::from_bytes(value).ok());
            let Some((name, value)) = field else {
                let message = format!("the header field `{name}` is not understood");
                return Err(Error::bad_request(message));
            };
            headers.append(name, value);
        }
        Ok(headers)
    }
}

/// The query as it was sent, without the `?` and percent-encoded; `None` if there is no `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawQuery(pub Option<String>);

impl FromRequest for RawQuery {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        Ok(RawQuery(request.query().map(String::from)))
    }
}

/// The address the connection comes from. Behind a proxy it is the proxy's address. The peer of a Unix socket has none:
/// take `Option<PeerAddr>` if the server listens on one, else such a request is answered 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

impl FromRequest for PeerAddr {
    const PEER: bool = true;

    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        request.peer().map(PeerAddr).ok_or_else(|| Error::internal("the peer has no address"))
    }

    fn is_present(request: &Request<'_>) -> bool {
        request.peer().is_some()
    }
}

impl Request<'_> {
    /// Whether the client has shown a certificate, for layers of ours.
    pub(crate) fn has_certificates(&self) -> bool {
        self.extensions.borrow().get::<PeerCertificates>().is_some()
    }
}

impl FromRequest for PeerCertificates {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        request.extension().ok_or_else(|| Error::forbidden("a client certificate is needed"))
    }

    fn is_present(request: &Request<'_>) -> bool {
        request.extension::<PeerCertificates>().is_some()
    }
}

/// The pattern of the route the request took, as it was registered and with the prefixes it was
/// nested under: `/users/{id}`.
#[derive(Clone)]
pub struct MatchedPath {
    app: Arc<dyn Application>,
    target: Target,
}

impl FromRequest for MatchedPath {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        Ok(MatchedPath { app: Arc::clone(request.app()), target: request.route() })
    }
}

impl Deref for MatchedPath {
    type Target = str;

    fn deref(&self) -> &str {
        self.app.facts().pattern(self.target).unwrap_or_default()
    }
}

impl fmt::Display for MatchedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for MatchedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// The id that the layer [`request_id`](crate::layers::request_id) has given the request. A route that no such layer covers
/// is found when the application is built.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub String);

impl FromRequest for RequestId {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let missing = || Error::internal("no layer has given the request an id");
        request.id().map(|id| RequestId(id.to_owned())).ok_or_else(missing)
    }

    fn is_present(request: &Request<'_>) -> bool {
        request.id().is_some()
    }

    fn requires(requirements: &mut Requirements) {
        requirements.id = true;
    }
}

/// One header field; 400 if it is missing or cannot be parsed.
///
/// ```
/// use highwater::{FromHeader, Header};
///
/// struct Tenant(u64);
///
/// impl FromHeader for Tenant {
///     const NAME: &'static str = "x-tenant";
///
///     fn from_header(value: &str) -> Result<Self, String> {
///         value.parse().map(Tenant).map_err(|_| "expected a number".into())
///     }
/// }
///
/// fn greet(Header(tenant): Header<Tenant>) -> String {
///     format!("tenant {}", tenant.0)
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Header<T>(pub T);

/// A value that is read from a certain header field.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a header field",
    label = "`Header<T>` needs to know the name of the field",
    note = "implement `FromHeader` for your own type, or take `http::HeaderMap` for all fields"
)]
pub trait FromHeader: Sized {
    /// The field's name; case does not matter.
    const NAME: &'static str;

    /// Reads the field's (first) value.
    ///
    /// # Errors
    /// What was expected instead, as a message for the peer.
    fn from_header(value: &str) -> Result<Self, String>;
}

impl<T: FromHeader> FromRequest for Header<T> {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let name = T::NAME;
        let refuse = |reason: fmt::Arguments<'_>| {
            let message = format!("header field `{name}`: {reason}");
            Error::bad_request(message).with_code("invalid_header")
        };
        let value = request.headers().get(name).ok_or_else(|| refuse(format_args!("missing")))?;
        let text = std::str::from_utf8(value).map_err(|_| refuse(format_args!("not UTF-8")))?;
        T::from_header(text).map(Header).map_err(|reason| refuse(format_args!("{reason}")))
    }

    fn is_present(request: &Request<'_>) -> bool {
        request.headers().get(T::NAME).is_some()
    }
}

/// The cookies of a request (RFC 6265 §5.4), as they were sent: values are not decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cookies(String);

impl Cookies {
    /// The value of the first cookie called `name`. Names are case-sensitive.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(existing, _)| *existing == name).map(|(_, value)| value)
    }

    /// The cookies as (name, value), in the order they came. Double quotes around a value are not
    /// part of it. Malformed pairs are skipped.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.split(';').filter_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            let (name, value) = (name.trim_ascii(), value.trim_ascii());
            let unquoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            (!name.is_empty()).then_some((name, unquoted.unwrap_or(value)))
        })
    }
}

/// Never fails: values that are not UTF-8 are skipped, as is everything that is not a cookie.
impl FromRequest for Cookies {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let mut cookies = String::new();
        for value in request.headers().get_all("cookie") {
            let pairs = value.split(|byte| *byte == b';');
            for pair in pairs.filter_map(|pair| std::str::from_utf8(pair).ok()) {
                if !cookies.is_empty() {
                    cookies.push(';');
                }
                cookies.push_str(pair);
            }
        }
        Ok(Cookies(cookies))
    }

    fn is_present(request: &Request<'_>) -> bool {
        request.headers().get("cookie").is_some()
    }
}
