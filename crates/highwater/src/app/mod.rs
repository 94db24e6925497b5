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
#[cfg(feature = "csv")]
mod csv;
#[cfg(feature = "openapi")]
mod described;
mod disconnected;
mod dispatch;
mod draining;
mod endpoint;
mod error;
mod extract;
mod facts;
mod fair;
mod find;
mod finish;
mod finisher;
mod fixed;
mod guard;
mod handler;
mod hooks;
mod into_response;
mod job;
pub mod layer;
mod lifecycle;
mod locate;
mod map_body;
#[cfg(feature = "multipart")]
pub mod multipart;
#[cfg(feature = "json")]
mod ndjson;
mod offload;
#[cfg(feature = "openapi")]
pub mod openapi;
mod original;
mod outcome;
mod path_routes;
mod peer_certificates;
mod personal;
mod prepared;
#[cfg(feature = "json")]
mod problem;
mod refusal;
mod render;
mod report;
mod request;
mod request_content;
mod request_id;
#[cfg(feature = "json")]
pub mod resource;
mod response;
mod rewrite;
mod rewrite_rules;
mod route;
mod routed;
mod router;
pub mod routing;
mod scope;
mod sites;
mod stack;
mod statuses;
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
#[cfg(feature = "csv")]
pub use csv::{CSV_ROWS_MAX, Csv, CsvAnswer, CsvRows, RowStream};
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
    FromRequestAsync, Header, MatchedPath, OriginalUri, PeerAddr, Preconditions, RawQuery,
    RequestId, Requirements, State,
};
#[cfg(feature = "validation")]
pub use extract::{FIELD_ERRORS_MAX, Holds, Valid};
#[cfg(feature = "json")]
pub use extract::{Form, Json, Path, Query};
pub use finish::Finish;
pub use fixed::{Fixed, fixed};
pub(crate) use handler::Callable;
pub use handler::{Blocking, Endpoint, Handler, Kind, blocking};
#[cfg(feature = "files")]
pub(crate) use handler::{LookedUp, Lookup};
pub use hooks::HOOK_TIME_MAX;
pub use into_response::{Html, IntoResponse, Redirect};
pub use layer::{Layer, Next};
pub use map_body::BodyPieces;
#[cfg(feature = "json")]
pub use ndjson::NdJson;
pub use peer_certificates::PeerCertificates;
#[cfg(feature = "json")]
pub use problem::Problem;
pub use request::{Headers, OwnedRequest, Request};
pub use response::Response;
pub use rewrite_rules::Rewriting;
pub use router::Router;
pub use statuses::{Accepted, Created, NoContent};
pub use trailing_slash::TrailingSlash;
pub use worker_local::{PerWorker, WorkerInfo, WorkerLocal};

#[cfg(feature = "tower")]
pub(crate) use around::{Resume, to_parts};
#[cfg(feature = "tower")]
pub(crate) use body::poll_piece;
pub(crate) use body::{
    Accounts, BodyFeed, ByteStream, Content, OnUpgrade, Repr as BodyRepr, StreamFailed, channel,
    keep_buffer, sender,
};
pub(crate) use guard::{
    Guarded, GuardedFuture, Panic, drop_guarded, guarded, has_notes as has_panicked,
};
pub(crate) use hooks::{Done, Hook, Step, Task};
pub(crate) use job::Job;
#[cfg(test)]
pub(crate) use job::Submit;
#[cfg(feature = "jwt")]
pub(crate) use layer::on_request_per_worker;
pub(crate) use outcome::Outcome;
pub(crate) use personal::Personal;
pub(crate) use prepared::FixedResponse;
pub(crate) use request_content::RequestBody;
#[cfg(feature = "sim")]
pub(crate) use request_id::restart as restart_request_ids;
pub(crate) use request_id::{FIELD as REQUEST_ID, RequestIds};
pub(crate) use response::Asked;
pub(crate) use routed::{Replaced, Routed};
pub(crate) use target::Target;
pub(crate) use worker_local::WorkerContext;
