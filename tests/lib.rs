//! What the tests of the whole share: the conformance cases, the application they are written for,
//! the plainest possible worker to run it, a client that takes nothing for granted, servers in
//! processes of their own, and the source tree as data.
#![forbid(unsafe_code)]

pub mod cases;
pub mod client;
pub mod probe;
pub mod process;
pub mod source;
