//! The shared parts of services: SQLite files and Postgres servers of stores, and the end of a program.
//!
//! It holds no state and knows no service; each keeps its own tables.
#![forbid(unsafe_code)]

pub mod ending;
pub mod postgres;
pub mod sqlite;
