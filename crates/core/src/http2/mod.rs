//! HTTP/2 without I/O (RFC 9113): bytes in, frames and fields out, and back.
//!
//! ```text
//!  bytes ─▶ Decoder ─▶ Frame ─┬─ Data, Settings, …
//!                             └─ Headers, Continuation ─▶ Block ─▶ hpack::Decoder ─▶ fields
//!  bytes ◀─ encode ◀───────────────────────────────────────────── hpack::Encoder ◀─ fields
//! ```
//!
//! The codecs check what a frame may contain and how large it may be. The order of frames is checked where the state of streams
//! is kept: by [`Connection`], the server's side, and by [`client`]; [`Window`] counts what flow control allows. Everything is
//! bounded: an incomplete frame by `SETTINGS_MAX_FRAME_SIZE`, a field block by its limit and [`CONTINUATIONS_MAX`], the tables
//! by their sizes.

mod block;
#[cfg(feature = "client")]
pub mod client;
mod decode;
pub mod encode;
mod error;
mod flow;
mod frame;
pub mod hpack;
pub mod server;
mod settings;
#[cfg(test)]
mod tests;

pub use block::{Block, CONTINUATIONS_MAX};
pub use decode::Decoder;
pub use encode::PREFACE;
pub use error::{Error, ErrorCode, Scope};
pub use flow::Window;
pub use frame::{Frame, HEADER_LEN, Header, flag, kind};
pub use server::Connection;
pub use settings::{
    FRAME_SIZE_DEFAULT, FRAME_SIZE_MAX, Setting, Settings, WINDOW_DEFAULT, WINDOW_MAX,
};
