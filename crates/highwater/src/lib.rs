//! How do I serve my application?
#![forbid(unsafe_code)]

pub mod cache;
