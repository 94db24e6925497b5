//! Who asks, and from where.

use std::net::IpAddr;

use highwater::auth::{Claims, JwtKey, basic, jwt, same};
use highwater::cookies::{Cookie, Key, PrivateCookies, SignedCookies};
use highwater::proxies::TrustedProxies;
use highwater::{Error, Extension, FromRequest, Json, Request, Requirements, Router};
use serde_json::Value;

/// Signs the tokens. An application reads its own from a file.
const SECRET: &str = "a secret that is no secret, of 32 bytes or more";

#[derive(Clone)]
struct User(String);

/// The routes that ask who is asking.
pub(crate) fn routes(key: Key) -> Router {
    let aladdin = basic("the cave", |user: &str, password: &str| {
        (user == "aladdin" && same(password, "open sesame")).then(|| User(user.to_owned()))
    });
    // An application leaves `exp` and `aud` to be checked.
    let tokens = jwt(JwtKey::hs256(SECRET)).without_expiry().any_audience();
    Router::new()
        .merge(
            Router::new()
                .layer(aladdin)
                .get("/basic", |Extension(User(name)): Extension<User>| name),
        )
        .merge(
            Router::new().layer(tokens).get("/jwt", |Claims(claims): Claims<Value>| Json(claims)),
        )
        .merge(crate::forms(key))
        .get("/session", session)
        .get("/cookies", cookies)
}

/// `GET /session`: counts visits in a cookie that its visitor can read and not change.
fn session(jar: SignedCookies) -> (SignedCookies, String) {
    let visits = jar.get("session").and_then(|cookie| cookie.value().parse().ok()).unwrap_or(0_u64);
    let visits = visits.saturating_add(1).to_string();
    let cookie = Cookie::build(("session", visits.clone())).path("/").http_only(true);
    (jar.set(cookie), visits)
}

/// `GET /cookies`: one that is signed, and one that is encrypted, too.
fn cookies(
    signed: SignedCookies,
    private: PrivateCookies,
) -> (SignedCookies, (PrivateCookies, Json<Value>)) {
    let value = |cookie: Option<Cookie<'static>>| cookie.map(|cookie| cookie.value().to_owned());
    let received = serde_json::json!({
        "signed": value(signed.get("signed")),
        "private": value(private.get("private")),
    });
    let cookie = |name: &'static str, value: &'static str| {
        Cookie::build((name, value)).path("/").http_only(true)
    };
    let (signed, private) =
        (signed.set(cookie("signed", "read me")), private.set(cookie("private", "a secret")));
    (signed, (private, Json(received)))
}

/// The client's address, as far as proxies can be trusted to say it.
pub(crate) struct ClientAddress(pub(crate) IpAddr);

impl FromRequest for ClientAddress {
    const PEER: bool = true;

    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let proxies = request
            .state::<TrustedProxies>()
            .ok_or_else(|| Error::internal("no state of proxies"))?;
        let client = request.client(proxies);
        client.map(ClientAddress).ok_or_else(|| Error::internal("the peer has no address"))
    }

    fn requires(requirements: &mut Requirements) {
        requirements.state::<TrustedProxies>();
    }
}
