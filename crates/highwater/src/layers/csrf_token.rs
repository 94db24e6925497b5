//! Does a form come from a page that this server has made?

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cookie::CookieJar;
use http::{Method, StatusCode, header};

use crate::app::cookies::{
    Cookie, Key, SIGNATURE_BYTES, SameSite, first_of_each, set_cookie, signature,
};
use crate::app::{Error, FromRequest, IntoResponse, Layer, Request, Response};
use crate::secret::same;

/// The name of the cookie: of a name with this prefix browsers accept only a `Secure` cookie of this very host, for all paths
/// (RFC 6265bis §4.1.3.2).
const COOKIE: &str = "__Host-csrf";
/// The same without TLS, for which browsers refuse the prefix.
const COOKIE_INSECURE: &str = "csrf";
/// The name of the form's field.
const FIELD: &str = "csrf_token";
const HEADER: &str = "x-csrf-token";

/// Names the session of a request.
type Session = dyn Fn(&Request<'_>) -> Option<String> + Send + Sync;

/// Refuses requests that do not repeat the token of a page of this server (cross-site request forgery), with 403 `csrf_token`.
///
/// Use it for browsers that are too old for [`csrf`](super::csrf), and where a policy demands tokens; otherwise `csrf` is
/// simpler, and enough. They can be used together.
///
/// A handler that makes a page takes a [`CsrfToken`], and writes its value into a field `csrf_token` of each form, or into a
/// script that sends it as `X-CSRF-Token`. The client gets the same in a signed cookie (`__Host-csrf`; `HttpOnly`,
/// `SameSite=Lax`, `Secure`). `GET`, `HEAD` and `OPTIONS` pass; all other requests need both. The form field is found in
/// content of the type `application/x-www-form-urlencoded`, unless the handler takes the content as a stream. For such
/// handlers, and for forms with files, send the header field.
///
/// The answer of a handler that takes a token belongs to one client: [`response_cache`](super::response_cache) does not keep it,
/// and it gets `Vary: Cookie` for other caches.
///
/// A token alone is not bound to a user: anyone who can set a cookie in a browser can make it use a token of their own. The
/// prefix of the cookie's name prevents that for other hosts of the same domain. [`by`](CsrfTokens::by) binds tokens to
/// sessions as well.
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
    CsrfTokens { key, is_secure: true, session: None }
}

/// A layer that requires tokens; made by [`csrf_tokens`].
#[derive(Clone)]
#[must_use = "give it to `Router::layer`"]
pub struct CsrfTokens {
    key: Key,
    is_secure: bool,
    session: Option<Arc<Session>>,
}

impl CsrfTokens {
    /// Lets browsers send the cookie without TLS as well, for development. The cookie is then called `csrf`, and other hosts
    /// of the same domain can set it.
    pub fn insecure(mut self) -> Self {
        self.is_secure = false;
        self
    }

    /// Binds tokens to the session that `session` returns, such as the id in a cookie or a user. A token that was made for
    /// another session is not valid, so pages have to be loaded again after a sign-in. All clients with `None` share one
    /// session.
    ///
    /// ```
    /// use highwater::cookies::Key;
    /// use highwater::layers::csrf_tokens;
    ///
    /// #[derive(Clone)]
    /// struct SessionId(String); // Attached by a layer around this one, which has checked it.
    ///
    /// let tokens = csrf_tokens(Key::generate())
    ///     .by(|request| request.extension::<SessionId>().map(|SessionId(id)| id));
    /// ```
    pub fn by(
        mut self,
        session: impl Fn(&Request<'_>) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.session = Some(Arc::new(session));
        self
    }

    fn cookie(&self) -> &'static str {
        if self.is_secure { COOKIE } else { COOKIE_INSECURE }
    }

    /// The signature of a token for the session of `request`.
    fn sign(&self, request: &Request<'_>, token: &str) -> String {
        let session = self.session.as_ref().and_then(|session| session(request));
        let session = session.unwrap_or_default();
        // With the length, no two pairs have the same text.
        signature(&self.key, self.cookie(), &format!("{}:{session}{token}", session.len()))
    }

    /// The token of the first valid cookie of that name. Anyone who can set cookies for this host may have set the others.
    fn known(&self, request: &Request<'_>) -> Option<String> {
        let token = |jar: &CookieJar| {
            let (given, token) =
                jar.get(self.cookie())?.value().split_at_checked(SIGNATURE_BYTES)?;
            same(given, self.sign(request, token)).then(|| token.to_owned())
        };
        let is_genuine =
            |jar: &CookieJar, name: &str| name != self.cookie() || token(jar).is_some();
        token(&first_of_each(request, is_genuine))
    }

    fn on_request(&self, request: &Request<'_>) -> ControlFlow<Response> {
        let known = self.known(request);
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
        let is_known = known.is_some();
        let value = known.unwrap_or_else(fresh);
        let new = (!is_known).then(|| (self.sign(request, &value) + &value).into());
        request.insert(CsrfToken { value: value.into(), new, is_used: Arc::default() });
        ControlFlow::Continue(())
    }

    fn on_response(&self, request: &Request<'_>, response: &mut Response) {
        let Some(token) = request.extension::<CsrfToken>() else { return };
        if !token.is_used.load(Ordering::Relaxed) {
            return;
        }
        response.vary("cookie");
        let Some(new) = token.new else { return };
        let cookie = Cookie::build((self.cookie(), new.to_string()))
            .path("/")
            .http_only(true)
            .same_site(SameSite::Lax)
            .secure(self.is_secure);
        match set_cookie(&cookie.build()) {
            Ok(value) => response.append_header(header::SET_COOKIE, value),
            Err(error) => *response = error.into_response(),
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

/// The token of the page that is being made: an argument of handlers that [`csrf_tokens`] covers; elsewhere 500. The answer of
/// a handler that takes it sets the cookie.
#[derive(Clone)]
pub struct CsrfToken {
    value: Arc<str>,
    /// The value of its cookie, unless the client has that.
    new: Option<Arc<str>>,
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
        request.note_personal();
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
            .wants_content()
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
