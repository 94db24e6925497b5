//! The gateway in front of a real Kafka broker: what 202 means, and what is left of it when processes are killed.
#![forbid(unsafe_code)]

#[path = "../../../../crates/batcher/tests/kafka/broker.rs"]
#[allow(dead_code, reason = "the client's tests use the rest of it")]
mod broker;
mod gateway;
mod leader;
mod meaning;
mod torture;
