//! The ingest gateway: accepts records by HTTP, and answers 202 when it has done what `--ack` promises.
//!
//! ```text
//!  client ──POST──▶ http ─▶ intake ─▶ batcher ─▶ sink ─▶ journal, Kafka, nowhere
//!                            one per worker        │
//!                    202 ◀── at once (memory), or when its receipt is there (disk, kafka)
//! ```
//!
//! Invariants: a record that was answered 202 has been, or will be, given to the sink, for as long as the process lives;
//! under `--ack disk` and `--ack kafka` its receipt came before the answer. A record that cannot be accepted is
//! answered 503, never dropped. At rest, accepted = durable = delivered + pending.
#![forbid(unsafe_code)]

pub mod args;
pub mod backend;
pub mod counts;
pub mod failure;
pub mod http;
pub mod intake;
pub mod metrics;
pub mod notice;
pub mod serve;
pub mod topic;
