//! The synchronization primitives of `handover.rs` and `woken.rs`. `tests/inbox_model.rs` compiles both
//! against another module of this name, to run them in every possible order.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8};
pub(crate) use std::sync::{Mutex, MutexGuard};
