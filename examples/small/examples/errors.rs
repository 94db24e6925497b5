//! An error type of the application, and one shape for all errors: the application's, the router's and the server's.
#![forbid(unsafe_code)]

use std::io;

use highwater::{Error, IntoError, Json, Path, Router, Server, ServerError};
use serde::Serialize;

/// What can go wrong with an order.
enum OrderError {
    Unknown(u64),
    SoldOut,
    Store(io::Error),
}

impl IntoError for OrderError {
    fn into_error(self) -> Error {
        match self {
            OrderError::Unknown(id) => Error::not_found(format!("there is no order {id}")),
            OrderError::SoldOut => Error::conflict("none is left").with_code("sold_out"),
            // The client learns nothing; the log gets the cause.
            OrderError::Store(cause) => Error::internal(cause),
        }
    }
}

/// What clients get. `highwater::Problem` is a ready one: RFC 9457.
#[derive(Serialize)]
struct Failure {
    reason: &'static str,
    text: String,
}

/// The application: what `main` serves, and tests ask.
pub fn router() -> Router {
    Router::new().errors(render).get("/orders/{id}", order)
}

fn render(error: &Error) -> Json<Failure> {
    Json(Failure { reason: error.code(), text: error.message().to_owned() })
}

fn order(Path(id): Path<u64>) -> Result<String, OrderError> {
    match id {
        1 => Ok("a kettle".to_owned()),
        2 => Err(OrderError::SoldOut),
        3 => Err(OrderError::Store(io::Error::other("the disk is full"))),
        _ => Err(OrderError::Unknown(id)),
    }
}

fn main() -> Result<(), ServerError> {
    Server::new(router()).run()
}
