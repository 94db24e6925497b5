//! How does an axum service look that runs on Highwater? Like any other: nothing in here knows of it. Only
//! `main.rs` does, in one line.
//!
//! It has something of everything that services have: extractors, state, errors of its own, uploads,
//! streams, events, a WebSocket, and tower-http's layers around all of it. The checks in `tests/` are made
//! under `axum::serve` and under `highwater::serve`, and compare the answers byte by byte.
#![forbid(unsafe_code)]

mod streams;

/// Its programs are compiled as documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/coming-from-axum.md")]
struct ComingFromAxum;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{ConnectInfo, Form, Multipart, Path, Query, State};
use axum::http::{HeaderName, StatusCode};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_millis(500);

type Todos = Arc<Mutex<Vec<Todo>>>;

/// Something to do.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Todo {
    title: String,
    #[serde(default)]
    done: bool,
}

/// What can go wrong, in the service's own words.
enum TodoError {
    Missing(usize),
    Untitled,
}

impl IntoResponse for TodoError {
    fn into_response(self) -> Response {
        match self {
            TodoError::Missing(id) => (StatusCode::NOT_FOUND, format!("no todo {id}")),
            TodoError::Untitled => (StatusCode::UNPROCESSABLE_ENTITY, "a title, please".into()),
        }
        .into_response()
    }
}

/// The service.
pub fn app() -> Router {
    let request_id = HeaderName::from_static("x-request-id");
    Router::new()
        .route("/", get(|| async { "Hello, World!" }))
        .route("/hello/{name}", get(hello))
        .route("/todos", get(list).post(create))
        .route("/todos/{id}", get(show).delete(remove))
        .route("/form", post(form))
        .route("/peer", get(peer))
        .route("/old", get(|| async { Redirect::permanent("/") }))
        .route("/nothing", get(|| async { StatusCode::NO_CONTENT }))
        .route("/slow", get(slow))
        .route("/upload", post(upload))
        .route("/length", post(streams::length))
        .route("/echo", post(streams::echo))
        .route("/signed", post(streams::signed))
        .route("/rows/{count}", get(streams::rows))
        .route("/sized", get(streams::sized))
        .route("/trailers", get(streams::trailers))
        .route("/events", get(streams::events))
        .route("/endless", get(streams::endless))
        .route("/ws", any(streams::web_socket))
        .with_state(Todos::default())
        .layer(CompressionLayer::new())
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, TIMEOUT))
        .layer(CorsLayer::permissive())
        .layer(PropagateRequestIdLayer::new(request_id.clone()))
        .layer(SetRequestIdLayer::new(request_id, MakeRequestUuid))
        .layer(TraceLayer::new_for_http())
        // Behind the layers, which do not cover it: probes are many and say nothing.
        .route("/health", get(|| async { "ok" }))
}

async fn hello(Path(name): Path<String>) -> Html<String> {
    Html(format!("<p>Hello, {name}!</p>"))
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    offset: usize,
    limit: Option<usize>,
}

async fn list(State(todos): State<Todos>, Query(page): Query<Page>) -> Json<Vec<Todo>> {
    let todos = todos.lock().unwrap_or_else(PoisonError::into_inner);
    Json(todos.iter().skip(page.offset).take(page.limit.unwrap_or(100)).cloned().collect())
}

async fn create(
    State(todos): State<Todos>,
    Json(todo): Json<Todo>,
) -> Result<(StatusCode, Json<Todo>), TodoError> {
    if todo.title.is_empty() {
        return Err(TodoError::Untitled);
    }
    todos.lock().unwrap_or_else(PoisonError::into_inner).push(todo.clone());
    Ok((StatusCode::CREATED, Json(todo)))
}

async fn show(State(todos): State<Todos>, Path(id): Path<usize>) -> Result<Json<Todo>, TodoError> {
    let todos = todos.lock().unwrap_or_else(PoisonError::into_inner);
    todos.get(id).cloned().map(Json).ok_or(TodoError::Missing(id))
}

async fn remove(
    State(todos): State<Todos>,
    Path(id): Path<usize>,
) -> Result<StatusCode, TodoError> {
    let mut todos = todos.lock().unwrap_or_else(PoisonError::into_inner);
    if id >= todos.len() {
        return Err(TodoError::Missing(id));
    }
    todos.remove(id);
    Ok(StatusCode::NO_CONTENT)
}

async fn form(Form(todo): Form<Todo>) -> String {
    todo.title
}

async fn peer(ConnectInfo(peer): ConnectInfo<SocketAddr>) -> String {
    peer.ip().to_string()
}

async fn slow() -> &'static str {
    tokio::time::sleep(TIMEOUT * 20).await;
    "too late"
}

async fn upload(mut form: Multipart) -> Result<String, (StatusCode, String)> {
    let mut seen = String::new();
    let refuse =
        |error: axum::extract::multipart::MultipartError| (error.status(), error.body_text());
    while let Some(field) = form.next_field().await.map_err(refuse)? {
        let name = field.name().unwrap_or_default().to_owned();
        let content = field.bytes().await.map_err(refuse)?;
        seen.push_str(&format!("{name}: {} bytes\n", content.len()));
    }
    Ok(seen)
}
