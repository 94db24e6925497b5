//! The description of a handler for a document: the types with which extractors, answers, layers and handlers describe
//! themselves.
//!
//! They do so when the application is built ([`About`]), and only if a document is made ([`Operation`]).

mod about;
mod operation;
mod schema;

pub(super) use about::{About, Documentation};
pub(super) use operation::{Answer, Body, Failure};
pub use operation::{Operation, SecurityScheme};
pub use schema::HasSchema;
pub(super) use schema::Schemas;

/// An argument of a handler that [`api`](crate::openapi::api) describes.
///
/// All extractors of this crate implement it. One of your own delegates to them, and adds the errors it makes; if it reads
/// nothing that clients choose, it is empty:
///
/// ```
/// use highwater::openapi::{DescribeInput, Operation};
/// use highwater::{Error, FromRequest, Query, Request, StatusCode};
/// use schemars::JsonSchema;
///
/// /// Which page of a list.
/// struct Page(u32);
///
/// impl FromRequest for Page {
///     fn from_request(request: &Request<'_>) -> Result<Self, Error> {
///         let page = request.query().and_then(|query| query.strip_prefix("page=")).unwrap_or("1");
///         page.parse().map(Page).map_err(|_| Error::bad_request("page: it must be a number"))
///     }
/// }
///
/// #[derive(JsonSchema)]
/// struct PageQuery {
///     /// From 1.
///     page: Option<u32>,
/// }
///
/// impl DescribeInput for Page {
///     fn describe(operation: &mut Operation<'_>) {
///         Query::<PageQuery>::describe(operation);
///         operation.error(StatusCode::BAD_REQUEST, "The page is not a number.");
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the document cannot say what `{Self}` reads",
    label = "this argument is not described",
    note = "implement `openapi::DescribeInput` for it, beside `FromRequest`; or leave the route out of the document: \
            `openapi::hidden(handler)`"
)]
pub trait DescribeInput {
    /// Adds what it reads, and the errors by which it refuses a request.
    fn describe(operation: &mut Operation<'_>);
}

/// What a handler returns, if [`api`](crate::openapi::api) describes it.
///
/// A [`Response`](crate::Response) can be anything, and a [`StatusCode`](crate::StatusCode) any status: return a type that says more (`Json<T>`,
/// [`Created<R>`](crate::Created), [`NoContent`](crate::NoContent)), or say it beside the route: [`Api::returns`](crate::openapi::Api::returns),
/// [`Api::status`](crate::openapi::Api::status).
///
/// An error type of your own says which errors it may be:
///
/// ```
/// use highwater::openapi::{DescribeOutput, Operation};
/// use highwater::{Error, IntoError, StatusCode};
///
/// struct OutOfStock;
///
/// impl IntoError for OutOfStock {
///     fn into_error(self) -> Error {
///         Error::conflict("there is none left").with_code("out_of_stock")
///     }
/// }
///
/// impl DescribeOutput for OutOfStock {
///     fn describe(operation: &mut Operation<'_>) {
///         operation.error(StatusCode::CONFLICT, "There is none left (`out_of_stock`).");
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the document cannot say what `{Self}` answers",
    label = "this handler's answer is not described",
    note = "return a type that says more than `{Self}`: `Json<T>`, `Created<R>`, `NoContent`, text or bytes, or a `Result` \
            of them; or implement `openapi::DescribeOutput` for a type of your own",
    note = "or leave the route out of the document: `openapi::hidden(handler)`"
)]
pub trait DescribeOutput {
    /// Adds what it may answer.
    fn describe(operation: &mut Operation<'_>);
}
