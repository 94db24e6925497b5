//! The smallest program: two routes.
//!
//! `cargo run -p highwater-example-small --example hello`, then `curl http://127.0.0.1:8080/hello/you`.
#![forbid(unsafe_code)]

use highwater::{Path, Router, Server, ServerError};

/// The application: what `main` serves, and tests ask.
pub fn router() -> Router {
    Router::new().get("/", || "Hello, World!").get("/hello/{name}", hello)
}

fn hello(Path(name): Path<String>) -> String {
    format!("Hello, {name}!")
}

fn main() -> Result<(), ServerError> {
    Server::new(router()).run()
}
