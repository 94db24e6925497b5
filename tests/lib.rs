//! What the tests of the whole share: the source tree as data, for the tests that read it.
#![forbid(unsafe_code)]

pub mod source;
