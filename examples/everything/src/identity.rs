//! Who asks, from where, and by which id.

use std::net::IpAddr;

use highwater::auth::{Claims, JwtKey, basic, jwt, same};
use highwater::cookies::{Cookie, Key, PrivateCookies, SignedCookies};
use highwater::proxies::TrustedProxies;
use highwater::{
    Error, Extension, FromRequest, HeaderName, HeaderValue, Json, Layer, Request, Requirements,
    Response, Router,
};
use serde_json::Value;

/// The longest id of a client that is taken over.
const ID_BYTES_MAX: usize = 128;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

#[derive(Clone)]
struct User(String);

/// The routes that ask who is asking.
pub(crate) fn routes(key: Key) -> Router {
    let aladdin = basic("the cave", |user: &str, password: &str| {
        (user == "aladdin" && same(password, "open sesame")).then(|| User(user.to_owned()))
    });
    // An application leaves `exp` and `aud` to be checked.
    let tokens = jwt(JwtKey::hs256("secret")).without_expiry().any_audience();
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

/// The id by which a client and a log speak of the same request.
#[derive(Clone)]
pub(crate) struct RequestId(pub(crate) String);

impl FromRequest for RequestId {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        request.extension().ok_or_else(|| Error::internal("no layer has given the request an id"))
    }
}

/// Gives each request an id, the client's own if it can be used, and says it in the answer. By itself the server does so for
/// requests that fail.
pub(crate) fn request_ids() -> Layer {
    Layer::new()
        .on_request(|request: &Request<'_>| {
            let sent = request.header("x-request-id").filter(|id| is_usable(id)).map(str::to_owned);
            request.insert(RequestId(sent.unwrap_or_else(fresh)));
            Ok::<(), Error>(())
        })
        .on_response(|request: &Request<'_>, response: &mut Response| {
            let id = request
                .extension::<RequestId>()
                .and_then(|RequestId(id)| HeaderValue::try_from(id).ok());
            if let Some(id) = id {
                response.set_header(REQUEST_ID, id);
            }
        })
}

fn is_usable(id: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

/// 64 random bits.
fn fresh() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{:016x}", RandomState::new().hash_one(()))
}
