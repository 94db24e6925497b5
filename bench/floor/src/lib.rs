//! What the two loops of `floor`, the least a server can do on this machine, share.
//!
//! Everything `unsafe` that both need is here, behind functions that are safe to call, so that the
//! loops themselves can be read for what they do. Nothing here is part of the framework: this
//! package stands outside the workspace so that no change to the framework can change what it is
//! compared with.

pub mod buffers;
pub mod epoll;
pub mod flags;
pub mod socket;
