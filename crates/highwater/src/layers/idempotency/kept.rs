//! What happened to a key, and the answer that is given again.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};

use crate::app::Response;

/// Says that an answer is not new; what the clients of others know already.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// What an answer takes besides its bytes, about, and each of its fields.
const OVERHEAD: usize = 64;

/// What is kept of the first answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Whole(Answer),
    /// It was a stream, or too large. Only its status is known.
    Status(StatusCode),
}

/// What happened to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Happened {
    Begun,
    Answered(Arc<Kept>),
    Released,
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) fields: Vec<(HeaderName, HeaderValue)>,
    pub(super) content: Bytes,
}

impl Kept {
    /// What to keep of `response`, if it takes no more than `bytes_max`.
    pub(super) fn of(response: &Response, bytes_max: usize) -> Kept {
        let status = response.status();
        let Some(content) = response.body().as_bytes() else { return Kept::Status(status) };
        let field = |(name, value): (&str, &[u8])| {
            HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_bytes(value).ok())
        };
        let fields = response.headers().filter_map(field).collect();
        let kept = Kept::Whole(Answer { status, fields, content: Bytes::copy_from_slice(content) });
        if kept.bytes() <= bytes_max { kept } else { Kept::Status(status) }
    }

    /// How much memory it takes, about.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Kept::Whole(answer) => {
                let fields = answer.fields.iter();
                let fields: usize =
                    fields.map(|(name, value)| name.as_str().len() + value.len() + OVERHEAD).sum();
                OVERHEAD + fields + answer.content.len()
            }
            Kept::Status(_) => 0,
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        match self {
            Kept::Whole(answer) => answer.status,
            Kept::Status(status) => *status,
        }
    }
}

impl Answer {
    /// The answer once more.
    pub(super) fn response(&self) -> Response {
        let mut response = Response::new(self.status);
        if !self.content.is_empty() {
            response.set_body(self.content.clone());
        }
        for (name, value) in &self.fields {
            response.append_header(name.clone(), value.clone());
        }
        response.set_header(REPLAYED, HeaderValue::from_static("true"));
        response
    }
}
