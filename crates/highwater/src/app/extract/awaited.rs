//! Arguments that have to be awaited.

use std::future::Future;
use std::pin::Pin;

use super::{BodyUse, FromRequest, Requirements};
use crate::app::error::Error;
use crate::app::request::Request;

/// A value that handlers wait for: a session from a store, a user from a database.
///
/// A handler takes it as [`Awaited<T>`]. It is then async automatically, even if it is a plain `fn`: its other arguments are
/// extracted first, or begun, while the request is borrowed; then this one is awaited, on the worker, and the handler is
/// called. Handlers without such arguments pay nothing for it.
///
/// [`from_request_async`](FromRequestAsync::from_request_async) borrows the request only until it returns its future,
/// which owns what it needs. So write a plain function with an `async move` block:
///
/// ```
/// use std::sync::Arc;
///
/// use highwater::{Awaited, Error, FromRequestAsync, Request, Requirements, Router};
///
/// struct Sessions;
///
/// impl Sessions {
///     async fn user(&self, id: &str) -> Option<String> {
/// #       let _ = id;
///         // … ask the store
/// #       None
///     }
/// }
///
/// struct User(String);
///
/// impl FromRequestAsync for User {
///     fn from_request_async(
///         request: &Request<'_>,
///     ) -> impl Future<Output = Result<Self, Error>> + 'static {
///         let sessions = request.state::<Arc<Sessions>>().cloned();
///         let id = request.header("x-session").map(String::from);
///         async move {
///             let (Some(sessions), Some(id)) = (sessions, id) else {
///                 return Err(Error::unauthorized("sign in first"));
///             };
///             sessions.user(&id).await.map(User).ok_or_else(|| Error::unauthorized("sign in again"))
///         }
///     }
///
///     fn requires(requirements: &mut Requirements) {
///         requirements.state::<Arc<Sessions>>(); // Its absence is found when the application is built.
///     }
/// }
///
/// fn me(Awaited(User(name)): Awaited<User>) -> String {
///     name
/// }
///
/// let app = Router::new().state(Arc::new(Sessions)).get("/me", me);
/// # app.build().unwrap();
/// ```
///
/// `Option<Awaited<T>>` and `Result<Awaited<T>, Error>` are arguments, too; [`blocking`](crate::blocking) handlers cannot wait for
/// one, which [`Router::build`](crate::Router::build) reports. Layers get one with
/// [`Request::extract_async`].
pub trait FromRequestAsync: Sized + 'static {
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
    fn from_request_async(
        request: &Request<'_>,
    ) -> impl Future<Output = Result<Self, Error>> + 'static;

    /// Whether the request has this extractor's input; used by `Option<Self>`.
    fn is_present(request: &Request<'_>) -> bool {
        let _ = request;
        true
    }

    /// The values that the application must provide; checked when it is built.
    fn requires(requirements: &mut Requirements) {
        let _ = requirements;
    }
}

/// The argument that a [`FromRequestAsync`] makes. A handler that takes one is async automatically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited<T>(pub T);

impl<T: FromRequestAsync> FromRequest for Awaited<T> {
    const BODY: BodyUse = T::BODY;
    const PEER: bool = T::PEER;
    const CONNECT: bool = T::CONNECT;

    fn from_request(_: &Request<'_>) -> Result<Self, Error> {
        let name = std::any::type_name::<T>();
        Err(Error::internal(format!("`{name}` has to be awaited; use `extract_async`")))
    }

    fn is_present(request: &Request<'_>) -> bool {
        T::is_present(request)
    }

    fn requires(requirements: &mut Requirements) {
        T::requires(requirements);
    }

    const AWAITS: bool = true;

    fn begin(request: &Request<'_>) -> Begun<Self> {
        let making = T::from_request_async(request);
        Begun::later(async move { making.await.map(Awaited) })
    }
}

/// An argument that is at hand, or will be.
#[doc(hidden)]
pub struct Begun<T>(Extraction<T>);

enum Extraction<T> {
    Ready(Result<T, Error>),
    Later(Pin<Box<dyn Future<Output = Result<T, Error>>>>),
}

impl<T> Begun<T> {
    pub(super) fn ready(made: Result<T, Error>) -> Self {
        Begun(Extraction::Ready(made))
    }

    pub(super) fn later(making: impl Future<Output = Result<T, Error>> + 'static) -> Self {
        Begun(Extraction::Later(Box::pin(making)))
    }

    /// Awaits it.
    pub(in crate::app) async fn end(self) -> Result<T, Error> {
        match self.0 {
            Extraction::Ready(made) => made,
            Extraction::Later(future) => future.await,
        }
    }

    pub(super) fn map<U>(
        self,
        f: impl FnOnce(Result<T, Error>) -> Result<U, Error> + 'static,
    ) -> Begun<U>
    where
        T: 'static,
    {
        Begun(match self.0 {
            Extraction::Ready(made) => Extraction::Ready(f(made)),
            Extraction::Later(future) => Extraction::Later(Box::pin(async { f(future.await) })),
        })
    }
}

impl<T> std::fmt::Debug for Begun<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Begun")
    }
}
