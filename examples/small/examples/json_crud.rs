//! JSON in and out: create, read, replace and delete.
//!
//! `curl -d '{"title":"tea"}' -H 'content-type: application/json' http://127.0.0.1:8080/todos`
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use highwater::routing::get;
use highwater::{
    Created, Error, IntoResponse, Json, NoContent, Path, Router, Server, ServerError, State,
};
use serde::{Deserialize, Serialize};

#[derive(Clone, Deserialize, Serialize)]
struct Todo {
    title: String,
    #[serde(default)]
    done: bool,
}

/// A database has its own locks; where to make its pool: docs/databases.md.
type Todos = Arc<Mutex<Kept>>;

#[derive(Default)]
struct Kept {
    by_id: BTreeMap<u64, Todo>,
    last_id: u64, // No id is given twice, even after a deletion.
}

/// The application: what `main` serves, and tests ask.
pub fn router() -> Router {
    Router::new()
        .state(Todos::default())
        .route("/todos", get(list).post(create))
        .route("/todos/{id}", get(show).put(replace).delete(remove))
}

fn list(State(todos): State<Todos>) -> Json<BTreeMap<u64, Todo>> {
    Json(todos.lock().unwrap_or_else(PoisonError::into_inner).by_id.clone())
}

fn create(State(todos): State<Todos>, Json(todo): Json<Todo>) -> impl IntoResponse {
    let mut todos = todos.lock().unwrap_or_else(PoisonError::into_inner);
    todos.last_id += 1;
    let id = todos.last_id;
    todos.by_id.insert(id, todo.clone());
    ([("location", format!("/todos/{id}"))], Created(Json(todo)))
}

fn show(State(todos): State<Todos>, Path(id): Path<u64>) -> Result<Json<Todo>, Error> {
    let todos = todos.lock().unwrap_or_else(PoisonError::into_inner);
    todos.by_id.get(&id).cloned().map(Json).ok_or_else(|| unknown(id))
}

fn replace(
    State(todos): State<Todos>,
    Path(id): Path<u64>,
    Json(new): Json<Todo>,
) -> Result<Json<Todo>, Error> {
    let mut todos = todos.lock().unwrap_or_else(PoisonError::into_inner);
    let todo = todos.by_id.get_mut(&id).ok_or_else(|| unknown(id))?;
    todo.clone_from(&new);
    Ok(Json(new))
}

fn remove(State(todos): State<Todos>, Path(id): Path<u64>) -> Result<NoContent, Error> {
    let mut todos = todos.lock().unwrap_or_else(PoisonError::into_inner);
    todos.by_id.remove(&id).map(|_| NoContent).ok_or_else(|| unknown(id))
}

fn unknown(id: u64) -> Error {
    Error::not_found(format!("there is no todo {id}"))
}

fn main() -> Result<(), ServerError> {
    Server::new(router()).run()
}
