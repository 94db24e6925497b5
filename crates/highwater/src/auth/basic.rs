//! A user and a password with each request (RFC 7617).

use std::fmt;
use std::ops::ControlFlow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;

use super::field::{credentials, is_quotable, unauthorized};
use crate::app::{Error, FromRequest, IntoResponse, Layer, Request, Response};

/// Requires a user name and a password; browsers ask their users for them. `check` gets both, and returns a value that handlers
/// take as [`Extension<T>`](crate::Extension), or `None`: then the answer is 401, with `WWW-Authenticate: Basic` and the
/// `realm`, the name of the protected area.
///
/// The password is sent in plain text with each request: use it over TLS only. The check runs on the worker and must not wait;
/// a check with a slow hash belongs in an awaited extractor, which begins with [`BasicCredentials`]. Compare secrets with
/// [`same`](super::same).
///
/// ```
/// use highwater::auth::{basic, same};
/// use highwater::testing::Client;
/// use highwater::{Extension, Router};
///
/// #[derive(Clone)]
/// struct User(String);
///
/// let staff = basic("staff", |user: &str, password: &str| {
///     (user == "aladdin" && same(password, "open sesame")).then(|| User(user.to_owned()))
/// });
/// let router = Router::new().layer(staff).get("/me", |Extension(user): Extension<User>| user.0);
/// let client = Client::new(router);
/// assert_eq!(client.get("/me").status, 401);
/// client.set_header("authorization", "Basic YWxhZGRpbjpvcGVuIHNlc2FtZQ==");
/// assert_eq!(client.get("/me").text(), "aladdin");
/// ```
pub fn basic<T, F>(realm: &str, check: F) -> Layer
where
    T: Clone + Send + Sync + 'static,
    F: Fn(&str, &str) -> Option<T> + Send + Sync + 'static,
{
    if !is_quotable(realm) {
        let realm = realm.escape_debug();
        return Layer::new()
            .problem(format!("basic(\"{realm}\", …): a realm is visible ASCII without quotes"));
    }
    let challenge = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"");
    let challenge = HeaderValue::try_from(challenge).expect("the realm was checked");
    let layer = Layer::new().on_request(move |request: &Request<'_>| -> ControlFlow<Response> {
        let known = BasicCredentials::of(request);
        match known.and_then(|known| check(&known.user, &known.password)) {
            Some(value) => {
                request.insert(value);
                ControlFlow::Continue(())
            }
            None => {
                let message = "the credentials are not a user name and a password";
                ControlFlow::Break(unauthorized(message, challenge.clone()).into_response())
            }
        }
    });
    #[cfg(feature = "openapi")]
    let layer = layer.documents(|operation: &mut crate::app::openapi::Operation<'_>| {
        let scheme = crate::app::openapi::SecurityScheme::http("basic");
        super::field::document(
            operation,
            "basic",
            &scheme,
            "The user and the password are missing or wrong.",
        );
    });
    layer.everywhere()
}

/// The user and the password of a request, as an argument. They are read, not checked; 401 if they are missing.
#[derive(Clone, PartialEq, Eq)]
pub struct BasicCredentials {
    /// The user; never with a colon.
    pub user: String,
    /// The password.
    pub password: String,
}

impl BasicCredentials {
    fn of(request: &Request<'_>) -> Option<Self> {
        let bytes = STANDARD.decode(credentials(request, "basic")?).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (user, password) = text.split_once(':')?;
        Some(BasicCredentials { user: user.to_owned(), password: password.to_owned() })
    }
}

impl FromRequest for BasicCredentials {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let challenge = HeaderValue::from_static("Basic realm=\"this service\", charset=\"UTF-8\"");
        Self::of(request).ok_or_else(|| unauthorized("a user and a password are needed", challenge))
    }

    fn is_present(request: &Request<'_>) -> bool {
        credentials(request, "basic").is_some()
    }
}

#[cfg(feature = "openapi")]
impl crate::app::openapi::DescribeInput for BasicCredentials {
    fn describe(operation: &mut crate::app::openapi::Operation<'_>) {
        let scheme = crate::app::openapi::SecurityScheme::http("basic");
        let error = "The user and the password are missing.";
        super::field::document(operation, "basic", &scheme, error);
    }
}

/// Without the password.
impl fmt::Debug for BasicCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BasicCredentials").field("user", &self.user).finish_non_exhaustive()
    }
}
