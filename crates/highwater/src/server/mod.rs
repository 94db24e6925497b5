//! How does a server run?
//!
//! ```text
//!  builder ──▶ config: the table of settings;  setting, args, environment, address, listener: how they are written
//!     ▼
//!  start ─▶ capacity: what it takes of the machine;  transport: which driver, and why;  listen: sockets
//!     │
//!     ├──▶ running: until when, and how it ends;  serve: the same in an async main;  supervisor: READY, STOPPING
//!     │           watchdog: whether every worker has turns
//!     ├──▶ tls/: certificates, and the seal of connections over rustls
//!     ├──▶ hooks: what the application does before, beside and after serving
//!     ├──▶ observer, port: the metrics port
//!     └──▶ threads: one thread per worker, and what happens when one dies
//!            └──▶ worker/ ─ run: where it waits
//!                           mod: THE loop, and the parts it is composed of
//!                           serve/: what is done for one exchange
//! ```
//!
//! Everything of a connection happens on the one thread that accepted it.

mod address;
#[cfg(feature = "cli")]
pub mod args;
mod builder;
mod capacity;
mod config;
mod ends;
mod environment;
mod error;
mod hooks;
mod listen;
mod listener;
mod observer;
mod pool;
mod port;
mod routes;
mod running;
mod serve;
#[cfg(feature = "cli")]
mod setting;
mod start;
mod stop;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
mod supervisor;
#[cfg(not(all(target_os = "linux", not(highwater_portable_only))))]
#[path = "without_supervisor.rs"]
mod supervisor;
mod threads;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "without_tls.rs"]
mod tls;
mod transport;
mod watchdog;
mod worker;

#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
pub use crate::admission::Ceiling;
pub use crate::admission::{Fair, GateChoice, GateRefusal, Limiter, Refuse, Shed, gate_here};
pub use crate::logging::LogFormat;
pub use builder::Server;
pub use config::{ClientAuth, Pin, ServerConfig, TlsMin, TransportChoice};
pub use error::ServerError;
pub use highwater_core::http::Limits;
pub use highwater_sys::signal::{Signal, Signals};
pub use listener::{Address, Listen};
pub use running::Running;
pub use serve::{Serve, ServeFuture};
#[cfg(feature = "tls")]
pub use tls::{Pem, Tls};

#[cfg(feature = "sim")]
pub(crate) use pool::Pool;
#[cfg(feature = "testing")]
pub(crate) use worker::context;
#[cfg(feature = "sim")]
pub(crate) use worker::{Inbox, ListenerTerms, Opened, Seal, Sealer, Worker, WorkerConfig};
