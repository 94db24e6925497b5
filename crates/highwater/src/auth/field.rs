//! The fields `Authorization` and `WWW-Authenticate` (RFC 9110 §11).

use http::{HeaderValue, header};

use crate::app::{Error, Request};

/// The credentials of a request, if it has some of this scheme: what follows the scheme's name. Its case does not matter. A
/// request with two fields has none: two proofs are none.
pub(super) fn credentials<'r>(request: &'r Request<'_>, scheme: &str) -> Option<&'r str> {
    let mut fields = request.headers().get_all("authorization");
    let field = std::str::from_utf8(fields.next()?).ok()?;
    if fields.next().is_some() {
        return None;
    }
    of_scheme(field, scheme)
}

/// The same, of one field.
pub(super) fn of_scheme<'f>(field: &'f str, scheme: &str) -> Option<&'f str> {
    let (given, rest) = field.split_once(' ')?;
    given.eq_ignore_ascii_case(scheme).then(|| rest.trim_matches(' '))
}

/// 401, and how to do better.
pub(super) fn unauthorized(
    message: impl Into<std::borrow::Cow<'static, str>>,
    challenge: HeaderValue,
) -> Error {
    Error::unauthorized(message).with_header(header::WWW_AUTHENTICATE, challenge)
}

/// Whether a text can stand between the quotes of a challenge.
pub(super) fn is_quotable(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\'))
}

/// What such a layer adds to the document of an operation.
#[cfg(feature = "openapi")]
pub(super) fn document(
    operation: &mut crate::app::openapi::Operation<'_>,
    name: &str,
    scheme: &crate::app::openapi::SecurityScheme,
    error: &str,
) {
    let status = http::StatusCode::UNAUTHORIZED;
    operation.security(name, scheme);
    operation.error(status, error);
    operation.error_header(status, "WWW-Authenticate", "The proof that is wanted.");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a scheme is found whatever its case, and never taken for another.
    #[test]
    fn schemes() {
        assert_eq!(of_scheme("bearer  a.b ", "Bearer"), Some("a.b"));
        for field in ["Bearer", "Bearera b", "Basic a", "", " Bearer a"] {
            assert_eq!(of_scheme(field, "Bearer"), None, "{field:?}");
        }
    }
}
