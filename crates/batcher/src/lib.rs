//! # Batches of records, and the sinks that take them
#![forbid(unsafe_code)]
