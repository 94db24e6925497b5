//! What the tests of the whole share: the conformance cases, the application they are written for,
//! the plainest possible worker to run it, the server that is put under strain, the source tree as data, and the
//! documentation as a site.
#![forbid(unsafe_code)]

pub mod cases;
pub mod probe;
pub mod server;
pub mod site;
pub mod source;
