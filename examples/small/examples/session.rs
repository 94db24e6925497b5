//! Sign in, and stay signed in: a session in an encrypted cookie, which only this server can read or make.
//!
//! Sessions that a server must be able to end at any time belong in a store: docs/recipes.md.
#![forbid(unsafe_code)]

use highwater::cookies::{Cookie, Key, PrivateCookies, SameSite};
use highwater::{
    Error, Form, FromRequest, Redirect, Request, Requirements, Router, Server, ServerError,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct SignIn {
    user: String,
    password: String,
}

/// Who is signed in; a handler that takes it is only for those who are.
struct User(String);

impl FromRequest for User {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let cookies = PrivateCookies::from_request(request)?;
        let user = cookies.get("user").ok_or_else(|| Error::unauthorized("sign in first"))?;
        Ok(User(user.value().to_owned()))
    }

    fn requires(requirements: &mut Requirements) {
        PrivateCookies::requires(requirements);
    }
}

/// `key` encrypts the cookies: the same at each start, so that they outlive the process.
pub fn router(key: Key) -> Router {
    Router::new()
        .state(key)
        .post("/sign-in", sign_in)
        .post("/sign-out", sign_out)
        .get("/me", |User(name): User| name)
}

fn sign_in(
    cookies: PrivateCookies,
    Form(form): Form<SignIn>,
) -> Result<(PrivateCookies, Redirect), Error> {
    // An application verifies a slow hash, in `blocking(…)`: docs/auth.md.
    if form.password != "open sesame" {
        return Err(Error::unauthorized("the user or the password is wrong"));
    }
    let cookie =
        Cookie::build(("user", form.user)).path("/").http_only(true).same_site(SameSite::Lax);
    // Over TLS, add `.secure(true)`.
    Ok((cookies.set(cookie), Redirect::to("/me")))
}

fn sign_out(cookies: PrivateCookies) -> (PrivateCookies, Redirect) {
    (cookies.remove(Cookie::build("user").path("/")), Redirect::to("/"))
}

fn main() -> Result<(), ServerError> {
    Server::new(router(Key::generate())).run()
}
