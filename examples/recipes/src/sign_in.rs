//! Sign-in at a provider: OAuth 2.0, authorization code with PKCE.
//!
//! ```text
//! GET /sign-in   ─▶ 303 to the provider, with a state and a challenge; both secrets in an encrypted cookie
//! GET /callback  ◀─ the provider sends the browser back with a code: code + verifier ─▶ token ─▶ who it is ─▶ a session cookie
//! ```

use highwater::cookies::{Cookie, Key, PrivateCookies, SameSite};
use highwater::{Error, Query, Redirect, Router, State};
use oauth2::basic::BasicClient;
use oauth2::{
    AuthUrl, AuthorizationCode, ClientId, ClientSecret, CsrfToken, EndpointNotSet, EndpointSet,
    PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, Scope, TokenResponse, TokenUrl, reqwest, url,
};
use serde::{Deserialize, Serialize};

type OAuth = BasicClient<EndpointSet, EndpointNotSet, EndpointNotSet, EndpointNotSet, EndpointSet>;

/// The cookie between `/sign-in` and `/callback`.
const PENDING: &str = "pending";

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

#[derive(Deserialize)]
struct Callback {
    code: String,
    state: String,
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

fn cookie(name: &'static str, value: String) -> Cookie<'static> {
    Cookie::build((name, value)).path("/").http_only(true).same_site(SameSite::Lax).build()
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
    let token = provider
        .oauth
        .exchange_code(AuthorizationCode::new(back.code))
        .set_pkce_verifier(pending.verifier)
        .request_async(&provider.http)
        .await
        .map_err(|_| Error::unauthorized("the provider does not know this code"))?;
    let info = provider.http.get(&provider.user_info).bearer_auth(token.access_token().secret());
    let info = info.send().await.and_then(reqwest::Response::error_for_status);
    let info = info.map_err(Error::internal)?.bytes().await.map_err(Error::internal)?;
    let user: UserInfo = serde_json::from_slice(&info).map_err(Error::internal)?;
    let cookies = cookies.remove(Cookie::build(PENDING).path("/")).set(cookie("user", user.sub));
    Ok((cookies, Redirect::to("/me")))
}

fn me(cookies: PrivateCookies) -> Result<String, Error> {
    let user = cookies.get("user").ok_or_else(|| Error::unauthorized("sign in first"))?;
    Ok(user.value().to_owned())
}
