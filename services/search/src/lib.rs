//! The search service: polls a provider's XML feed of events, stores every event that was ever
//! online, and answers which events fall into a range of dates.
//!
//! ```text
//!  provider ──HTTP──▶ poller ─▶ feed ─▶ catalog ─▶ store (durable)
//!                                          │
//!                                          ▼ publishes
//!  client ──▶ http ──query──Range──▶ index::Snapshot ──Bytes──▶ http ──▶ client
//! ```
//!
//! Invariants: a client's answer depends only on the last published [`index::Snapshot`], never on
//! the provider or the store; a snapshot is published only after the store has made it durable; a
//! published event is served for ever.
#![forbid(unsafe_code)]

pub mod args;
pub mod catalog;
pub mod civil;
pub mod event;
pub mod feed;
pub mod http;
pub mod index;
pub mod metrics;
pub mod money;
mod openapi;
pub mod poller;
pub mod provider;
pub mod query;
pub mod serve;
pub mod store;
pub mod wire;
