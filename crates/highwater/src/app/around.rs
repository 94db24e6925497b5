//! A request inside layers, converted to the types of the `http` crate and back.

use std::cell::OnceCell;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use highwater_core::http::{Limits, OwnedHead};
use highwater_core::route::Params;
use http::{Extensions, HeaderMap, Method, Uri, Version, request};

use super::body::BodyStream;
use super::disconnected::Disconnected;
use super::dispatch::{Shared, Target};
use super::error::Error;
use super::extract::FromRequest;
use super::middleware::{MiddlewareRequest, OwnedBody, OwnedRequest};
use super::request::{Content, Request};

/// The data that a request needs besides `http`'s parts to reach its handler. The route is already chosen:
/// changes of the header fields and extensions take effect, changes of method and target do not.
#[derive(Clone, Debug)]
pub(crate) struct Resume {
    head: Arc<OwnedHead>,
    params: Params,
    peer: Option<SocketAddr>,
    disconnected: Option<Disconnected>,
    app: Arc<Shared>,
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
        request: MiddlewareRequest,
    ) -> Result<(request::Parts, BodyStream, Resume), Error> {
        let OwnedRequest { head, params, body, peer, disconnected, extensions, app, target } =
            *request.0;
        let mut parts = {
            let request = Request {
                head: &head.head(),
                params: &params,
                body: Content::Whole(&[]),
                peer,
                disconnected: &disconnected,
                extensions: Extensions::new().into(),
                app: &app,
                target,
                depth: 0,
            };
            to_parts(&request)?
        };
        parts.extensions = extensions;
        let (body, is_whole) = match body {
            OwnedBody::Whole(bytes) => (BodyStream::whole(bytes), true),
            OwnedBody::Stream(stream) => (stream, false),
        };
        let (head, disconnected) = (Arc::new(head), disconnected.into_inner());
        let resume = Resume { head, params, peer, disconnected, app, target, is_whole };
        Ok((parts, body, resume))
    }

    /// The largest content that may be collected for a handler that takes it whole; `None` if the
    /// handler takes it as it comes.
    pub(crate) fn whole_max(&self) -> Option<u64> {
        let own = self.app.endpoint(self.target).and_then(|endpoint| endpoint.body_max);
        self.is_whole.then(|| own.unwrap_or(Limits::default().body_max))
    }

    /// Converts a request back, with its content as a stream.
    pub(crate) fn with_stream(self, parts: request::Parts, body: BodyStream) -> MiddlewareRequest {
        self.put_together(parts, OwnedBody::Stream(body))
    }

    /// Converts a request back, with all of its content.
    pub(crate) fn with_whole(self, parts: request::Parts, body: Bytes) -> MiddlewareRequest {
        self.put_together(parts, OwnedBody::Whole(body))
    }

    fn put_together(self, parts: request::Parts, body: OwnedBody) -> MiddlewareRequest {
        let Resume { head, params, peer, disconnected, app, target, .. } = self;
        let disconnected = disconnected.map_or_else(OnceCell::new, OnceCell::from);
        let mut head = Arc::unwrap_or_clone(head);
        let fields = parts.headers.iter();
        head.set_fields(fields.map(|(name, value)| (name.as_str(), value.as_bytes())));
        let extensions = parts.extensions;
        MiddlewareRequest(Box::new(OwnedRequest {
            head,
            params,
            body,
            peer,
            disconnected,
            extensions,
            app,
            target,
        }))
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
    Ok(parts)
}
