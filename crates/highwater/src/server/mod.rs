//! How does a server run?

mod config;

pub use config::{LogFormat, Pin, ServerConfig, TransportChoice};
