//! The bytes of a feed on their way to the XML reader: always UTF-8, and never too many at once.

use std::io::{self, BufRead, Read};

/// How many bytes are read at a time.
pub(super) const BUFFER_BYTES: usize = 16 * 1024;

/// What takes the place of each byte that is not UTF-8: U+001A, "substitute", whose purpose this is.
/// XML may not contain it, so it cannot be mistaken for something the feed said, and it is one byte
/// long, so positions stay true.
const SUBSTITUTE: u8 = 0x1A;

/// A [`BufRead`] that substitutes bytes that are not UTF-8 and fails when a token grows too long.
pub(super) struct Input<R> {
    inner: R,
    /// `[..start]` is consumed, `[start..ready]` is UTF-8, `[ready..end]` begins a character.
    buffer: Box<[u8; BUFFER_BYTES]>,
    start: usize,
    ready: usize,
    end: usize,
    ended: bool,
    /// Bytes consumed since the beginning.
    position: u64,
    token_begin: u64,
    token_bytes_max: u64,
    failure: Option<io::Error>,
}

impl<R: Read> Input<R> {
    pub(super) fn new(inner: R, token_bytes_max: usize) -> Input<R> {
        Input {
            inner,
            buffer: Box::new([0; BUFFER_BYTES]),
            start: 0,
            ready: 0,
            end: 0,
            ended: false,
            position: 0,
            token_begin: 0,
            token_bytes_max: token_bytes_max as u64,
            failure: None,
        }
    }

    /// The XML reader keeps one token in memory; this is where the next one begins.
    pub(super) fn begin_token(&mut self) {
        self.token_begin = self.position;
    }

    /// How many bytes the XML reader has taken.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Whether the input has been read to its end.
    pub(super) fn ended(&self) -> bool {
        self.ended && self.start == self.ready
    }

    /// Whether the current token has reached its limit.
    pub(super) fn token_too_long(&self) -> bool {
        self.position - self.token_begin > self.token_bytes_max
    }

    /// What the underlying reader failed with, if it did.
    pub(super) fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    /// Reads until there is a whole character, or the end. The very first time it waits for three
    /// bytes, so that the XML reader sees a byte order mark in one piece.
    fn refill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.ready..self.end, 0);
        self.end -= self.ready;
        (self.start, self.ready) = (0, 0);
        let wanted = if self.position == 0 { 3 } else { 1 };
        while self.ready < wanted && !self.ended {
            match self.inner.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(read) => self.end += read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            self.ready += substitute(&mut self.buffer[self.ready..self.end], self.ended);
        }
        Ok(())
    }
}

impl<R: Read> Read for Input<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(out)?;
        self.consume(read);
        Ok(read)
    }
}

impl<R: Read> BufRead for Input<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.token_too_long() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if self.start == self.ready
            && let Err(e) = self.refill()
        {
            let kind = e.kind();
            self.failure = Some(e);
            return Err(kind.into());
        }
        Ok(&self.buffer[self.start..self.ready])
    }

    fn consume(&mut self, amount: usize) {
        self.start += amount;
        self.position += amount as u64;
    }
}

/// Makes `bytes` UTF-8 in place and returns how many of them are: all, or, before the input's end,
/// all but the beginning of a character whose rest has not arrived.
fn substitute(bytes: &mut [u8], ended: bool) -> usize {
    let mut valid = 0;
    while let Err(e) = std::str::from_utf8(&bytes[valid..]) {
        valid += e.valid_up_to();
        let broken = match e.error_len() {
            Some(len) => len,
            None if ended => bytes.len() - valid,
            None => return valid,
        };
        bytes[valid..valid + broken].fill(SUBSTITUTE);
        valid += broken;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Hands out at most `step` bytes at a time, as a slow connection does.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let len = self.1.min(out.len());
            self.0.read(&mut out[..len])
        }
    }

    proptest! {
        /// Purpose: valid text passes unchanged and broken bytes are replaced one for one, whatever the pieces.
        #[test]
        fn substitutes_in_place(text in "\\PC{0,60}", noise in prop::collection::vec(any::<u8>(), 0..60), step in 1usize..9) {
            let bytes = [text.as_bytes(), &noise, text.as_bytes()].concat();
            let mut expected = Vec::new();
            for chunk in bytes.utf8_chunks() {
                expected.extend_from_slice(chunk.valid().as_bytes());
                expected.resize(expected.len() + chunk.invalid().len(), SUBSTITUTE);
            }
            let mut read = Vec::new();
            Input::new(Trickle(&bytes, step), 1 << 20).read_to_end(&mut read).expect("no limit is reached");
            prop_assert_eq!(read, expected);
        }
    }

    /// Purpose: a character across the edge of the buffer survives it.
    #[test]
    fn character_across_the_edge() {
        for pad in BUFFER_BYTES - 4..BUFFER_BYTES {
            let text = format!("{}€{}", "x".repeat(pad), "y".repeat(BUFFER_BYTES));
            let mut read = String::new();
            Input::new(text.as_bytes(), 1 << 20).read_to_string(&mut read).expect("UTF-8");
            assert_eq!(read, text);
        }
    }

    /// Purpose: a byte order mark arrives in one piece even if the network cuts it.
    #[test]
    fn byte_order_mark_in_one_piece() {
        let mut input = Input::new(Trickle("\u{feff}<a/>".as_bytes(), 1), 1 << 20);
        assert!(input.fill_buf().expect("readable").starts_with("\u{feff}".as_bytes()));
    }
}
