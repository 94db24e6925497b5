//! How do I serve my application?
#![forbid(unsafe_code)]

pub mod app;
pub mod cache;
pub mod log;
pub mod machine;
pub mod metrics;
pub mod server;
pub mod sim;
pub mod testing;

pub use app::*;
pub use bytes::Bytes;
pub use http::{self, StatusCode};
#[cfg(feature = "cli")]
pub use server::args::ServerArgs;
pub use server::{Running, Server, ServerConfig, ServerError};
