//! Code around handlers that may wait: an async function from a request to a response, which calls
//! the rest of the way itself.

use std::cell::{OnceCell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use highwater_core::route::Params;
use http::{Extensions, HeaderName, HeaderValue, Method};

use super::body::BodyStream;
use super::disconnected::Disconnected;
use super::dispatch::{Outcome, Shared, Target};
use super::error::Error;
use super::exit::{Exit, guarded, guarded_future};
use super::extract::FromRequest;
use super::head::{HeadRef, Headers, OwnedHead};
use super::offload::offload;
use super::request::{Content, Request, to_method};
use super::response::{IntoResponse, Response};

/// A middleware whose type is forgotten: it also takes the way out, so that it is one future.
pub(super) type Layer =
    dyn Fn(MiddlewareRequest, Next, Exit) -> Pin<Box<dyn Future<Output = Response>>> + Send + Sync;

/// Forgets the type of a middleware.
pub(super) fn erase<F, Fut>(middleware: F) -> Arc<Layer>
where
    F: Fn(MiddlewareRequest, Next) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoResponse> + 'static,
{
    Arc::new(move |request, next, exit| {
        let future = middleware(request, next);
        Box::pin(async move { exit.leave(guarded_future(future).await) })
    })
}

/// A request on its way through middleware. It owns what it holds.
#[derive(Debug)]
pub struct MiddlewareRequest {
    head: OwnedHead,
    params: Params,
    body: OwnedBody,
    peer: Option<SocketAddr>,
    disconnected: OnceCell<Disconnected>,
    extensions: Extensions,
    app: Arc<Shared>,
    target: Target,
}

#[derive(Debug)]
enum OwnedBody {
    Whole(Bytes),
    Stream(BodyStream),
}

impl MiddlewareRequest {
    /// Copies a request, and takes what can be moved.
    pub(super) fn take(request: &Request<'_>) -> Self {
        let body = match &request.body {
            Content::Whole(bytes) => OwnedBody::Whole(Bytes::copy_from_slice(bytes)),
            Content::Stream(_) => OwnedBody::Stream(request.take_stream()),
        };
        MiddlewareRequest {
            head: OwnedHead::copy(request.head),
            params: *request.params,
            body,
            peer: request.peer,
            disconnected: OnceCell::from(request.disconnected()),
            extensions: request.extensions.take(),
            app: request.app.clone(),
            target: request.target,
        }
    }

    /// The method.
    pub fn method(&self) -> Method {
        to_method(HeadRef::Owned(&self.head))
    }

    /// The target as sent, usually path and query.
    pub fn target(&self) -> &str {
        HeadRef::Owned(&self.head).target()
    }

    /// The path, still percent-encoded.
    pub fn path(&self) -> &str {
        HeadRef::Owned(&self.head).path()
    }

    /// The query, without the `?` and still percent-encoded.
    pub fn query(&self) -> Option<&str> {
        HeadRef::Owned(&self.head).query()
    }

    /// The header fields.
    pub fn headers(&self) -> Headers<'_> {
        HeadRef::Owned(&self.head).headers()
    }

    /// The first value of the header field `name`, if it is UTF-8. The name's case does not matter.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers().get(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Puts a header field in place of those of that name, for those who see the request later.
    pub fn set_header(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.head.set_field(name.as_str(), value.as_bytes());
    }

    /// The pattern of the route, as it was registered: `/users/{id}`. `None` where no route matches.
    pub fn matched_path(&self) -> Option<&str> {
        self.app.pattern(self.target)
    }

    /// The peer's address; see [`Request::peer`].
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// A state given to [`Router::state`](super::Router::state).
    pub fn state<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.app.state(self.target)
    }

    /// Attaches a value for those who see the request later; see [`Request::insert`].
    pub fn insert<T: Clone + Send + Sync + 'static>(&mut self, value: T) {
        self.extensions.insert(value);
    }

    /// The value of type `T` that was attached.
    pub fn extension<T: Clone + Send + Sync + 'static>(&self) -> Option<&T> {
        self.extensions.get()
    }

    /// The content, if the handler takes it whole; empty if it takes none, or there is none. `None` if
    /// the handler takes it as it comes.
    pub fn body(&self) -> Option<&[u8]> {
        match &self.body {
            OwnedBody::Whole(bytes) => Some(bytes),
            OwnedBody::Stream(_) => None,
        }
    }

    /// What a handler would get from an argument of type `T`. It sees no body.
    ///
    /// # Errors
    /// Those of the extractor.
    pub fn extract<T: FromRequest>(&self) -> Result<T, Error> {
        T::from_request(&Request {
            head: HeadRef::Owned(&self.head),
            params: &self.params,
            body: Content::Whole(&[]),
            peer: self.peer,
            disconnected: &self.disconnected,
            extensions: self.extensions.clone().into(),
            app: &self.app,
            target: self.target,
            is_inner: true,
        })
    }
}

/// The rest of the way to the handler.
#[derive(Debug)]
pub struct Next {
    app: Arc<Shared>,
    target: Target,
    /// How many middlewares the request has come through.
    depth: usize,
}

impl Next {
    /// The way behind the outermost middleware.
    pub(super) fn new(app: Arc<Shared>, target: Target) -> Self {
        Next { app, target, depth: 1 }
    }

    /// Goes the rest of the way. Errors, panics included, come back as rendered responses; see
    /// [`Response::error`].
    pub async fn run(self, request: MiddlewareRequest) -> Response {
        let Next { app, target, depth } = self;
        if let Some(layer) = app.scope(target).middleware.get(depth) {
            let exit = Exit::inner(app.clone(), target);
            let next = Next { app: app.clone(), target, depth: depth + 1 };
            return layer(request, next, exit).await;
        }
        let outcome = guarded(|| answer(&app, target, request));
        match outcome.unwrap_or_else(|error| Outcome::Ready(error.into_response())) {
            Outcome::Ready(response) => app.scope(target).render(response),
            Outcome::Later(future) => match future.await {
                Ok(response) => response,
                Err(panic) => app.scope(target).render(Error::internal(panic).into_response()),
            },
            Outcome::Offload(job) => match offload(job, app.clone(), target).await {
                Ok(response) => response,
                Err(error) => app.scope(target).render(error.into_response()),
            },
            Outcome::Fixed(_) => unreachable!("fixed responses bypass middleware"),
        }
    }
}

/// Calls the handler with a request that has come through middleware.
fn answer(app: &Arc<Shared>, target: Target, request: MiddlewareRequest) -> Outcome<'_> {
    let MiddlewareRequest { head, params, body, peer, disconnected, extensions, .. } = request;
    let whole;
    let body = match body {
        OwnedBody::Whole(bytes) => {
            whole = bytes;
            Content::Whole(&whole)
        }
        OwnedBody::Stream(stream) => Content::Stream(RefCell::new(Some(stream))),
    };
    app.answer(&Request {
        head: HeadRef::Owned(&head),
        params: &params,
        body,
        peer,
        disconnected: &disconnected,
        extensions: extensions.into(),
        app,
        target,
        is_inner: true,
    })
}
