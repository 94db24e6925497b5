//! The asynchronous part of a layer: an async function from a request to a response, which calls the inner
//! layers and the handler itself.

use std::cell::{OnceCell, RefCell};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use highwater_core::http::OwnedHead;
use highwater_core::route::Params;
use http::{Extensions, HeaderName, HeaderValue, Method};

use super::body::BodyStream;
use super::disconnected::Disconnected;
use super::dispatch::{Outcome, Shared, Target};
use super::error::Error;
use super::extract::FromRequest;
use super::finisher::ResponseFinisher;
use super::into_response::IntoResponse;
use super::offload::offload;
use super::request::{Content, Headers, Request, to_method};
use super::response::Response;
use super::stack::HANDLER;

/// A request inside asynchronous layers. It owns its content.
///
/// It is one pointer: each layer's future holds it several times over, and is moved as a whole.
#[derive(Debug)]
pub struct MiddlewareRequest(pub(super) Box<OwnedRequest>);

/// The parts of a request inside asynchronous layers.
#[derive(Debug)]
pub(super) struct OwnedRequest {
    pub(super) head: OwnedHead,
    pub(super) params: Params,
    pub(super) body: OwnedBody,
    pub(super) peer: Option<SocketAddr>,
    pub(super) disconnected: OnceCell<Disconnected>,
    pub(super) extensions: Extensions,
    pub(super) app: Arc<Shared>,
    pub(super) target: Target,
}

#[derive(Debug)]
pub(super) enum OwnedBody {
    Whole(Bytes),
    Stream(BodyStream),
}

impl MiddlewareRequest {
    /// Copies a request, and moves the parts that can be moved.
    pub(super) fn take(request: &Request<'_>) -> Self {
        let body = match &request.body {
            Content::Whole(bytes) => OwnedBody::Whole(Bytes::copy_from_slice(bytes)),
            Content::Stream(_) => OwnedBody::Stream(request.take_stream()),
        };
        MiddlewareRequest(Box::new(OwnedRequest {
            head: OwnedHead::copy(request.head),
            params: *request.params,
            body,
            peer: request.peer,
            disconnected: OnceCell::from(request.disconnected()),
            extensions: request.extensions.take(),
            app: request.app.clone(),
            target: request.target,
        }))
    }

    /// The method.
    pub fn method(&self) -> Method {
        to_method(&self.0.head.head())
    }

    /// The target as sent, usually path and query.
    pub fn target(&self) -> &str {
        self.0.head.head().target()
    }

    /// The path, still percent-encoded.
    pub fn path(&self) -> &str {
        self.0.head.head().path()
    }

    /// The query, without the `?` and still percent-encoded.
    pub fn query(&self) -> Option<&str> {
        self.0.head.head().query()
    }

    /// The header fields.
    pub fn headers(&self) -> Headers<'_> {
        self.0.head.head().headers()
    }

    /// The first value of the header field `name`, if it is UTF-8. The name's case does not matter.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers().get(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Replaces the header fields of that name, for inner layers and the handler.
    pub fn set_header(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.0.head.set_field(name.as_str(), value.as_bytes());
    }

    /// The pattern of the route, as it was registered: `/users/{id}`. `None` where no route matches.
    pub fn matched_path(&self) -> Option<&str> {
        self.0.app.pattern(self.0.target)
    }

    /// The peer's address; see [`Request::peer`].
    pub fn peer(&self) -> Option<SocketAddr> {
        self.0.peer
    }

    /// A state given to [`Router::state`](super::Router::state).
    pub fn state<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.app.state(self.0.target)
    }

    /// Attaches a value for inner layers and the handler; see [`Request::insert`].
    pub fn insert<T: Clone + Send + Sync + 'static>(&mut self, value: T) {
        self.0.extensions.insert(value);
    }

    /// The value of type `T` that was attached.
    pub fn extension<T: Clone + Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.extensions.get()
    }

    /// The content, if the handler takes it whole; empty if it takes none, or there is none. `None` if
    /// the handler takes it as it comes.
    pub fn body(&self) -> Option<&[u8]> {
        match &self.0.body {
            OwnedBody::Whole(bytes) => Some(bytes),
            OwnedBody::Stream(_) => None,
        }
    }

    /// Extracts a `T`, as for an argument of a handler. The extractor sees no body.
    ///
    /// # Errors
    /// Those of the extractor.
    pub fn extract<T: FromRequest>(&self) -> Result<T, Error> {
        T::from_request(&Request {
            head: &self.0.head.head(),
            params: &self.0.params,
            body: Content::Whole(&[]),
            peer: self.0.peer,
            disconnected: &self.0.disconnected,
            extensions: self.0.extensions.clone().into(),
            app: &self.0.app,
            target: self.0.target,
            depth: 0,
        })
    }

    /// Calls `f` with the request as synchronous code sees it, in the segment `depth`. What `f` attaches
    /// stays; the stream is gone if `f` takes it.
    fn with<R>(&mut self, depth: usize, f: impl FnOnce(&Request<'_>) -> R) -> R {
        let body = std::mem::replace(&mut self.0.body, OwnedBody::Whole(Bytes::new()));
        let (whole, body) = match body {
            OwnedBody::Whole(bytes) => (bytes, None),
            OwnedBody::Stream(stream) => (Bytes::new(), Some(stream)),
        };
        let body = match body {
            None => Content::Whole(&whole),
            Some(stream) => Content::Stream(RefCell::new(Some(stream))),
        };
        let request = Request {
            head: &self.0.head.head(),
            params: &self.0.params,
            body,
            peer: self.0.peer,
            disconnected: &self.0.disconnected,
            extensions: std::mem::take(&mut self.0.extensions).into(),
            app: &self.0.app,
            target: self.0.target,
            depth,
        };
        let result = f(&request);
        let Request { body, extensions, .. } = request;
        let stream = match body {
            Content::Whole(_) => None,
            Content::Stream(stream) => stream.into_inner(),
        };
        self.0.extensions = extensions.into_inner();
        self.0.body = stream.map_or(OwnedBody::Whole(whole), OwnedBody::Stream);
        result
    }
}

/// The inner layers and the handler.
#[derive(Clone, Debug)]
pub struct Next {
    app: Arc<Shared>,
    target: Target,
    /// The segment of layers that comes next.
    depth: usize,
}

impl Next {
    pub(super) fn new(app: Arc<Shared>, target: Target, depth: usize) -> Self {
        Next { app, target, depth }
    }

    /// Runs the inner layers and the handler. Errors, panics included, are returned as rendered responses;
    /// see [`Response::error`].
    pub async fn run(self, mut request: MiddlewareRequest) -> Response {
        let Next { app, target, depth } = self;
        let scope = app.scope(target);
        let segment = scope.stack.segment(depth);
        if let Some(index) = segment.around {
            if !segment.requests.is_empty()
                && let Some(response) = request.with(depth, |request| app.ask(request))
            {
                return response;
            }
            let finisher = request.with(depth, ResponseFinisher::of);
            let next = Next { app: app.clone(), target, depth: depth + 1 };
            return scope.stack.layer(index).surround(request, next, finisher).await;
        }
        let outcome = request.with(depth, |request| app.pass(scope, request));
        request.0.body = OwnedBody::Whole(Bytes::new());
        let error = match outcome {
            Outcome::Ready(response) => return response,
            Outcome::Later(future) => match future.await {
                Ok(response) => return response,
                Err(panic) => Error::internal(panic),
            },
            Outcome::Offload(job) => {
                let sent_id = request.0.head.head().request_id().map(Box::from);
                match offload(job, app.clone(), target, sent_id).await {
                    Ok(response) => return response,
                    Err(error) => error,
                }
            }
            Outcome::Fixed(_) => unreachable!("fixed responses bypass asynchronous layers"),
        };
        let response = error.into_response();
        request.with(depth, |request| scope.respond(&segment.responses, HANDLER, request, response))
    }
}
