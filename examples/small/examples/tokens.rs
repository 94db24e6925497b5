//! Signed tokens (JWT): one route gives them out, the others ask for one.
#![forbid(unsafe_code)]

use std::time::{Duration, SystemTime};

use highwater::auth::{Claims, JwtKey, issue, jwt, same};
use highwater::{Error, Form, Json, Router, Server, ServerError, State};
use serde::{Deserialize, Serialize};

/// How long a token counts. It cannot be taken back before.
const LIFE: Duration = Duration::from_secs(15 * 60);

#[derive(Clone)]
struct Secret(String);

#[derive(Deserialize)]
struct Credentials {
    user: String,
    password: String,
}

#[derive(Serialize)]
struct Token {
    access_token: String,
    expires_in: u64,
}

#[derive(Deserialize)]
struct User {
    sub: String,
}

/// `secret` signs and verifies: at least 32 random bytes, from a file.
pub fn router(secret: &str) -> Router {
    let private = Router::new().layer(jwt(JwtKey::hs256(secret))).get("/me", me);
    Router::new().state(Secret(secret.to_owned())).post("/token", token).merge(private)
}

fn token(
    State(Secret(secret)): State<Secret>,
    Form(given): Form<Credentials>,
) -> Result<Json<Token>, Error> {
    if !same(&given.password, "open sesame") {
        return Err(Error::unauthorized("the user or the password is wrong"));
    }
    let access_token = issue(secret, &given.user, SystemTime::now(), LIFE);
    Ok(Json(Token { access_token, expires_in: LIFE.as_secs() }))
}

fn me(Claims(user): Claims<User>) -> String {
    user.sub
}

fn main() -> Result<(), ServerError> {
    Server::new(router("of at least 32 bytes, from a file")).run()
}
