//! A request inside layers, converted to the types of the `http` crate and back.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri, Version, request};

use super::body::BodyStream;
use super::error::Error;
use super::extract::FromRequest;
use super::peer_certificates::PeerCertificates;
use super::request::{Owned, OwnedRequest, Request};
use super::request_content::OwnedBody;
use super::target::Target;

/// The data that a request needs besides `http`'s parts to reach its handler. The route is already chosen:
/// changes of the header fields and extensions take effect, changes of method and target do not.
#[derive(Clone, Debug)]
pub(crate) struct Resume {
    owned: Arc<Owned>,
    peer: Option<SocketAddr>,
    target: Target,
    /// Whether the handler takes the content whole, if it takes any.
    is_whole: bool,
}

impl Resume {
    /// Takes a request apart.
    ///
    /// # Errors
    /// 400 if there is something in its head that the `http` crate cannot represent.
    pub(crate) fn take_apart(
        request: OwnedRequest,
    ) -> Result<(request::Parts, BodyStream, Resume), Error> {
        let mut parts = to_parts(&request)?;
        let (peer, target) = (request.peer_unnoted(), request.route());
        let (owned, extensions, body) = request.into_parts();
        parts.extensions = extensions;
        let (body, is_whole) = match body {
            OwnedBody::Whole(bytes) => (BodyStream::whole(bytes), true),
            OwnedBody::Stream(stream) => (stream, false),
        };
        Ok((parts, body, Resume { owned: Arc::new(owned), peer, target, is_whole }))
    }

    /// The largest content that may be collected for a handler that takes it whole; `None` if the
    /// handler takes it as it comes.
    pub(crate) fn whole_max(&self) -> Option<u64> {
        let facts = self.owned.app.facts();
        let own = facts.endpoint(self.target).and_then(|endpoint| endpoint.body_max);
        self.is_whole.then(|| own.unwrap_or_else(|| facts.body_max()))
    }

    /// Converts a request back, with its content as a stream.
    pub(crate) fn with_stream(self, parts: request::Parts, body: BodyStream) -> OwnedRequest {
        self.put_together(parts, OwnedBody::Stream(body))
    }

    /// Converts a request back, with all of its content.
    pub(crate) fn with_whole(self, parts: request::Parts, body: Bytes) -> OwnedRequest {
        self.put_together(parts, OwnedBody::Whole(body))
    }

    fn put_together(self, parts: request::Parts, body: OwnedBody) -> OwnedRequest {
        let mut owned = Arc::unwrap_or_clone(self.owned);
        let fields = parts.headers.iter();
        owned.head.set_fields(fields.map(|(name, value)| (name.as_str(), value.as_bytes())));
        Request::of_parts(owned, self.target, self.peer, parts.extensions, body)
    }
}

/// A request's head in the types of `http`.
///
/// # Errors
/// 400 if there is something in it that the `http` crate cannot represent.
pub(crate) fn to_parts(request: &Request<'_>) -> Result<request::Parts, Error> {
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.method = Method::from_request(request)?;
    parts.uri = Uri::from_request(request)?;
    parts.version = Version::from_request(request)?;
    parts.headers = HeaderMap::from_request(request)?;
    parts.extensions = request.extensions();
    if parts.extensions.get::<PeerCertificates>().is_some() {
        request.note_personal(); // Nobody sees who looks at them from here on.
    }
    Ok(parts)
}
