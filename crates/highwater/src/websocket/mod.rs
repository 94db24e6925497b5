//! How do I speak with a client in messages, both ways (WebSocket, RFC 6455)?
//!
//! [`websocket`] makes a handler of an `async fn` that takes a [`WebSocket`]; [`WebSocketUpgrade`] is an extractor for
//! handlers that decide first. [`Broadcast`] sends one message to many clients.
//!
//! ```
//! use highwater::testing::Client;
//! use highwater::{Router, WebSocket, websocket};
//!
//! async fn echo(mut socket: WebSocket) {
//!     while let Some(message) = socket.recv().await {
//!         if socket.send(message).await.is_err() {
//!             return; // The client has gone.
//!         }
//!     }
//! }
//!
//! let client = Client::new(Router::new().get("/echo", websocket(echo)));
//! let mut socket = client.websocket("/echo");
//! socket.send("Hello");
//! assert_eq!(socket.recv().unwrap().as_text(), Some("Hello"));
//! ```
//!
//! The server does the following automatically, whatever the handler waits for:
//!
//! | the server | when | option, default |
//! |---|---|---|
//! | answers pings | at once | |
//! | pings the client | it has been silent | [`ping_after`](WebSocketUpgrade::ping_after), 30 s |
//! | gives the client up | nothing follows the ping | [`pong_timeout`](WebSocketUpgrade::pong_timeout), 20 s |
//! | closes with 1000 | the handler has returned, or dropped the socket | |
//! | closes with 1001 | the server drains, or there was no message in either direction | [`idle_timeout`](WebSocketUpgrade::idle_timeout), never |
//! | closes with 1002, 1007 | the client breaks a rule; sends text that is not UTF-8, or what cannot be decompressed | |
//! | closes with 1008 | a message that has begun does not go on, or comes at less than 240 B/s | [`message_timeout`](WebSocketUpgrade::message_timeout), 60 s |
//! | closes with 1009 | a message or a frame is too large | [`message_max`](WebSocketUpgrade::message_max), [`frame_max`](WebSocketUpgrade::frame_max), 1 MiB |
//! | closes with 1011 | the handler has panicked, or returned an error | |
//! | closes with 1013 | the server has no memory left for messages | `body-memory-max` |
//! | stops reading | the handler has too much to do | [`receive_buffer_max`](WebSocketUpgrade::receive_buffer_max), 64 KiB |
//! | makes senders wait | the client reads too slowly | [`send_buffer_max`](WebSocketUpgrade::send_buffer_max), 64 KiB |
//! | resets | the client takes nothing at all | `write-timeout`, 30 s |
//! | resets | the client does not answer a close frame | [`close_timeout`](WebSocketUpgrade::close_timeout), 5 s |
//!
//! An open WebSocket is neither load nor demand for admission while its handler waits. A limit of its route that is a number
//! ([`Handler::concurrency_limit`](crate::Handler::concurrency_limit)) counts it until its end. Messages
//! are compressed if the endpoint asks for it with `deflate` (feature `websocket-deflate`); there are no other extensions.

mod broadcast;
#[cfg(feature = "websocket-deflate")]
pub(crate) mod deflate;
mod driver;
mod handler;
mod inbox;
mod message;
mod options;
mod shared;
mod socket;
mod upgrade;

pub use highwater_core::websocket::{CloseCode, End};

pub use broadcast::{Broadcast, Membership, SlowClient};
#[cfg(feature = "websocket-deflate")]
#[cfg_attr(docsrs, doc(cfg(feature = "websocket-deflate")))]
pub use deflate::Deflate;
pub use handler::{SocketFunction, WebSocketHandler, websocket};
pub use message::{Frame, Message, Text};
pub use socket::{CloseFrame, TrySendError, WebSocket, WebSocketReceiver, WebSocketSender};
pub use upgrade::WebSocketUpgrade;
