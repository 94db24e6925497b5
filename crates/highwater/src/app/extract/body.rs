//! The body of a request: whole, or as a stream.

use bytes::Bytes;

use super::{BodyUse, FromRequest};
use crate::app::body::BodyStream;
use crate::app::error::Error;
use crate::app::request::Request;

/// The body of a request whose route takes it whole.
pub(in crate::app) fn whole<'r>(request: &'r Request<'_>) -> Result<&'r [u8], Error> {
    request.body().ok_or_else(streamed)
}

/// Reached only beside an extractor that streams the body, but routes with two body extractors are refused; or
/// through an extractor that does not declare `Whole`.
fn streamed() -> Error {
    Error::internal("the body of this route is streamed")
}

impl FromRequest for Bytes {
    const BODY: BodyUse = BodyUse::Whole;

    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        request.kept_body().ok_or_else(streamed)
    }

    fn is_present(request: &Request<'_>) -> bool {
        has_body(request)
    }
}

impl FromRequest for Vec<u8> {
    const BODY: BodyUse = BodyUse::Whole;

    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        whole(request).map(<[u8]>::to_vec)
    }

    fn is_present(request: &Request<'_>) -> bool {
        has_body(request)
    }
}

/// The body as UTF-8, whatever its `Content-Type` says; else 400.
impl FromRequest for String {
    const BODY: BodyUse = BodyUse::Whole;

    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        match std::str::from_utf8(whole(request)?) {
            Ok(text) => Ok(String::from(text)),
            Err(error) => {
                let message =
                    format!("the body is not UTF-8 from its byte {} on", error.valid_up_to());
                Err(Error::bad_request(message).with_code("invalid_body"))
            }
        }
    }

    fn is_present(request: &Request<'_>) -> bool {
        has_body(request)
    }
}

impl FromRequest for BodyStream {
    const BODY: BodyUse = BodyUse::Streamed;

    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        Ok(request.take_stream())
    }

    fn is_present(request: &Request<'_>) -> bool {
        has_body(request)
    }
}

/// Whether there is a body, or will be; an empty one counts as none.
pub(in crate::app) fn has_body(request: &Request<'_>) -> bool {
    request.body().is_none_or(|body| !body.is_empty())
}
