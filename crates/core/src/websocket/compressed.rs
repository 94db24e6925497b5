//! How do compressed frames become a message (RFC 7692 §6.2)?
//!
//! ```text
//!  payload ─▶ unmasked, a little at a time ─▶ Inflate ─▶ the message, up to its limit
//! ```
//!
//! Compressed bytes are not kept: each piece is decompressed when it comes. So a message that would become larger than its
//! limit is found once it is, whatever its frames announce, and a decoder holds the limit and no more.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::close::{CloseCode, Error};
use super::{Limits, mask};

/// How much is unmasked at a time, on the stack.
const CHUNK: usize = 1024;

/// Decompresses the messages of one peer, one after the other.
///
/// `out` is the message so far, to which it adds. It must not let it become longer than `len_max`, and should not reserve
/// more than that.
pub trait Inflate: fmt::Debug + Send {
    /// Decompresses a piece of a message.
    ///
    /// # Errors
    /// The message is too large, or is not compressed in a valid way. Nothing is called after it.
    fn inflate(
        &mut self,
        piece: &[u8],
        out: &mut Vec<u8>,
        len_max: usize,
    ) -> Result<(), InflateError>;

    /// Ends a message, whose last bytes the peer has left out (RFC 7692 §7.2.2). The next piece begins another one.
    ///
    /// # Errors
    /// As [`Inflate::inflate`].
    fn end(&mut self, out: &mut Vec<u8>, len_max: usize) -> Result<(), InflateError>;
}

/// Why a message was not decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InflateError {
    /// It would be larger than it may be.
    TooBig,
    /// It is not compressed in a valid way.
    Invalid,
}

/// What a decoder has for compressed messages.
#[derive(Debug)]
pub(super) struct Compressed {
    inflate: Box<dyn Inflate>,
    /// Bytes that have come of the message, as they came.
    received: usize,
}

impl Compressed {
    pub(super) fn new(inflate: Box<dyn Inflate>) -> Compressed {
        Compressed { inflate, received: 0 }
    }

    /// Another message begins.
    pub(super) fn begin(&mut self) {
        self.received = 0;
    }

    pub(super) fn received(&self) -> usize {
        self.received
    }

    /// The bounds of compressed bytes: what cannot be compressed becomes larger. zlib's bound is an eighth and a few bytes
    /// more (`deflateBound`); with a quarter, no message of an allowed size is refused for that.
    pub(super) fn limits(&self, limits: Limits) -> Limits {
        let with_overhead = |max: usize| max.saturating_add(max / 4).saturating_add(64);
        Limits {
            message_max: with_overhead(limits.message_max),
            frame_max: with_overhead(limits.frame_max),
        }
    }

    /// Adds a piece of a payload, of which `taken` bytes came before.
    pub(super) fn add(
        &mut self,
        key: Option<[u8; 4]>,
        taken: usize,
        piece: &[u8],
        out: &mut Vec<u8>,
        len_max: usize,
    ) -> Result<(), Error> {
        self.received += piece.len();
        let Some(key) = key else { return Ok(self.inflate.inflate(piece, out, len_max)?) };
        let (mut unmasked, mut at) = ([0; CHUNK], taken);
        for chunk in piece.chunks(CHUNK) {
            let unmasked = &mut unmasked[..chunk.len()];
            unmasked.copy_from_slice(chunk);
            mask::apply(key, at, unmasked);
            at += chunk.len();
            self.inflate.inflate(unmasked, out, len_max)?;
        }
        Ok(())
    }

    /// The message has come. One without a byte is empty, although a peer should send a byte for it (RFC 7692 §7.2.3.6).
    pub(super) fn end(&mut self, out: &mut Vec<u8>, len_max: usize) -> Result<(), Error> {
        match self.received {
            0 => Ok(()),
            _ => Ok(self.inflate.end(out, len_max)?),
        }
    }
}

impl From<InflateError> for Error {
    fn from(error: InflateError) -> Error {
        match error {
            InflateError::TooBig => {
                Error { code: CloseCode::TOO_BIG, reason: "a message is larger than its limit" }
            }
            InflateError::Invalid => Error {
                code: CloseCode::INVALID,
                reason: "a message is not compressed in a valid way",
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::{String, ToString as _};
    use std::vec;

    use proptest::prelude::*;

    use super::super::{Decoder, Event, Kind, Limits, Role, encode};
    use super::*;

    const KEY: Option<[u8; 4]> = Some([0x37, 0xfa, 0x21, 0x3d]);
    const LIMITS: Limits = Limits { message_max: 10, frame_max: 10 };

    /// A coding that a reader can follow: a digit repeats the last byte so many times, `!` is not valid, `_` is nothing, and
    /// the end of a message is a full stop.
    #[derive(Debug, Default)]
    struct Repeats;

    impl Inflate for Repeats {
        fn inflate(
            &mut self,
            piece: &[u8],
            out: &mut Vec<u8>,
            len_max: usize,
        ) -> Result<(), InflateError> {
            for byte in piece {
                let (byte, count) = match byte {
                    b'!' => return Err(InflateError::Invalid),
                    b'_' => continue,
                    b'0'..=b'9' => {
                        (*out.last().ok_or(InflateError::Invalid)?, usize::from(byte - b'0'))
                    }
                    byte => (*byte, 1),
                };
                for _ in 0..count {
                    if out.len() == len_max {
                        return Err(InflateError::TooBig);
                    }
                    out.push(byte);
                }
            }
            Ok(())
        }

        fn end(&mut self, out: &mut Vec<u8>, len_max: usize) -> Result<(), InflateError> {
            self.inflate(b".", out, len_max)
        }
    }

    /// A frame with this first byte.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![];
        encode::message(Kind::Binary, payload, KEY, &mut out);
        out[0] = first;
        out
    }

    /// What a server's decoder makes of `parts`; compressed messages in braces.
    fn decode(parts: &[&[u8]]) -> Vec<String> {
        let decoder = Decoder::new(Role::Server, LIMITS);
        let (mut decoder, mut seen) = (decoder.with_inflate(Box::new(Repeats)), vec![]);
        for mut part in parts.iter().copied() {
            loop {
                let event = match decoder.next(&mut part) {
                    Ok(None) => break,
                    Ok(Some(Event::Message(_, bytes))) => bytes.escape_ascii().to_string(),
                    Ok(Some(_)) => "control".to_string(),
                    Err(error) => {
                        seen.push(format!("error {}", error.code.0));
                        return seen;
                    }
                };
                seen.push(if decoder.was_compressed() { format!("{{{event}}}") } else { event });
            }
        }
        seen
    }

    /// Purpose: RSV1 is allowed on the first frame of a message and nowhere else (RFC 7692 §6); other reserved bits are not.
    #[test]
    fn where_the_bit_may_stand() {
        for (frames, expected) in [
            (&[(0xc1, "a2")][..], &["{aaa.}"][..]),
            (&[(0xc2, "a2"), (0x82, "a2"), (0xc1, "b")], &["{aaa.}", "a2", "{b.}"]),
            (
                &[(0x41, "a"), (0x00, "2"), (0x89, "p"), (0x80, "b"), (0x81, "c")],
                &["control", "{aaab.}", "c"],
            ),
            (&[(0x41, "a"), (0x80, "")], &["{a.}"]),
            (&[(0x41, "a"), (0xc0, "b")], &["error 1002"]),
            (&[(0x01, "a"), (0xc0, "b")], &["error 1002"]),
            (&[(0x41, "a"), (0xc1, "b")], &["error 1002"]),
            (&[(0xc0, "b")], &["error 1002"]),
            (&[(0xc9, "p")], &["error 1002"]),
            (&[(0xc8, "")], &["error 1002"]),
            (&[(0xa1, "a")], &["error 1002"]),
            (&[(0xe1, "a")], &["error 1002"]),
            (&[(0xd1, "a")], &["error 1002"]),
        ] {
            let bytes: Vec<u8> =
                frames.iter().flat_map(|(first, text)| frame(*first, text.as_bytes())).collect();
            assert_eq!(decode(&[&bytes]), expected, "{frames:02x?}");
        }
    }

    /// Purpose: the limit is met by the message, not by its frames: at it and one above, in one frame and in several; and
    /// bytes that become nothing have a limit, too.
    #[test]
    fn limits_after_decompression() {
        for (parts, expected) in [
            (&["a8"][..], "{aaaaaaaaa.}"),
            (&["a9"], "error 1009"), // The end adds a byte.
            (&["a99"], "error 1009"),
            (&["a4", "4"], "{aaaaaaaaa.}"),
            (&["a4", "5"], "error 1009"),
            (&["abcdefghi____"], "{abcdefghi.}"), // Larger than it will be.
            (&["__________"; 7], "{.}"),
            (&["__________"; 8], "error 1009"),
        ] {
            let mut bytes = vec![];
            for (index, part) in parts.iter().enumerate() {
                let first = if index == 0 { 0x42 } else { 0 };
                let last = if index + 1 == parts.len() { 0x80 } else { 0 };
                bytes.extend(frame(first | last, part.as_bytes()));
            }
            assert_eq!(decode(&[&bytes]), [expected], "{parts:?}");
        }
    }

    /// Purpose: text is checked after it is decompressed, at its first wrong byte; what is compressed wrongly is refused; a
    /// message without a byte is an empty one.
    #[test]
    fn text_and_errors() {
        for (frames, expected) in [
            (&[(0x41, &[0xc3][..]), (0x80, &[0xa9])][..], "{\\xc3\\xa9.}"),
            (&[(0xc2, &[0xff])], "{\\xff.}"),
            (&[(0x41, &[0xff])], "error 1007"),
            (&[(0xc1, &[0xc3])], "error 1007"), // The full stop is within a character.
            (&[(0x42, b"!")], "error 1007"),
            (&[(0xc1, b"")], "{}"),
            (&[(0x41, b""), (0x00, b""), (0x80, b"")], "{}"),
        ] {
            let bytes: Vec<u8> =
                frames.iter().flat_map(|(first, payload)| frame(*first, payload)).collect();
            assert_eq!(decode(&[&bytes]), [expected], "{frames:02x?}");
        }
    }

    proptest! {
        /// Purpose: how bytes are split makes no difference to compressed messages.
        #[test]
        fn splits(frames in proptest::collection::vec((any::<u8>(), "[ab2_!]{0,6}"), 0..6)) {
            let bytes: Vec<u8> =
                frames.iter().flat_map(|(first, text)| frame(first & 0xcb, text.as_bytes())).collect();
            let whole = decode(&[&bytes]);
            for at in 0..=bytes.len() {
                prop_assert_eq!(&decode(&[&bytes[..at], &bytes[at..]]), &whole, "split at {}", at);
            }
        }
    }
}
