//! Answers that depend on a field of their request.

use http::{HeaderName, HeaderValue, header};

use super::response::Response;

impl Response {
    /// Declares that the response depends on a field of the request: adds it to `Vary`, unless that names it already
    /// (RFC 9110 §12.5.5). Caches keep one response for each value of the field.
    ///
    /// ```
    /// use highwater::{AcceptLanguage, Response, Router};
    ///
    /// fn greet(languages: AcceptLanguage) -> Response {
    ///     let mut response = Response::from(match languages.best(&["en", "de"]) {
    ///         Some("de") => "Guten Tag",
    ///         _ => "Good day",
    ///     });
    ///     response.vary("accept-language");
    ///     response
    /// }
    ///
    /// let app = Router::new().get("/", greet);
    /// # app.build().unwrap();
    /// ```
    ///
    /// # Panics
    /// If `name` is not in lower case, or is not a field's name.
    pub fn vary(&mut self, name: &'static str) {
        let is_listed = self
            .headers()
            .filter(|(existing, _)| *existing == "vary")
            .flat_map(|(_, value)| value.split(|byte| *byte == b','))
            .map(<[u8]>::trim_ascii)
            .any(|listed| listed == b"*" || listed.eq_ignore_ascii_case(name.as_bytes()));
        if !is_listed {
            HeaderName::from_static(name); // It checks that it is one.
            self.append_header(header::VARY, HeaderValue::from_static(name));
        }
    }
}
