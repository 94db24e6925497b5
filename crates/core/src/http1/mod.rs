//! HTTP/1.1 as a value (RFC 9110, RFC 9112): bytes in, requests out, responses in, bytes out.
//!
//! [`Connection`] is the server's side of one connection. It owns no socket and reads no clock; the
//! worker that does feeds it with what arrived and takes from it what is to be sent. TLS slides in
//! beneath it the same way: its plaintext is this input, and this output its plaintext.
//!
//! It is strict where request smuggling lives (framing, line ends, field names, `Host`) and lenient
//! nowhere: what the grammar does not allow is answered with a status the client can see, and the
//! connection is closed.

mod admission;
mod body;
mod connection;
mod deadline;
mod deadline_field;
mod encode;
mod error;
mod facts;
mod hang_up;
mod head;
mod limits;
mod parse;
mod reply;
mod request_body;

pub use body::Decoder;
pub use connection::{Body, BodyPlan, Connection, Expired, Next, Payload, Request, Scratch};
pub use encode::Fields;
pub use error::Reject;
pub use head::{Head, Headers, Method, Version};
pub use limits::Limits;
pub use reply::LengthMismatch;
