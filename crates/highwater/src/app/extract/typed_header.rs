//! Header fields as types of the `headers` crate.

use std::fmt;
use std::ops::{Deref, DerefMut};

use headers::Header as TypedField;
use http::HeaderValue;

use super::FromRequest;
use crate::app::error::Error;
use crate::app::into_response::IntoResponse;
use crate::app::request::Request;
use crate::app::response::Response;

/// A header field as a type of the [`headers`] crate: a field of the request as an argument, and a field of the response in
/// front of an answer. Needs the feature `headers`.
///
/// As an argument it is refused with 400 `invalid_header` if it is missing or malformed.
///
/// ```
/// use std::time::Duration;
///
/// use highwater::headers::{Authorization, CacheControl, authorization::Bearer};
/// use highwater::{Router, TypedHeader};
///
/// fn me(TypedHeader(token): TypedHeader<Authorization<Bearer>>) -> (TypedHeader<CacheControl>, String) {
///     let private = CacheControl::new().with_private().with_max_age(Duration::from_secs(60));
///     (TypedHeader(private), format!("your token has {} bytes", token.token().len()))
/// }
///
/// let app = Router::new().get("/me", me);
/// # app.build().unwrap();
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypedHeader<H>(pub H);

impl<H: TypedField> FromRequest for TypedHeader<H> {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let name = H::name();
        let refuse = |reason: fmt::Arguments<'_>| {
            let message = format!("header field `{name}`: {reason}");
            Error::bad_request(message).with_code("invalid_header")
        };
        let values = request.headers().get_all(name.as_str()).map(HeaderValue::from_bytes);
        let values: Vec<HeaderValue> =
            values.collect::<Result<_, _>>().map_err(|error| refuse(format_args!("{error}")))?;
        match H::decode(&mut values.iter()) {
            Ok(header) => Ok(TypedHeader(header)),
            Err(_) if values.is_empty() => Err(refuse(format_args!("missing"))),
            Err(error) => Err(refuse(format_args!("{error}"))),
        }
    }

    fn is_present(request: &Request<'_>) -> bool {
        request.headers().get(H::name().as_str()).is_some()
    }
}

/// The field replaces those of its name.
impl<H: TypedField, R: IntoResponse> IntoResponse for (TypedHeader<H>, R) {
    fn into_response(self) -> Response {
        let (TypedHeader(header), response) = self;
        let mut response = response.into_response();
        response.remove_header(H::name());
        let mut values = Vec::new();
        header.encode(&mut values);
        for value in values {
            response.append_header(H::name().clone(), value);
        }
        response
    }
}

impl<H> Deref for TypedHeader<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.0
    }
}

impl<H> DerefMut for TypedHeader<H> {
    fn deref_mut(&mut self) -> &mut H {
        &mut self.0
    }
}
