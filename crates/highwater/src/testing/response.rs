//! What was answered?

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::sim::ReceivedAnswer;

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    /// Its status.
    pub status: StatusCode,
    /// Its header fields.
    pub headers: HeaderMap,
    /// Its content, whatever its framing was.
    pub body: Bytes,
    /// The fields behind its content.
    pub trailers: HeaderMap,
}

impl Response {
    #[track_caller]
    pub(super) fn of(answer: &ReceivedAnswer) -> Self {
        let map = |fields: &[(String, Vec<u8>)]| {
            let fields = fields.iter().map(|(name, value)| {
                let name = HeaderName::try_from(name).expect("the server sends valid names");
                (name, HeaderValue::from_bytes(value).expect("the server sends valid values"))
            });
            fields.collect()
        };
        Response {
            status: StatusCode::from_u16(answer.status).expect("the server sends valid statuses"),
            headers: map(&answer.fields),
            body: Bytes::copy_from_slice(&answer.body),
            trailers: map(&answer.trailers),
        }
    }

    /// The value of a header field; the first, if there are several.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The content as text.
    ///
    /// # Panics
    /// If it is not UTF-8.
    #[track_caller]
    pub fn text(&self) -> &str {
        match std::str::from_utf8(&self.body) {
            Ok(text) => text,
            Err(_) => panic!("the content is not UTF-8"),
        }
    }

    /// The content, read as JSON.
    ///
    /// # Panics
    /// If it does not have that form, with the content.
    #[cfg(feature = "json")]
    #[track_caller]
    pub fn json<T: serde_core::de::DeserializeOwned>(&self) -> T {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("{error} in {}", self.body.escape_ascii()),
        }
    }
}
