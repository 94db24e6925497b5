//! The facts in the fields of a head: framing, persistence, and the peer's expectation.
//!
//! Fields are distinguished by the length of their names first, so that an irrelevant one costs a comparison
//! of numbers.

use alloc::vec::Vec;

use crate::http::host::is_host;
use crate::http::{Fields, REQUEST_DEADLINE, REQUEST_ID, REQUEST_TIMEOUT, Reject, Version};

/// Whether the token `name` is `lower`, in any case, of four bytes, or of eight to sixteen: these are compared as one or two
/// numbers. Bit 5 is the case of a letter, and no byte of a token but a letter becomes a letter by it, or a `-`.
#[inline(always)]
fn is_name(name: &[u8], lower: &[u8]) -> bool {
    const CASE: u64 = u64::from_le_bytes([0x20; 8]);
    let four = |part: &[u8; 4]| u32::from_le_bytes(*part) | CASE as u32;
    let eight = |part: &[u8; 8]| u64::from_le_bytes(*part) | CASE;
    if let (4, Some(lower)) = (lower.len(), lower.first_chunk()) {
        return name.len() == 4 && name.first_chunk().map(four) == Some(four(lower));
    }
    debug_assert!((8..=16).contains(&lower.len()), "all bytes are in one of the two numbers");
    name.len() == lower.len()
        && name.first_chunk().map(eight) == lower.first_chunk().map(eight)
        && name.last_chunk().map(eight) == lower.last_chunk().map(eight)
}

/// The first letter of the only relevant field name of that length; 0 if there is none.
static FIRST: [u8; 19] = {
    let mut table = [0; 19];
    table[4] = b'h';
    table[6] = b'e';
    table[7] = b'u';
    table[10] = b'c';
    table[12] = REQUEST_ID[0];
    table[14] = b'c';
    table[15] = REQUEST_TIMEOUT[0];
    table[17] = b't';
    table[18] = REQUEST_DEADLINE[0];
    table
};

/// Flags for what the fields of a head contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags(u16);

impl Flags {
    pub(super) const HOST: Flags = Flags(1);
    const LENGTH: Flags = Flags(1 << 1);
    pub(super) const CHUNKED: Flags = Flags(1 << 2);
    const CLOSE: Flags = Flags(1 << 3);
    const KEEP_ALIVE: Flags = Flags(1 << 4);
    const EXPECT_CONTINUE: Flags = Flags(1 << 5);
    const EXPECT_OTHER: Flags = Flags(1 << 6);
    /// `Upgrade` is present, and `Connection` names it.
    const UPGRADE: Flags = Flags(1 << 7);
    const UPGRADE_OPTION: Flags = Flags(1 << 8);
    pub(super) const DEADLINE: Flags = Flags(1 << 9);
    pub(super) const REQUEST_ID: Flags = Flags(1 << 10);

    /// Whether all of `these` flags are set.
    #[inline(always)]
    pub(super) const fn has(self, these: Flags) -> bool {
        self.0 & these.0 == these.0
    }

    #[inline(always)]
    const fn and(self, these: Flags) -> Flags {
        Flags(self.0 | these.0)
    }

    fn add_if(&mut self, is_so: bool, these: Flags) {
        if is_so {
            self.0 |= these.0;
        }
    }

    /// Whether the peer wants the connection closed after the answer.
    #[inline(always)]
    pub(super) fn closes(self, version: Version) -> bool {
        self.has(Flags::CLOSE) || (version == Version::Http10 && !self.has(Flags::KEEP_ALIVE))
    }

    /// Whether the peer waits for a 100 (Continue) before it sends its content.
    #[inline(always)]
    pub(super) fn expects_continue(self, version: Version) -> bool {
        self.has(Flags::EXPECT_CONTINUE) && version == Version::Http11
    }

    /// Whether the peer validly offers other protocols (RFC 9110 §7.8).
    #[inline(always)]
    pub(super) fn asks_upgrade(self, version: Version) -> bool {
        self.has(Flags::UPGRADE.and(Flags::UPGRADE_OPTION)) && version == Version::Http11
    }
}

/// Longest `Host` that is kept: a name of the DNS has 253 bytes at most, and a port five.
const KNOWN_HOST_MAX: usize = 259;

/// The facts so far that framing and persistence depend on.
pub(super) struct Facts<'a> {
    pub(super) version: Version,
    /// 0 if there is no such field.
    pub(super) content_length: u64,
    pub(super) flags: Flags,
    /// A `Host` that was found valid, in a head before: most requests that a server gets name the same one, and comparing
    /// costs a third of looking at its bytes. Empty if none was.
    known_host: &'a mut Vec<u8>,
}

impl<'a> Facts<'a> {
    pub(super) fn new(version: Version, known_host: &'a mut Vec<u8>) -> Self {
        Facts { version, content_length: 0, flags: Flags::default(), known_host }
    }

    /// Takes note of the fields in their order, as far as none is refused.
    #[inline(always)]
    pub(super) fn note_all(&mut self, fields: Fields<'_>) -> Result<(), Reject> {
        for span in fields.spans {
            // Most fields say nothing about framing: that is seen from the length of the name, and its first letter.
            let first = FIRST.get(span.name_len as usize).copied().unwrap_or_default();
            let is_known = fields.bytes.get(span.name as usize).is_some_and(|b| b | 0x20 == first);
            if is_known {
                self.note(span.name_in(fields.bytes), span.value_in(fields.bytes))?;
            }
        }
        Ok(())
    }

    fn note(&mut self, name: &[u8], value: &[u8]) -> Result<(), Reject> {
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        match name.len() {
            4 if is_name(name, b"host") => return self.host(value),
            6 if is(b"expect") => {
                let is_known = value.eq_ignore_ascii_case(b"100-continue");
                self.flags.add_if(is_known, Flags::EXPECT_CONTINUE);
                self.flags.add_if(!is_known, Flags::EXPECT_OTHER);
            }
            7 if is(b"upgrade") => self.flags = self.flags.and(Flags::UPGRADE),
            10 if is_name(name, b"connection") => self.connection(value),
            12 if is_name(name, REQUEST_ID) => self.flags = self.flags.and(Flags::REQUEST_ID),
            14 if is_name(name, b"content-length") => return self.content_length(value),
            15 if is_name(name, REQUEST_TIMEOUT) => self.flags = self.flags.and(Flags::DEADLINE),
            17 if is(b"transfer-encoding") => return self.transfer_encoding(value),
            18 if is(REQUEST_DEADLINE) => self.flags = self.flags.and(Flags::DEADLINE),
            _ => {}
        }
        Ok(())
    }

    fn host(&mut self, value: &[u8]) -> Result<(), Reject> {
        let is_known = !value.is_empty() && value == &**self.known_host;
        if self.flags.has(Flags::HOST) || !(is_known || self.is_new_host(value)) {
            return Err(Reject::Host);
        }
        self.flags = self.flags.and(Flags::HOST);
        Ok(())
    }

    /// Whether a host that is not known is valid. If so, it is known from now on.
    #[inline(never)]
    fn is_new_host(&mut self, value: &[u8]) -> bool {
        let is_valid = is_host(value);
        if is_valid && value.len() <= KNOWN_HOST_MAX {
            self.known_host.clear();
            self.known_host.extend_from_slice(value);
        }
        is_valid
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
            self.flags.add_if(option.eq_ignore_ascii_case(b"close"), Flags::CLOSE);
            self.flags.add_if(option.eq_ignore_ascii_case(b"keep-alive"), Flags::KEEP_ALIVE);
            self.flags.add_if(option.eq_ignore_ascii_case(b"upgrade"), Flags::UPGRADE_OPTION);
        }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Reject> {
        let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        if !digits || self.flags.has(Flags::LENGTH) {
            return Err(Reject::ContentLength);
        }
        let length = value
            .iter()
            .try_fold(0u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
        self.content_length = length.ok_or(Reject::ContentLength)?;
        self.flags = self.flags.and(Flags::LENGTH);
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Reject> {
        if self.flags.has(Flags::CHUNKED)
            || self.version == Version::Http10
            || !value.eq_ignore_ascii_case(b"chunked")
        {
            return Err(Reject::TransferEncoding);
        }
        self.flags = self.flags.and(Flags::CHUNKED);
        Ok(())
    }

    /// Checks that need the whole section.
    #[inline]
    pub(super) fn finish(&self) -> Result<(), Reject> {
        if self.flags.has(Flags::CHUNKED.and(Flags::LENGTH)) {
            return Err(Reject::TwoFramings);
        }
        if !self.flags.has(Flags::HOST) && self.version == Version::Http11 {
            return Err(Reject::Host);
        }
        if self.flags.has(Flags::EXPECT_OTHER) {
            return Err(Reject::Expectation);
        }
        Ok(())
    }
}
