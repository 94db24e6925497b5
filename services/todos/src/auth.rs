//! Authentication: finds the user of a request.
//!
//! A token is a JWT (RFC 7519) signed with HS256. Its subject is the user. `exp` and `nbf` are honoured, to the second and
//! without leeway; a token without them is valid as long as the secret is.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use highwater::auth::{Jwt, JwtKey, Subject, jwt};
use highwater::{Error, FromRequest, HeaderValue, Request, header};

/// The longest subject, in bytes.
pub const USER_BYTES_MAX: usize = 255;

/// The layer that asks for what was signed with `secret`.
pub fn tokens(secret: &str) -> Jwt {
    jwt(JwtKey::hs256(secret)).without_expiry().any_audience()
}

/// The user of a request that [`tokens`] let pass.
///
/// # Errors
///
/// 401: the subject cannot be a user's name.
pub fn user(request: &Request<'_>) -> Result<Arc<str>, Error> {
    let Subject(user) = Subject::from_request(request)?;
    if user.len() > USER_BYTES_MAX || user.contains('\0') {
        let challenge = HeaderValue::from_static("Bearer error=\"invalid_token\"");
        let message = "the token has no subject of 1 to 255 bytes";
        return Err(Error::unauthorized(message).with_header(header::WWW_AUTHENTICATE, challenge));
    }
    Ok(user)
}

/// A token for `subject`, valid from `now` for `ttl`, both in seconds. Its times are whole seconds, and it is never valid
/// for less.
pub fn issue(secret: &str, subject: &str, now: f64, ttl: f64) -> String {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs_f64(now.max(0.0));
    highwater::auth::issue(secret, subject, now, Duration::from_secs_f64(ttl.max(0.0)))
}

#[cfg(test)]
mod tests {
    use highwater::Router;
    use highwater::testing::Client;

    use super::*;

    struct User(Arc<str>);

    impl FromRequest for User {
        fn from_request(request: &Request<'_>) -> Result<Self, Error> {
            user(request).map(User)
        }
    }

    /// Purpose: a name is as long as the store takes it, and a longer one, none, or one that Postgres cannot store is no
    /// user's; so is a token of another secret.
    #[test]
    fn users() {
        let secret = "a secret of some length, as there should be";
        let router =
            Router::new().layer(tokens(secret)).get("/", |User(user): User| user.to_string());
        let client = Client::new(router);
        let ask = |secret: &str, name: &str| {
            let token = issue(secret, name, 4e9, 60.0);
            client.set_header("authorization", &format!("Bearer {token}"));
            client.get("/")
        };
        let longest = "x".repeat(USER_BYTES_MAX);
        for name in ["a", "us er/ñ", &longest] {
            assert_eq!(ask(secret, name).text(), name);
        }
        for (secret, name) in [
            (secret, ""),
            (secret, &*format!("{longest}x")),
            (secret, "a\0b"),
            ("another secret", "a"),
        ] {
            let answer = ask(secret, name);
            assert_eq!(answer.status, 401, "{name:?}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer error=\"invalid_token\""));
        }
    }
}
