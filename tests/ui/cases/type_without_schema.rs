use highwater::openapi::api;
use highwater::{Json, Router};
use serde::Serialize;

#[derive(Serialize)]
struct Todo {
    title: String,
}

fn show() -> Json<Todo> {
    Json(Todo { title: "tea".into() })
}

fn main() {
    let _ = Router::new().get("/todo", api(show));
}
