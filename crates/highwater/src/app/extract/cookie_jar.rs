//! Cookies that answers set: plain, signed or encrypted.

use std::borrow::Cow;
use std::fmt;

pub use cookie::{Cookie, Key, SameSite};
use highwater_core::percent::{DecodeError, percent_decode};

use super::{FromRequest, Requirements};
use crate::app::error::Error;
use crate::app::into_response::IntoResponse;
use crate::app::request::Request;
use crate::app::response::Response;
use crate::secret::same;

/// The cookies of a request, and those that its answer sets: an argument, and a part of an answer, in front of its content.
/// Needs the feature `cookies`.
///
/// Anyone can read and change these. [`SignedCookies`] can be read by anyone, but changed only by the server;
/// [`PrivateCookies`] can be read and changed only by the server. Values are percent-encoded where RFC 6265 requires it. Names
/// are sent and compared unchanged: letters, digits, `-`, `_` and similar characters (a token of RFC 9110 §5.6.2); an answer
/// that sets a cookie with another name is an error 500. So a prefix such as `__Host-` promises what browsers enforce (RFC
/// 6265bis §4.1.3).
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

/// Cookies that only the server can make: each carries a signature (HMAC-SHA256) of its name and its value by the [`Key`] that
/// the application provides as a state. A cookie without a valid signature counts as absent, and so does one that was signed
/// under another name. Clients can read the values.
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
/// as a state; otherwise like [`SignedCookies`].
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
    ($name:ident, $open:ident, $seal:ident) => {
        impl $name {
            /// The cookie of that name, if it is genuine.
            pub fn get(&self, name: &str) -> Option<Cookie<'static>> {
                $open(&self.jar, &self.key, name)
            }

            /// Sets a cookie.
            #[must_use = "return it in front of the answer"]
            pub fn set(mut self, cookie: impl Into<Cookie<'static>>) -> Self {
                $seal(&mut self.jar, &self.key, cookie.into());
                self
            }

            /// Removes a cookie from the client. Path and domain must be the same as when it was set.
            #[must_use = "return it in front of the answer"]
            pub fn remove(mut self, cookie: impl Into<Cookie<'static>>) -> Self {
                self.jar.remove(cookie);
                self
            }
        }

        impl FromRequest for $name {
            fn from_request(request: &Request<'_>) -> Result<Self, Error> {
                let key = request.state::<Key>();
                let key = key.ok_or_else(|| Error::internal("no state of type `Key`"))?.clone();
                let is_genuine =
                    |jar: &cookie::CookieJar, name: &str| $open(jar, &key, name).is_some();
                Ok($name { jar: first_of_each(request, is_genuine), key })
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

keyed!(SignedCookies, verified, sign);
keyed!(PrivateCookies, decrypted, encrypt);

fn verified(jar: &cookie::CookieJar, key: &Key, name: &str) -> Option<Cookie<'static>> {
    let mut cookie = jar.get(name)?.clone();
    let (given, value) = cookie.value().split_at_checked(SIGNATURE_BYTES)?;
    if !same(given, signature(key, name, value)) {
        return None;
    }
    let value = value.to_owned();
    cookie.set_value(value);
    Some(cookie)
}

fn sign(jar: &mut cookie::CookieJar, key: &Key, mut cookie: Cookie<'static>) {
    cookie.set_value(signature(key, cookie.name(), cookie.value()) + cookie.value());
    jar.add(cookie);
}

fn decrypted(jar: &cookie::CookieJar, key: &Key, name: &str) -> Option<Cookie<'static>> {
    jar.private(key).get(name)
}

fn encrypt(jar: &mut cookie::CookieJar, key: &Key, cookie: Cookie<'static>) {
    jar.private_mut(key).add(cookie);
}

/// The length of a signature: 32 bytes in base64.
pub(crate) const SIGNATURE_BYTES: usize = 44;

/// HMAC-SHA256 of a name and a value, in base64. The crate signs the value alone, so a client could give the value of one
/// cookie to another. Hence what it signs here is both, and no name has a `=`.
pub(crate) fn signature(key: &Key, name: &str, value: &str) -> String {
    let mut jar = cookie::CookieJar::new();
    jar.signed_mut(key).add((name.to_owned(), format!("{name}={value}")));
    let mut signed = jar.get(name).map(|cookie| cookie.value().to_owned()).unwrap_or_default();
    signed.truncate(SIGNATURE_BYTES);
    signed
}

/// The cookies that a request was sent with. Malformed ones are skipped, and of several with one name the first counts, as in
/// [`Cookies`](super::Cookies): that is the one of the longest path (RFC 6265 §5.4).
fn received(request: &Request<'_>) -> cookie::CookieJar {
    first_of_each(request, |_, _| true)
}

/// The same, but of several with one name the first counts that is genuine: another site that can set a cookie for a longer
/// path or for all hosts of the domain must not hide one of the server's. If none is, it does not matter which counts.
pub(crate) fn first_of_each(
    request: &Request<'_>,
    is_genuine: impl Fn(&cookie::CookieJar, &str) -> bool,
) -> cookie::CookieJar {
    let mut jar = cookie::CookieJar::new();
    for value in request.headers().get_all("cookie") {
        let pairs = value.split(|byte| *byte == b';');
        for pair in pairs.filter_map(|pair| std::str::from_utf8(pair).ok()) {
            let Some((name, value)) = parse(pair) else { continue };
            if jar.get(name).is_none() || !is_genuine(&jar, name) {
                jar.add_original(Cookie::new(name.to_owned(), value.into_owned()));
            }
        }
    }
    jar
}

/// Name and value of a pair. Only the value is decoded, and only spaces and tabs are trimmed: if more were, `%5F_Host-id`, or
/// `__Host-id` behind a space of Unicode, would be taken for `__Host-id`, whose rules browsers do not enforce for those
/// (RFC 6265bis §5.4).
fn parse(pair: &str) -> Option<(&str, Cow<'_, str>)> {
    let (name, value) = pair.split_once('=')?;
    let (name, value) = (name.trim_matches([' ', '\t']), value.trim_matches([' ', '\t']));
    let value = match percent_decode(value) {
        Ok(value) => value,
        // Not one of ours, which are encoded.
        Err(DecodeError::BadEscape(_)) => Cow::Borrowed(value),
        Err(DecodeError::NotUtf8) => return None,
    };
    (!name.is_empty()).then_some((name, value))
}

/// The response, with a `Set-Cookie` for each change.
fn write(jar: &cookie::CookieJar, mut response: Response) -> Response {
    for cookie in jar.delta() {
        match set_cookie(cookie) {
            Ok(value) => response.append_header(http::header::SET_COOKIE, value),
            Err(error) => return error.into_response(),
        }
    }
    response
}

/// The value of `Set-Cookie`.
pub(crate) fn set_cookie(cookie: &Cookie<'_>) -> Result<http::HeaderValue, Error> {
    let name = cookie.name();
    // What a field's name may have is what a cookie's may.
    if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
        return Err(Error::internal(format!(
            "the cookie {name:?} cannot be set: a name has letters, digits, and `-` `_` `.` and the like, without spaces"
        )));
    }
    let encoded = cookie.encoded().to_string();
    // The crate encodes the name, too, in which a few of these characters would be changed.
    let rest = encoded.split_once('=').map_or("", |(_, rest)| rest);
    http::HeaderValue::try_from(format!("{name}={rest}")).map_err(Error::internal)
}

fn names(name: &str, jar: &cookie::CookieJar, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(name)?;
    f.write_str(" ")?;
    f.debug_set().entries(jar.iter().map(Cookie::name)).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: only spaces and tabs are trimmed, and only values decoded: whatever else stands before a name makes another name.
    #[test]
    fn pairs_are_split() {
        for (pair, expected) in [
            (" \ta\t=\t1 ", Some(("a", "1"))),
            ("a=b=c", Some(("a", "b=c"))),
            ("a=%31%20", Some(("a", "1 "))),
            ("a=100%", Some(("a", "100%"))),
            ("%61=1", Some(("%61", "1"))),
            ("\u{a0}a=\u{2003}1", Some(("\u{a0}a", "\u{2003}1"))),
            ("=1", None),
            (" =1", None),
            ("a", None),
            ("a=%FF", None),
        ] {
            let parsed = parse(pair);
            assert_eq!(parsed.as_ref().map(|(name, value)| (*name, &**value)), expected, "{pair}");
        }
    }

    /// Purpose: no two pairs of a name and a value have the same signature, nor does one differ from run to run.
    #[test]
    fn signatures_are_of_names_and_values() {
        let key = Key::from(&[7; 64]);
        let made = ["a=bc", "ab=c", "a=b", "=abc"].map(|pair| {
            let (name, value) = pair.split_once('=').expect("it has both");
            signature(&key, name, value)
        });
        for (at, one) in made.iter().enumerate() {
            assert_eq!(one.len(), SIGNATURE_BYTES);
            assert!(!made[..at].contains(one));
        }
        assert_eq!(made[0], signature(&key, "a", "bc"));
    }
}
