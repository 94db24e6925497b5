//! The Kafka sink and the delivery of a journal, against a real broker.
#![forbid(unsafe_code)]

#[allow(dead_code, reason = "the gateway's tests use the rest of it")]
mod broker;
mod delivery;
mod mishaps;
mod sink;
