//! Cookies that answers set: plain, signed or encrypted.

use std::fmt;

pub use cookie::{Cookie, Key, SameSite};

use super::{FromRequest, Requirements};
use crate::app::error::Error;
use crate::app::into_response::IntoResponse;
use crate::app::request::Request;
use crate::app::response::Response;

/// The cookies of a request, and those that its answer sets: an argument, and the front of an answer. Needs the feature
/// `cookies`.
///
/// Anyone can read and change these. [`SignedCookies`] can be read by anyone and changed only by the server,
/// [`PrivateCookies`] read and changed only by it. Names and values are percent-encoded where RFC 6265 asks for it.
///
/// ```
/// use highwater::Router;
/// use highwater::cookies::{Cookie, CookieJar, SameSite};
///
/// fn choose(jar: CookieJar) -> (CookieJar, &'static str) {
///     let theme = Cookie::build(("theme", "dark")).path("/").same_site(SameSite::Lax);
///     (jar.set(theme), "dark from now on")
/// }
///
/// fn forget(jar: CookieJar) -> (CookieJar, &'static str) {
///     (jar.remove(Cookie::build("theme").path("/")), "forgotten")
/// }
///
/// fn show(jar: CookieJar) -> String {
///     jar.get("theme").map_or("light".to_owned(), |theme| theme.value().to_owned())
/// }
///
/// let app = Router::new().get("/", show).post("/dark", choose).post("/light", forget);
/// # app.build().unwrap();
/// ```
#[derive(Clone, Default)]
pub struct CookieJar(cookie::CookieJar);

/// Cookies that only the server can make: each carries a signature (HMAC-SHA256) by the [`Key`] that the application
/// provides as a state. A cookie without a valid one is as good as absent. Clients can read the values.
///
/// ```
/// use highwater::Router;
/// use highwater::cookies::{Cookie, Key, SignedCookies};
///
/// fn enter(jar: SignedCookies) -> (SignedCookies, &'static str) {
///     let user = Cookie::build(("user", "ann")).path("/").http_only(true).secure(true);
///     (jar.set(user), "welcome")
/// }
///
/// fn me(jar: SignedCookies) -> Option<String> {
///     jar.get("user").map(|user| user.value().to_owned())
/// }
///
/// // Keep it secret, and keep it: cookies of another key are not valid. At least 64 bytes.
/// let key = Key::from(std::env::var("COOKIE_KEY").unwrap_or("x".repeat(64)).as_bytes());
/// let app = Router::new().state(key).post("/enter", enter).get("/me", me);
/// # app.build().unwrap();
/// ```
#[derive(Clone)]
pub struct SignedCookies {
    jar: cookie::CookieJar,
    key: Key,
}

/// Cookies that only the server can read and make: encrypted (AES-256-GCM) with the [`Key`] that the application provides
/// as a state; otherwise as [`SignedCookies`].
#[derive(Clone)]
pub struct PrivateCookies {
    jar: cookie::CookieJar,
    key: Key,
}

impl CookieJar {
    /// The cookie of that name, as it was sent, or as it was set.
    pub fn get(&self, name: &str) -> Option<Cookie<'static>> {
        self.0.get(name).cloned()
    }

    /// Sets a cookie.
    #[must_use = "return it in front of the answer"]
    pub fn set(mut self, cookie: impl Into<Cookie<'static>>) -> Self {
        self.0.add(cookie);
        self
    }

    /// Removes a cookie from the client. Path and domain must be the same as when it was set.
    #[must_use = "return it in front of the answer"]
    pub fn remove(mut self, cookie: impl Into<Cookie<'static>>) -> Self {
        self.0.remove(cookie);
        self
    }

    /// All cookies, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Cookie<'static>> {
        self.0.iter()
    }
}

impl FromRequest for CookieJar {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        Ok(CookieJar(received(request)))
    }

    fn is_present(request: &Request<'_>) -> bool {
        request.headers().get("cookie").is_some()
    }
}

impl<R: IntoResponse> IntoResponse for (CookieJar, R) {
    fn into_response(self) -> Response {
        write(&self.0.0, self.1.into_response())
    }
}

impl fmt::Debug for CookieJar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        names("CookieJar", &self.0, f)
    }
}

macro_rules! keyed {
    ($name:ident, $view:ident, $view_mut:ident) => {
        impl $name {
            /// The cookie of that name, if it is genuine.
            pub fn get(&self, name: &str) -> Option<Cookie<'static>> {
                self.jar.$view(&self.key).get(name)
            }

            /// Sets a cookie.
            #[must_use = "return it in front of the answer"]
            pub fn set(mut self, cookie: impl Into<Cookie<'static>>) -> Self {
                self.jar.$view_mut(&self.key).add(cookie);
                self
            }

            /// Removes a cookie from the client. Path and domain must be the same as when it was set.
            #[must_use = "return it in front of the answer"]
            pub fn remove(mut self, cookie: impl Into<Cookie<'static>>) -> Self {
                self.jar.$view_mut(&self.key).remove(cookie);
                self
            }
        }

        impl FromRequest for $name {
            fn from_request(request: &Request<'_>) -> Result<Self, Error> {
                match request.state::<Key>() {
                    Some(key) => Ok($name { jar: received(request), key: key.clone() }),
                    None => Err(Error::internal("no state of type `Key`")),
                }
            }

            fn is_present(request: &Request<'_>) -> bool {
                request.headers().get("cookie").is_some()
            }

            fn requires(requirements: &mut Requirements) {
                requirements.state::<Key>();
            }
        }

        impl<R: IntoResponse> IntoResponse for ($name, R) {
            fn into_response(self) -> Response {
                write(&self.0.jar, self.1.into_response())
            }
        }

        /// Without values: they are secrets.
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                names(stringify!($name), &self.jar, f)
            }
        }
    };
}

keyed!(SignedCookies, signed, signed_mut);
keyed!(PrivateCookies, private, private_mut);

/// The cookies that a request was sent with. Malformed ones are skipped.
pub(crate) fn received(request: &Request<'_>) -> cookie::CookieJar {
    let mut jar = cookie::CookieJar::new();
    for value in request.headers().get_all("cookie") {
        let pairs = value.split(|byte| *byte == b';');
        for pair in pairs.filter_map(|pair| std::str::from_utf8(pair).ok()) {
            if let Ok(cookie) = Cookie::parse_encoded(pair.to_owned()) {
                jar.add_original(cookie.into_owned());
            }
        }
    }
    jar
}

/// The response, with a `Set-Cookie` for each change.
fn write(jar: &cookie::CookieJar, mut response: Response) -> Response {
    for cookie in jar.delta() {
        match http::HeaderValue::try_from(cookie.encoded().to_string()) {
            Ok(value) => response.append_header(http::header::SET_COOKIE, value),
            Err(error) => return Error::internal(error).into_response(),
        }
    }
    response
}

fn names(name: &str, jar: &cookie::CookieJar, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(name)?;
    f.write_str(" ")?;
    f.debug_set().entries(jar.iter().map(Cookie::name)).finish()
}
