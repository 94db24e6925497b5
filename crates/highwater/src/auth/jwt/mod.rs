//! Whom does a signed token name (JWT, RFC 7519)?
//!
//! The algorithm is the key's: a token whose header names another one is refused, and so is a token with critical extensions
//! (RFC 7515 §4.1.11), none of which is supported. Each worker remembers the tokens that it has verified, so a signature is
//! verified once per worker. A remembered token is found by all of its bytes, and its times are looked at with every request.

mod claims;
mod key;
mod provider;
mod remembered;
mod token;

use std::cell::RefCell;
use std::fmt;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use claims::{Claims, Subject};
pub use key::{JwtKey, JwtKeyError, issue};
pub use remembered::REMEMBERED_MAX;
use remembered::Remembered;
pub use token::{Denied, TOKEN_BYTES_MAX};
use token::{Rules, Verified};

use super::bearer::{invalid, missing};
use super::field::credentials;
use crate::app::{Error, IntoResponse, Layer, Request, Response, on_request_per_worker};

/// Requires a token that is signed with `key`: `Authorization: Bearer …`. Handlers take its content as [`Claims<T>`], or its
/// subject as [`Subject`].
///
/// | claim | check |
/// |---|---|
/// | `exp` | must be there, and in the future; see [`without_expiry`](Jwt::without_expiry) |
/// | `nbf` | must not be in the future |
/// | `iss` | must be one of the names given to [`issuer`](Jwt::issuer), if any |
/// | `aud` | must be one of the names given to [`audience`](Jwt::audience); without any, a token for an audience is refused (RFC 7519 §4.1.3) |
///
/// Times are compared to the second, without [`leeway`](Jwt::leeway) unless it is set. A request without a token is answered
/// 401 with `WWW-Authenticate: Bearer`; a request with an invalid token, 401 `invalid_token`, with the reason as message.
///
/// ```
/// use std::time::{Duration, SystemTime};
///
/// use highwater::auth::{Claims, JwtKey, issue, jwt};
/// use highwater::testing::Client;
/// use highwater::Router;
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct User { sub: String }
///
/// let secret = "at least 32 bytes, as RFC 7518 says";
/// let router = Router::new()
///     .layer(jwt(JwtKey::hs256(secret)).leeway(Duration::from_secs(10)))
///     .get("/me", |Claims(user): Claims<User>| user.sub);
/// let client = Client::new(router);
/// assert_eq!(client.get("/me").status, 401);
///
/// let token = issue(secret, "ann", SystemTime::now(), Duration::from_secs(60));
/// client.set_header("authorization", &format!("Bearer {token}"));
/// assert_eq!(client.get("/me").text(), "ann");
/// ```
pub fn jwt(key: JwtKey) -> Jwt {
    Jwt { rules: Rules::new(key), problems: Vec::new() }
}

/// A layer that asks for a signed token; made by [`jwt`].
#[derive(Clone)]
#[must_use = "give it to `Router::layer`"]
pub struct Jwt {
    rules: Rules,
    problems: Vec<String>,
}

impl Jwt {
    /// Accepts tokens of this issuer (`iss`) only. May be called for several.
    pub fn issuer(mut self, issuer: &str) -> Self {
        self.rules.issuers.push(issuer.to_owned());
        self
    }

    /// Accepts tokens for this audience (`aud`) only, the issuer's name for this service. May be called for several.
    pub fn audience(mut self, audience: &str) -> Self {
        self.rules.audiences.push(audience.to_owned());
        self
    }

    /// Accepts tokens for any audience, and for none.
    pub fn any_audience(mut self) -> Self {
        self.rules.any_audience = true;
        self
    }

    /// Accepts tokens for this much longer, and this much earlier, because clocks differ. In whole seconds, at most a day.
    pub fn leeway(mut self, leeway: Duration) -> Self {
        if leeway > Duration::from_secs(86_400) {
            self.problems.push(format!(
                "jwt(…).leeway({leeway:?}): clocks differ by seconds; write at most a day, and give tokens a longer life"
            ));
        }
        self.rules.leeway = leeway.as_secs() as f64;
        self
    }

    /// Accepts tokens without `exp`: they are valid as long as the key is.
    pub fn without_expiry(mut self) -> Self {
        self.rules.needs_expiry = false;
        self
    }

    /// Also accepts tokens signed with this key: during a key rotation, with the old key and with the new one.
    pub fn or_key(mut self, key: JwtKey) -> Self {
        self.rules.keys.push(key);
        self
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = self.problems.clone();
        problems.extend(self.rules.keys.iter().filter_map(|key| key.problem.clone()));
        if self.rules.any_audience && !self.rules.audiences.is_empty() {
            problems.push(String::from(
                "jwt(…): `any_audience` accepts what `audience` would refuse; leave one of them out",
            ));
        }
        problems
    }
}

/// What runs on each worker.
struct TokenVerifier {
    rules: Arc<Rules>,
    remembered: RefCell<Remembered>,
}

impl TokenVerifier {
    fn new(rules: Arc<Rules>) -> Self {
        TokenVerifier { rules, remembered: RefCell::default() }
    }

    /// What a token says, if it is valid at `now`, in seconds since 1970.
    fn verify(&self, token: &str, now: f64) -> Result<Arc<Verified>, Denied> {
        let mut remembered = self.remembered.borrow_mut();
        if let Some(verified) = remembered.find(token) {
            self.rules.check_times(verified, now)?;
            return Ok(Arc::clone(verified));
        }
        let verified = Arc::new(self.rules.verify(token)?);
        self.rules.check_times(&verified, now)?;
        remembered.add(token, Arc::clone(&verified));
        Ok(verified)
    }

    fn judge(&self, request: &Request<'_>) -> Result<(), Error> {
        let token = credentials(request, "bearer").ok_or_else(missing)?;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = since.map_or(0.0, |since| since.as_secs_f64());
        let verified = self.verify(token, now).map_err(|denied| invalid(denied.to_string()))?;
        request.insert(verified);
        Ok(())
    }
}

impl From<Jwt> for Layer {
    fn from(jwt: Jwt) -> Layer {
        let problems = jwt.problems();
        let rules = Arc::new(jwt.rules);
        let layer = on_request_per_worker(
            move || Rc::new(TokenVerifier::new(Arc::clone(&rules))),
            |verifier: &Rc<TokenVerifier>, request: &Request<'_>| -> ControlFlow<Response> {
                match verifier.judge(request) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => ControlFlow::Break(error.into_response()),
                }
            },
        );
        #[cfg(feature = "openapi")]
        let layer = layer.documents(|operation: &mut crate::app::openapi::Operation<'_>| {
            let scheme = crate::app::openapi::SecurityScheme::bearer("JWT");
            super::field::document(
                operation,
                "token",
                &scheme,
                "The token is missing, or not valid (`invalid_token`).",
            );
        });
        problems.into_iter().fold(layer.everywhere(), Layer::problem)
    }
}

/// Without the keys.
impl fmt::Debug for Jwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jwt").field("rules", &self.rules).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
