//! How do I serve my application?

pub mod cache;
