//! The Kafka sink and the delivery of a journal, against a real broker.
#![forbid(unsafe_code)]

mod broker;
mod delivery;
mod mishaps;
mod sink;
