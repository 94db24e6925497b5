//! What the tests of the whole share: the conformance cases, the application they are written for,
//! the plainest possible worker to run it, and the source tree as data for the tests that read it.
#![forbid(unsafe_code)]

pub mod cases;
pub mod probe;
pub mod source;
