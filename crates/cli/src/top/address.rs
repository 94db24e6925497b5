//! Where are a server's metrics, given what somebody typed?
//!
//! `127.0.0.1:9090`, `http://host:9090/`, `http://host:9090/metrics/` and the address of another
//! page of the metrics port all mean `/metrics` there. Below another path, as a proxy may have it,
//! `/metrics` is appended. A URL with a query is used as it is.

use ureq::http::Uri;

/// What else the metrics port serves.
const SIBLINGS: [&str; 4] = ["livez", "readyz", "routes", "scaling"];

const PAGE: &str = "metrics";

/// The URL of the metrics that `text` means.
///
/// # Errors
/// `text` is not the URL of a server; says what to write.
pub(crate) fn metrics(text: &str) -> Result<Uri, String> {
    let remedy = "use one like http://127.0.0.1:9090";
    // Without a scheme, `host:9090` would be read as the scheme `host`.
    let text = match text.contains("://") {
        true => text.to_owned(),
        false => format!("http://{text}"),
    };
    let text = text.split('#').next().unwrap_or_default();
    let url: Uri = text.parse().map_err(|error| format!("not a URL ({error}); {remedy}"))?;
    let is_http = matches!(url.scheme_str(), Some("http" | "https"));
    if !is_http || url.host().is_none_or(str::is_empty) {
        return Err(format!("not an http or https URL; {remedy}"));
    }
    if url.query().is_some() {
        return Ok(url);
    }
    let authority = url.authority().map(ToString::to_string).unwrap_or_default();
    let scheme = url.scheme_str().unwrap_or("http");
    let path = path(url.path());
    format!("{scheme}://{authority}{path}").parse().map_err(|error| format!("not a URL ({error})"))
}

fn path(path: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match parts.last() {
        Some(&PAGE) => {}
        Some(last) if SIBLINGS.contains(last) => {
            parts.pop();
            parts.push(PAGE);
        }
        _ => parts.push(PAGE),
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: whatever is pasted from a browser, a manifest or a log leads to the metrics.
    #[test]
    fn the_page_is_found() {
        for (text, expected) in [
            ("http://127.0.0.1:9090", "http://127.0.0.1:9090/metrics"),
            ("http://127.0.0.1:9090/", "http://127.0.0.1:9090/metrics"),
            ("http://127.0.0.1:9090/metrics", "http://127.0.0.1:9090/metrics"),
            ("http://127.0.0.1:9090/metrics/", "http://127.0.0.1:9090/metrics"),
            ("http://127.0.0.1:9090//metrics", "http://127.0.0.1:9090/metrics"),
            ("http://127.0.0.1:9090/livez", "http://127.0.0.1:9090/metrics"),
            ("http://127.0.0.1:9090/routes", "http://127.0.0.1:9090/metrics"),
            ("http://127.0.0.1:9090/#top", "http://127.0.0.1:9090/metrics"),
            ("127.0.0.1:9090", "http://127.0.0.1:9090/metrics"),
            ("localhost:9090/scaling", "http://localhost:9090/metrics"),
            ("https://[::1]:9090", "https://[::1]:9090/metrics"),
            ("https://example.org/app/one", "https://example.org/app/one/metrics"),
            ("http://h:1/probe?target=a", "http://h:1/probe?target=a"),
        ] {
            let url = metrics(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(url.to_string(), expected, "{text}");
        }
    }

    /// Purpose: a text that is not a URL is refused, with an example of one.
    #[test]
    fn no_url_is_refused() {
        for text in ["", "ftp://127.0.0.1/", "http://", "http:///metrics", "a b", "unix:///run/x"] {
            let error = metrics(text).expect_err(text);
            assert!(error.ends_with("use one like http://127.0.0.1:9090"), "{text}: {error}");
        }
    }
}
