//! How do users describe an application?
//!
//! With plain functions. A [`Router`] maps methods and paths to [`Handler`]s; a handler's arguments
//! are extractors ([`FromRequest`]), its result is a response ([`IntoResponse`]), and its shape
//! chooses how it is run: `fn` on the worker at once, `async fn` as a future on the worker,
//! [`blocking`] on a pool, [`fixed`] not at all. [`Router::build`] checks all of it and makes an
//! [`App`], which workers share.
//!
//! Nothing in here does I/O, knows a clock or starts a thread, and only `fixed.rs`, which prepares
//! responses for each version of HTTP, knows those versions. The worker's interface is in `dispatch.rs`
//! (`App`, `Target`, `Outcome`), `request.rs` (`Incoming`) and `body/channel/mod.rs` (`BodyFeed`).

mod admit;
#[cfg(feature = "tower")]
mod around;
mod body;
mod build;
mod build_error;
mod covered;
mod disconnected;
mod dispatch;
mod endpoint;
mod error;
mod extract;
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
mod middleware;
mod offload;
mod refusal;
mod render;
mod report;
mod request;
mod request_id;
mod response;
mod router;
mod scope;
mod sites;
mod stack;
#[cfg(test)]
mod tests;
mod worker_local;

pub use crate::admission::{Concurrency, Priority};
pub use body::{Body, BodyError, BodySender, BodyStream, Closed, Upgraded};
pub use build_error::BuildError;
pub use disconnected::Disconnected;
pub use dispatch::App;
pub use endpoint::{Endpoint, EndpointInfo};
pub use error::{BoxError, Error, IntoError};
pub use extract::{
    BodyUse, Cookies, Draining, Extension, FromHeader, FromRequest, Header, MatchedPath, PeerAddr,
    RawQuery, Requirements, State,
};
#[cfg(feature = "json")]
pub use extract::{Form, Json, Path, Query};
pub use fixed::{Fixed, fixed};
pub use handler::{Blocking, Handler, Kind, blocking};
pub use into_response::{Html, IntoResponse, Redirect};
pub use layer::Layer;
pub use map_body::BodyPieces;
pub use middleware::{MiddlewareRequest, Next};
pub use request::{Headers, Request};
pub use response::Response;
pub use router::Router;
pub use worker_local::{PerWorker, WorkerInfo, WorkerLocal};

#[cfg(feature = "tower")]
pub(crate) use around::{Resume, to_parts};
pub(crate) use body::{BodyFeed, ByteStream, OnUpgrade, Repr as BodyRepr, StreamFailed, channel};
#[cfg(feature = "tower")]
pub(crate) use body::{Content, poll_piece, sender};
pub(crate) use covered::Known;
pub(crate) use dispatch::{Outcome, Target, UNWANTED_BODY};
pub(crate) use fixed::FixedResponse;
pub(crate) use guard::{
    Guarded, GuardedFuture, Panic, drop_guarded, guarded, has_notes as has_panicked,
};
pub(crate) use job::Job;
#[cfg(test)]
pub(crate) use offload::Submit;
pub(crate) use request::{Incoming, RequestBody};
#[cfg(feature = "sim")]
pub(crate) use request_id::restart as restart_request_ids;
pub(crate) use response::Asked;
pub(crate) use worker_local::WorkerContext;
