//! What the hand-over between a worker and other threads synchronizes with. `tests/inbox_model.rs`
//! compiles `handover.rs` against another module of this name, to run it in every order that is
//! possible.

pub(crate) use std::sync::atomic::AtomicU8;
pub(crate) use std::sync::{Mutex, MutexGuard};
