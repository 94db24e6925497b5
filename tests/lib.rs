//! What the tests of the whole share: the conformance cases, the application they are written for,
//! and the plainest possible worker to run it; a client that takes nothing for granted, and servers
//! in processes of their own.
#![forbid(unsafe_code)]

pub mod cases;
pub mod client;
pub mod probe;
pub mod process;
