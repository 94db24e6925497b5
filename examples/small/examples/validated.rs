//! Input that is checked by rules, and the document that describes it: `/openapi.json`, and `/docs` for people.
#![forbid(unsafe_code)]

use garde::Validate;
use highwater::openapi::{OpenApi, api};
use highwater::{Created, Json, Path, Router, Server, ServerError, Valid};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize, JsonSchema, Validate)]
struct Guest {
    #[garde(length(chars, min = 1, max = 50))]
    name: String,
    #[garde(email)]
    email: String,
    /// How many come.
    #[garde(range(min = 1, max = 8))]
    seats: u8,
}

/// The application: what `main` serves, and tests ask.
pub fn router() -> Router {
    Router::new()
        .openapi(OpenApi::new("Guests", env!("CARGO_PKG_VERSION")))
        .post("/guests", api(invite).summary("Invites a guest"))
        .get("/guests/{id}", api(show).summary("One guest"))
}

/// A guest with wrong fields is answered 422 before this runs, with all of them in `details`.
fn invite(Valid(Json(guest)): Valid<Json<Guest>>) -> Created<Json<Guest>> {
    Created(Json(guest))
}

fn show(Path(id): Path<u64>) -> Option<Json<Guest>> {
    (id == 1).then(|| Json(Guest { name: "Ann".into(), email: "ann@example.com".into(), seats: 2 }))
}

fn main() -> Result<(), ServerError> {
    Server::new(router()).run()
}
