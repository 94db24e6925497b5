//! Which tokens are valid?

use std::fmt;
use std::sync::Arc;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Validation, decode, decode_header};
use serde_json::Value;

use super::key::JwtKey;

/// The longest token, in bytes. A longer one is refused unread. With [`REMEMBERED_MAX`](super::REMEMBERED_MAX) it bounds what
/// tokens take on each worker.
pub const TOKEN_BYTES_MAX: usize = 8192;

/// Why a token is refused: the message that its client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// It is not a token.
    Invalid,
    /// Its signature does not match.
    Signature,
    /// It is signed, or claims to be, with another algorithm than the key's.
    Algorithm,
    /// It has expired.
    Expired,
    /// It has no `exp`, and one is needed.
    Endless,
    /// It is not valid yet.
    NotYet,
    /// It is of another issuer.
    Issuer,
    /// It is for another audience.
    Audience,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Denied::Invalid => "the token is not valid",
            Denied::Signature => {
                "the token is signed with another key than this service's, or was changed"
            }
            Denied::Algorithm => {
                "the token is signed with another algorithm than this service's key"
            }
            Denied::Expired => "the token has expired",
            Denied::Endless => "the token has no time at which it expires (`exp`)",
            Denied::NotYet => "the token is not valid yet",
            Denied::Issuer => "the token is of another issuer (`iss`)",
            Denied::Audience => "the token is for another audience (`aud`)",
        })
    }
}

impl std::error::Error for Denied {}

/// The contents of a verified token.
#[derive(Debug, PartialEq)]
pub(super) struct Verified {
    pub(super) claims: Value,
    pub(super) subject: Option<Arc<str>>,
    not_before: Option<f64>,
    expires: Option<f64>,
}

/// What makes a token valid.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) keys: Vec<JwtKey>,
    pub(super) issuers: Vec<String>,
    pub(super) audiences: Vec<String>,
    pub(super) any_audience: bool,
    /// In seconds.
    pub(super) leeway: f64,
    pub(super) needs_expiry: bool,
}

impl Rules {
    pub(super) fn new(key: JwtKey) -> Self {
        Rules {
            keys: vec![key],
            issuers: Vec::new(),
            audiences: Vec::new(),
            any_audience: false,
            leeway: 0.0,
            needs_expiry: true,
        }
    }

    /// Reads and verifies a token. Its times are not looked at: [`Rules::check_times`] does that.
    pub(super) fn verify(&self, token: &str) -> Result<Verified, Denied> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Denied::Invalid);
        }
        let mut outcome = Err(Denied::Invalid);
        for key in &self.keys {
            outcome = read(token, key);
            if !matches!(outcome, Err(Denied::Signature | Denied::Algorithm)) {
                break;
            }
        }
        let claims = outcome?;
        let time = |name: &str| match claims.get(name) {
            None => Ok(None),
            Some(value) => {
                value.as_f64().filter(|time| time.is_finite()).map(Some).ok_or(Denied::Invalid)
            }
        };
        let subject = match claims.get("sub") {
            None => None,
            Some(Value::String(subject)) => Some(Arc::from(subject.as_str())),
            Some(_) => return Err(Denied::Invalid),
        };
        let (not_before, expires) = (time("nbf")?, time("exp")?);
        self.check_parties(&claims)?;
        Ok(Verified { subject, not_before, expires, claims })
    }

    fn check_parties(&self, claims: &Value) -> Result<(), Denied> {
        let is_among = |names: &[String], value: &Value| {
            value.as_str().is_some_and(|text| names.iter().any(|name| name == text))
        };
        if !self.issuers.is_empty() && !is_among(&self.issuers, &claims["iss"]) {
            return Err(Denied::Issuer);
        }
        let is_for_us = match &claims["aud"] {
            Value::Null => self.audiences.is_empty(),
            Value::Array(all) => all.iter().any(|one| is_among(&self.audiences, one)),
            one => is_among(&self.audiences, one),
        };
        if is_for_us || self.any_audience { Ok(()) } else { Err(Denied::Audience) }
    }

    /// Whether a token is valid at `now`, in seconds since 1970.
    pub(super) fn check_times(&self, verified: &Verified, now: f64) -> Result<(), Denied> {
        match verified.expires {
            Some(expires) if now >= expires + self.leeway => return Err(Denied::Expired),
            None if self.needs_expiry => return Err(Denied::Endless),
            _ => {}
        }
        match verified.not_before {
            Some(not_before) if now + self.leeway < not_before => Err(Denied::NotYet),
            _ => Ok(()),
        }
    }
}

/// Reads the claims of a token that this key has signed.
fn read(token: &str, key: &JwtKey) -> Result<Value, Denied> {
    let mut validation = Validation::new(key.algorithm);
    // All claims are checked here, where the time is an argument and a remembered token is checked alike.
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    let decoded = decode::<Value>(token, &key.verifying, &validation);
    let decoded = decoded.map_err(|error| match error.kind() {
        ErrorKind::InvalidAlgorithm | ErrorKind::UnsupportedAlgorithm => Denied::Algorithm,
        ErrorKind::InvalidSignature => Denied::Signature,
        // The name of the algorithm is none that the library knows: `none` is one.
        ErrorKind::Json(_) if decode_header(token).is_err() => Denied::Algorithm,
        _ => Denied::Invalid,
    })?;
    match decoded.claims.is_object() && decoded.header.crit.is_none() {
        true => Ok(decoded.claims),
        false => Err(Denied::Invalid),
    }
}

/// Without the keys.
impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("issuers", &self.issuers)
            .field("audiences", &self.audiences)
            .field("any_audience", &self.any_audience)
            .field("leeway", &self.leeway)
            .field("needs_expiry", &self.needs_expiry)
            .finish_non_exhaustive()
    }
}
