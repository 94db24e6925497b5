//! What does a kind of sealed channel have to do?
//!
//! One side of a connection whose bytes are sealed: a handshake, then records. It knows no socket, no clock and no HTTP;
//! the worker calls it, and decides when the costly part of its handshake may begin.
//!
//! ```text
//!  received ─▶ open ─▶ Hello ── admitted ──▶ begin ─▶ own messages
//!                      Established ─▶ Plain … ─▶ Closed
//!                      Failed      own messages hold what the peer is told
//! ```

use std::fmt;

use highwater_core::protocol::Versions;

use crate::app::PeerCertificates;
use crate::metrics::{Completed, HandshakeFailure};

/// Seals the connections of a listener.
pub(crate) trait Sealer: fmt::Debug + Send + Sync {
    /// The server's side of a connection that was just accepted.
    fn accept(&self) -> Box<dyn Seal>;
}

/// The server's side of one sealed connection.
pub(crate) trait Seal: fmt::Debug {
    /// Opens the next record in `input`, in place where it can, and takes it off its front. What is incomplete is taken
    /// and kept, so that [`Opened::Wait`] leaves nothing. It is called until it returns that.
    fn open<'s, 'i: 's>(&'s mut self, input: &mut &'i mut [u8]) -> Opened<'s>;

    /// Keeps `input` until the handshake has begun.
    fn keep(&mut self, input: &[u8]);

    /// The handshake may begin whose first flight has come ([`Opened::Hello`]). This is its costly part.
    fn begin(&mut self);

    /// How the handshake was completed. Asked at [`Opened::Established`].
    fn completed(&self) -> Completed {
        Completed::default()
    }

    /// The certificates with which the peer has authenticated itself. Asked at [`Opened::Established`].
    fn certificates(&self) -> Option<PeerCertificates> {
        None
    }

    /// Adds `plain` to `sealed`, in records. Only called between [`Opened::Established`] and the end.
    fn seal(&mut self, plain: &[u8], sealed: &mut Vec<u8>);

    /// Which versions of HTTP its handshake has left to choose from (ALPN). Only called once it is complete.
    fn versions(&self) -> Versions;

    /// Adds its own messages to `sealed`: flights of the handshake, tickets, alerts.
    fn take_own(&mut self, sealed: &mut Vec<u8>);

    /// Adds the message after which nothing follows.
    fn close(&mut self, sealed: &mut Vec<u8>);

    /// Bytes of memory it has allocated for records that are incomplete or not taken.
    #[cfg(feature = "sim")]
    fn allocated(&self) -> usize;
}

/// What a record held.
#[derive(Debug)]
#[cfg_attr(
    not(any(feature = "sim", feature = "tls")),
    expect(dead_code, reason = "no kind of seal is built")
)]
pub(crate) enum Opened<'a> {
    /// Nothing can be done before more bytes come.
    Wait,
    /// The first flight of the handshake is complete: [`Seal::begin`] when it is admitted.
    Hello,
    /// The handshake is complete.
    Established,
    /// Bytes of the protocol.
    Plain(&'a [u8]),
    /// The peer sends nothing more.
    Closed,
    /// The peer has broken the rules of the channel, or does not trust it: what it gets is among the own messages, and
    /// nothing follows.
    Failed(HandshakeFailure),
}
