//! The synchronization primitives of the shared part of the cache. `tests/cache_model.rs` compiles
//! that part against another module of this name, to run it in every order that is possible.

pub(crate) use std::sync::atomic::AtomicU8;
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
