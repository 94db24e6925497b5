//! The schemas of the interface's documents, since most of its bytes are written without serde.
//!
//! `tests/contract.rs` checks real answers against it.

use highwater::openapi::{DescribeInput, OpenApi, Operation};
use highwater::{Json, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use crate::http::Asked;

/// The document, but for the routes.
pub(crate) fn openapi() -> OpenApi {
    OpenApi::new("Events", env!("CARGO_PKG_VERSION"))
        .description("Events that are sold online, by the dates between which they take place.")
        .errors::<Json<Failure>>()
}

impl DescribeInput for Asked {
    fn describe(operation: &mut Operation<'_>) {
        operation.query::<Bounds>();
        operation.error(
            StatusCode::BAD_REQUEST,
            "A parameter cannot be read, or is not one of these (`invalid_parameter`).",
        );
    }
}

/// The query of `GET /search`.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it describes what `Range` reads")]
struct Bounds {
    /// The earliest start, inclusive: an RFC 3339 date-time, a local date-time, or a date, which means its first instant.
    starts_at: Option<Bound>,
    /// The latest end, inclusive: as `starts_at`; a date means its last instant.
    ends_at: Option<Bound>,
}

#[derive(JsonSchema)]
#[schemars(inline, untagged)]
#[expect(dead_code, reason = "it describes what `civil` reads")]
enum Bound {
    DateTime(#[schemars(extend("format" = "date-time"))] String),
    Date(#[schemars(extend("format" = "date"))] String),
}

/// The answer of `GET /search`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Found {
    data: Events,
    /// Always null.
    error: (),
}

#[derive(Serialize, JsonSchema)]
struct Events {
    /// By start, then by id.
    events: Vec<Event>,
}

#[derive(Serialize, JsonSchema)]
struct Event {
    /// The same for ever.
    #[schemars(extend("format" = "uuid"))]
    id: String,
    title: String,
    #[schemars(extend("format" = "date"))]
    start_date: String,
    /// `HH:MM:SS`, local.
    start_time: String,
    #[schemars(extend("format" = "date"))]
    end_date: String,
    /// `HH:MM:SS`, local.
    end_time: String,
    /// Of its zones; null if it has none.
    min_price: Option<f64>,
    max_price: Option<f64>,
}

/// Every error.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Failure {
    /// Always null.
    data: (),
    error: Reason,
}

#[derive(Serialize, JsonSchema)]
struct Reason {
    code: Code,
    /// What is wrong, for people.
    message: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "`ErrorCode` writes them")]
enum Code {
    InvalidParameter,
    InvalidRequest,
    NotFound,
    MethodNotAllowed,
    Overloaded,
    Internal,
}
