//! The content of a token, for handlers.

use std::ops::Deref;
use std::sync::Arc;

use serde_core::de::DeserializeOwned;

use super::token::Verified;
use crate::app::{Error, FromRequest, Request};

/// The claims of the request's token, which the layer [`jwt`](super::jwt) has verified: an argument. Members that `T` does not have are
/// skipped.
///
/// 401 `invalid_token` if the claims are not a `T`: the token is valid, but has other claims. 500 if no such layer covers
/// the route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims<T>(pub T);

/// The subject of the request's token (`sub`): an argument that is cheaper than [`Claims<T>`]. 401 if the token has none, or an
/// empty one; 500 if no layer [`jwt`](super::jwt) covers the route.
///
/// ```
/// use highwater::auth::Subject;
///
/// fn me(subject: Subject) -> String {
///     format!("you are {}", &*subject)
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject(pub Arc<str>);

impl Deref for Subject {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

fn verified(request: &Request<'_>) -> Result<Arc<Verified>, Error> {
    let missing =
        || Error::internal("no layer `jwt(…)` covers this route, so nothing has verified a token");
    request.extension::<Arc<Verified>>().ok_or_else(missing)
}

impl<T: DeserializeOwned> FromRequest for Claims<T> {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let verified = verified(request)?;
        let claims = T::deserialize(&verified.claims);
        claims.map(Claims).map_err(|error| {
            super::invalid(format!(
                "the token is valid, but its claims are not the expected ones: {error}"
            ))
        })
    }

    fn is_present(request: &Request<'_>) -> bool {
        request.extension::<Arc<Verified>>().is_some()
    }
}

impl FromRequest for Subject {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let verified = verified(request)?;
        let subject = verified.subject.clone().filter(|subject| !subject.is_empty());
        subject.map(Subject).ok_or_else(|| super::invalid("the token has no subject"))
    }

    fn is_present(request: &Request<'_>) -> bool {
        request.extension::<Arc<Verified>>().is_some()
    }
}

/// Empty: the layer documents it.
#[cfg(feature = "openapi")]
impl<T> crate::app::openapi::DescribeInput for Claims<T> {
    fn describe(_: &mut crate::app::openapi::Operation<'_>) {}
}

/// Empty: the layer documents it.
#[cfg(feature = "openapi")]
impl crate::app::openapi::DescribeInput for Subject {
    fn describe(_: &mut crate::app::openapi::Operation<'_>) {}
}
