//! The keys of signed tokens.

use std::fmt;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header};
use serde_core::ser::{Serialize, SerializeStruct, Serializer};

use super::provider::install;

/// A key for the verification of signed tokens. Its kind decides which algorithm tokens may be signed with.
#[derive(Clone)]
pub struct JwtKey {
    pub(super) algorithm: Algorithm,
    pub(super) verifying: DecodingKey,
    /// What is wrong with it.
    pub(super) problem: Option<String>,
}

/// The shortest secret, in bytes: as long as the hash (RFC 7518 §3.2).
const SECRET_BYTES_MIN: usize = 32;

/// Why a key cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtKeyError(&'static str);

impl fmt::Display for JwtKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for JwtKeyError {}

impl JwtKey {
    /// HS256: a secret that issuer and service share. A secret of fewer than 32 bytes can be guessed (RFC 7518 §3.2), so it is
    /// refused when the application is built.
    pub fn hs256(secret: impl AsRef<[u8]>) -> Self {
        let secret = secret.as_ref();
        let mut key = JwtKey::new(Algorithm::HS256, DecodingKey::from_secret(secret));
        key.problem = (secret.len() < SECRET_BYTES_MIN).then(|| {
            format!(
                "JwtKey::hs256(…): the secret has {} bytes, and whoever guesses it can sign tokens; give at least \
                 {SECRET_BYTES_MIN} random ones, as `openssl rand -hex 32` writes them",
                secret.len()
            )
        });
        key
    }

    /// RS256: the public key of an issuer, of 2048 to 8192 bits, as `-----BEGIN PUBLIC KEY-----` has it
    /// (`openssl pkey -in key.pem -pubout`).
    ///
    /// # Errors
    /// It is no such key.
    pub fn rs256_pem(pem: &str) -> Result<Self, JwtKeyError> {
        let key = public_key(pem, RSA)?;
        Ok(JwtKey::new(Algorithm::RS256, DecodingKey::from_rsa_der(&key)))
    }

    /// RS256: the public key of an issuer by its modulus and exponent, as `n` and `e` of a JSON Web Key (RFC 7518 §6.3.1).
    ///
    /// # Errors
    /// They are not base64url.
    pub fn rs256_components(n: &str, e: &str) -> Result<Self, JwtKeyError> {
        let key = DecodingKey::from_rsa_components(n, e);
        let key = key.map_err(|_| JwtKeyError("the modulus or the exponent is not base64url"))?;
        Ok(JwtKey::new(Algorithm::RS256, key))
    }

    /// ES256: the public key of an issuer, on the curve P-256, as `-----BEGIN PUBLIC KEY-----` has it.
    ///
    /// # Errors
    /// It is no such key.
    pub fn es256_pem(pem: &str) -> Result<Self, JwtKeyError> {
        let point = public_key(pem, P256)?;
        if point.len() != 65 || point[0] != 4 {
            return Err(JwtKeyError("it is not an uncompressed point on the curve P-256"));
        }
        Ok(JwtKey::new(Algorithm::ES256, DecodingKey::from_ec_der(&point)))
    }

    /// ES256: the public key of an issuer by its coordinates, as `x` and `y` of a JSON Web Key (RFC 7518 §6.2.1).
    ///
    /// # Errors
    /// They are not base64url.
    pub fn es256_components(x: &str, y: &str) -> Result<Self, JwtKeyError> {
        let key = DecodingKey::from_ec_components(x, y);
        let key = key.map_err(|_| JwtKeyError("a coordinate is not base64url"))?;
        Ok(JwtKey::new(Algorithm::ES256, key))
    }

    fn new(algorithm: Algorithm, verifying: DecodingKey) -> Self {
        install();
        JwtKey { algorithm, verifying, problem: None }
    }
}

/// Without the key: it may be a secret.
impl fmt::Debug for JwtKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtKey").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// The identifiers of kinds of keys, as DER has them: rsaEncryption (RFC 8017 §A.1), and id-ecPublicKey with prime256v1
/// (RFC 5480 §2.1.1).
const RSA: &[u8] = &[0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 0x05, 0];
const P256: &[u8] =
    &[0x06, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];

/// The key within a SubjectPublicKeyInfo (RFC 5280 §4.1.2.7) of this kind.
fn public_key(pem: &str, kind: &[u8]) -> Result<Vec<u8>, JwtKeyError> {
    const BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
    let no_pem = JwtKeyError(
        "there is no `-----BEGIN PUBLIC KEY-----`; `openssl pkey -in key.pem -pubout` writes one",
    );
    let (_, rest) = pem.split_once(BEGIN).ok_or(no_pem.clone())?;
    let (text, _) = rest.split_once("-----END PUBLIC KEY-----").ok_or(no_pem)?;
    let text: String = text.split_ascii_whitespace().collect();
    let der = STANDARD
        .decode(text)
        .map_err(|_| JwtKeyError("the text between its first and last line is not base64"))?;
    let broken = JwtKeyError("it is no SubjectPublicKeyInfo");
    let (info, rest) = value(&der, 0x30).ok_or(broken.clone())?;
    let (algorithm, bits) = value(info, 0x30).ok_or(broken.clone())?;
    if algorithm != kind {
        return Err(JwtKeyError(
            "it is a key of another kind; RS256 takes RSA, ES256 the curve P-256",
        ));
    }
    match value(bits, 0x03) {
        Some(([0, key @ ..], [])) if rest.is_empty() => Ok(key.to_vec()),
        _ => Err(broken),
    }
}

/// The value of this tag that `der` begins with, and what follows it (X.690 §8.1).
fn value(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let [first, length, rest @ ..] = der else { return None };
    let (length, rest) = match *length {
        short @ 0..=0x7f => (usize::from(short), rest),
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        0x82 => {
            let (two, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*two)), rest)
        }
        _ => return None,
    };
    (*first == tag && length <= rest.len()).then(|| rest.split_at(length))
}

/// What is written. Whole seconds, without even `.0`: some libraries accept nothing else.
struct Issued<'a> {
    sub: &'a str,
    iat: u64,
    exp: u64,
}

impl Serialize for Issued<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Issued { sub, iat, exp } = self;
        let mut fields = serializer.serialize_struct("Issued", 3)?;
        fields.serialize_field("sub", sub)?;
        fields.serialize_field("iat", iat)?;
        fields.serialize_field("exp", exp)?;
        fields.end()
    }
}

/// A token for `subject`, signed with a secret (HS256) and valid from `now` for `life`. Its times are whole seconds, and it is
/// never valid for less. For tests, tools, and services that are their own issuer.
pub fn issue(secret: impl AsRef<[u8]>, subject: &str, now: SystemTime, life: Duration) -> String {
    install();
    let seconds =
        |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (issued, expires) = (seconds(now), seconds(now + life));
    let exp = expires.as_secs() + u64::from(expires.subsec_nanos() > 0);
    let claims = Issued { sub: subject, iat: issued.as_secs(), exp };
    let key = EncodingKey::from_secret(secret.as_ref());
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key)
        .expect("a subject and numbers are JSON, and HS256 takes any secret")
}
