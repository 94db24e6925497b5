//! JWT against tokens of OpenSSL, and tokens that lie.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

use super::*;

const NOW: f64 = 1_700_000_000.0;
const SECRET: &str = "a secret of some length, as there should be";

/// Keys and tokens made by OpenSSL, whose claims are `{"sub":"ann","exp":4102444800}`.
const RSA_PEM: &str = "-----BEGIN PUBLIC KEY-----\n\
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEArxHZKUlXa9iDCF+taJzE\n\
TN1k2MReND7JefCv8iGEgyJa7HSh13PwMltpAMZ4CMFp+N96EaIDb1sRuoB04ZLM\n\
n8LvkShB3Mu6fWvBqDjPSjLBF0T+03aaqmdQqxKA/dKNn5VCSs3lf1+D46VZ7buE\n\
PrDb/b8l6gnNCqAoRwDh7spNvSye2Bxpq8b+uEdKXWiYgvEhWVH1F01X2o7QUG1j\n\
HZgIzNqqZQBEH7ITNiqlpE4RqFWc+4Ytfhabrwtc7C3QgBjOi5DwaLp7cHjg/x/e\n\
ctioLrEnz+SfxUTbbjts/HiXASrAebjiP/Kyk5jVuJ3vhZmDZV2+lgTGdcB8rIqI\n\
swIDAQAB\n\
-----END PUBLIC KEY-----\n\
";
const RSA_TOKEN: &str = "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDB9.TxAgk4x0FVzkS1cwgW2EFAqOP0uUUEvdbCOGmVG5EooabREM1_pWzUbdNxxW39JaBFlrP-GGHIkmkgz8ZZI9fIY3vh_NQeGZDDKJlCuf8-LszoyExuM3ggJhwBCcRFzmn5V389RTwHBLJZ8evHEPuZGz6IfJHXLDgIoMZuFsG4J4CxI-YkfUto9KWgQykQdqwgbVkGq96JH7oq7ovVb02wERSZskpNd2cX5N1pac9P3rtihlG9Qq09xV2wL_18hb29JW5BHEmEHxL_EG8uCrSfeFuSJrqLD4MuN3dWSF1Udzl0-lsgvDgL3n5Y0fRMpMZBehICpuJLw5GwtAEYdUoA";
const EC_PEM: &str = "-----BEGIN PUBLIC KEY-----\n\
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE3h81jRLhURGnmCRcz9YEJ6fJ9Kat\n\
JoOat9sVREIT2jB/Jvwoj9qrgIqH1ZabWrrgUx4jqk19OVHmBM2NtI2DUA==\n\
-----END PUBLIC KEY-----\n\
";
const EC_TOKEN: &str = "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDB9.nLcDmkE2RYSugnSm9daS5M8hjuSlmtyJdiCfctdOAKGqPrZQ_yDvjbxCEzJy32ah6Va6YL7Z0V8iz3Z8TL4i-Q";

/// The example of RFC 7515, appendix A.3, which expired in 2011.
const RFC_EC: [&str; 2] =
    ["f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"];
const RFC_EC_TOKEN: &str = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";

fn verifier(jwt: Jwt) -> TokenVerifier {
    assert_eq!(jwt.problems(), Vec::<String>::new());
    TokenVerifier::new(Arc::new(jwt.rules))
}

fn lenient() -> TokenVerifier {
    verifier(jwt(JwtKey::hs256(SECRET)).without_expiry().any_audience())
}

fn subject(verifier: &TokenVerifier, token: &str, now: f64) -> Result<String, Denied> {
    let verified = verifier.verify(token, now)?;
    Ok(verified.subject.as_deref().unwrap_or("nobody").to_owned())
}

/// A token of any header and claims, with the right signature. The library's own encoder is not asked.
fn signed(header: &str, claims: &str) -> String {
    let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part));
    let message = format!("{header}.{claims}");
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), message.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag))
}

fn issued(subject: &str, life: f64) -> String {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs_f64(NOW);
    issue(SECRET, subject, now, Duration::from_secs_f64(life))
}

const HS256: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

/// Purpose: our own tokens and those of other libraries are taken, and each claim is optional that may be.
#[test]
fn valid() {
    let verifier = lenient();
    assert_eq!(subject(&verifier, &issued("us er/ñ", 60.0), NOW), Ok("us er/ñ".into()));
    for claims in [
        r#"{"sub":"a"}"#,
        r#"{"sub":"a","exp":1700000001}"#,
        r#"{"sub":"a","exp":1700000000.5,"nbf":1700000000}"#,
        r#"{"aud":"others","iss":"x","sub":"a","iat":1}"#,
    ] {
        assert_eq!(subject(&verifier, &signed(HS256, claims), NOW), Ok("a".into()), "{claims}");
    }
}

/// Purpose: no trick with the header, the claims or the signature makes a token valid.
#[test]
fn refused() {
    let verifier = lenient();
    let good = signed(HS256, r#"{"sub":"a"}"#);
    let (message, tag) = good.rsplit_once('.').expect("three parts");
    let unsigned = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.".to_owned();
    let foreign =
        issue("another secret", "a", SystemTime::UNIX_EPOCH, Duration::from_secs(1 << 32));
    let cases = [
        (unsigned, Denied::Algorithm),
        (signed(r#"{"alg":"none"}"#, r#"{"sub":"a"}"#), Denied::Algorithm),
        (signed(r#"{"alg":"None"}"#, r#"{"sub":"a"}"#), Denied::Algorithm),
        (signed(r#"{"alg":"RS256"}"#, r#"{"sub":"a"}"#), Denied::Algorithm),
        (signed(r#"{"alg":"HS512"}"#, r#"{"sub":"a"}"#), Denied::Algorithm),
        (signed(r#"{"alg":"HS256","crit":["exp"]}"#, r#"{"sub":"a"}"#), Denied::Invalid),
        (signed(HS256, r#"{"sub":5}"#), Denied::Invalid),
        (signed(HS256, r#"["sub"]"#), Denied::Invalid),
        (signed(HS256, r#"{"sub":"a","exp":"soon"}"#), Denied::Invalid),
        (signed(HS256, r#"{"sub":"a","nbf":null}"#), Denied::Invalid),
        (signed(HS256, r#"{"sub":"a","exp":1700000000}"#), Denied::Expired),
        (signed(HS256, r#"{"sub":"a","exp":-1}"#), Denied::Expired),
        (signed(HS256, r#"{"sub":"a","nbf":1700000001}"#), Denied::NotYet),
        (foreign, Denied::Signature),
        (format!("{message}."), Denied::Signature),
        (message.to_owned(), Denied::Invalid),
        (format!("{message}.{tag}x"), Denied::Signature),
        (format!("{good}.{tag}"), Denied::Invalid),
        ("x".repeat(TOKEN_BYTES_MAX + 1), Denied::Invalid),
        (String::new(), Denied::Invalid),
    ];
    for (token, denied) in cases {
        assert_eq!(subject(&verifier, &token, NOW), Err(denied), "{token}");
    }
}

/// Purpose: a token for somebody else, or of somebody else, is none for us; and by default one that never ends is none.
#[test]
fn parties() {
    let strict = verifier(jwt(JwtKey::hs256(SECRET)).issuer("us").issuer("them").audience("todos"));
    for (claims, outcome) in [
        (r#""iss":"us","aud":"todos""#, Ok("a".to_owned())),
        (r#""iss":"them","aud":["x","todos"]"#, Ok("a".to_owned())),
        (r#""aud":"todos""#, Err(Denied::Issuer)),
        (r#""iss":["us"],"aud":"todos""#, Err(Denied::Issuer)),
        (r#""iss":"us""#, Err(Denied::Audience)),
        (r#""iss":"us","aud":[]"#, Err(Denied::Audience)),
        (r#""iss":"us","aud":{"todos":1}"#, Err(Denied::Audience)),
    ] {
        let token = signed(HS256, &format!(r#"{{"sub":"a","exp":1700000060,{claims}}}"#));
        assert_eq!(subject(&strict, &token, NOW), outcome, "{claims}");
    }
    let plain = verifier(jwt(JwtKey::hs256(SECRET)));
    let subject_of = |claims: &str| subject(&plain, &signed(HS256, claims), NOW);
    assert_eq!(subject_of(r#"{"sub":"a","exp":1700000060}"#), Ok("a".into()));
    assert_eq!(subject_of(r#"{"sub":"a","exp":1700000060,"aud":"x"}"#), Err(Denied::Audience));
    assert_eq!(subject_of(r#"{"sub":"a"}"#), Err(Denied::Endless));
    let both = jwt(JwtKey::hs256(SECRET)).any_audience().audience("x");
    assert!(both.problems()[0].contains("leave one of them out"));
}

/// Purpose: public keys verify what OpenSSL signed and the example of RFC 7515; a secret made of a public key, the classic
/// confusion of algorithms, does not.
#[test]
fn public_keys() {
    let rsa = || JwtKey::rs256_pem(RSA_PEM).expect("OpenSSL's");
    let ec = || JwtKey::es256_pem(EC_PEM).expect("OpenSSL's");
    for (key, token) in [(rsa(), RSA_TOKEN), (ec(), EC_TOKEN)] {
        let verifier = verifier(jwt(key));
        assert_eq!(subject(&verifier, token, NOW), Ok("ann".into()));
        let other = if token == RSA_TOKEN { EC_TOKEN } else { RSA_TOKEN };
        assert_eq!(subject(&verifier, other, NOW), Err(Denied::Algorithm));
        assert_eq!(subject(&verifier, &issued("a", 60.0), NOW), Err(Denied::Algorithm));
        let (message, _) = token.rsplit_once('.').expect("three parts");
        let (_, tag) = other.rsplit_once('.').expect("three parts");
        assert_eq!(subject(&verifier, &format!("{message}.{tag}"), NOW), Err(Denied::Signature));
    }
    let both = verifier(jwt(rsa()).or_key(ec()));
    for token in [RSA_TOKEN, EC_TOKEN] {
        assert_eq!(subject(&both, token, NOW), Ok("ann".into()), "while keys change, both count");
    }
    let [x, y] = RFC_EC;
    let rfc = verifier(jwt(JwtKey::es256_components(x, y).expect("the RFC's")));
    assert_eq!(subject(&rfc, RFC_EC_TOKEN, 1_300_819_379.0), Ok("nobody".into()));
    assert_eq!(subject(&rfc, RFC_EC_TOKEN, 1_300_819_380.0), Err(Denied::Expired));
}

/// Purpose: a key of another kind, or none, is refused when it is given, and not by every token.
#[test]
fn wrong_keys() {
    assert!(JwtKey::rs256_pem(EC_PEM).expect_err("it is EC").to_string().contains("another kind"));
    assert!(
        JwtKey::es256_pem(RSA_PEM).expect_err("it is RSA").to_string().contains("another kind")
    );
    for pem in [
        "",
        "-----BEGIN PUBLIC KEY-----",
        "-----BEGIN PUBLIC KEY-----\n!\n-----END PUBLIC KEY-----",
    ] {
        assert!(JwtKey::rs256_pem(pem).is_err(), "{pem}");
    }
    for cut in (30..EC_PEM.len() - 30).step_by(7) {
        let cut = format!("{}{}", &EC_PEM[..cut], &EC_PEM[cut + 4..]);
        let _ = JwtKey::es256_pem(&cut);
    }
    assert!(JwtKey::rs256_components("!", "AQAB").is_err());
    assert!(JwtKey::es256_components("AQAB", "ä").is_err());
}

/// Purpose: other libraries take our tokens, too: some refuse times that are written with a fraction, even `.0`.
#[test]
fn issued_times_are_whole_seconds() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_400);
    let token = issue(SECRET, "a", now, Duration::from_millis(60_500));
    let claims = token.split('.').nth(1).expect("three parts");
    let expected = URL_SAFE_NO_PAD.encode(br#"{"sub":"a","iat":1700000000,"exp":1700000061}"#);
    assert_eq!(claims, expected);
}

/// Purpose: a token that a worker remembers expires with the second it says, and not one request later; the leeway moves
/// both ends.
#[test]
fn remembered_tokens_expire() {
    let verifier = lenient();
    let token = issued("a", 60.0);
    assert!(subject(&verifier, &token, NOW).is_ok());
    assert!(subject(&verifier, &token, NOW + 59.9).is_ok());
    assert_eq!(subject(&verifier, &token, NOW + 60.0), Err(Denied::Expired));
    // The clock may be set back.
    assert!(subject(&verifier, &token, NOW + 1.0).is_ok());
    let late = TokenVerifier::new(Arc::new(
        jwt(JwtKey::hs256(SECRET)).leeway(Duration::from_secs(5)).rules,
    ));
    assert!(subject(&late, &token, NOW + 64.9).is_ok());
    assert_eq!(subject(&late, &token, NOW + 65.0), Err(Denied::Expired));
    let early = signed(HS256, r#"{"sub":"a","exp":1800000000,"nbf":1700000005}"#);
    assert!(subject(&late, &early, NOW).is_ok());
    assert_eq!(subject(&late, &early, NOW - 0.1), Err(Denied::NotYet));
}

/// Purpose: however many tokens there are, a worker remembers no more than it may; and one that is used all the time stays.
#[test]
fn remembered_tokens_are_bounded() {
    let verifier = lenient();
    let often = issued("often", 60.0);
    for number in 0..3 * REMEMBERED_MAX {
        assert!(subject(&verifier, &issued(&number.to_string(), 60.0), NOW).is_ok());
        assert!(subject(&verifier, &often, NOW).is_ok());
        let mut remembered = verifier.remembered.borrow_mut();
        assert!(remembered.len() <= REMEMBERED_MAX);
        assert!(remembered.find(&often).is_some());
    }
    // Refused ones are not remembered at all.
    let before = verifier.remembered.borrow().len();
    assert!(subject(&verifier, "x.y.z", NOW).is_err());
    assert_eq!(verifier.remembered.borrow().len(), before);
}

/// Purpose: a secret that is too short for its algorithm is refused when the application is built, of whichever key: at 31 bytes, not at
/// 32, and without showing it.
#[test]
fn short_secrets() {
    let problems = |first: &str, second: &str| {
        jwt(JwtKey::hs256(first)).or_key(JwtKey::hs256(second)).problems()
    };
    let (short, long) = ("s".repeat(31), "s".repeat(32));
    assert_eq!(problems(&long, SECRET), Vec::<String>::new());
    for (first, second, size) in [("", SECRET, 0), (SECRET, &short, 31), (&short, SECRET, 31)] {
        let problems = problems(first, second);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(&format!("has {size} bytes")), "{problems:?}");
        assert!(problems[0].contains("openssl rand -hex 32") && !problems[0].contains("ssss"));
    }
}
