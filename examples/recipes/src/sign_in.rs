//! Sign-in at a provider: OAuth 2.0, authorization code with PKCE.
//!
//! ```text
//! GET /sign-in   ─▶ 303 to the provider, with a state and a challenge; both secrets in an encrypted cookie
//! GET /callback  ◀─ the provider sends the browser back with a code: code + verifier ─▶ token ─▶ who it is ─▶ a session cookie
//! ```

use std::time::{Duration, SystemTime};

use highwater::cookies::{Cookie, Key, PrivateCookies, SameSite};
use highwater::{BoxError, Error, Query, Redirect, Router, State, StatusCode};
use oauth2::basic::{BasicClient, BasicErrorResponse, BasicErrorResponseType};
use oauth2::{
    AuthUrl, AuthorizationCode, ClientId, ClientSecret, CsrfToken, EndpointNotSet, EndpointSet,
    PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, RequestTokenError, Scope, TokenResponse,
    TokenUrl, reqwest, url,
};
use serde::{Deserialize, Serialize};

type OAuth = BasicClient<EndpointSet, EndpointNotSet, EndpointNotSet, EndpointNotSet, EndpointSet>;

/// For how long the provider may take to answer this server; beyond it 502.
const PROVIDER_TIME_MAX: Duration = Duration::from_secs(10);

/// For how long somebody is signed in.
const SESSION_TIME: Duration = Duration::from_secs(12 * 3600);

/// The cookie between `/sign-in` and `/callback`.
const PENDING: &str = "pending";

/// The cookie of somebody who has signed in.
const SESSION: &str = "session";

/// A provider, and this application as its client.
#[derive(Clone)]
pub struct Provider {
    oauth: OAuth,
    http: reqwest::Client,
    user_info: String,
}

impl Provider {
    /// The provider at `issuer`, which sends browsers back to `callback`.
    ///
    /// # Errors
    /// One of them is not a URL.
    pub fn new(issuer: &str, callback: &str) -> Result<Self, url::ParseError> {
        let oauth = BasicClient::new(ClientId::new("shop".into()))
            .set_client_secret(ClientSecret::new("from a file".into()))
            .set_auth_uri(AuthUrl::new(format!("{issuer}/authorize"))?)
            .set_token_uri(TokenUrl::new(format!("{issuer}/token"))?)
            .set_redirect_uri(RedirectUrl::new(callback.into())?);
        // A provider that redirects this request could make the server ask anybody for anything.
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        let http = http.timeout(PROVIDER_TIME_MAX);
        let http = http.build().expect("a client without files to read can be made");
        Ok(Provider { oauth, http, user_info: format!("{issuer}/userinfo") })
    }
}

/// What the browser keeps while its user is at the provider.
#[derive(Deserialize, Serialize)]
struct Pending {
    state: String,
    verifier: PkceCodeVerifier,
}

/// What the provider sends the browser back with: a code, or why there is none (RFC 6749 §4.1.2).
#[derive(Deserialize)]
struct Callback {
    state: String,
    code: Option<String>,
    error: Option<String>,
}

/// Who has signed in. The end is in the value, where the server checks it: a browser may keep a cookie for as long as it likes.
#[derive(Deserialize, Serialize)]
struct Session {
    user: String,
    until: SystemTime,
}

#[derive(Deserialize)]
struct UserInfo {
    sub: String,
}

/// `key` encrypts the cookies.
pub fn routes(provider: Provider, key: Key) -> Router {
    Router::new()
        .state(key)
        .state(provider)
        .get("/sign-in", sign_in)
        .get("/callback", callback)
        .get("/me", me)
}

/// A cookie that browsers send over TLS only (most of them to `localhost`, too), and forget when they are closed.
fn cookie(name: &'static str, value: String) -> Cookie<'static> {
    let cookie = Cookie::build((name, value)).path("/").http_only(true).secure(true);
    cookie.same_site(SameSite::Lax).build()
}

/// The provider does not answer, or not as it should.
fn bad_gateway(source: impl Into<BoxError>) -> Error {
    let message = "the provider does not answer; try again later";
    Error::new(StatusCode::BAD_GATEWAY, "bad_gateway", message).with_source(source)
}

/// Why the provider has sent no code.
fn refused(reason: Option<&str>) -> Error {
    match reason {
        Some("access_denied") => Error::forbidden("the sign-in was declined at the provider"),
        Some(reason) => bad_gateway(format!("the provider answers {reason:?}")),
        None => Error::bad_request("neither a code nor an error"),
    }
}

/// Why there is no token for a code.
fn not_exchanged<E: std::error::Error + Send + Sync + 'static>(
    error: RequestTokenError<E, BasicErrorResponse>,
) -> Error {
    match &error {
        RequestTokenError::ServerResponse(answer)
            if *answer.error() == BasicErrorResponseType::InvalidGrant =>
        {
            Error::unauthorized("the provider does not know this code")
        }
        _ => bad_gateway(error),
    }
}

fn sign_in(
    State(provider): State<Provider>,
    cookies: PrivateCookies,
) -> Result<(PrivateCookies, Redirect), Error> {
    let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
    let (url, state) = provider
        .oauth
        .authorize_url(CsrfToken::new_random)
        .add_scope(Scope::new("openid".into()))
        .set_pkce_challenge(challenge)
        .url();
    let pending = Pending { state: state.into_secret(), verifier };
    let pending = serde_json::to_string(&pending).map_err(Error::internal)?;
    Ok((cookies.set(cookie(PENDING, pending)), Redirect::to(url)))
}

async fn callback(
    State(provider): State<Provider>,
    cookies: PrivateCookies,
    Query(back): Query<Callback>,
) -> Result<(PrivateCookies, Redirect), Error> {
    let pending = cookies.get(PENDING).ok_or_else(|| Error::bad_request("begin at /sign-in"))?;
    let pending: Pending = serde_json::from_str(pending.value()).map_err(Error::internal)?;
    if pending.state != back.state {
        return Err(Error::forbidden("this sign-in was begun by another browser"));
    }
    let code = back.code.ok_or_else(|| refused(back.error.as_deref()))?;
    let token = provider
        .oauth
        .exchange_code(AuthorizationCode::new(code))
        .set_pkce_verifier(pending.verifier)
        .request_async(&provider.http)
        .await
        .map_err(not_exchanged)?;
    let info = provider.http.get(&provider.user_info).bearer_auth(token.access_token().secret());
    let info = info.send().await.and_then(reqwest::Response::error_for_status);
    let info = info.map_err(bad_gateway)?.bytes().await.map_err(bad_gateway)?;
    let user: UserInfo = serde_json::from_slice(&info).map_err(bad_gateway)?;
    let session = Session { user: user.sub, until: SystemTime::now() + SESSION_TIME };
    let session = serde_json::to_string(&session).map_err(Error::internal)?;
    let cookies = cookies.remove(Cookie::build(PENDING).path("/")).set(cookie(SESSION, session));
    Ok((cookies, Redirect::to("/me")))
}

fn me(cookies: PrivateCookies) -> Result<String, Error> {
    let cookie = cookies.get(SESSION);
    let session = cookie.and_then(|cookie| serde_json::from_str::<Session>(cookie.value()).ok());
    let session = session.filter(|session| SystemTime::now() < session.until);
    session.map(|session| session.user).ok_or_else(|| Error::unauthorized("sign in first"))
}
