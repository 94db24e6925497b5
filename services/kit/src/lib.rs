//! The shared parts of services: SQLite files and Postgres servers of stores, and how a program waits and ends.
//!
//! It holds no state and knows no service; each keeps its own tables.
#![forbid(unsafe_code)]

pub mod ending;
pub mod postgres;
pub mod sqlite;
pub mod urls;
pub mod waiting;
