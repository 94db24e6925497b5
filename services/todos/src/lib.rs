//! The Todo service: lists that are answered from memory, writes that are acknowledged once they are
//! durable and applied a moment later.
//!
//! ```text
//!  GET ───▶ http ─▶ reads (model: fragments encoded once) ◀──────────────┐
//!                                                                        │ what was applied
//!  POST ──▶ http ─▶ auth ─▶ command ─▶ queue ─▶ applier ─▶ store ────────┘
//!   202 ◀───────────────── durable ◀─────┘
//! ```
//!
//! Invariants: 202 is sent only once the command is durable; commands about one todo are applied in the
//! order in which they became durable, each exactly once; a reader never sees less than a reader before it.
#![forbid(unsafe_code)]

pub mod applier;
pub mod args;
pub mod auth;
pub mod beyond;
pub mod command;
pub mod data;
pub mod engine;
pub mod feed;
pub mod health;
pub mod http;
pub mod metrics;
pub mod model;
pub mod near;
pub mod queue;
pub mod reads;
pub mod serve;
#[cfg(test)]
mod simulation;
pub mod store;
pub mod todo;
pub mod worker;
