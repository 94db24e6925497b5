//! What does a handler answer? Each return type describes itself.

use std::borrow::Cow;
use std::convert::Infallible;
use std::future::Future;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;

use crate::app::body::Body;
#[cfg(feature = "csv")]
use crate::app::csv::{Csv, CsvAnswer, CsvRows, TYPE};
use crate::app::described::{DescribeOutput, HasSchema, Operation};
use crate::app::error::Error;
use crate::app::extract::Json;
use crate::app::handler::{Async, Inline};
use crate::app::into_response::{Html, Redirect};
use crate::app::ndjson::NdJson;
use crate::app::problem::Problem;
use crate::app::response::Response;
use crate::app::statuses::{Accepted, Created, NoContent};

/// The return type of a function: a type with [`DescribeOutput`], or a future of one.
pub trait DescribeOutputs<Way> {
    /// Adds what it may answer.
    fn describe_output(operation: &mut Operation<'_>);
}

impl<R: DescribeOutput> DescribeOutputs<Inline> for R {
    fn describe_output(operation: &mut Operation<'_>) {
        R::describe(operation);
    }
}

impl<F: Future<Output: DescribeOutput>> DescribeOutputs<Async> for F {
    fn describe_output(operation: &mut Operation<'_>) {
        F::Output::describe(operation);
    }
}

macro_rules! answers {
    ($($media_type:literal $schema:tt: $($name:ty)*;)*) => {$($(
        impl DescribeOutput for $name {
            fn describe(operation: &mut Operation<'_>) {
                operation.ok(Some(($media_type, json!($schema))));
            }
        }
    )*)*};
}

answers! {
    "text/plain; charset=utf-8" { "type": "string" }: &'static str String Cow<'static, str>;
    "application/octet-stream" {}: &'static [u8] Vec<u8> Bytes;
}

impl<T> DescribeOutput for Html<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.ok(Some(("text/html; charset=utf-8", json!({ "type": "string" }))));
    }
}

impl DescribeOutput for Problem {
    fn describe(operation: &mut Operation<'_>) {
        let schema = operation.schemas.output::<ProblemSchema>();
        operation.ok(Some(("application/problem+json", schema)));
    }
}

/// The shape of a [`Problem`].
struct ProblemSchema;

impl JsonSchema for ProblemSchema {
    fn schema_name() -> Cow<'static, str> {
        "Problem".into()
    }

    fn schema_id() -> Cow<'static, str> {
        "highwater::Problem".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Problem details (RFC 9457).",
            "type": "object",
            "properties": {
                "title": { "type": "string", "description": "The status's phrase." },
                "status": { "type": "integer" },
                "detail": { "type": "string", "description": "What is wrong, for people." },
                "code": { "type": "string", "description": "A name for programs." },
                "errors": { "description": "Data for programs, such as all wrong fields." },
            },
            "required": ["title", "status", "detail", "code"],
        })
    }
}

/// The schema is that of a line.
impl<I: IntoIterator<Item: HasSchema>> DescribeOutput for NdJson<I> {
    fn describe(operation: &mut Operation<'_>) {
        let schema = operation.schemas.output::<I::Item>();
        operation.ok(Some(("application/x-ndjson", schema)));
    }
}

/// Text, with the schema of a row: its members are the columns.
#[cfg(feature = "csv")]
impl<R: CsvRows<Row: HasSchema>> DescribeOutput for Csv<R> {
    fn describe(operation: &mut Operation<'_>) {
        operation.ok_with_items::<R::Row>(TYPE);
    }
}

#[cfg(feature = "csv")]
impl<R: CsvRows<Row: HasSchema>> DescribeOutput for CsvAnswer<R> {
    fn describe(operation: &mut Operation<'_>) {
        Csv::<R>::describe(operation);
    }
}

impl<T: HasSchema> DescribeOutput for Json<T> {
    fn describe(operation: &mut Operation<'_>) {
        let schema = operation.schemas.output::<T>();
        operation.ok(Some(("application/json", schema)));
    }
}

macro_rules! anything {
    ($($name:ident)*) => {$(
        /// It can be anything: the route says what it is.
        impl DescribeOutput for $name {
            fn describe(operation: &mut Operation<'_>) {
                operation.problem(concat!(
                    "its handler returns a `", stringify!($name), "`, which can be anything; say what it answers: \
                     `api(handler).returns::<Json<T>>()`"
                ));
            }
        }
    )*};
}

anything! { Response Body }

impl DescribeOutput for () {
    fn describe(operation: &mut Operation<'_>) {
        operation.ok(None);
    }
}

impl DescribeOutput for Infallible {
    fn describe(_: &mut Operation<'_>) {}
}

/// Only a request decides which.
impl DescribeOutput for StatusCode {
    fn describe(operation: &mut Operation<'_>) {
        operation.nested(|operation| operation.ok(None), |answer| answer.status = None);
    }
}

impl DescribeOutput for Redirect {
    fn describe(operation: &mut Operation<'_>) {
        operation.nested(
            |operation| operation.ok(None),
            |answer| {
                answer.status = None;
                answer.headers.push(("Location".into(), "Where to go.".into()));
            },
        );
    }
}

impl DescribeOutput for NoContent {
    fn describe(operation: &mut Operation<'_>) {
        let status = StatusCode::NO_CONTENT;
        operation.nested(|operation| operation.ok(None), |answer| answer.status = Some(status));
    }
}

macro_rules! with_status {
    ($($name:ident $status:ident)*) => {$(
        impl<R: DescribeOutput> DescribeOutput for $name<R> {
            fn describe(operation: &mut Operation<'_>) {
                operation.nested(R::describe, |answer| answer.status = Some(StatusCode::$status));
            }
        }
    )*};
}

with_status! { Created CREATED Accepted ACCEPTED }

/// Any error, in the shape that all have.
impl DescribeOutput for Error {
    fn describe(_: &mut Operation<'_>) {}
}

impl<R: DescribeOutput> DescribeOutput for Option<R> {
    fn describe(operation: &mut Operation<'_>) {
        R::describe(operation);
        operation.error(StatusCode::NOT_FOUND, "There is no such thing.");
    }
}

impl<R: DescribeOutput, E: DescribeOutput> DescribeOutput for Result<R, E> {
    fn describe(operation: &mut Operation<'_>) {
        R::describe(operation);
        E::describe(operation);
    }
}

impl<R: DescribeOutput> DescribeOutput for (StatusCode, R) {
    fn describe(operation: &mut Operation<'_>) {
        operation.nested(R::describe, |answer| answer.status = None);
    }
}

impl<K, V, const N: usize, R: DescribeOutput> DescribeOutput for ([(K, V); N], R) {
    fn describe(operation: &mut Operation<'_>) {
        R::describe(operation);
    }
}

impl<K, V, const N: usize, R: DescribeOutput> DescribeOutput for (StatusCode, [(K, V); N], R) {
    fn describe(operation: &mut Operation<'_>) {
        operation.nested(R::describe, |answer| answer.status = None);
    }
}

impl<R: DescribeOutput> DescribeOutput for (HeaderMap, R) {
    fn describe(operation: &mut Operation<'_>) {
        R::describe(operation);
    }
}

#[cfg(feature = "headers")]
impl<H: headers::Header, R: DescribeOutput> DescribeOutput for (crate::app::TypedHeader<H>, R) {
    fn describe(operation: &mut Operation<'_>) {
        operation.nested(R::describe, |answer| {
            answer.headers.push((H::name().as_str().to_owned(), String::new()));
        });
    }
}

#[cfg(feature = "cookies")]
macro_rules! with_cookies {
    ($($name:ident)*) => {$(
        impl<R: DescribeOutput> DescribeOutput for (crate::app::cookies::$name, R) {
            fn describe(operation: &mut Operation<'_>) {
                operation.nested(R::describe, |answer| {
                    answer.headers.push(("Set-Cookie".into(), String::new()));
                });
            }
        }
    )*};
}

#[cfg(feature = "cookies")]
with_cookies! { CookieJar SignedCookies PrivateCookies }
