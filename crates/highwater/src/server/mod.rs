//! How does a server run?
//!
//! ```text
//!  builder ──▶ listen: sockets;  transport: which driver, and why;  port: what the metrics port serves
//!     │
//!     └──▶ threads: one thread per worker, and what happens when one dies
//!            └──▶ worker/ ─ run: where it waits
//!                           mod: THE loop, and the parts it is composed of
//!                           serve/: what is done for one exchange
//! ```
//!
//! Everything of a connection happens on the one thread that accepted it.

#[cfg(feature = "cli")]
pub mod args;
mod builder;
mod config;
mod error;
mod listen;
mod observer;
mod pool;
mod port;
#[cfg(feature = "tower")]
mod stop;
mod threads;
mod transport;
mod worker;

pub use crate::admission::{Ceiling, GateChoice, GateRefusal, Limiter, Refuse, Shed, gate_here};
pub use crate::logging::LogFormat;
pub use builder::{Running, Server};
pub use config::{Pin, ServerConfig, TransportChoice};
pub use error::ServerError;
pub use highwater_core::http::Limits;
pub use highwater_sys::signal::{Signal, Signals};

#[cfg(feature = "sim")]
pub(crate) use pool::Pool;
#[cfg(feature = "tower")]
pub(crate) use stop::{Stop, Stopper};
#[cfg(feature = "sim")]
pub(crate) use worker::{Inbox, Worker, WorkerConfig};
#[cfg(feature = "testing")]
pub(crate) use worker::{context, runtime};
