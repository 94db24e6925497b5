//! A token with each request (RFC 6750): any client that has it is admitted.

use std::fmt;
use std::ops::ControlFlow;

use http::HeaderValue;

use super::field::{credentials, unauthorized};
use crate::app::{Error, FromRequest, IntoResponse, Layer, Request, Response};

/// Requires a token, `Authorization: Bearer …`. `check` gets it, and returns a value that handlers take as
/// [`Extension<T>`](crate::Extension), or `None`: then the answer is 401, with `WWW-Authenticate: Bearer`.
///
/// The check runs on the worker and must not wait: look the token up in memory. A check that queries a database belongs in
/// an awaited extractor, which begins with [`BearerToken`]. For signed tokens, use `jwt`.
///
/// ```
/// use std::collections::HashMap;
///
/// use highwater::auth::bearer;
/// use highwater::testing::Client;
/// use highwater::{Extension, Router};
///
/// #[derive(Clone)]
/// struct Service(&'static str);
///
/// // Found by their hashes, or by `same` among a few: the time of a lookup must not tell how much of a token is right.
/// let known = HashMap::from([("w1EWm", Service("invoices"))]);
/// let keys = bearer(move |token: &str| known.get(token).cloned());
/// let client = Client::new(Router::new().layer(keys).get("/", |Extension(it): Extension<Service>| it.0));
/// assert_eq!(client.get("/").header("www-authenticate"), Some("Bearer"));
/// client.set_header("authorization", "Bearer w1EWm");
/// assert_eq!(client.get("/").text(), "invoices");
/// ```
pub fn bearer<T, F>(check: F) -> Layer
where
    T: Clone + Send + Sync + 'static,
    F: Fn(&str) -> Option<T> + Send + Sync + 'static,
{
    let layer = Layer::new().on_request(move |request: &Request<'_>| -> ControlFlow<Response> {
        let Some(token) = credentials(request, "bearer") else {
            return ControlFlow::Break(missing().into_response());
        };
        match check(token) {
            Some(value) => {
                request.insert(value);
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(invalid("the token is not known").into_response()),
        }
    });
    #[cfg(feature = "openapi")]
    let layer = layer.documents(|operation: &mut crate::app::openapi::Operation<'_>| {
        let scheme = crate::app::openapi::SecurityScheme::http("bearer");
        super::field::document(operation, "bearer", &scheme, "The token is missing or not known.");
    });
    layer.everywhere()
}

/// 401 for a request without a token: what is wanted, and nothing else (RFC 6750 §3.1).
pub(super) fn missing() -> Error {
    let message = "send a token: Authorization: Bearer …";
    unauthorized(message, HeaderValue::from_static("Bearer"))
}

/// 401 for a token that does not count.
pub(super) fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    let challenge = HeaderValue::from_static("Bearer error=\"invalid_token\"");
    unauthorized(message, challenge).with_code("invalid_token")
}

/// The token that a request has sent as `Authorization: Bearer …`: an argument. It is read, not checked. 401 if there is
/// none.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken(pub String);

impl FromRequest for BearerToken {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let token = credentials(request, "bearer").ok_or_else(missing)?;
        Ok(BearerToken(token.to_owned()))
    }

    fn is_present(request: &Request<'_>) -> bool {
        credentials(request, "bearer").is_some()
    }
}

#[cfg(feature = "openapi")]
impl crate::app::openapi::DescribeInput for BearerToken {
    fn describe(operation: &mut crate::app::openapi::Operation<'_>) {
        let scheme = crate::app::openapi::SecurityScheme::http("bearer");
        super::field::document(operation, "bearer", &scheme, "The token is missing.");
    }
}

/// Without the token: it is a secret.
impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken")
    }
}
