//! What clients send on WebSockets that echo, and what they must receive, byte for byte.

use highwater_core::websocket::{CloseCode, Kind as Content, encode};

use super::{Step, Wanted, Writer, app, get, status};

/// The handshake, with the key of the RFC's example.
const HANDSHAKE: &str = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// A close frame with 1001: the server is drained.
const DRAIN_CLOSE: &[u8] = b"\x88\x12\x03\xe9the server stops";

const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

impl Writer<'_> {
    /// Messages of every size, in any number of frames; then a close frame, or the end of the connection without one.
    /// Whatever came before the end is answered.
    pub(super) fn web_socket(&mut self) {
        let (mut sent, mut expected) = (Vec::new(), Vec::new());
        for number in 0..self.prng.below(6) {
            let most = [2, 130, 3000, 70_000][self.prng.below(4) as usize];
            let content = app::big(self.prng.below(most) as usize);
            let kind = if self.chance(2) { Content::Text } else { Content::Binary };
            self.frames(kind, &content, number == 0, (&mut sent, &mut expected));
            encode::message(kind, &content, None, &mut expected);
        }
        if !self.chance(4) {
            let code = [None, Some(CloseCode::NORMAL), Some(CloseCode(4999))];
            let code = code[self.prng.below(3) as usize];
            encode::close(code, "enough", Some(KEY), &mut sent);
            encode::close(code, "", None, &mut expected);
        }
        let wanted =
            Wanted { raw: Some(expected), drain_close: DRAIN_CLOSE, body: None, ..status(101) };
        self.say_request(get("/ws", wanted), "1.1", HANDSHAKE, false);
        self.steps.push(Step::Await(self.requests.len()));
        self.steps.push(Step::Send(sent));
        self.steps.push(Step::Finish);
    }

    /// One message. Its pongs may overtake the echoes of earlier messages, so only the first one `may_ping`.
    fn frames(
        &mut self,
        kind: Content,
        content: &[u8],
        may_ping: bool,
        (sent, expected): (&mut Vec<u8>, &mut Vec<u8>),
    ) {
        let (mut rest, mut is_first) = (content, true);
        loop {
            let is_last = self.chance(2);
            let len =
                if is_last { rest.len() } else { self.prng.below(rest.len() as u64 + 1) as usize };
            let (piece, after) = rest.split_at(len);
            encode::frame(kind, piece, is_first, is_last, Some(KEY), sent);
            if is_last {
                return;
            }
            (rest, is_first) = (after, false);
            if may_ping && self.chance(2) {
                encode::ping(&piece[..len.min(125)], Some(KEY), sent);
                encode::pong(&piece[..len.min(125)], None, expected);
            }
        }
    }
}
