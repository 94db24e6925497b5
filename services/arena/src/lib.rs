//! The routes of benchmarks, overload tests and conformance suites, on Highwater. `main.rs` serves
//! them.
#![forbid(unsafe_code)]

pub mod answers;
pub mod bench;
#[path = "../../../bench/peers/common/content.rs"]
mod content;
pub mod dataset;
pub mod httparena;
pub mod load;
pub mod probe;
pub mod variant;
pub mod web;
