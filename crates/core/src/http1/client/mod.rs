//! The client's side of HTTP/1.1, sans-I/O: where does a response end, and what is in it?
//!
//! [`Reader`] takes the bytes that a server sends on one connection and separates its responses, however the
//! bytes are split (`response.rs`; the grammar of heads is in `head.rs`). It owns no socket and reads no
//! clock. An encoder of requests would be `request.rs` beside it; no code needs one yet.
//!
//! It shares tables of characters with the server's parser, but no decisions: an error in the server's
//! judgement of a message is not repeated here. The simulator, which reads the server's responses with it,
//! relies on that.

mod error;
mod head;
mod response;
#[cfg(test)]
mod tests;

pub use error::Malformed;
pub use head::{Content, FieldLines, Head};
pub use response::{End, Eof, Next, Reader};

/// The property of a request that decides where its response ends (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asked {
    /// The response's own fields delimit it.
    #[default]
    Plain,
    /// The method was `HEAD`: the response has no content, whatever it announces.
    Head,
    /// The method was `CONNECT`: a 2xx makes the connection a tunnel.
    Connect,
    /// The request offered another protocol: a 101 switches to it. To any other request a 101 is an error.
    Upgrade,
}

/// The bounds of a response. The reader holds no more of a response than one incomplete section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest head in bytes, from the status line to the empty line, and largest trailer section; beyond it
    /// [`Malformed::SectionTooLarge`]. 64 KiB: servers send long cookies.
    pub head_max: usize,
    /// Most fields in a head, and in a trailer section; beyond it [`Malformed::TooManyFields`]. 100, as
    /// many as the server takes in a request.
    pub fields_max: usize,
    /// Most interim responses before a final one; beyond it [`Malformed::TooManyInterims`]. 100, a guess:
    /// one `102` every ten seconds for a quarter of an hour.
    pub interims_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { head_max: 64 * 1024, fields_max: 100, interims_max: 100 }
    }
}
