//! Is a response a valid answer to its request?

use http::{HeaderValue, StatusCode, header};

use super::Response;
use crate::app::body::Body;
use crate::app::error::Error;

impl Response {
    /// Makes sure that it is a valid answer to the request, and keeps only the fields that are sent.
    ///
    /// # Errors
    /// The answer to send instead: 500 with the problem as its source if the handler caused it, else the
    /// peer's error.
    pub(crate) fn verify(&mut self, asked: &Asked<'_>) -> Result<(), Error> {
        if self.status == StatusCode::SWITCHING_PROTOCOLS && self.body.is_upgrade() {
            self.verify_upgrade(asked)?;
        } else if let Some(problem) = self.problem(asked.is_head) {
            return Err(Error::internal(problem));
        }
        if asked.is_head && self.framed {
            self.measure();
        }
        self.remove_framing();
        Ok(())
    }

    /// The error in it that is independent of the request, in words for the handler's author.
    pub(in crate::app) fn problem(&mut self, is_head: bool) -> Option<String> {
        let status = self.status.as_u16();
        if self.body.is_upgrade() {
            return Some(format!(
                "an upgrade has the status 101, and not {status}; return `Response::upgrade(…)` as it is"
            ));
        }
        if status < 200 {
            return Some(format!(
                "the status {status} is not an answer, and the client would go on waiting for one; return a \
                 status from 200 on, or `Response::upgrade(…)` for 101"
            ));
        }
        let bodiless = matches!(status, 204 | 205 | 304);
        if bodiless && !self.body.is_empty() {
            return Some(format!(
                "the status {status} has no content, and there is some; return `StatusCode` alone, or \
                 another status"
            ));
        }
        if !self.framed {
            return None;
        }
        if self.headers.iter().any(|(name, _)| *name == header::TRANSFER_ENCODING) {
            return Some(String::from(
                "`Transfer-Encoding` is the server's to write; leave it out, and return \
                 `Body::stream(…)` for content whose length is not known",
            ));
        }
        // In answers to HEAD and with 304 it is the length of content that is not sent (RFC 9110 §8.6).
        if is_head || bodiless {
            return None;
        }
        self.check_length()
    }

    /// An answer to HEAD has no content, and may say how long it would be: that is sent, and not 0 (RFC 9110 §8.6).
    #[cold]
    fn measure(&mut self) {
        let field = self.headers.iter().find(|(name, _)| *name == header::CONTENT_LENGTH);
        let Some(length) = field.and_then(|(_, value)| length(value)) else { return };
        if self.body.is_empty() {
            (_, self.body) = Body::channel(); // Nobody asks for its content.
        }
        self.body.set_length(length);
    }

    fn check_length(&mut self) -> Option<String> {
        for (_, value) in self.headers.iter().filter(|(name, _)| *name == header::CONTENT_LENGTH) {
            let declared = length(value);
            if let Some(declared) = declared {
                self.body.set_length(declared);
            }
            if declared.is_none() || declared != self.body.len() {
                return Some(format!(
                    "`Content-Length: {}` is not the length of the content, which is {}; leave it out: \
                     the server writes it",
                    value.as_bytes().escape_ascii(),
                    self.body.len().unwrap_or_default(),
                ));
            }
        }
        None
    }

    /// RFC 9110 §7.8: only to a protocol that the peer named, and only behind a complete request.
    fn verify_upgrade(&self, asked: &Asked<'_>) -> Result<(), Error> {
        let values = self.headers.iter().filter(|(name, _)| *name == header::UPGRADE);
        let wanted = list(asked.upgrade);
        let is_wanted = |protocol: &[u8]| wanted.clone().any(|w| w.eq_ignore_ascii_case(protocol));
        for (_, value) in values {
            if !list(value.as_bytes()).all(is_wanted) {
                let message = "this resource is there only for those who ask for the protocol that \
                               the field Upgrade of this answer names";
                return Err(Error::new(StatusCode::UPGRADE_REQUIRED, "upgrade_required", message)
                    .with_header(header::UPGRADE, value.clone()));
            }
        }
        if wanted.clone().next().is_none() {
            let problem = "an answer goes on in another protocol, and the request asks for none";
            return Err(Error::internal(problem));
        }
        if !asked.is_complete {
            let message = "a request that asks for another protocol has no content here";
            return Err(Error::bad_request(message));
        }
        Ok(())
    }

    /// Removes the fields that the connection writes itself.
    pub(in crate::app) fn remove_framing(&mut self) {
        if self.framed {
            self.headers.retain(|(name, _)| {
                *name != header::CONTENT_LENGTH && *name != header::TRANSFER_ENCODING
            });
            let offers = self.headers.iter().any(|(name, _)| *name == header::UPGRADE);
            if offers && !self.body.is_upgrade() {
                // Without it the field is meant for another recipient (RFC 9110 §7.8).
                let option = HeaderValue::from_static("upgrade");
                self.headers.push((header::CONNECTION, option));
            }
            self.framed = false;
        }
    }
}

/// The properties of a request that restrict its answer.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    /// Its answer has no content.
    pub(crate) is_head: bool,
    /// All of its content has arrived.
    pub(crate) is_complete: bool,
    /// The protocols that it asks for, in a list: by `Upgrade` (RFC 9110 §7.8), or an extended CONNECT (RFC 8441 §4).
    pub(crate) upgrade: &'a [u8],
}

/// The members of a list in a field's value.
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

/// What a `Content-Length` says.
fn length(value: &HeaderValue) -> Option<u64> {
    let digits = value.to_str().ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok())
}
