//! An HTTP server framework for Linux that keeps its high-water mark: its throughput stays at its peak
//! however far demand exceeds capacity.
//!
//! An application is a [`Router`] of plain functions. Their arguments declare what they need from a request, their
//! return values become responses, and their form decides how they run: `fn` directly on the worker, `async fn` as
//! a future on the worker, [`blocking`] on a pool of threads, [`fixed`] not at all.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//!
//! use highwater::{
//!     Error, Handler, Json, Path, Query, Request, Router, State, StatusCode, blocking, fixed, layer,
//! };
//! use serde::{Deserialize, Serialize};
//!
//! type Db = Arc<Mutex<Vec<Todo>>>;
//!
//! #[derive(Clone, Serialize)]
//! struct Todo { id: usize, title: String }
//!
//! #[derive(Deserialize)]
//! struct NewTodo { title: String }
//!
//! #[derive(Deserialize)]
//! struct Page { limit: Option<usize> }
//!
//! fn list(State(db): State<Db>, Query(page): Query<Page>) -> Json<Vec<Todo>> {
//!     let todos = db.lock().unwrap();
//!     Json(todos.iter().take(page.limit.unwrap_or(100)).cloned().collect())
//! }
//!
//! fn show(State(db): State<Db>, Path(id): Path<usize>) -> Option<Json<Todo>> {
//!     db.lock().unwrap().get(id).cloned().map(Json)
//! }
//!
//! async fn create(
//!     State(db): State<Db>,
//!     Json(todo): Json<NewTodo>,
//! ) -> Result<(StatusCode, Json<Todo>), Error> {
//!     if todo.title.is_empty() {
//!         return Err(Error::unprocessable("a todo needs a title"));
//!     }
//!     let mut todos = db.lock().unwrap();
//!     let todo = Todo { id: todos.len(), title: todo.title };
//!     todos.push(todo.clone());
//!     Ok((StatusCode::CREATED, Json(todo)))
//! }
//!
//! fn report() -> Result<String, Error> {
//!     std::fs::read_to_string("/proc/loadavg").map_err(Error::internal)
//! }
//!
//! fn authorize(request: &Request<'_>) -> Result<(), Error> {
//!     match request.header("authorization") {
//!         Some("Bearer open sesame") => Ok(()),
//!         _ => Err(Error::unauthorized("a token is needed")),
//!     }
//! }
//!
//! let admin = Router::new().layer(layer::on_request(authorize)).get("/load", blocking(report));
//! let app = Router::new()
//!     .state(Db::default())
//!     .get("/health", fixed("ok").never_shed()) // Any other route may be refused under overload.
//!     .get("/todos", list)
//!     .get("/todos/{id}", show)
//!     .post("/todos", create)
//!     .nest("/admin", admin)
//!     .build()?;
//! # Ok::<(), highwater::BuildError>(())
//! ```
//!
//! Every failure of a request, whether in a handler, an extractor, the routing or the protocol, is an [`Error`],
//! and [`Router::errors`] is the one place that decides how errors look to clients.
//!
//! # Where to go from here
//!
//! * [The guide](https://github.com/highwater-rs/highwater/blob/main/docs/guide.md) goes from the first route to production.
//! * [`Server`] serves a router, configured by [`ServerConfig`], the environment, or [`ServerArgs`].
//! * [`FromRequest`] lists what handlers may take, [`IntoResponse`] what they may return.
//! * [`layer`] and [`layers`] cover routes: authentication, access logs, CORS, security headers.
//! * [`websocket`](mod@websocket) and [`sse`] keep connections open: messages both ways, and events.
//! * [`testing`] serves a router in tests, without a port.
//! * [`serve`] runs an axum application.
//!
//! # Features
//!
//! | feature | default | brings |
//! |---|---|---|
//! | `json` | yes | [`Json`], [`Form`], [`Query`] and [`Path`] with serde |
//! | `cli` | yes | [`ServerArgs`]: settings from flags, the environment and a TOML file |
//! | `tower` | | [`serve`], [`Router::nest_service`], layers and services of the tower ecosystem |
//! | `tls` | | `Tls`: listeners that speak TLS; builds ring, which needs a C compiler |
//! | `self-signed` | | a certificate for development, `Tls::self_signed()` |
//! | `testing` | | [`testing::Client`]; for `[dev-dependencies]` |
//! | `files` | | `files::StaticFiles`: a folder, served below a path |
//! | `embedded` | | `StaticFiles::embedded`: a folder that is a part of the program |
//! | `compression` | | `layers::compression`: gzip, brotli, zstd; builds libzstd, which needs a C compiler |
//! | `websocket-deflate` | | `websocket::Deflate`: compressed messages of WebSockets |
//! | `csv` | | `Csv`: tables in answers and uploads |
//! | `redis` | | `layers::RedisStore`: a response cache that several instances share |
//! | `validation` | | `Valid`: input that is checked by the rules of `#[derive(garde::Validate)]` |
//! | `headers` | | `TypedHeader`, and the `headers` crate |
//! | `openapi` | | `openapi`: an OpenAPI document, derived from signatures, and a page that shows it |
//! | `auth`, `jwt` | | `auth`: authentication by password, token or signed token |
//! | `multipart` | | `multipart`: file uploads, part by part |
//! | `cookies` | | `cookies`: cookies that answers set, plain, signed and encrypted |
//! | `journal` | | [`journal`]: a durable record log |
//! | `batcher` | | [`batcher`]: records into batches, batches into sinks |
//! | `kafka` | | the Kafka sink of [`batcher`]; builds librdkafka, which needs a C compiler |
//! | `sim` | | [`sim`]: the production worker in a simulated world, for Highwater's own tests |
#![forbid(unsafe_code)]
#![deny(clippy::print_stderr)] // The terminal is the application's.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(all(feature = "files", not(target_os = "linux")))]
compile_error!(
    "highwater: the feature `files` needs Linux, whose openat2 keeps links within a folder. Leave it out on this system"
);

pub mod admission;
pub mod app;
#[cfg(feature = "auth")]
pub mod auth;
mod body_memory;
pub mod cache;
mod choice;
mod content;
mod escape;
#[cfg(feature = "files")]
pub mod files;
pub mod layers;
pub mod logging;
pub mod machine;
pub mod metrics;
#[cfg(test)]
mod page_checks;
pub mod proxies;
#[cfg(any(feature = "auth", feature = "cookies"))]
mod secret;
pub mod server;
#[cfg(feature = "sim")]
pub mod sim;
pub mod sse;
#[cfg(feature = "testing")]
pub mod testing;
mod thread;
#[cfg(feature = "tower")]
pub mod tower;
pub mod websocket;

pub use app::*;
// The glob has these as well. By name, the compiler knows what a feature would bring, and names the feature to those who
// have forgotten it.
#[cfg(feature = "headers")]
pub use app::TypedHeader;
#[cfg(feature = "cookies")]
pub use app::cookies;
#[cfg(feature = "multipart")]
pub use app::multipart;
#[cfg(feature = "openapi")]
pub use app::openapi;
#[cfg(feature = "csv")]
pub use app::{CSV_ROWS_MAX, Csv, CsvAnswer, CsvRows, RowStream};
#[cfg(feature = "validation")]
pub use app::{FIELD_ERRORS_MAX, Holds, Valid};
#[cfg(feature = "json")]
pub use app::{Form, Json, NdJson, Path, Problem, Query, resource};
pub use bytes::Bytes;
#[cfg(feature = "headers")]
pub use headers;
#[cfg(feature = "batcher")]
pub use highwater_batcher as batcher;
#[cfg(feature = "journal")]
pub use highwater_journal as journal;
pub use http::{self, HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
#[cfg(feature = "cli")]
pub use server::args::ServerArgs;
pub use server::{Limits, Running, Server, ServerConfig, ServerError};
#[cfg(feature = "tls")]
pub use server::{Pem, Tls};
pub use sse::Sse;
#[cfg(feature = "tower")]
pub use tower::serve;
pub use websocket::{WebSocket, WebSocketUpgrade, websocket};

/// The programs in README.md and docs are compiled, and most of them run, as documentation.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guide.md")]
    struct Guide;
    #[doc = include_str!("../../../docs/configuration.md")]
    struct Configuration;
    #[doc = include_str!("../../../docs/errors.md")]
    struct Errors;
    #[doc = include_str!("../../../docs/testing.md")]
    struct Testing;
    #[doc = include_str!("../../../docs/streaming.md")]
    struct Streaming;
    #[doc = include_str!("../../../docs/websocket-and-sse.md")]
    struct WebSocketAndSse;
    #[doc = include_str!("../../../docs/tls.md")]
    struct Tls;
    #[doc = include_str!("../../../docs/content.md")]
    struct Content;
    #[doc = include_str!("../../../docs/layers.md")]
    struct Layers;
    #[doc = include_str!("../../../docs/logging.md")]
    struct Logging;
    #[doc = include_str!("../../../docs/openapi.md")]
    struct OpenApi;
    #[doc = include_str!("../../../docs/auth.md")]
    struct Auth;
    #[doc = include_str!("../../../docs/coming-from-actix.md")]
    struct ComingFromActix;
    #[doc = include_str!("../../../docs/coming-from-gin.md")]
    struct ComingFromGin;
    #[doc = include_str!("../../../docs/coming-from-express.md")]
    struct ComingFromExpress;
}
