//! The service's HTTP interface.
//!
//! ```text
//!  GET  /todos        list   ─▶ reads: bytes, encoded once                        at once, on the worker
//!  GET  /todos/{id}   one    ─▶ reads
//!  POST /todos        write  ─▶ auth ─▶ input ─▶ Command ─▶ queue ─▶ durable ─▶ 202
//!  PUT, DELETE        write  ─▶ auth ─▶ input ─▶ owner? ─▶ Command ─▶ …
//! ```
//!
//! Invariants: 202 is sent only once the command is durable; a refused command is never in the queue, except after 503,
//! which means that this is unknown. With `?wait=applied`, 201 and 200 are sent only once every read of this instance
//! shows the effect.

mod error;
mod input;
mod missing;
mod openapi;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use highwater::auth::Jwt;
use highwater::openapi::api;
use highwater::{
    Body, Error, Handler as _, Json, PerWorker, Request, Response, Router, StatusCode, fixed,
};

use self::error::{error, not_found, unavailable};
use self::input::{Asked, NoParameters, TodoId};
pub use self::missing::Missing;
use self::openapi::{Queued, Todo, listed, openapi, shown, writes};
use self::write::Worker;
use crate::health::Part;
use crate::queue::Queue;
use crate::reads::{Read, Reads};
use crate::store::StoreError;

/// The type of every answer but `/health`'s.
const JSON: &str = "application/json";

/// The state behind all handlers.
pub struct Service {
    /// What clients read.
    pub reads: Arc<dyn Reads>,
    /// Where commands go.
    pub queue: Arc<dyn Queue>,
    /// Verifies tokens.
    pub tokens: Jwt,
    /// The limits of requests.
    pub bounds: Bounds,
    /// The parts that `/ready` checks, besides the queue.
    pub parts: Vec<Part>,
    /// Counts of commands.
    pub counts: Counts,
    /// Todos that clients look for in vain.
    pub missing: Missing,
}

/// The service's own limits.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The longest title, in characters; beyond it 422.
    pub title_max: usize,
    /// The longest description, in characters; beyond it 422.
    pub description_max: usize,
    /// The most todos; beyond it a creation is refused: 503.
    pub todos_max: usize,
    /// How long a request with `?wait=applied` waits; then it is answered 202. A change of an unknown todo waits as
    /// long for commands acknowledged before it, or before the user's first one; then 503.
    pub wait_max: Duration,
}

/// Counts of commands.
#[derive(Debug, Default)]
pub struct Counts {
    accepted: AtomicU64,
    refused: AtomicU64,
}

impl Counts {
    /// Commands that were durable when they were answered.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Commands that were answered 503.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Service {
    /// The unavailable parts, by name, and why.
    pub fn down(&self) -> Vec<(&'static str, String)> {
        let queue = self.queue.part();
        let parts = std::iter::once(&queue).chain(&self.parts);
        parts.filter_map(|part| Some((part.name(), part.down()?))).collect()
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

/// The service's routes.
pub fn router(service: &Arc<Service>) -> Router {
    let made = Arc::clone(service);
    let per_worker = PerWorker::fallible(move |worker| Worker::new(&made, worker.index));
    let asked = Arc::clone(service);
    let ready = api(move || is_ready(&asked.down())).summary("Whether all parts are available");
    let ready = ready
        .operation_id("ready")
        .returns::<&'static str>()
        .error(StatusCode::SERVICE_UNAVAILABLE, "Parts are unavailable; the answer names them.");
    let created = writes(api(write::create))
        .summary("A new todo")
        .also::<Json<Todo>>(StatusCode::CREATED, "It is there.");
    let updated = writes(api(write::update))
        .summary("Changes a todo")
        .also::<Json<Todo>>(StatusCode::OK, "It is changed.");
    let deleted = writes(api(write::delete))
        .summary("Removes a todo")
        .also::<Json<Queued>>(StatusCode::OK, "It is gone.");
    let writing = Router::new()
        .layer(service.tokens.clone())
        // To its end, also if the client is gone: a creation that fails gives its place among --todos-max back.
        .post("/todos", created.name("create").detached())
        .put("/todos/{id}", updated.name("update"))
        .delete("/todos/{id}", deleted.name("delete"));
    let router = Router::new()
        .openapi(openapi())
        .per_worker(per_worker)
        .merge(writing)
        .get("/health", fixed("OK").name("health"))
        .get("/ready", ready.name("ready").never_shed())
        .errors(error);
    reading(router, service)
}

/// Adds the routes for reading: plain functions where everything is in memory, else futures.
fn reading(router: Router, service: &Arc<Service>) -> Router {
    let (lists, todos) = (Arc::clone(&service.reads), Arc::clone(&service.reads));
    if service.reads.is_in_memory() {
        let list = move |Asked(limit): Asked| match lists.list(limit) {
            Read::Ready(bytes) => Ok(json(bytes)),
            Read::Later(_) => Err(Error::internal("a read that is in memory is answered at once")),
        };
        let one = move |_: NoParameters, TodoId(id): TodoId| match todos.todo(id) {
            Read::Ready(shown) => shown.map(|shown| json(shown.json)).ok_or_else(not_found),
            Read::Later(_) => Err(Error::internal("a read that is in memory is answered at once")),
        };
        return router
            .get("/todos", listed(api(list)).name("list"))
            .get("/todos/{id}", shown(api(one)).name("todo"));
    }
    let list = move |Asked(limit): Asked| {
        let read = lists.list(limit);
        async move { get(read).await.map(json) }
    };
    let one = move |_: NoParameters, TodoId(id): TodoId| {
        let read = todos.todo(id);
        async move { get(read).await?.map(|shown| json(shown.json)).ok_or_else(not_found) }
    };
    router
        .get("/todos", listed(api(list)).name("list"))
        .get("/todos/{id}", shown(api(one)).name("todo"))
}

/// The answer, once it is there.
async fn get<T>(read: Read<T>) -> Result<T, Error> {
    match read {
        Read::Ready(value) => Ok(value),
        Read::Later(later) => {
            later.await.map_err(|error: StoreError| unavailable(error.to_string()))
        }
    }
}

fn is_ready(down: &[(&str, String)]) -> Response {
    if down.is_empty() {
        return Response::from("OK");
    }
    let names: Vec<&str> = down.iter().map(|(name, _)| *name).collect();
    let details: serde_json::Map<String, serde_json::Value> =
        down.iter().map(|(name, reason)| ((*name).to_owned(), reason.as_str().into())).collect();
    let status = format!("unavailable: {}", names.join(", "));
    let body = serde_json::json!({ "status": status, "details": details });
    json(Bytes::from(body.to_string())).with_status(StatusCode::SERVICE_UNAVAILABLE)
}

#[inline]
fn json(body: impl Into<Body>) -> Response {
    Response::new(StatusCode::OK).with_content_type(JSON).with_body(body)
}

/// How many characters of an unknown parameter's name its message repeats.
const NAME_SHOWN_MAX: usize = 64;

/// The query's value of `name`: the part behind `=`, as it stands there.
///
/// # Errors
///
/// 400 if it is there twice, or beside a parameter that this resource does not have.
#[inline]
fn parameter<'r>(request: &'r Request<'_>, name: &str) -> Result<Option<&'r str>, Error> {
    let Some(query) = request.query() else { return Ok(None) };
    // Nearly always it is the only one.
    let only = query.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
    match only.filter(|value| !value.as_bytes().contains(&b'&')) {
        Some(value) => Ok(Some(value)),
        None => only_parameter(query, Some(name)),
    }
}

/// The value of the one parameter that the resource has.
fn only_parameter<'r>(query: &'r str, name: Option<&str>) -> Result<Option<&'r str>, Error> {
    let mut found = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if Some(key) != name {
            return Err(unknown_parameter(key, name));
        }
        if found.replace(value).is_some() {
            return Err(Error::bad_request(format!("{key}: it is given twice; give it once")));
        }
    }
    Ok(found)
}

#[cold]
fn unknown_parameter(key: &str, name: Option<&str>) -> Error {
    let key: String = key.chars().take(NAME_SHOWN_MAX).collect();
    Error::bad_request(match name {
        Some(name) => format!("unknown parameter {key:?}; this resource has `{name}` only"),
        None => format!("unknown parameter {key:?}; this resource has none"),
    })
}
