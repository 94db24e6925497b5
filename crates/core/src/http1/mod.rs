//! HTTP/1.1 as a sans-I/O state machine (RFC 9110, RFC 9112): bytes in, requests out, responses in, bytes
//! out.
//!
//! [`Connection`] is the server's side of one connection. It owns no socket and reads no clock; the worker
//! does, gives it the received bytes and takes its output. TLS fits below it: the decrypted bytes are its
//! input, and its output is encrypted.
//!
//! The content of a message is described by the types of [`http`](crate::http); this module decides how it is
//! framed, and when the connection ends. Workers use it as a [`Protocol`](crate::protocol::Protocol). The client's side is [`client`].
//!
//! It is strict everywhere, above all where request smuggling happens (framing, line ends, field names,
//! `Host`): input that the grammar does not allow is answered with an error status, and the connection is
//! closed.

mod body;
#[cfg(feature = "client")]
pub mod client;
mod connection;
mod deadline;
mod encode;
mod facts;
mod parse;
mod pending;
mod reply;
mod request_body;
mod state;
mod stream;
mod trailers;

pub use body::Decoder;
pub use encode::FieldEncoder;
pub use pending::Pending;
pub use state::{Connection, Scratch};
pub use stream::Stream;

pub use crate::protocol::{Expired, Next, Request};
