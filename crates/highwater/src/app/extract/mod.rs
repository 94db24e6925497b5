//! From a request to a handler's arguments.
//!
//! Extraction borrows, and what it returns is owned, be it a value or a future that makes one. A handler's future
//! therefore never holds on to a receive buffer, and the head is never copied as a whole.

mod accept;
mod awaited;
mod body;
#[cfg(feature = "cookies")]
pub mod cookie_jar;
#[cfg(feature = "json")]
mod form;
mod head;
#[cfg(feature = "json")]
mod json;
#[cfg(feature = "json")]
mod json_field;
#[cfg(feature = "json")]
mod path;
#[cfg(feature = "json")]
mod path_shape;
mod preconditions;
mod state;
#[cfg(feature = "json")]
mod text;
mod tuple;
#[cfg(feature = "headers")]
mod typed_header;
#[cfg(feature = "validation")]
mod valid;

use std::any::TypeId;

use super::error::Error;
use super::request::Request;

pub use accept::{Accept, AcceptLanguage};
pub use awaited::{Awaited, Begun, FromRequestAsync};
#[cfg(feature = "csv")]
pub(in crate::app) use body::{has_body, whole};
#[cfg(feature = "json")]
pub use form::{Form, Query};
pub use head::{
    Cookies, FromHeader, Header, MatchedPath, OriginalUri, PeerAddr, RawQuery, RequestId,
};
#[cfg(feature = "json")]
pub use json::Json;
#[cfg(feature = "json")]
pub(in crate::app) use path::LastParameter;
#[cfg(feature = "json")]
pub use path::Path;
pub use preconditions::Preconditions;
pub use state::{Extension, State};
#[cfg(feature = "headers")]
pub use typed_header::TypedHeader;
#[cfg(feature = "validation")]
pub use valid::{FIELD_ERRORS_MAX, Holds, Valid};

#[cfg(feature = "json")]
pub(in crate::app) use path_shape::PathCheck;

/// An argument of a handler.
///
/// | argument | is |
/// |---|---|
/// | `Path<T>` | the path's parameters: a value, a tuple, or a struct by name |
/// | `Query<T>`, [`RawQuery`] | the query, deserialized or as it came |
/// | `Json<T>`, `Form<T>` | the body, deserialized |
/// | `Csv<Vec<T>>` | the rows of the body, with the feature `csv` |
/// | `Bytes`, `Vec<u8>`, `String` | the body, whole |
/// | [`BodyStream`](super::BodyStream) | the body, as it comes |
/// | [`State<T>`], [`Extension<T>`] | a value that the application, or a layer, has provided |
/// | `http::Method`, `http::Uri`, `http::Version`, `http::HeaderMap` | that part of the head |
/// | [`Header<T>`], [`Cookies`] | one header field |
/// | `TypedHeader<H>`, `CookieJar` | the same by a crate, with the features `headers` and `cookies` |
/// | [`Accept`], [`AcceptLanguage`] | what the client prefers |
/// | [`Preconditions`] | the state of a resource that the client speaks of: `If-Match`, `If-None-Match` |
/// | [`Disconnected`](super::Disconnected) | signals that the client has disconnected |
/// | [`PeerAddr`], [`MatchedPath`] | the address it came from, and the route it took |
/// | [`RequestId`] | its id, by the layer [`request_id`](crate::layers::request_id) |
/// | [`OriginalUri`] | the target as it was sent, before rewrites |
/// | [`PeerCertificates`](super::PeerCertificates) | who the client is by its certificate, over TLS |
/// | [`Awaited<T>`] | a value that has to be waited for ([`FromRequestAsync`]) |
/// | `Option<T>` | `T`, or `None` if its input is absent. Malformed input is still an error |
/// | `Result<T, Error>` | `T`, or why extracting it failed |
/// | `(A, B)`, up to four | several of them as one: for the `Context` of a resource, or in an extractor of your own |
///
/// An application's own extractors borrow what they need; this one never copies the body. One that has to wait is a
/// [`FromRequestAsync`].
///
/// ```
/// use highwater::{BodyUse, Error, FromRequest, Request};
///
/// struct Checksum(u32);
///
/// impl FromRequest for Checksum {
///     const BODY: BodyUse = BodyUse::Whole;
///
///     fn from_request(request: &Request<'_>) -> Result<Self, Error> {
///         let body = request.body().unwrap_or_default();
///         Ok(Checksum(body.iter().fold(0, |sum, byte| sum.wrapping_add(u32::from(*byte)))))
///     }
/// }
///
/// fn check(Checksum(sum): Checksum) -> String {
///     sum.to_string()
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an extractor",
    label = "a handler's argument must be an extractor",
    note = "wrap it in the extractor that says where it comes from: `Path<T>`, `Query<T>`, `Json<T>`, \
            `Form<T>`, `State<T>`, `Extension<T>` or `Header<T>`; \
            or implement `FromRequest` for your own type",
    note = "arguments own what they hold: take `String` instead of `&str`, `Bytes` instead of `&[u8]`",
    note = "instead of the whole request, take its parts: `Method`, `Uri`, `HeaderMap`, `Bytes`; \
            `FromRequest` and layers see all of it"
)]
pub trait FromRequest: Sized {
    /// How the body is used. A handler can have only one argument that uses it.
    const BODY: BodyUse = BodyUse::None;

    /// Whether the peer's address is wanted; looking it up costs a system call per connection.
    const PEER: bool = false;

    /// Whether it takes the CONNECT that opens a WebSocket over HTTP/2 (RFC 8441 §5), as
    /// [`WebSocketUpgrade`](crate::WebSocketUpgrade) does. Handlers without such an argument are never called for one.
    const CONNECT: bool = false;

    /// Makes the argument.
    ///
    /// # Errors
    /// The error for the peer if it cannot be made.
    fn from_request(request: &Request<'_>) -> Result<Self, Error>;

    /// Whether the request has this extractor's input; used by `Option<Self>`.
    fn is_present(request: &Request<'_>) -> bool {
        let _ = request;
        true
    }

    /// The values that the application must provide; checked when it is built.
    fn requires(requirements: &mut Requirements) {
        let _ = requirements;
    }

    /// Whether it has to be awaited.
    #[doc(hidden)]
    const AWAITS: bool = false;

    /// Whether it is for a service that may open WebSockets over HTTP/1.1 only.
    #[doc(hidden)]
    const SERVICE: bool = false;

    /// Begins to make it: all that needs the request is done when this returns.
    #[doc(hidden)]
    fn begin(request: &Request<'_>) -> Begun<Self>
    where
        Self: 'static,
    {
        Begun::ready(Self::from_request(request))
    }
}

impl Request<'_> {
    /// Whether it is the CONNECT that opens a WebSocket over HTTP/2 (RFC 8441 §5).
    pub(crate) fn is_extended_connect(&self) -> bool {
        self.with_head(|head| head.is_extended_connect())
    }

    /// Extracts a `T`, as for an argument of a handler.
    ///
    /// # Errors
    /// Those of the extractor; and 500 if it takes the content as a stream, which only the handler may do.
    pub fn extract<T: FromRequest>(&self) -> Result<T, Error> {
        if T::BODY == BodyUse::Streamed {
            let of = std::any::type_name::<T>();
            return Err(Error::internal(format!("only a handler takes the content by `{of}`")));
        }
        T::from_request(self)
    }

    /// Extracts a `T` that may have to be awaited, such as [`Awaited<User>`](Awaited). The future does not borrow the request.
    ///
    /// # Errors
    /// As [`extract`](Request::extract).
    pub fn extract_async<T: FromRequest + 'static>(
        &self,
    ) -> impl Future<Output = Result<T, Error>> + use<T> {
        let begun = match T::AWAITS {
            true => T::begin(self),
            false => Begun::ready(self.extract()),
        };
        begun.end()
    }
}

/// How the body of a request is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BodyUse {
    /// Not at all: it is dropped as it arrives.
    #[default]
    None,
    /// Whole: the handler runs when all of it is there.
    Whole,
    /// As a stream: the handler runs when the head is there.
    Streamed,
}

/// What an extractor needs the application to provide.
#[derive(Clone, Debug, Default)]
pub struct Requirements {
    pub(in crate::app) states: Vec<(TypeId, &'static str)>,
    pub(in crate::app) worker_locals: Vec<(TypeId, &'static str)>,
    /// An id of the request, by a layer.
    pub(in crate::app) id: bool,
    #[cfg(feature = "json")]
    pub(in crate::app) paths: Vec<PathCheck>,
}

impl Requirements {
    /// A state of type `T`, by [`Router::state`](super::Router::state).
    pub fn state<T: Send + Sync + 'static>(&mut self) {
        self.states.push((TypeId::of::<T>(), std::any::type_name::<T>()));
    }

    /// A value of type `T` that each worker has, by [`Router::per_worker`](super::Router::per_worker).
    pub fn worker_local<T: 'static>(&mut self) {
        self.worker_locals.push((TypeId::of::<T>(), std::any::type_name::<T>()));
    }
}

impl<T: FromRequest> FromRequest for Option<T> {
    const BODY: BodyUse = T::BODY;
    const PEER: bool = T::PEER;
    const CONNECT: bool = T::CONNECT;

    #[inline]
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        if T::is_present(request) { T::from_request(request).map(Some) } else { Ok(None) }
    }

    const AWAITS: bool = T::AWAITS;

    fn begin(request: &Request<'_>) -> Begun<Self>
    where
        Self: 'static,
    {
        match T::is_present(request) {
            true => T::begin(request).map(|made| made.map(Some)),
            false => Begun::ready(Ok(None)),
        }
    }
}

impl<T: FromRequest> FromRequest for Result<T, Error> {
    const BODY: BodyUse = T::BODY;
    const PEER: bool = T::PEER;
    const CONNECT: bool = T::CONNECT;

    #[inline]
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        Ok(T::from_request(request))
    }

    fn is_present(request: &Request<'_>) -> bool {
        T::is_present(request)
    }

    fn requires(requirements: &mut Requirements) {
        T::requires(requirements);
    }

    const AWAITS: bool = T::AWAITS;

    fn begin(request: &Request<'_>) -> Begun<Self>
    where
        Self: 'static,
    {
        T::begin(request).map(Ok)
    }
}

/// 415, for a body whose `Content-Type` is not the required one.
#[cfg(any(feature = "json", feature = "csv"))]
pub(in crate::app) fn wrong_content_type(message: &'static str) -> Error {
    use http::StatusCode;
    Error::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message)
}
