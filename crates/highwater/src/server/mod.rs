//! How does a server run?

#[cfg(feature = "cli")]
pub mod args;
mod config;

pub use config::{Pin, ServerConfig, TransportChoice};
