//! The protocol of the floor: a request ends with an empty line, and each one is owed the same
//! response.

use memchr::memmem::Finder;

/// Bytes of one response, head and body: what a small JSON or plain-text answer of a real server
/// weighs.
pub(crate) const RESPONSE_SIZE: usize = 120;
/// Requests one receive may complete, and so responses one send may carry: a buffer of 4 KiB holds at most this many
/// empty lines. A client that sends more at once into a larger buffer is not measured here: it is let go.
pub(crate) const BATCH_MAX: usize = 1024;

const HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nServer: floor\r\nContent-Length: 40\r\n\r\n";
const BODY: &[u8; 40] = b"the least a server does on this machine.";
const _: () = assert!(HEAD.len() + BODY.len() == RESPONSE_SIZE);

/// Finds the ends of requests and holds the responses to them, [`BATCH_MAX`] in a row so that a
/// batch is one send.
pub(crate) struct Protocol {
    end: Finder<'static>,
    responses: &'static [u8],
}

/// How much of an empty line the bytes so far end with: 0 to 3. One per connection.
#[derive(Clone, Copy, Default)]
pub(crate) struct Matched(u8);

const END: &[u8; 4] = b"\r\n\r\n";

impl Protocol {
    pub(crate) fn new() -> Protocol {
        let response = [HEAD.as_bytes(), BODY].concat();
        // Leaked, because the kernel may still be sending from it whenever the loop ends: once a
        // process.
        let responses = response.repeat(BATCH_MAX).leak();
        let end = Finder::new(END);
        Protocol { end, responses }
    }

    /// The bytes of `count` responses.
    pub(crate) fn responses(&self, count: usize) -> &'static [u8] {
        &self.responses[..count * RESPONSE_SIZE]
    }

    /// Counts the requests that end in `bytes`, which continue what `matched` saw.
    pub(crate) fn count(&self, matched: &mut Matched, mut bytes: &[u8]) -> usize {
        let mut count = 0;
        while matched.0 != 0 {
            let Some((&byte, rest)) = bytes.split_first() else {
                return count;
            };
            bytes = rest;
            count += usize::from(matched.step(byte));
        }
        while let Some(at) = self.end.find(bytes) {
            count += 1;
            bytes = &bytes[at + END.len()..];
        }
        matched.0 = (1..END.len())
            .rev()
            .find(|&len| bytes.ends_with(&END[..len]))
            .unwrap_or(0) as u8;
        count
    }
}

impl Matched {
    /// Takes one byte; true if it completes an empty line.
    fn step(&mut self, byte: u8) -> bool {
        self.0 = match byte {
            _ if byte == END[self.0 as usize] => self.0 + 1,
            b'\r' => 1,
            _ => 0,
        };
        if self.0 as usize == END.len() {
            self.0 = 0;
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: however a stream is cut, the same number of requests is seen in it.
    #[test]
    fn cuts_do_not_change_the_count() {
        let protocol = Protocol::new();
        let stream = b"GET / HTTP/1.1\r\nA: b\r\n\r\nPOST / HTTP/1.1\r\n\r\r\n\r\n\r\n\r\nbody";
        for first in 0..stream.len() {
            for second in first..stream.len() {
                let mut matched = Matched::default();
                let parts = [&stream[..first], &stream[first..second], &stream[second..]];
                let count: usize = parts
                    .iter()
                    .map(|part| protocol.count(&mut matched, part))
                    .sum();
                assert_eq!(count, 3, "cut at {first} and {second}");
            }
        }
    }

    /// Purpose: a response is what a client takes for a whole HTTP response.
    #[test]
    fn the_response_declares_its_length() {
        let declared: usize = HEAD
            .split_once("Content-Length: ")
            .and_then(|(_, rest)| rest.trim_end().parse().ok())
            .expect("the head has a length");
        assert_eq!(declared, BODY.len());
    }
}
