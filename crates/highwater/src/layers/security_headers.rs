//! Header fields that restrict what browsers do with a response.

use std::time::Duration;

use http::{HeaderName, HeaderValue, header};

use crate::app::{BoxError, Layer, Response};

/// Adds fields to every response that restrict what browsers do with it:
///
/// | field | value | keeps a browser from |
/// |---|---|---|
/// | `X-Content-Type-Options` | `nosniff` | running content as a script or a style unless its type says so |
/// | `X-Frame-Options` | `DENY` | showing a page inside of another site's |
/// | `Referrer-Policy` | `no-referrer` | telling other sites where a link was |
/// | `Cross-Origin-Opener-Policy` | `same-origin` | letting another site's window reach into this one's |
/// | `Cross-Origin-Resource-Policy` | `same-origin` | loading it into another site's page, except by CORS |
///
/// A response that has such a field already keeps its own. Settings that depend on a site are off by default:
/// [`content_security_policy`](SecurityHeaders::content_security_policy),
/// [`strict_transport_security`](SecurityHeaders::strict_transport_security).
///
/// ```
/// use highwater::layers::security_headers;
/// use highwater::testing::Client;
/// use highwater::{Router, fixed};
///
/// let headers = security_headers()
///     .content_security_policy("default-src 'self'; frame-ancestors 'none'")
///     .set("permissions-policy", "camera=(), microphone=()")
///     .without("x-frame-options");
/// let client = Client::new(Router::new().layer(headers).get("/health", fixed("ok")));
/// let response = client.get("/health");
/// assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
/// assert_eq!(response.header("x-frame-options"), None);
/// ```
pub fn security_headers() -> SecurityHeaders {
    let fields = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    let fields = fields.map(|(name, value)| (name, HeaderValue::from_static(value)));
    SecurityHeaders { fields: fields.into(), problems: Vec::new() }
}

/// A layer that adds fields to every response; made by [`security_headers`].
#[derive(Clone, Debug)]
#[must_use = "give it to `Router::layer`"]
pub struct SecurityHeaders {
    fields: Vec<(HeaderName, HeaderValue)>,
    problems: Vec<String>,
}

impl SecurityHeaders {
    /// Sets a field, replacing its previous value. Any field may be set that is the same for all responses.
    pub fn set<K, V>(mut self, name: K, value: V) -> Self
    where
        K: TryInto<HeaderName, Error: Into<BoxError>>,
        V: TryInto<HeaderValue, Error: Into<BoxError>>,
    {
        let name = name.try_into().map_err(Into::into);
        let value = value.try_into().map_err(Into::into);
        match (name, value) {
            (Ok(name), Ok(value)) => {
                self.fields.retain(|(existing, _)| *existing != name);
                self.fields.push((name, value));
            }
            (Err(error), _) => self.problems.push(format!(
                "security_headers().set(…): {error}; write a field's name, like `permissions-policy`"
            )),
            (Ok(name), Err(error)) => self.problems.push(format!(
                "security_headers().set(\"{name}\", …): {error}; a value is visible ASCII on one line"
            )),
        }
        self
    }

    /// Leaves a field out.
    pub fn without(mut self, name: &str) -> Self {
        if !self.fields.iter().any(|(existing, _)| existing.as_str().eq_ignore_ascii_case(name)) {
            self.problems.push(format!(
                "security_headers().without(\"{name}\"): there is no such field; leave the call out"
            ));
        }
        self.fields.retain(|(existing, _)| !existing.as_str().eq_ignore_ascii_case(name));
        self
    }

    /// Sets the sources from which a page may load resources (Content Security Policy Level 3). It is off by default, since
    /// it depends on the site. For an API without pages: `default-src 'none'; frame-ancestors 'none'`.
    pub fn content_security_policy(self, policy: &str) -> Self {
        self.set(header::CONTENT_SECURITY_POLICY, policy)
    }

    /// Makes browsers use `https` only, for this long after each response (RFC 6797). It is off by default:
    /// browsers that received it cannot reach a site without `https`.
    pub fn strict_transport_security(mut self, max_age: Duration) -> Self {
        if max_age.as_secs() == 0 && !max_age.is_zero() {
            self.problems.push(String::from(
                "security_headers().strict_transport_security(…): the time is counted in whole \
                 seconds, and less than one takes the rule back; write at least one second, or zero",
            ));
        }
        self.set(header::STRICT_TRANSPORT_SECURITY, format!("max-age={}", max_age.as_secs()))
    }
}

impl From<SecurityHeaders> for Layer {
    fn from(SecurityHeaders { fields, problems }: SecurityHeaders) -> Layer {
        let amend = move |response: &mut Response| {
            for (name, value) in &fields {
                if response.header(name.as_str()).is_none() {
                    response.append_header(name.clone(), value.clone());
                }
            }
        };
        problems.into_iter().fold(Layer::new().amend(amend).everywhere(), Layer::problem)
    }
}
