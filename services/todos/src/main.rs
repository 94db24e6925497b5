//! Highwater's Todo service: a cached API with asynchronous writes that are never lost.
#![forbid(unsafe_code)]

fn main() {}
