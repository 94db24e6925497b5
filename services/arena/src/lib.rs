//! The routes that servers are compared by, on Highwater: what benchmarks ask for, what overload
//! tests need, and what conformance suites expect. `main.rs` serves them.
#![forbid(unsafe_code)]

pub mod answers;
pub mod bench;
pub mod httparena;
pub mod load;
pub mod probe;
