//! Authentication: finds the user of a request.
//!
//! A token is a JWT (RFC 7519) signed with HS256. Its subject is the user. The algorithm is pinned: a token whose
//! header names another one is refused. `exp` and `nbf` are honoured, to the second and without leeway; a token without
//! them is valid as long as the secret is.
//!
//! Each worker caches recently verified tokens, so each signature is verified once per worker.
//! A remembered token is looked up by all of its bytes, and its times are checked with every request.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::signature::{self, Signer, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use ring::hmac;
use serde::{Deserialize, Serialize};

/// The longest token, in bytes. A longer one is refused unread.
pub const TOKEN_BYTES_MAX: usize = 4096;

/// The longest subject, in bytes.
pub const USER_BYTES_MAX: usize = 255;

/// The most verified tokens that a worker remembers.
pub const REMEMBERED_MAX: usize = 2048;

/// Verifies tokens. One for the process.
pub struct Keys {
    key: DecodingKey,
    validation: Validation,
}

/// The contents of a verified token.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified {
    user: Arc<str>,
    not_before: Option<f64>,
    expires: Option<f64>,
}

/// Why a request has no user; sent to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// There is no `Authorization: Bearer …`.
    Missing,
    /// It is not a token.
    Invalid,
    /// Its signature does not match.
    Secret,
    /// It is signed, or claims to be, with another algorithm than HS256.
    Algorithm,
    /// It has expired.
    Expired,
    /// It is not valid yet.
    NotYet,
    /// It has no subject, or one that is empty or too long.
    Subject,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Denied::Missing => "send a token: Authorization: Bearer …",
            Denied::Invalid => "the token is not valid",
            Denied::Secret => {
                "the token is signed with another secret than this service's JWT_SECRET, or was changed"
            }
            Denied::Algorithm => "the token's algorithm is not HS256",
            Denied::Expired => "the token has expired",
            Denied::NotYet => "the token is not valid yet",
            Denied::Subject => "the token has no subject of 1 to 255 bytes",
        })
    }
}

/// What is read. Times may have fractions (RFC 7519 §2, NumericDate).
#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    sub: Option<String>,
    #[serde(default)]
    nbf: Option<f64>,
    #[serde(default)]
    exp: Option<f64>,
}

/// What is written. Whole seconds, without even `.0`: some libraries accept nothing else.
#[derive(Serialize)]
struct Issued<'a> {
    sub: &'a str,
    iat: i64,
    exp: i64,
}

impl Keys {
    /// Verifies what was signed with `secret`.
    pub fn new(secret: &str) -> Keys {
        install();
        let mut validation = Validation::new(Algorithm::HS256);
        // All times are checked here, where the time is an argument and a remembered token is checked alike.
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_aud = false;
        Keys { key: DecodingKey::from_secret(secret.as_bytes()), validation }
    }

    /// Reads and verifies a token. Its times are not looked at: [`Verified::user`] does that.
    fn verify(&self, token: &str) -> Result<Verified, Denied> {
        let decoded = jsonwebtoken::decode::<Claims>(token, &self.key, &self.validation);
        let claims = decoded.map_err(|error| match error.kind() {
            ErrorKind::InvalidAlgorithm | ErrorKind::UnsupportedAlgorithm => Denied::Algorithm,
            ErrorKind::InvalidSignature => Denied::Secret,
            // The name of the algorithm is none that the library knows: `none` is one.
            ErrorKind::Json(_) if jsonwebtoken::decode_header(token).is_err() => Denied::Algorithm,
            _ => Denied::Invalid,
        })?;
        let Claims { sub, nbf, exp } = claims.claims;
        let may_be =
            |sub: &String| (1..=USER_BYTES_MAX).contains(&sub.len()) && !sub.contains('\0');
        let user = sub.filter(may_be).ok_or(Denied::Subject)?;
        Ok(Verified { user: user.into(), not_before: nbf, expires: exp })
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

impl Verified {
    /// The user, if the token is valid at `now`, in seconds since 1970.
    fn user(&self, now: f64) -> Result<Arc<str>, Denied> {
        if self.expires.is_some_and(|expires| now >= expires) {
            return Err(Denied::Expired);
        }
        if self.not_before.is_some_and(|not_before| now < not_before) {
            return Err(Denied::NotYet);
        }
        Ok(Arc::clone(&self.user))
    }
}

/// A worker's verification of tokens.
#[derive(Debug)]
pub struct Gatekeeper {
    keys: Arc<Keys>,
    remembered: RefCell<Remembered>,
}

impl Gatekeeper {
    /// Remembers nothing yet.
    pub fn new(keys: Arc<Keys>) -> Gatekeeper {
        Gatekeeper { keys, remembered: RefCell::default() }
    }

    /// The user whose request has this `Authorization` field, at `now`, in seconds since 1970.
    ///
    /// # Errors
    ///
    /// Why the request has no user.
    pub fn user(&self, authorization: Option<&str>, now: f64) -> Result<Arc<str>, Denied> {
        let (scheme, token) =
            authorization.and_then(|field| field.split_once(' ')).ok_or(Denied::Missing)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(Denied::Missing);
        }
        let token = token.trim_matches(' ');
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Denied::Invalid);
        }
        let mut remembered = self.remembered.borrow_mut();
        if let Some(verified) = remembered.find(token) {
            return verified.user(now);
        }
        let verified = self.keys.verify(token)?;
        let user = verified.user(now)?;
        remembered.add(token, verified);
        Ok(user)
    }
}

/// Verified tokens, in two halves: when the young one is full, it becomes the old one, whose entries are dropped. A
/// token that is used moves back to the young one. Keyed at random, so that clients cannot choose tokens that collide.
#[derive(Debug, Default)]
struct Remembered {
    young: HashMap<Box<str>, Verified>,
    old: HashMap<Box<str>, Verified>,
}

impl Remembered {
    fn find(&mut self, token: &str) -> Option<&Verified> {
        if let Some((token, verified)) = self.old.remove_entry(token) {
            self.put(token, verified);
        }
        self.young.get(token)
    }

    fn add(&mut self, token: &str, verified: Verified) {
        self.put(token.into(), verified);
    }

    fn put(&mut self, token: Box<str>, verified: Verified) {
        if self.young.len() >= REMEMBERED_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(token, verified);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

/// A token for `subject`, valid from `now` for `ttl`, both in seconds. Its times are whole seconds, and it is never valid
/// for less.
pub fn issue(secret: &str, subject: &str, now: f64, ttl: f64) -> String {
    install();
    let claims = Issued { sub: subject, iat: now.floor() as i64, exp: (now + ttl).ceil() as i64 };
    jsonwebtoken::encode(
        &Header::new(Algorithm::HS256),
        &claims,
        &EncodingKey::from_secret(secret.as_bytes()),
    )
    .expect("a subject and numbers are JSON, and HS256 takes any secret")
}

/// Gives the library the one algorithm that it needs.
fn install() {
    static PROVIDER: CryptoProvider = CryptoProvider {
        signer_factory: |algorithm, key| match algorithm {
            Algorithm::HS256 => {
                Ok(Box::new(Hs256(hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()))))
            }
            _ => Err(ErrorKind::UnsupportedAlgorithm.into()),
        },
        verifier_factory: |algorithm, key| match algorithm {
            Algorithm::HS256 => {
                Ok(Box::new(Hs256(hmac::Key::new(hmac::HMAC_SHA256, key.try_get_as_bytes()?))))
            }
            _ => Err(ErrorKind::UnsupportedAlgorithm.into()),
        },
        key_utils: KeyUtils::new_unimplemented(),
    };
    // It may be installed already: by this function, for nothing else in the process does.
    let _ = PROVIDER.install_default();
}

struct Hs256(hmac::Key);

impl Signer<Vec<u8>> for Hs256 {
    fn try_sign(&self, message: &[u8]) -> Result<Vec<u8>, signature::Error> {
        Ok(hmac::sign(&self.0, message).as_ref().to_vec())
    }
}

/// Compares in constant time.
impl Verifier<Vec<u8>> for Hs256 {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        hmac::verify(&self.0, message, signature).map_err(|_| signature::Error::new())
    }
}

impl JwtSigner for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

impl JwtVerifier for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: f64 = 1_700_000_000.0;
    const SECRET: &str = "a secret of some length, as there should be";

    fn gatekeeper() -> Gatekeeper {
        Gatekeeper::new(Arc::new(Keys::new(SECRET)))
    }

    fn ask(gatekeeper: &Gatekeeper, token: &str, now: f64) -> Result<String, Denied> {
        gatekeeper.user(Some(&format!("Bearer {token}")), now).map(|user| user.to_string())
    }

    /// A token of any header and claims, with the right signature. The library's own encoder is not asked.
    fn signed(header: &str, claims: &str) -> String {
        let message = format!("{}.{}", base64(header.as_bytes()), base64(claims.as_bytes()));
        let tag =
            hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), message.as_bytes());
        format!("{message}.{}", base64(tag.as_ref()))
    }

    fn base64(bytes: &[u8]) -> String {
        const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
        let letter = |six: &[u8]| {
            let six = std::str::from_utf8(six).expect("digits");
            let value = usize::from_str_radix(&format!("{six:0<6}"), 2).expect("digits");
            char::from(LETTERS[value])
        };
        bits.as_bytes().chunks(6).map(letter).collect()
    }

    const HS256: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

    /// Purpose: our own tokens and those of RFC 7515's first example's shape are taken; RFC 7519 makes every
    /// claim but the subject optional for us.
    #[test]
    fn valid() {
        let gatekeeper = gatekeeper();
        assert_eq!(
            ask(&gatekeeper, &issue(SECRET, "us er/ñ", NOW, 60.0), NOW),
            Ok("us er/ñ".into())
        );
        for claims in [
            r#"{"sub":"a"}"#,
            r#"{"sub":"a","exp":1700000001}"#,
            r#"{"sub":"a","exp":1700000000.5,"nbf":1700000000}"#,
            r#"{"aud":"others","iss":"x","sub":"a","iat":1}"#,
        ] {
            assert_eq!(ask(&gatekeeper, &signed(HS256, claims), NOW), Ok("a".into()), "{claims}");
        }
        let lower = format!("bearer {}", signed(HS256, r#"{"sub":"a"}"#));
        assert!(gatekeeper.user(Some(&lower), NOW).is_ok());
    }

    /// Purpose: no trick with the header, the claims or the signature gives a request a user.
    #[test]
    fn refused() {
        let gatekeeper = gatekeeper();
        let good = signed(HS256, r#"{"sub":"a"}"#);
        let (message, tag) = good.rsplit_once('.').expect("three parts");
        let unsigned = format!("{}.{}.", base64(br#"{"alg":"none"}"#), base64(br#"{"sub":"a"}"#));
        let cases = [
            (unsigned, Denied::Algorithm),
            (signed(r#"{"alg":"none"}"#, r#"{"sub":"a"}"#), Denied::Algorithm),
            (signed(r#"{"alg":"None"}"#, r#"{"sub":"a"}"#), Denied::Algorithm),
            (signed(r#"{"alg":"RS256"}"#, r#"{"sub":"a"}"#), Denied::Algorithm),
            (signed(r#"{"alg":"HS512"}"#, r#"{"sub":"a"}"#), Denied::Algorithm),
            (signed(HS256, r#"{"sub":""}"#), Denied::Subject),
            (signed(HS256, r#"{"name":"a"}"#), Denied::Subject),
            (signed(HS256, r#"{"sub":"a\u0000b"}"#), Denied::Subject),
            (signed(HS256, &format!(r#"{{"sub":"{}"}}"#, "x".repeat(256))), Denied::Subject),
            (signed(HS256, r#"{"sub":5}"#), Denied::Invalid),
            (signed(HS256, r#"{"sub":"a","exp":"soon"}"#), Denied::Invalid),
            (signed(HS256, r#"{"sub":"a","exp":1700000000}"#), Denied::Expired),
            (signed(HS256, r#"{"sub":"a","exp":-1}"#), Denied::Expired),
            (signed(HS256, r#"{"sub":"a","nbf":1700000001}"#), Denied::NotYet),
            (issue("another secret", "a", NOW, 60.0), Denied::Secret),
            (format!("{message}."), Denied::Secret),
            (message.to_owned(), Denied::Invalid),
            (format!("{message}.{tag}x"), Denied::Secret),
            (format!("{good}.{tag}"), Denied::Invalid),
            ("x".repeat(TOKEN_BYTES_MAX + 1), Denied::Invalid),
            (String::new(), Denied::Invalid),
        ];
        for (token, denied) in cases {
            assert_eq!(ask(&gatekeeper, &token, NOW), Err(denied), "{token}");
        }
        for field in [None, Some(""), Some("Bearer"), Some("Basic YTpi"), Some(&*good)] {
            assert_eq!(gatekeeper.user(field, NOW), Err(Denied::Missing), "{field:?}");
        }
    }

    /// Purpose: other libraries take our tokens, too: some refuse times that are written with a fraction, even `.0`.
    #[test]
    fn issued_times_are_whole_seconds() {
        let token = issue(SECRET, "a", NOW + 0.4, 60.5);
        let claims = token.split('.').nth(1).expect("three parts");
        assert_eq!(claims, base64(br#"{"sub":"a","iat":1700000000,"exp":1700000061}"#));
    }

    /// Purpose: a token that a worker remembers expires with the second it says, and not one request later.
    #[test]
    fn remembered_tokens_expire() {
        let gatekeeper = gatekeeper();
        let token = issue(SECRET, "a", NOW, 60.0);
        assert!(ask(&gatekeeper, &token, NOW).is_ok());
        assert!(ask(&gatekeeper, &token, NOW + 59.9).is_ok());
        assert_eq!(ask(&gatekeeper, &token, NOW + 60.0), Err(Denied::Expired));
        // The clock may be set back.
        assert!(ask(&gatekeeper, &token, NOW + 1.0).is_ok());
    }

    /// Purpose: however many tokens there are, a worker remembers no more than it may; and one that is used all
    /// the time stays.
    #[test]
    fn remembered_tokens_are_bounded() {
        let gatekeeper = gatekeeper();
        let often = issue(SECRET, "often", NOW, 60.0);
        for number in 0..3 * REMEMBERED_MAX {
            assert!(ask(&gatekeeper, &issue(SECRET, &number.to_string(), NOW, 60.0), NOW).is_ok());
            assert!(ask(&gatekeeper, &often, NOW).is_ok());
            let mut remembered = gatekeeper.remembered.borrow_mut();
            assert!(remembered.len() <= REMEMBERED_MAX);
            assert!(remembered.find(&often).is_some());
        }
        // Refused ones are not remembered at all.
        let before = gatekeeper.remembered.borrow().len();
        assert!(ask(&gatekeeper, "x.y.z", NOW).is_err());
        assert_eq!(gatekeeper.remembered.borrow().len(), before);
    }
}
