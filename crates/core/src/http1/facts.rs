//! The facts in the fields of a head: framing, persistence, and the peer's expectation.
//!
//! Fields are distinguished by the length of their names first, so that an irrelevant one costs a comparison
//! of numbers.

use crate::http::syntax::is_host;
use crate::http::{REQUEST_DEADLINE, REQUEST_ID, REQUEST_TIMEOUT, Reject, Version};

/// Whether `name` is `host`, in any case: every request has it. Bit 5 is the case of a letter, and no byte but a letter
/// becomes one by it.
#[inline]
fn is_host_name(name: &[u8]) -> bool {
    const HOST: u32 = u32::from_le_bytes(*b"host");
    name.first_chunk().is_some_and(|&four| u32::from_le_bytes(four) | 0x2020_2020 == HOST)
}

/// The facts so far that framing and persistence depend on.
pub(super) struct Facts {
    pub(super) version: Version,
    pub(super) content_length: Option<u64>,
    pub(super) chunked: bool,
    pub(super) host: bool,
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) expect_continue: bool,
    pub(super) expect_other: bool,
    pub(super) names_deadline: bool,
    pub(super) names_request_id: bool,
    /// `Upgrade` is present, and `Connection` names it.
    pub(super) upgrade: bool,
    pub(super) upgrade_option: bool,
}

impl Default for Facts {
    fn default() -> Self {
        Facts {
            version: Version::Http11,
            content_length: None,
            chunked: false,
            host: false,
            close: false,
            keep_alive: false,
            expect_continue: false,
            expect_other: false,
            names_deadline: false,
            names_request_id: false,
            upgrade: false,
            upgrade_option: false,
        }
    }
}

impl Facts {
    #[inline]
    pub(super) fn note(&mut self, name: &[u8], value: &[u8]) -> Result<(), Reject> {
        match name.len() {
            4 if is_host_name(name) => self.host(value),
            7 if name.eq_ignore_ascii_case(b"upgrade") => {
                self.upgrade = true;
                Ok(())
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.connection(value);
                Ok(())
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(value),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.transfer_encoding(value),
            6 if name.eq_ignore_ascii_case(b"expect") => {
                let known = value.eq_ignore_ascii_case(b"100-continue");
                self.expect_continue |= known;
                self.expect_other |= !known;
                Ok(())
            }
            15 if name.eq_ignore_ascii_case(REQUEST_TIMEOUT) => {
                self.names_deadline = true;
                Ok(())
            }
            18 if name.eq_ignore_ascii_case(REQUEST_DEADLINE) => {
                self.names_deadline = true;
                Ok(())
            }
            12 if name.eq_ignore_ascii_case(REQUEST_ID) => {
                self.names_request_id = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn host(&mut self, value: &[u8]) -> Result<(), Reject> {
        if self.host || !is_host(value) {
            return Err(Reject::Host);
        }
        self.host = true;
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            self.upgrade_option |= option.eq_ignore_ascii_case(b"upgrade");
        }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Reject> {
        let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        if !digits || self.content_length.is_some() {
            return Err(Reject::ContentLength);
        }
        let length = value
            .iter()
            .try_fold(0u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
        self.content_length = Some(length.ok_or(Reject::ContentLength)?);
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Reject> {
        if self.chunked
            || self.version == Version::Http10
            || !value.eq_ignore_ascii_case(b"chunked")
        {
            return Err(Reject::TransferEncoding);
        }
        self.chunked = true;
        Ok(())
    }

    /// Whether the peer validly offers other protocols (RFC 9110 §7.8).
    #[inline]
    pub(super) fn asks_upgrade(&self) -> bool {
        self.upgrade && self.upgrade_option && self.version == Version::Http11
    }

    /// Checks that need the whole section.
    #[inline]
    pub(super) fn finish(&self) -> Result<(), Reject> {
        if self.chunked && self.content_length.is_some() {
            return Err(Reject::TwoFramings);
        }
        if !self.host && self.version == Version::Http11 {
            return Err(Reject::Host);
        }
        if self.expect_other {
            return Err(Reject::Expectation);
        }
        Ok(())
    }
}
