//! How does a server run?
//!
//! ```text
//!  builder ──▶ transport: which driver, and why;  port: what the metrics port serves
//!     │
//!     └──▶ one thread per worker:  run ──▶ worker (THE loop)
//!                                            ├─ slot      a connection, and what is under way for it
//!                                            ├─ respond   responses into bytes
//!                                            ├─ answer    futures, pool jobs, streamed content
//!                                            ├─ lifetime  accept, deadlines, eviction, drain
//!                                            ├─ advisor   who blocks the worker?
//!                                            ├─ inbox ◀── wakers, pool
//!                                            └─ orphans   detached futures whose client is gone
//! ```
//!
//! Everything of a connection happens on the one thread that accepted it.

mod accept;
mod admit;
mod advisor;
#[cfg(test)]
mod allocations;
mod answer;
#[cfg(feature = "cli")]
pub mod args;
mod builder;
mod config;
mod crew;
#[cfg(test)]
mod gated;
mod inbox;
mod inspect;
mod ledger;
mod lifetime;
mod orphans;
mod pool;
mod port;
mod respond;
mod run;
mod serve;
mod slot;
mod transport;
mod worker;

pub use crate::admission::{Ceiling, GateChoice, GateRefusal, Limiter, Shed, gate_here};
pub use crate::log::LogFormat;
pub use builder::{Running, Server, ServerError};
pub use config::{Pin, ServerConfig, TransportChoice};
pub use highwater_sys::signal::{Signal, Signals};

pub(crate) use admit::THINK_MAX;
#[cfg(feature = "tower")]
pub(crate) use builder::Stop;
pub(crate) use inbox::Inbox;
pub(crate) use pool::{Full, Pool};
pub(crate) use worker::{Worker, WorkerParts};
