//! A request as layers and extractors see it: borrowed from the received bytes, until they return. Values
//! that they extract are owned.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::net::SocketAddr;
use std::sync::Arc;

pub use highwater_core::http::Fields as Headers;
use highwater_core::http::{Head, Method as CoreMethod, Version};
use highwater_core::percent::percent_decode;
use highwater_core::route::Params;
use http::{Extensions, Method};

use super::body::BodyStream;
use super::disconnected::Disconnected;
use super::dispatch::{Shared, Target};
use super::error::Error;

/// A request: what the peer sent, the route it took, and what the application has attached to it.
#[derive(Debug)]
pub struct Request<'a> {
    pub(super) head: &'a Head<'a>,
    pub(super) params: &'a Params,
    pub(super) body: Content<'a>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) disconnected: &'a OnceCell<Disconnected>,
    pub(super) extensions: RefCell<Extensions>,
    pub(super) app: &'a Arc<Shared>,
    pub(super) target: Target,
    /// The segment of layers that it is in (`stack.rs`).
    pub(super) depth: usize,
}

/// A request as the worker has it.
#[derive(Debug)]
pub(crate) struct Incoming<'a> {
    pub(crate) head: &'a Head<'a>,
    /// As `App::find` left them for this head.
    pub(crate) params: &'a Params,
    pub(crate) body: RequestBody<'a>,
    /// `None` unless the driver was asked for it (`App::needs_peer`).
    pub(crate) peer: Option<SocketAddr>,
    /// The signal of this connection that the client has disconnected.
    pub(crate) disconnected: &'a OnceCell<Disconnected>,
}

/// The content of a request, as the worker has it.
#[derive(Debug)]
pub(crate) enum RequestBody<'a> {
    /// All of it; empty if there is none, or nothing reads it.
    Whole(&'a [u8]),
    /// It arrives as a stream.
    Stream(BodyStream),
}

#[derive(Debug)]
pub(super) enum Content<'a> {
    Whole(&'a [u8]),
    /// `None` once it was taken.
    Stream(RefCell<Option<BodyStream>>),
}

impl<'a> From<RequestBody<'a>> for Content<'a> {
    #[inline]
    fn from(body: RequestBody<'a>) -> Self {
        match body {
            RequestBody::Whole(bytes) => Content::Whole(bytes),
            RequestBody::Stream(stream) => Content::Stream(RefCell::new(Some(stream))),
        }
    }
}

impl<'a> Request<'a> {
    #[inline]
    pub(super) fn new(app: &'a Arc<Shared>, target: Target, incoming: Incoming<'a>) -> Self {
        Request {
            head: incoming.head,
            params: incoming.params,
            body: incoming.body.into(),
            peer: incoming.peer,
            disconnected: incoming.disconnected,
            extensions: RefCell::new(Extensions::new()),
            app,
            target,
            depth: 0,
        }
    }

    /// The method.
    pub fn method(&self) -> Method {
        to_method(self.head)
    }

    /// The target as sent, usually path and query.
    pub fn target(&self) -> &'a str {
        self.head.target()
    }

    /// The path, still percent-encoded.
    pub fn path(&self) -> &'a str {
        self.head.path()
    }

    /// The query, without the `?` and still percent-encoded.
    pub fn query(&self) -> Option<&'a str> {
        self.head.query()
    }

    /// The protocol version: `HTTP_10` or `HTTP_11`.
    pub fn version(&self) -> http::Version {
        match self.head.version() {
            Version::Http10 => http::Version::HTTP_10,
            Version::Http11 => http::Version::HTTP_11,
        }
    }

    /// The header fields.
    pub fn headers(&self) -> Headers<'a> {
        self.head.headers()
    }

    /// The first value of the header field `name`, if it is UTF-8. The name's case does not matter.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.headers().get(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The pattern of the route, as it was registered: `/users/{id}`. `None` where no route matches.
    pub fn matched_path(&self) -> Option<&'a str> {
        self.app.pattern(self.target)
    }

    /// The value of the path parameter `name`, percent-decoded. `None` if the route has no such
    /// parameter.
    ///
    /// # Errors
    /// 400 if the value is not well-formed.
    pub fn param(&self, name: &str) -> Result<Option<Cow<'a, str>>, Error> {
        let index = self.param_names().iter().position(|existing| &**existing == name);
        index.map(|index| self.param_at(index)).transpose()
    }

    /// The names of the path parameters, in step with [`Request::param_at`].
    pub(super) fn param_names(&self) -> &'a [Box<str>] {
        self.app.param_names(self.target)
    }

    /// The percent-decoded value of a path parameter that exists.
    pub(super) fn param_at(&self, index: usize) -> Result<Cow<'a, str>, Error> {
        let raw = self.params.value(index, self.path()).unwrap_or_default();
        percent_decode(raw).map_err(|error| {
            let name = &self.param_names()[index];
            Error::bad_request(format!("path parameter `{name}`: in `{raw}`, {error}"))
                .with_code("invalid_path")
        })
    }

    /// The content, if it is complete: for extractors whose [`FromRequest::BODY`] is `Whole`.
    ///
    /// [`FromRequest::BODY`]: super::FromRequest::BODY
    pub fn body(&self) -> Option<&[u8]> {
        match &self.body {
            Content::Whole(bytes) => Some(bytes),
            Content::Stream(_) => None,
        }
    }

    /// Takes the content as a stream. Empty if it was taken before.
    pub(super) fn take_stream(&self) -> BodyStream {
        match &self.body {
            Content::Whole(bytes) => BodyStream::whole(bytes::Bytes::copy_from_slice(bytes)),
            Content::Stream(stream) => {
                stream.take().unwrap_or_else(|| BodyStream::whole(bytes::Bytes::new()))
            }
        }
    }

    /// The peer's address, if the application asked for it: with [`PeerAddr`](super::PeerAddr) in a
    /// handler, or [`Router::peer_addresses`](super::Router::peer_addresses). The peer of a Unix socket has none.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Resolves when the client has finished sending, or has disconnected. In a layer that runs after an
    /// async handler it works only if it was called before the handler, too.
    pub fn disconnected(&self) -> Disconnected {
        self.disconnected.get_or_init(Disconnected::new).clone()
    }

    /// A state given to [`Router::state`](super::Router::state).
    pub fn state<T: Send + Sync + 'static>(&self) -> Option<&'a T> {
        self.app.state(self.target)
    }

    /// Attaches a value for inner layers, and for handlers through [`Extension`](super::Extension). A value
    /// of the same type is replaced.
    pub fn insert<T: Clone + Send + Sync + 'static>(&self, value: T) {
        self.extensions.borrow_mut().insert(value);
    }

    /// A copy of all that was attached.
    #[cfg(feature = "tower")]
    pub(crate) fn extensions(&self) -> Extensions {
        self.extensions.borrow().clone()
    }

    /// The value of type `T` that was attached.
    pub fn extension<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        self.extensions.borrow().get::<T>().cloned()
    }
}

/// The method as a type of the `http` crate.
pub(super) fn to_method(head: &Head<'_>) -> Method {
    match head.method() {
        CoreMethod::Get => Method::GET,
        CoreMethod::Head => Method::HEAD,
        CoreMethod::Post => Method::POST,
        CoreMethod::Put => Method::PUT,
        CoreMethod::Delete => Method::DELETE,
        CoreMethod::Connect => Method::CONNECT,
        CoreMethod::Options => Method::OPTIONS,
        CoreMethod::Trace => Method::TRACE,
        CoreMethod::Patch => Method::PATCH,
        CoreMethod::Other => Method::from_bytes(head.method_token().as_bytes())
            .expect("the parser admits only tokens, which is what methods are"),
    }
}
