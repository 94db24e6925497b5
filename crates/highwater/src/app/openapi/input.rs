//! What does a handler read? Each extractor describes itself.

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri, Version};
use serde_json::json;

use crate::app::body::BodyStream;
#[cfg(feature = "csv")]
use crate::app::csv::Csv;
use crate::app::described::{DescribeInput, HasSchema, Operation};
use crate::app::disconnected::Disconnected;
use crate::app::draining::Draining;
use crate::app::error::Error;
use crate::app::extract::{
    Accept, AcceptLanguage, Awaited, Cookies, Extension, Form, FromHeader, Header, Json,
    MatchedPath, OriginalUri, Path, PeerAddr, Preconditions, Query, RawQuery, RequestId, State,
};
use crate::app::worker_local::WorkerLocal;

/// A list of [`DescribeInput`]s.
pub trait DescribeInputs {
    /// Adds all of them.
    fn describe_all(operation: &mut Operation<'_>);
}

macro_rules! nothing_that_clients_choose {
    ($($name:ty)*) => {$(
        impl DescribeInput for $name {
            fn describe(_: &mut Operation<'_>) {}
        }
    )*};
}

nothing_that_clients_choose! {
    Method Version Uri OriginalUri HeaderMap RawQuery PeerAddr MatchedPath RequestId Cookies Disconnected Draining AcceptLanguage
}

impl DescribeInput for () {
    fn describe(_: &mut Operation<'_>) {}
}

impl<T> DescribeInput for State<T> {
    fn describe(_: &mut Operation<'_>) {}
}

impl<T> DescribeInput for Extension<T> {
    fn describe(_: &mut Operation<'_>) {}
}

impl<T> DescribeInput for WorkerLocal<T> {
    fn describe(_: &mut Operation<'_>) {}
}

impl DescribeInput for Accept {
    fn describe(operation: &mut Operation<'_>) {
        operation.error(StatusCode::NOT_ACCEPTABLE, "No representation matches `Accept`.");
    }
}

impl DescribeInput for Preconditions {
    fn describe(operation: &mut Operation<'_>) {
        operation.optional(|operation| {
            operation.header("If-Match", "Only if the resource's `ETag` is one of these.");
            operation.header("If-None-Match", "Only if the resource's `ETag` is none of these.");
        });
        operation.error(
            StatusCode::PRECONDITION_FAILED,
            "The resource has changed, or does not match the condition.",
        );
    }
}

impl<T: HasSchema> DescribeInput for Path<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.path::<T>();
        operation.error(StatusCode::BAD_REQUEST, "A path parameter is not valid (`invalid_path`).");
    }
}

impl<T: HasSchema> DescribeInput for Query<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.query::<T>();
        operation
            .error(StatusCode::BAD_REQUEST, "A query parameter is not valid (`invalid_query`).");
    }
}

impl<T: HasSchema> DescribeInput for Json<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.body::<T>("application/json");
        operation.error(StatusCode::BAD_REQUEST, "The content is not JSON (`invalid_json`).");
        body_errors(operation, true);
    }
}

impl<T: HasSchema> DescribeInput for Form<T> {
    fn describe(operation: &mut Operation<'_>) {
        let schema = operation.schemas.form::<T>();
        operation.content("application/x-www-form-urlencoded", schema);
        body_errors(operation, true);
    }
}

/// Text, with the schema of a row: its members are the columns.
#[cfg(feature = "csv")]
impl<T: HasSchema> DescribeInput for Csv<Vec<T>> {
    fn describe(operation: &mut Operation<'_>) {
        operation.body_of_items::<T>("text/csv");
        operation.error(StatusCode::BAD_REQUEST, "The content is not CSV (`invalid_csv`).");
        body_errors(operation, true);
    }
}

/// The errors of a body that is taken whole.
fn body_errors(operation: &mut Operation<'_>, is_typed: bool) {
    operation.error(StatusCode::PAYLOAD_TOO_LARGE, "The content is too large (`body_too_large`).");
    if is_typed {
        operation.error(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "The content's media type is not supported.",
        );
        operation.error(
            StatusCode::UNPROCESSABLE_ENTITY,
            "A field of the content is not valid (`invalid_body`).",
        );
    }
}

macro_rules! any_bytes {
    ($($name:ty)*) => {$(
        impl DescribeInput for $name {
            fn describe(operation: &mut Operation<'_>) {
                operation.optional(|operation| operation.content("*/*", json!({})));
                body_errors(operation, false);
            }
        }
    )*};
}

any_bytes! { Bytes Vec<u8> BodyStream }

impl DescribeInput for String {
    fn describe(operation: &mut Operation<'_>) {
        operation.optional(|operation| operation.content("*/*", json!({ "type": "string" })));
        operation.error(StatusCode::BAD_REQUEST, "The content is not UTF-8 (`invalid_body`).");
        body_errors(operation, false);
    }
}

impl<T: FromHeader> DescribeInput for Header<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.header(T::NAME, "");
        operation.error(StatusCode::BAD_REQUEST, "A header field is not valid (`invalid_header`).");
    }
}

#[cfg(feature = "headers")]
impl<H: headers::Header> DescribeInput for crate::app::TypedHeader<H> {
    fn describe(operation: &mut Operation<'_>) {
        operation.header(H::name().as_str(), "");
        operation.error(StatusCode::BAD_REQUEST, "A header field is not valid (`invalid_header`).");
    }
}

#[cfg(feature = "multipart")]
impl DescribeInput for crate::app::multipart::Multipart {
    fn describe(operation: &mut Operation<'_>) {
        operation.content("multipart/form-data", json!({ "type": "object" }));
        operation.error(
            StatusCode::BAD_REQUEST,
            "The content is not a valid multipart form (`invalid_multipart`).",
        );
        body_errors(operation, false);
        operation.error(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "The content's media type is not supported.",
        );
    }
}

#[cfg(feature = "cookies")]
nothing_that_clients_choose! {
    crate::app::cookies::CookieJar crate::app::cookies::SignedCookies crate::app::cookies::PrivateCookies
}

#[cfg(feature = "validation")]
impl<E: DescribeInput> DescribeInput for crate::app::Valid<E> {
    fn describe(operation: &mut Operation<'_>) {
        E::describe(operation);
        operation.error(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Fields break rules (`validation_failed`); all of them are in `details`.",
        );
        let failure = operation.errors.get_mut(&StatusCode::UNPROCESSABLE_ENTITY.as_u16());
        failure.expect("it was just added").has_fields = true;
    }
}

impl<T: DescribeInput> DescribeInput for Awaited<T> {
    fn describe(operation: &mut Operation<'_>) {
        T::describe(operation);
    }
}

impl<T: DescribeInput> DescribeInput for Option<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.optional(T::describe);
    }
}

/// The handler decides what its failure means.
impl<T: DescribeInput> DescribeInput for Result<T, Error> {
    fn describe(operation: &mut Operation<'_>) {
        let errors = std::mem::take(&mut operation.errors);
        operation.optional(T::describe);
        operation.errors = errors;
    }
}

/// Several as one, such as the context of a resource.
macro_rules! implement_for_tuple {
    ($($part:ident)*) => {
        impl<$($part: DescribeInput),*> DescribeInput for ($($part,)*) {
            fn describe(operation: &mut Operation<'_>) {
                $($part::describe(operation);)*
            }
        }
    };
}

implement_for_tuple!(A B);
implement_for_tuple!(A B C);
implement_for_tuple!(A B C D);

macro_rules! implement_for_arity {
    ($($arg:ident)*) => {
        impl<$($arg: DescribeInput),*> DescribeInputs for ($($arg,)*) {
            #[allow(unused_variables, reason = "there may be no argument")]
            fn describe_all(operation: &mut Operation<'_>) {
                $($arg::describe(operation);)*
            }
        }
    };
}

implement_for_arity!();
implement_for_arity!(A);
implement_for_arity!(A B);
implement_for_arity!(A B C);
implement_for_arity!(A B C D);
implement_for_arity!(A B C D E);
implement_for_arity!(A B C D E G);
implement_for_arity!(A B C D E G H);
implement_for_arity!(A B C D E G H I);
