//! The synchronization primitives of `handover.rs`. `tests/inbox_model.rs` compiles `handover.rs` against
//! another module of this name, to run it in every possible order.

pub(crate) use std::sync::atomic::AtomicU8;
pub(crate) use std::sync::{Mutex, MutexGuard};
