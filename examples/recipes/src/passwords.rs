//! Passwords, hashed by Argon2id in the pool of threads: a hash takes a core for a while, on purpose, and on a worker it
//! would delay every other connection of that worker.
//!
//! ```text
//! POST /sign-up ─▶ worker ─▶ pool: hash, with a new salt ─▶ 201
//! POST /sign-in ─▶ worker ─▶ pool: hash again, compare   ─▶ 200, or 401 for an unknown name and for a wrong password alike
//! ```

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};
use highwater::{Concurrency, Created, Error, Json, Router, State, blocking};
use serde::Deserialize;

/// How many hashes are computed at once, at most. A hash of [`Params::DEFAULT`] takes 19 MiB, so this bounds the memory;
/// further requests are answered 503.
pub const HASHES_MAX: u32 = 4;

/// The longest password, in bytes. Argon2 takes longer ones, and they would cost whoever must hash them.
pub const PASSWORD_BYTES_MAX: usize = 256;

/// Names, and the hashes of their passwords.
#[derive(Clone)]
pub struct Users {
    hashes: Arc<Mutex<HashMap<String, String>>>,
    argon2: Argon2<'static>,
    /// Compared with the password of an unknown name, so that the time does not tell which names there are.
    nobody: Arc<str>,
}

impl Users {
    /// No users yet. `cost` is [`Params::DEFAULT`], which OWASP recommends, unless it has been measured that more is
    /// affordable.
    ///
    /// # Errors
    /// There is no randomness for a salt.
    pub fn new(cost: Params) -> Result<Self, argon2::password_hash::Error> {
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, cost);
        let nobody = argon2.hash_password(b"")?.to_string().into();
        Ok(Users { hashes: Arc::default(), argon2, nobody })
    }

    /// A guard is never held while a hash is computed.
    fn hashes(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.hashes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Deserialize)]
struct Credentials {
    name: String,
    password: String,
}

/// `/sign-up` and `/sign-in`, with one limit for both. A rate limit per client belongs around them.
pub fn routes(users: Users) -> Router {
    Router::new()
        .state(users)
        .concurrency_limit(Concurrency::Fixed(HASHES_MAX))
        .post("/sign-up", blocking(sign_up))
        .post("/sign-in", blocking(sign_in))
}

fn sign_up(
    State(users): State<Users>,
    Json(given): Json<Credentials>,
) -> Result<Created<()>, Error> {
    if !(8..=PASSWORD_BYTES_MAX).contains(&given.password.len()) {
        let message = format!("a password has 8 to {PASSWORD_BYTES_MAX} bytes");
        return Err(Error::unprocessable(message));
    }
    let hash = users.argon2.hash_password(given.password.as_bytes()).map_err(Error::internal)?;
    match users.hashes().entry(given.name) {
        Entry::Occupied(_) => Err(Error::conflict("the name is taken")),
        Entry::Vacant(free) => {
            free.insert(hash.to_string());
            Ok(Created(()))
        }
    }
}

fn sign_in(
    State(users): State<Users>,
    Json(given): Json<Credentials>,
) -> Result<&'static str, Error> {
    let refused = || Error::unauthorized("the name or the password is wrong");
    if given.password.len() > PASSWORD_BYTES_MAX {
        return Err(refused());
    }
    let known = users.hashes().get(&given.name).cloned();
    let hash = PasswordHash::new(known.as_deref().unwrap_or(&users.nobody));
    let hash = hash.map_err(Error::internal)?;
    let is_right = users.argon2.verify_password(given.password.as_bytes(), &hash).is_ok();
    // Here an application sets a session cookie, or returns a token.
    if is_right && known.is_some() { Ok("welcome") } else { Err(refused()) }
}
