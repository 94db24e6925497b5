//! How do users describe an application?
//!
//! With plain functions. A [`Router`] maps methods and paths to [`Handler`]s; a handler's arguments
//! are extractors ([`FromRequest`]), its result is a response ([`IntoResponse`]), and its shape
//! chooses how it is run: `fn` on the worker at once, `async fn` as a future on the worker,
//! [`blocking`] on a pool, [`fixed`] not at all. [`Router::build`] checks all of it and makes an
//! [`App`], which workers share.
//!
//! Nothing in here does I/O, knows a clock or starts a thread, or knows a version of HTTP. The worker's
//! interface is in `application.rs` (`App`), `dispatch.rs`, `target.rs`, `outcome.rs` and
//! `body/channel/mod.rs` (`BodyFeed`).

mod admit;
mod application;
#[cfg(feature = "tower")]
mod around;
mod body;
mod build;
mod build_error;
mod client_keys;
mod covered;
mod disconnected;
mod dispatch;
mod draining;
mod endpoint;
mod error;
mod extract;
mod facts;
mod fair;
mod find;
mod finisher;
mod fixed;
mod guard;
mod handler;
mod into_response;
mod job;
pub mod layer;
mod map_body;
mod offload;
mod outcome;
mod path_routes;
mod prepared;
mod refusal;
mod render;
mod report;
mod request;
mod request_id;
mod response;
mod route;
mod router;
pub mod routing;
mod scope;
mod sites;
mod stack;
mod target;
#[cfg(test)]
mod tests;
mod trailing_slash;
mod vary;
mod worker_context;
mod worker_local;

pub use crate::admission::{Concurrency, Priority};
pub use application::App;
pub use body::{Body, BodyError, BodySender, BodyStream, Closed, Upgraded};
pub use build_error::BuildError;
pub use disconnected::Disconnected;
pub use draining::Draining;
pub use endpoint::EndpointInfo;
pub use error::{BoxError, Error, IntoError};
#[cfg(feature = "headers")]
pub use extract::TypedHeader;
#[cfg(feature = "cookies")]
pub use extract::cookie_jar as cookies;
pub use extract::{
    Accept, AcceptLanguage, Awaited, Begun, BodyUse, Cookies, Extension, FromHeader, FromRequest,
    FromRequestAsync, Header, MatchedPath, PeerAddr, RawQuery, Requirements, State,
};
#[cfg(feature = "json")]
pub use extract::{Form, Json, Path, Query};
pub use fixed::{Fixed, fixed};
pub use handler::{Blocking, Endpoint, Handler, Kind, blocking};
#[cfg(feature = "files")]
pub(crate) use handler::{LookedUp, Lookup};
pub use into_response::{Html, IntoResponse, Redirect};
pub use layer::{Layer, Next};
pub use map_body::BodyPieces;
pub use request::{Headers, OwnedRequest, Request};
pub use response::Response;
pub use router::Router;
pub use trailing_slash::TrailingSlash;
pub use worker_local::{PerWorker, WorkerInfo, WorkerLocal};

#[cfg(feature = "tower")]
pub(crate) use around::{Resume, to_parts};
pub(crate) use body::{BodyFeed, ByteStream, OnUpgrade, Repr as BodyRepr, StreamFailed, channel};
#[cfg(feature = "tower")]
pub(crate) use body::{Content, poll_piece, sender};
pub(crate) use dispatch::UNWANTED_BODY;
pub(crate) use guard::{
    Guarded, GuardedFuture, Panic, drop_guarded, guarded, has_notes as has_panicked,
};
pub(crate) use job::Job;
#[cfg(test)]
pub(crate) use job::Submit;
pub(crate) use outcome::Outcome;
pub(crate) use prepared::FixedResponse;
pub(crate) use request::RequestBody;
#[cfg(feature = "sim")]
pub(crate) use request_id::restart as restart_request_ids;
pub(crate) use response::Asked;
pub(crate) use target::Target;
pub(crate) use worker_local::WorkerContext;
