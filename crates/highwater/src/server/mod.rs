//! How does a server run?
//!
//! ```text
//!  builder ──▶ transport: which driver, and why;  port: what the metrics port serves
//!     │
//!     └──▶ crew: one thread per worker, and who notices that one has died
//!            └──▶ run: where it waits;  context: whether Tokio is around it
//!                   └──▶ worker (THE loop)
//!                                            ├─ slot      a connection, and what is under way for it
//!                                            ├─ respond   responses into bytes
//!                                            ├─ answer    futures, pool jobs, streamed content
//!                                            ├─ memory    how much of bodies is held in all
//!                                            ├─ upload    slow ones give way where places are scarce
//!                                            ├─ crowd     newcomers first, on the metrics port
//!                                            ├─ lifetime  accept, deadlines, eviction, drain
//!                                            ├─ served_time  time, without what we slept
//!                                            ├─ advisor   who blocks the worker?
//!                                            ├─ inbox ◀── wakers, pool;  handover: how it is woken
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
mod bounds;
mod builder;
mod config;
mod context;
mod crew;
mod crowd;
#[cfg(test)]
mod gated;
mod handover;
mod inbox;
mod inspect;
mod ledger;
mod lifetime;
mod memory;
mod orphans;
mod pool;
mod port;
mod respond;
mod run;
mod serve;
mod served_time;
mod slot;
mod sync;
mod transport;
mod upload;
mod worker;

pub use crate::admission::{Ceiling, GateChoice, GateRefusal, Limiter, Shed, gate_here};
pub use crate::log::LogFormat;
pub use builder::{Running, Server, ServerError};
pub use config::{Pin, ServerConfig, TransportChoice};
pub use highwater_sys::signal::{Signal, Signals};

pub(crate) use admit::THINK_MAX;
pub(crate) use bounds::Bounds;
pub(crate) use inbox::Inbox;
pub(crate) use pool::{Full, Pool};
pub(crate) use worker::{Worker, WorkerParts};
