//! Small programs, one job each: they are in `examples/`, and `tests/each.rs` makes requests to each of them.
#![forbid(unsafe_code)]
