//! The header that a proxy sends in front of all other bytes, until it is complete.

use std::net::SocketAddr;

use highwater_core::proxy_header::{HEADER_MAX, Malformed, parse};

/// What has come of the header, as long as more of it has to come.
#[derive(Debug, Default)]
pub(super) struct Preamble(Vec<u8>);

impl Preamble {
    /// Bytes were received. Returns the client that the header names, if it is complete, and how many of `received` were
    /// its last.
    pub(super) fn receive(
        &mut self,
        received: &[u8],
    ) -> Result<Option<(Option<SocketAddr>, usize)>, Malformed> {
        let before = self.0.len();
        let room = HEADER_MAX - before;
        self.0.extend_from_slice(&received[..received.len().min(room)]);
        let found = parse(&self.0)?;
        Ok(found.map(|header| (header.source, header.length - before)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: wherever a header is cut, its client is found once, and what follows it is left, however much that is.
    #[test]
    fn cut_at_every_byte() {
        let header = b"PROXY TCP4 203.0.113.7 192.0.2.1 56324 443\r\n";
        let client = Some("203.0.113.7:56324".parse().expect("an address"));
        let mut all = header.to_vec();
        all.resize(3 * HEADER_MAX, b'G');
        for cut in 0..header.len() {
            let mut preamble = Preamble::default();
            assert_eq!(preamble.receive(&all[..cut]), Ok(None), "{cut}");
            let rest = header.len() - cut;
            assert_eq!(preamble.receive(&all[cut..]), Ok(Some((client, rest))), "{cut}");
        }
        let mut preamble = Preamble::default();
        for byte in &header[..header.len() - 1] {
            assert_eq!(preamble.receive(&[*byte]), Ok(None));
        }
        assert_eq!(preamble.receive(b"\nGET"), Ok(Some((client, 1))));
    }
}
