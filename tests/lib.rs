//! What the tests of the whole share: the conformance cases, the application they are written for,
//! and the plainest possible worker to run it.

pub mod cases;
pub mod probe;
