//! How are the messages of a WebSocket compressed (`permessage-deflate`, RFC 7692)?
//!
//! ```text
//!  Deflate, the options ─▶ the client's offers are accepted or declined ─▶ a Deflater, an Inflater
//!  a message ─▶ Deflater ─▶ a frame with RSV1         alone, or behind the messages before it
//!  a frame with RSV1 ─▶ the core's decoder ─▶ Inflater ─▶ a message
//! ```
//!
//! Where no context is kept between messages, what compresses and decompresses belongs to the thread, and an idle
//! connection has none of it.

mod deflater;
mod inflater;
mod offers;
#[cfg(test)]
mod tests;

use highwater_core::websocket::extensions::{
    self, Agreed, Context, Malformed, WINDOW_BITS_MAX, WINDOW_BITS_MIN, accept_deflate,
};

pub(crate) use deflater::Deflater;
pub(super) use deflater::{Grade, Variants, compressed_header};
pub(crate) use inflater::Inflater;
pub(super) use offers::Offers;

/// The level of the layer for responses, for the same reason: most of what the best level saves, in little time.
const LEVEL: u32 = 4;

/// The end of an empty block: the sender of a message leaves it out, and the receiver adds it again (RFC 7692 §7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// Shorter messages fit into a packet anyway, and have little to repeat. As for responses.
const BYTES_MIN: usize = 1024;

/// Compresses the messages of a WebSocket for clients that can read them (`permessage-deflate`, RFC 7692).
///
/// Compression takes place where a message is sent or received: on the worker. It pays where messages are large text and the
/// network is slow. **Do not compress a secret together with content that somebody else chooses**: the length of a message
/// then tells, guess by guess, what the secret is (CRIME, BREACH). With a context kept between messages, the two need not
/// even be in the same message.
///
/// ```
/// use highwater::websocket::Deflate;
/// use highwater::{Router, WebSocket, websocket};
///
/// async fn feed(mut socket: WebSocket) {
///     let _ = socket.send("a headline ".repeat(1000)).await;
/// }
///
/// let app = Router::new().get("/feed", websocket(feed).deflate(Deflate::new().bytes_min(256)));
/// # app.build().unwrap();
/// ```
///
/// No context is kept unless it is asked for. A connection then needs memory for compression only while a message is being
/// compressed, or has begun to come: 47 KiB for the latter. With [`server_context_takeover`](Deflate::server_context_takeover)
/// it keeps 372 KiB from its first compressed message on, and with
/// [`client_context_takeover`](Deflate::client_context_takeover) 47 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deflate {
    level: u32,
    bytes_min: usize,
    most: extensions::Deflate,
}

impl Default for Deflate {
    fn default() -> Self {
        let context = Context { is_kept: false, window_bits: WINDOW_BITS_MAX };
        let most = extensions::Deflate { server: context, client: context };
        Deflate { level: LEVEL, bytes_min: BYTES_MIN, most }
    }
}

impl Deflate {
    /// Level 4, messages of 1 KiB or more, and no context between messages.
    pub fn new() -> Self {
        Deflate::default()
    }

    /// How hard to compress, from 1 (fast) to 9 (small). 4 unless this is set.
    ///
    /// # Panics
    /// If it is another number.
    #[must_use]
    pub fn level(mut self, level: u32) -> Self {
        assert!((1..=9).contains(&level), "a level of compression is 1 to 9, not {level}");
        self.level = level;
        self
    }

    /// Compresses messages of `bytes` bytes or more. 1 KiB unless this is set. Messages of clients are decompressed whatever
    /// their size.
    #[must_use]
    pub fn bytes_min(mut self, bytes: usize) -> Self {
        self.bytes_min = bytes;
        self
    }

    /// Compresses a message with reference to those before it (context takeover), so that small messages that resemble each
    /// other become much smaller. Each connection then keeps a compressor: 372 KiB, or 246 KiB with the smallest
    /// [window](Deflate::server_window_bits). A client may refuse.
    ///
    /// A [`Frame`](super::Frame) for many clients is compressed once, alone; the message after it has no context.
    #[must_use]
    pub fn server_context_takeover(mut self) -> Self {
        self.most.server.is_kept = true;
        self
    }

    /// Lets clients compress a message with reference to those before it (context takeover). Each connection then keeps a
    /// decompressor: 47 KiB, whatever their window.
    #[must_use]
    pub fn client_context_takeover(mut self) -> Self {
        self.most.client.is_kept = true;
        self
    }

    /// Compresses with a window of 2<sup>`bits`</sup> bytes at most. 15, 32 KiB, unless this is set. A client may ask for a
    /// smaller one; an offer that asks for 8 is declined, since zlib cannot compress with it.
    ///
    /// # Panics
    /// If it is not 9 to 15.
    #[must_use]
    pub fn server_window_bits(mut self, bits: u8) -> Self {
        let allowed = WINDOW_BITS_MIN..=WINDOW_BITS_MAX;
        assert!(allowed.contains(&bits), "a window has 9 to 15 bits, not {bits}");
        self.most.server.window_bits = bits;
        self
    }

    /// Accepts one of a client's offers, or none.
    pub(super) fn accept(&self, offers: &Offers) -> Result<Option<Agreed>, Malformed> {
        accept_deflate([offers.as_bytes()], &self.most)
    }

    /// Compresses and decompresses as was agreed on.
    pub(super) fn begin(&self, agreed: &extensions::Deflate) -> (Deflater, Inflater) {
        let deflater = Deflater::new(self.level, self.bytes_min, agreed.server);
        (deflater, Inflater::new(agreed.client.is_kept))
    }
}
