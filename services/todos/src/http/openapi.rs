//! The schemas of the interface's documents, since most of its bytes are written without serde.
//!
//! `tests/contract.rs` checks real answers against it.

use highwater::openapi::{Api, DescribeInput, OpenApi, Operation};
use highwater::{Json, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use super::error::Shape;
use super::input::{
    Asked, Caller, Change, ChangeBody, NewTodo, NewTodoBody, NoParameters, TodoId, Waits,
};
use super::write::Body;

/// The document, but for the routes.
pub(super) fn openapi() -> OpenApi {
    OpenApi::new("Todos", env!("CARGO_PKG_VERSION"))
        .description("Todos that everybody reads, and whose owners write them. Writes are queued: 202 means that it is durable.")
        .errors::<Json<Shape<'static>>>()
}

/// What all writes have in common: they answer 202 once the command is durable, and more if they may wait.
pub(super) fn writes<H, M>(route: Api<H, M>) -> Api<H, M> {
    route.tag("writing").returns::<highwater::Accepted<Json<Queued>>>().error(
        StatusCode::SERVICE_UNAVAILABLE,
        "The command is not known to be durable, or there is no room.",
    )
}

/// The list of todos.
pub(super) fn listed<H, M>(route: Api<H, M>) -> Api<H, M> {
    let route = route.operation_id("list").tag("reading").summary("The newest todos first");
    route.returns::<Json<Vec<Todo>>>()
}

/// One todo.
pub(super) fn shown<H, M>(route: Api<H, M>) -> Api<H, M> {
    let route = route.operation_id("todo").tag("reading").summary("One todo");
    route.returns::<Json<Todo>>()
}

/// A todo, as clients see it.
#[derive(Serialize, JsonSchema)]
pub(super) struct Todo {
    #[schemars(extend("format" = "uuid"))]
    id: String,
    title: String,
    description: String,
    completed: bool,
    /// Its owner: the subject of the token that it was made with.
    user_id: String,
    #[schemars(extend("format" = "date-time"))]
    created_at: String,
    #[schemars(extend("format" = "date-time"))]
    updated_at: String,
}

/// What became of a command.
#[derive(Serialize, JsonSchema)]
pub(super) struct Queued {
    /// The todo's.
    #[schemars(extend("format" = "uuid"))]
    id: String,
    message: String,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "it describes what `Asked` reads")]
struct ListQuery {
    /// How many, the newest first. Absent, 0 or negative: all that there may be, 10 000.
    limit: Option<i64>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "it describes what `Waits` reads")]
struct WaitQuery {
    /// Answers once every read of this instance shows the effect: 200 or 201.
    wait: Option<Applied>,
}

#[derive(JsonSchema)]
#[schemars(inline, rename_all = "snake_case")]
#[expect(dead_code, reason = "it describes what `Waits` reads")]
enum Applied {
    Applied,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "it describes what `TodoId` reads")]
struct IdPath {
    #[schemars(extend("format" = "uuid"))]
    id: String,
}

impl DescribeInput for Asked {
    fn describe(operation: &mut Operation<'_>) {
        operation.query::<ListQuery>();
        operation.error(
            StatusCode::BAD_REQUEST,
            "`limit` is not a number, or there are other parameters.",
        );
    }
}

impl DescribeInput for NoParameters {
    fn describe(operation: &mut Operation<'_>) {
        operation.error(StatusCode::BAD_REQUEST, "There are parameters.");
    }
}

impl DescribeInput for TodoId {
    fn describe(operation: &mut Operation<'_>) {
        operation.path::<IdPath>();
        operation.error(StatusCode::NOT_FOUND, "There is no such todo, or it is another user's.");
    }
}

/// The layer that asks for tokens documents it.
impl DescribeInput for Caller {
    fn describe(_: &mut Operation<'_>) {}
}

impl DescribeInput for Waits {
    fn describe(operation: &mut Operation<'_>) {
        operation.query::<WaitQuery>();
        operation.error(StatusCode::BAD_REQUEST, "A parameter is not one of these.");
    }
}

macro_rules! bodies {
    ($($name:ident $body:ident)*) => {$(
        impl DescribeInput for Body<$name> {
            fn describe(operation: &mut Operation<'_>) {
                operation.body::<$body>("application/json");
                operation.error(StatusCode::BAD_REQUEST, "The content cannot be read; the field is named.");
                operation.error(StatusCode::PAYLOAD_TOO_LARGE, "The content is too large.");
                operation.error(StatusCode::UNPROCESSABLE_ENTITY, "A value is beyond a todo's limits.");
            }
        }
    )*};
}

bodies! { NewTodo NewTodoBody Change ChangeBody }
