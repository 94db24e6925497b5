//! Does a form come from a page that this server has made?

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderValue, Method, StatusCode, header};

use crate::app::cookies::{Cookie, Key, SameSite, received};
use crate::app::{Error, FromRequest, IntoResponse, Layer, Request, Response};
use crate::secret::same;

/// The name of the cookie, of the form's field, and, with `X-` before it, of the header field.
const COOKIE: &str = "csrf";
const FIELD: &str = "csrf_token";
const HEADER: &str = "x-csrf-token";

/// Refuses requests that do not repeat the token of a page of this server (cross-site request forgery), with 403 `csrf_token`.
///
/// For browsers that are too old for [`csrf`](super::csrf), and where a policy demands tokens; otherwise that is
/// simpler, and enough. They can be used together.
///
/// A handler that makes a page takes a [`CsrfToken`], and writes its value into a field `csrf_token` of each form, or into a script that sends
/// it as `X-CSRF-Token`. The client gets the same in a signed cookie (`csrf`; `HttpOnly`, `SameSite=Lax`, `Secure`). `GET`,
/// `HEAD` and `OPTIONS` pass; all other requests need both. A form's field is found where the route takes the content whole and it is
/// `application/x-www-form-urlencoded`; forms with files send the header field.
///
/// ```
/// use highwater::cookies::Key;
/// use highwater::layers::{CsrfToken, csrf_tokens};
/// use highwater::{Form, Html, Router};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Transfer { to: String }
///
/// fn page(token: CsrfToken) -> Html<String> {
///     Html(format!("<form method=post>{}<input name=to><button>Send</button></form>", token.field()))
/// }
///
/// let key = Key::from("at least 64 bytes that nobody else knows, the same in each process …".as_bytes());
/// let app = Router::new()
///     .layer(csrf_tokens(key))
///     .get("/transfer", page)
///     .post("/transfer", |Form(transfer): Form<Transfer>| transfer.to);
/// # app.build().unwrap();
/// ```
pub fn csrf_tokens(key: Key) -> CsrfTokens {
    CsrfTokens { key, is_secure: true }
}

/// A layer that requires tokens; made by [`csrf_tokens`].
#[derive(Clone)]
#[must_use = "give it to `Router::layer`"]
pub struct CsrfTokens {
    key: Key,
    is_secure: bool,
}

impl CsrfTokens {
    /// Lets browsers send the cookie without TLS, too: for development.
    pub fn insecure(mut self) -> Self {
        self.is_secure = false;
        self
    }

    fn on_request(&self, request: &Request<'_>) -> ControlFlow<Response> {
        let known = received(request).signed(&self.key).get(COOKIE);
        let known = known.map(|cookie| cookie.value().to_owned());
        let method = request.method();
        // A CONNECT opens a WebSocket, as a GET does in HTTP/1.1.
        let is_safe =
            matches!(method, Method::GET | Method::HEAD | Method::OPTIONS | Method::CONNECT);
        let is_repeated =
            |token: &String| repeated(request).is_some_and(|given| same(given, token));
        if !is_safe && !known.as_ref().is_some_and(is_repeated) {
            let message = "the form has no token of a page of this site, or its cookie is missing; load the page again";
            let error = Error::new(StatusCode::FORBIDDEN, "csrf_token", message);
            return ControlFlow::Break(error.into_response());
        }
        let is_new = known.is_none();
        let value = known.unwrap_or_else(fresh);
        request.insert(CsrfToken { value: value.into(), is_new, is_used: Arc::default() });
        ControlFlow::Continue(())
    }

    fn on_response(&self, request: &Request<'_>, response: &mut Response) {
        let Some(token) = request.extension::<CsrfToken>() else { return };
        if !token.is_new || !token.is_used.load(Ordering::Relaxed) {
            return;
        }
        let cookie = Cookie::build((COOKIE, token.value.to_string()))
            .path("/")
            .http_only(true)
            .same_site(SameSite::Lax)
            .secure(self.is_secure);
        let mut jar = cookie::CookieJar::new();
        jar.signed_mut(&self.key).add(cookie.build());
        for cookie in jar.delta() {
            if let Ok(value) = HeaderValue::try_from(cookie.encoded().to_string()) {
                response.append_header(header::SET_COOKIE, value);
            }
        }
    }
}

/// The token that a request repeats.
fn repeated<'r>(request: &'r Request<'_>) -> Option<&'r [u8]> {
    if let Some(given) = request.headers().get(HEADER) {
        return Some(given);
    }
    let kind = request.header("content-type")?.split(';').next()?.trim();
    if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return None;
    }
    // A token has letters and digits only, and its name needs no escape.
    let pairs = request.body()?.split(|byte| *byte == b'&');
    pairs.filter_map(|pair| pair.strip_prefix(FIELD.as_bytes())?.strip_prefix(b"=")).next()
}

/// 128 bits that nobody can guess, as text.
fn fresh() -> String {
    // The crate's only source of randomness, which is the system's.
    let random = Key::generate();
    random.signing()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The token of the page that is being made: an argument of handlers that [`csrf_tokens`] cover; elsewhere 500. Who takes it sets the
/// cookie.
#[derive(Clone)]
pub struct CsrfToken {
    value: Arc<str>,
    is_new: bool,
    is_used: Arc<AtomicBool>,
}

impl CsrfToken {
    /// The token: letters and digits.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// A hidden field of a form, as HTML.
    pub fn field(&self) -> String {
        format!("<input type=\"hidden\" name=\"{FIELD}\" value=\"{}\">", self.value)
    }
}

impl FromRequest for CsrfToken {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let token = request.extension::<CsrfToken>();
        let token =
            token.ok_or_else(|| Error::internal("no layer `csrf_tokens(…)` covers this route"))?;
        token.is_used.store(true, Ordering::Relaxed);
        Ok(token)
    }
}

#[cfg(feature = "openapi")]
impl crate::app::openapi::DescribeInput for CsrfToken {
    fn describe(_: &mut crate::app::openapi::Operation<'_>) {}
}

impl From<CsrfTokens> for Layer {
    fn from(tokens: CsrfTokens) -> Layer {
        let tokens = Arc::new(tokens);
        let asked = Arc::clone(&tokens);
        let layer = Layer::new()
            .on_request(move |request: &Request<'_>| asked.on_request(request))
            .on_response(move |request: &Request<'_>, response: &mut Response| {
                tokens.on_response(request, response);
            });
        #[cfg(feature = "openapi")]
        let layer = layer.documents(|operation: &mut crate::app::openapi::Operation<'_>| {
            if !operation.is_safe() {
                operation.error(
                    StatusCode::FORBIDDEN,
                    "It repeats no token of a page of this site (`csrf_token`).",
                );
            }
        });
        layer
    }
}

/// Without the key.
impl fmt::Debug for CsrfTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CsrfTokens").field("is_secure", &self.is_secure).finish_non_exhaustive()
    }
}

/// Without the token: it is a secret.
impl fmt::Debug for CsrfToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CsrfToken")
    }
}
