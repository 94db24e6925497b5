//! A request as layers, extractors and handlers see it.
//!
//! ```text
//!  lent    by the worker: its head is borrowed from the received bytes, until handlers and layers return
//!  owned   a copy of the head: in asynchronous layers, and for layers that see the answer later
//! ```
//!
//! Both are one type, so that all code that takes a request takes either. A request knows its application through
//! [`Application`] only: handlers and layers, which take requests, stand above it.

use std::any::TypeId;
use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
pub use highwater_core::http::Fields as Headers;
use highwater_core::http::{Head, Method as CoreMethod, OwnedHead, Version};
use highwater_core::percent::percent_decode;
use http::{Extensions, HeaderName, HeaderValue, Method};

use super::body::BodyStream;
use super::disconnected::Disconnected;
use super::error::Error;
use super::facts::Facts;
use super::guard::drop_guarded;
use super::outcome::Outcome;
use super::peer_certificates::PeerCertificates;
use super::personal::Personal;
use super::request_content::{Content, OwnedBody, RequestBody};
use super::response::Response;
use super::routed::Routed;
use super::target::Target;
use crate::proxies::TrustedProxies;

/// The application of a request, as far as the request, its handler and its layers use it.
pub(super) trait Application: fmt::Debug + Send + Sync {
    fn facts(&self) -> &Facts;

    /// Whether layers of the segment `depth` change responses.
    fn responds(&self, target: Target, depth: usize) -> bool;

    /// Renders the error in `response`, if it has one that is not rendered.
    fn render(&self, target: Target, response: Response) -> Response;

    /// Runs the response parts of the segment that the request is in.
    fn respond(&self, request: &Request<'_>, response: Response) -> Response;

    /// Passes a request through the segment that it is in and those within. Returns the request unless an
    /// asynchronous layer has taken it.
    fn pass_on(&self, request: OwnedRequest) -> (Outcome<'_>, Option<OwnedRequest>);

    /// Logs and counts the panics that were caught on this thread, as those of a request for `target`, which was sent
    /// with an id if there is one.
    fn report_panics(&self, target: Option<Target>, sent_id: Option<&[u8]>);
}

/// A request: what the peer sent, the route it took, and what layers have attached to it.
///
/// Synchronous layers and extractors borrow one, which borrows from the received bytes; values that they extract are
/// owned. Asynchronous layers have an [`OwnedRequest`].
#[derive(Debug)]
pub struct Request<'a> {
    source: Source<'a>,
    body: Content<'a>,
    peer: Option<SocketAddr>,
    pub(in crate::app) extensions: RefCell<Extensions>,
    target: Target,
    /// The segment of layers that it is in (`stack.rs`).
    depth: usize,
}

/// A request that owns its parts, for asynchronous layers.
///
/// It is one pointer: each layer's future holds it several times over, and is moved as a whole.
pub type OwnedRequest = Box<Request<'static>>;

/// The parts of a request that are borrowed or owned together.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "the larger one is always in a box, as its request")]
enum Source<'a> {
    Lent {
        head: &'a Head<'a>,
        routed: &'a Routed,
        disconnected: &'a OnceLock<Disconnected>,
        app: &'a Arc<dyn Application>,
        /// Those of `app`, without a virtual call.
        facts: &'a Facts,
    },
    Owned(Owned),
}

/// The parts of a request that do not change on its way, but for the fields of its head.
#[derive(Clone, Debug)]
pub(super) struct Owned {
    pub(super) head: OwnedHead,
    pub(super) routed: Routed,
    pub(super) disconnected: OnceLock<Disconnected>,
    pub(super) app: Arc<dyn Application>,
}

/// How a request is made, and how it becomes another.
impl<'a> Request<'a> {
    /// The request that the worker lends.
    #[inline]
    pub(super) fn lent(
        (app, facts, target): (&'a Arc<dyn Application>, &'a Facts, Target),
        (head, routed): (&'a Head<'a>, &'a Routed),
        body: RequestBody<'a>,
        peer: Option<SocketAddr>,
        disconnected: &'a OnceLock<Disconnected>,
    ) -> Self {
        let body = match body {
            RequestBody::Whole(bytes) => Content::Whole(bytes),
            RequestBody::Collected(bytes) => Content::Shared(bytes),
            RequestBody::Stream(stream) => Content::Stream(RefCell::new(Some(stream))),
        };
        let source = Source::Lent { head, routed, disconnected, app, facts };
        let extensions = RefCell::new(Extensions::new());
        Request { source, body, peer, extensions, target, depth: 0 }
    }

    /// A copy for layers that will see its answer: without content, with the attached values that it has so far.
    pub(super) fn keep(&self) -> OwnedRequest {
        let extensions = RefCell::new(self.extensions.borrow().clone());
        let source = Source::Owned(self.source.to_owned());
        let body = Content::Owned(Bytes::new());
        let Request { peer, target, depth, .. } = *self;
        Box::new(Request { source, body, peer, extensions, target, depth })
    }

    /// A copy for asynchronous layers: it takes the content and the attached values with it.
    pub(super) fn take(&self) -> OwnedRequest {
        self.disconnected(); // Both requests share the signal.
        let source = Source::Owned(self.source.to_owned());
        let body = match &self.body {
            Content::Stream(_) => Content::Stream(RefCell::new(Some(self.take_stream()))),
            whole => Content::Owned(whole.kept().unwrap_or_default()),
        };
        let extensions = RefCell::new(self.extensions.take());
        let Request { peer, target, depth, .. } = *self;
        Box::new(Request { source, body, peer, extensions, target, depth })
    }
}

impl Request<'static> {
    /// A request that owns its parts.
    pub(super) fn of_parts(
        owned: Owned,
        target: Target,
        peer: Option<SocketAddr>,
        extensions: Extensions,
        body: OwnedBody,
    ) -> OwnedRequest {
        let body = match body {
            OwnedBody::Whole(bytes) => Content::Owned(bytes),
            OwnedBody::Stream(stream) => Content::Stream(RefCell::new(Some(stream))),
        };
        let (source, extensions) = (Source::Owned(owned), RefCell::new(extensions));
        Box::new(Request { source, body, peer, extensions, target, depth: 0 })
    }

    /// Takes a request apart.
    #[cfg(feature = "tower")]
    pub(super) fn into_parts(self) -> (Owned, Extensions, OwnedBody) {
        let body = match self.body {
            Content::Whole(bytes) => OwnedBody::Whole(Bytes::from_static(bytes)),
            Content::Shared(bytes) => OwnedBody::Whole(bytes.clone()),
            Content::Owned(bytes) => OwnedBody::Whole(bytes),
            Content::Stream(stream) => {
                OwnedBody::Stream(stream.into_inner().unwrap_or_else(BodyStream::empty))
            }
        };
        (self.source.into_owned(), self.extensions.into_inner(), body)
    }

    /// Frees the content, once the handler has taken it.
    pub(super) fn drop_body(&mut self) {
        self.body = Content::Owned(Bytes::new());
    }

    /// The request comes to the segment `depth`.
    pub(super) fn descend(&mut self, depth: usize) {
        self.depth = depth;
    }

    /// Replaces the header fields of that name, for inner layers and the handler.
    pub fn set_header(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.source.to_mut().head.set_field(name.as_str(), value.as_bytes());
    }
}

impl Source<'_> {
    fn to_owned(&self) -> Owned {
        match self {
            Source::Owned(owned) => owned.clone(),
            Source::Lent { head, routed, disconnected, app, .. } => Owned {
                head: OwnedHead::copy(head),
                routed: (*routed).clone(),
                disconnected: (*disconnected).clone(),
                app: Arc::clone(app),
            },
        }
    }

    #[cfg(feature = "tower")]
    fn into_owned(self) -> Owned {
        match self {
            Source::Owned(owned) => owned,
            lent @ Source::Lent { .. } => lent.to_owned(),
        }
    }

    fn to_mut(&mut self) -> &mut Owned {
        if let Source::Lent { .. } = self {
            *self = Source::Owned(self.to_owned());
        }
        match self {
            Source::Owned(owned) => owned,
            Source::Lent { .. } => unreachable!("it was made an owned one"),
        }
    }
}

/// What the application uses of its requests.
impl Request<'_> {
    /// Calls `f` with the head.
    #[inline]
    pub(super) fn with_head<'s, R>(&'s self, f: impl FnOnce(&Head<'s>) -> R) -> R {
        match &self.source {
            Source::Lent { head, .. } => f(head),
            Source::Owned(owned) => f(&owned.head.head()),
        }
    }

    #[inline]
    pub(super) fn app(&self) -> &Arc<dyn Application> {
        match &self.source {
            Source::Lent { app, .. } => app,
            Source::Owned(owned) => &owned.app,
        }
    }

    #[inline]
    pub(super) fn facts(&self) -> &Facts {
        match &self.source {
            Source::Lent { facts, .. } => facts,
            Source::Owned(owned) => owned.app.facts(),
        }
    }

    #[inline]
    pub(super) fn route(&self) -> Target {
        self.target
    }

    #[inline]
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// Drops what was attached; a panic in a `Drop` ends here.
    pub(super) fn drop_attached(&self) {
        drop_guarded(self.extensions.take());
    }

    /// The id that the client or a proxy has sent with it.
    pub(super) fn sent_id(&self) -> Option<&[u8]> {
        self.with_head(|head| head.request_id())
    }

    /// The names of the path parameters, in step with [`Request::param_at`].
    pub(super) fn param_names(&self) -> &[Box<str>] {
        self.facts().param_names(self.target)
    }

    /// The percent-decoded value of a path parameter that exists.
    pub(super) fn param_at(&self, index: usize) -> Result<Cow<'_, str>, Error> {
        let raw = self.raw_param_at(index).unwrap_or_default();
        percent_decode(raw).map_err(|error| {
            let name = &self.param_names()[index];
            Error::bad_request(format!("path parameter `{name}`: in `{raw}`, {error}"))
                .with_code("invalid_path")
        })
    }

    fn raw_param_at(&self, index: usize) -> Option<&str> {
        let path = self.with_head(|head| head.path_bytes());
        // Only the value is made a text: to check the whole path would cost more than to find the route.
        std::str::from_utf8(self.routed().params.value_in(index, path)?).ok()
    }

    #[inline]
    pub(super) fn routed(&self) -> &Routed {
        match &self.source {
            Source::Lent { routed, .. } => routed,
            Source::Owned(owned) => &owned.routed,
        }
    }

    /// Takes the content as a stream. Empty if it was taken before.
    pub(super) fn take_stream(&self) -> BodyStream {
        match &self.body {
            Content::Stream(stream) => stream.take().unwrap_or_else(BodyStream::empty),
            whole => BodyStream::whole(whole.kept().unwrap_or_default()),
        }
    }

    /// Its answer is for its client alone: layers that watch do not give it to others.
    pub(crate) fn note_personal(&self) {
        Personal::note(&self.extensions.borrow());
    }

    /// A copy of all that was attached.
    #[cfg(feature = "tower")]
    pub(crate) fn extensions(&self) -> Extensions {
        self.extensions.borrow().clone()
    }
}

impl Request<'_> {
    /// The method.
    pub fn method(&self) -> Method {
        self.with_head(to_method)
    }

    /// The target, usually path and query: as sent, unless a [rewrite](super::Router::rewrite) has replaced it.
    pub fn target(&self) -> &str {
        self.with_head(|head| head.target())
    }

    /// The path, still percent-encoded.
    #[inline]
    pub fn path(&self) -> &str {
        self.with_head(|head| head.path())
    }

    /// The query, without the `?` and still percent-encoded.
    pub fn query(&self) -> Option<&str> {
        self.with_head(|head| head.query())
    }

    /// The protocol version: `HTTP_10`, `HTTP_11` or `HTTP_2`.
    pub fn version(&self) -> http::Version {
        match self.with_head(|head| head.version()) {
            Version::Http10 => http::Version::HTTP_10,
            Version::Http11 => http::Version::HTTP_11,
            Version::Http2 => http::Version::HTTP_2,
        }
    }

    /// The header fields.
    #[inline]
    pub fn headers(&self) -> Headers<'_> {
        self.with_head(|head| head.headers())
    }

    /// The first value of the header field `name`, if it is UTF-8. The name's case does not matter.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers().get(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The pattern of the route, as it was registered: `/users/{id}`. `None` where no route matches.
    pub fn matched_path(&self) -> Option<&str> {
        self.facts().pattern(self.target)
    }

    /// Whether the handler takes content as it comes. Even then [`body`](Request::body) has it if it came in one piece.
    pub(crate) fn is_for_stream(&self) -> bool {
        self.facts().endpoint(self.target).is_some_and(|endpoint| endpoint.takes_stream)
    }

    /// The methods that the path has routes for, in the form of `Allow`: `GET, HEAD, OPTIONS`. `None` if it
    /// has none.
    pub fn allowed_methods(&self) -> Option<&str> {
        self.facts().allowed_methods(self.target)?.to_str().ok()
    }

    /// The value of the path parameter `name`, percent-decoded. `None` if the route has no such
    /// parameter.
    ///
    /// # Errors
    /// 400 if the value is not well-formed.
    pub fn param(&self, name: &str) -> Result<Option<Cow<'_, str>>, Error> {
        let index = self.param_names().iter().position(|existing| &**existing == name);
        index.map(|index| self.param_at(index)).transpose()
    }

    /// The value of the path parameter `name` as it was sent, percent-encoded.
    pub fn raw_param(&self, name: &str) -> Option<&str> {
        let index = self.param_names().iter().position(|existing| &**existing == name)?;
        self.raw_param_at(index)
    }

    /// The content, if the handler takes it whole; empty if the handler takes no content or there is none, and in layers
    /// that see the answer later. `None` if the handler takes the content as a stream.
    ///
    /// An extractor gets all of it if its [`FromRequest::BODY`] is `Whole`.
    ///
    /// [`FromRequest::BODY`]: super::FromRequest::BODY
    pub fn body(&self) -> Option<&[u8]> {
        match &self.body {
            Content::Whole(bytes) => Some(bytes),
            Content::Shared(bytes) => Some(bytes),
            Content::Owned(bytes) => Some(bytes),
            Content::Stream(_) => None,
        }
    }

    /// The same, to be kept: a large body is shared, not copied.
    pub(super) fn kept_body(&self) -> Option<Bytes> {
        self.body.kept()
    }

    /// The peer's address, if the application asked for it: with [`PeerAddr`](super::PeerAddr) in a
    /// handler, or [`Router::peer_addresses`](super::Router::peer_addresses). The peer of a Unix socket has none.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.note_personal();
        self.peer
    }

    /// The same for layers of ours, whose answers are the same for all clients.
    pub(crate) fn peer_unnoted(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// The client's address: the peer's, unless that is a trusted proxy that names another (`X-Forwarded-For`, `Forwarded`). The
    /// application has to ask for peers, as for [`peer`](Request::peer). `None` for the peer of a Unix socket, unless
    /// `proxies` trust it and it names a client.
    ///
    /// ```
    /// use highwater::proxies::TrustedProxies;
    /// use highwater::testing::Client;
    /// use highwater::{Layer, Request, Router};
    ///
    /// #[derive(Clone)]
    /// struct From(String);
    ///
    /// let proxies: TrustedProxies = "127.0.0.0/8".parse().unwrap();
    /// let note = move |request: &Request<'_>| {
    ///     request.insert(From(format!("{:?}", request.client(&proxies))));
    ///     Ok::<(), highwater::Error>(())
    /// };
    /// let layer = Layer::new().on_request(note).peer_addresses();
    /// let router = Router::new().layer(layer).get("/", |highwater::Extension(From(text))| text);
    /// # router.build().unwrap();
    /// ```
    pub fn client(&self, proxies: &TrustedProxies) -> Option<IpAddr> {
        let fields = self.headers();
        proxies.client_by(self.peer().map(|peer| peer.ip()), |name| fields.get_all(name))
    }

    /// Resolves when the client has finished sending, or has disconnected. In a layer that runs after an
    /// async handler it works only if it was called before the handler, too.
    pub fn disconnected(&self) -> Disconnected {
        let cell = match &self.source {
            Source::Lent { disconnected, .. } => disconnected,
            Source::Owned(owned) => &owned.disconnected,
        };
        cell.get_or_init(Disconnected::new).clone()
    }

    /// A state given to [`Router::state`](super::Router::state).
    pub fn state<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.facts().state(self.target)
    }

    /// Attaches a value for inner layers, and for handlers through [`Extension`](super::Extension). A value
    /// of the same type is replaced.
    pub fn insert<T: Clone + Send + Sync + 'static>(&self, value: T) {
        self.extensions.borrow_mut().insert(value);
    }

    /// The value of type `T` that was attached.
    pub fn extension<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        if TypeId::of::<T>() == TypeId::of::<PeerCertificates>() {
            self.note_personal(); // That there are none may make another answer, too.
        }
        self.extensions.borrow().get::<T>().cloned()
    }
}

/// The method as a type of the `http` crate.
fn to_method(head: &Head<'_>) -> Method {
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
