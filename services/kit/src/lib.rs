//! What the services share beside the framework: SQLite files and Postgres servers of stores, and how a program ends.
//!
//! It holds no state and knows no service; each keeps its own tables.
#![forbid(unsafe_code)]

pub mod ending;
pub mod postgres;
pub mod sqlite;
