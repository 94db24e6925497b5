//! How do users describe an application?
//!
//! With plain functions. A [`Router`] maps methods and paths to [`Handler`]s; a handler's arguments
//! are extractors ([`FromRequest`]), its result is a response ([`IntoResponse`]), and its shape
//! chooses how it is run: `fn` on the worker at once, `async fn` as a future on the worker,
//! [`blocking`] on a pool, [`fixed`] not at all. [`Router::build`] checks all of it and makes an
//! [`App`], which workers share.
//!
//! Nothing in here does I/O, knows a clock or starts a thread. What a worker uses is in `dispatch.rs`
//! (`App`, `Target`, `Outcome`), `request.rs` (`Incoming`) and `body/channel.rs` (`BodyFeed`).
#![allow(
    dead_code,
    unused_imports,
    reason = "the worker uses the rest; drop this with its arrival"
)]

mod admit;
mod body;
mod build;
mod concurrency;
mod disconnected;
mod dispatch;
mod endpoint;
mod error;
mod exit;
mod extract;
mod fixed;
mod guard;
mod handler;
mod head;
mod into_response;
mod middleware;
mod offload;
mod priority;
mod refusal;
mod request;
mod response;
mod router;
mod scarcity;
#[cfg(test)]
mod tests;

pub use body::{Body, BodyError, BodySender, BodyStream, Closed, Upgraded};
pub use build::BuildError;
pub use disconnected::Disconnected;
pub use dispatch::App;
pub use endpoint::{Endpoint, EndpointInfo};
pub use error::{BoxError, Error};
pub use extract::{
    BodyUse, Cookies, Draining, Extension, FromHeader, FromRequest, Header, MatchedPath, PeerAddr,
    RawQuery, Requirements, State,
};
#[cfg(feature = "json")]
pub use extract::{Form, Json, Path, Query};
pub use fixed::{Fixed, fixed};
pub use handler::{Blocking, Handler, Kind, blocking};
pub use middleware::{MiddlewareRequest, Next};
pub use priority::Priority;
pub use request::{Headers, Request};
pub use response::{Html, IntoResponse, Redirect, Response};
pub use router::Router;

pub(crate) use body::{BodyFeed, ByteStream, OnUpgrade, Repr as BodyRepr, channel};
pub(crate) use concurrency::Permit;
pub(crate) use dispatch::{Outcome, Target, UNWANTED_BODY};
pub(crate) use fixed::FixedResponse;
pub(crate) use guard::{
    Guarded, GuardedFuture, Job, Panic, drop_guarded, guarded, has_notes as has_panicked,
};
pub(crate) use offload::{Submit, Task, set_pool};
pub(crate) use request::{Incoming, RequestBody};
pub(crate) use response::Asked;
