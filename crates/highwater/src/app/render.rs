//! The shape that errors have unless the application gives them another.

use super::error::Error;
use super::into_response::IntoResponse;
use super::response::Response;
use crate::escape;

impl Error {
    /// The shape errors have unless the application gives them another:
    /// `{"error":{"code":…,"message":…}}`, and `details` if there are some.
    pub(crate) fn render(&self) -> Response {
        let mut body = String::with_capacity(40 + self.code().len() + self.message().len());
        body.push_str("{\"error\":{\"code\":\"");
        escape::json(self.code(), &mut body);
        body.push_str("\",\"message\":\"");
        escape::json(self.message(), &mut body);
        body.push('"');
        #[cfg(feature = "json")]
        if let Some(details) = self.details() {
            body.push_str(",\"details\":");
            body.push_str(details);
        }
        body.push_str("}}");
        let mut response = body.into_response().with_content_type("application/json");
        response.set_status(self.status());
        response
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    /// Purpose: whatever a message holds, the default rendering is valid JSON that says it
    /// (RFC 8259 §7).
    #[test]
    fn default_rendering_is_json() {
        let error = Error::bad_request("a \"quoted\" \\ back\nslash \u{1} é");
        let response = error.render();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        assert_eq!(response.header("content-type"), Some(&b"application/json"[..]));
        assert_eq!(
            response.body().as_bytes(),
            Some(
                r#"{"error":{"code":"bad_request","message":"a \"quoted\" \\ back\nslash \u0001 é"}}"#
                    .as_bytes()
            )
        );
    }

    /// Purpose: details stand in the default rendering as they are, and what cannot be serialized is
    /// our own fault.
    #[cfg(feature = "json")]
    #[test]
    fn details_are_rendered() {
        let error = Error::unprocessable("no").with_details(&[1, 2]);
        assert_eq!(
            error.render().body().as_bytes(),
            Some(&br#"{"error":{"code":"unprocessable","message":"no","details":[1,2]}}"#[..])
        );
        let keys = std::collections::BTreeMap::from([((1, 2), 3)]);
        assert_eq!(Error::unprocessable("no").with_details(&keys).status().as_u16(), 500);
    }
}
