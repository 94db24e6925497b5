//! Buffers that each thread reuses, so that serializing a response allocates nothing once the thread
//! has warmed up.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// How many idle buffers a thread keeps. A worker encodes a response before it makes the next, so it
/// seldom needs more than one; those of slow connections come back later. A guess.
const IDLE_MAX: usize = 16;

/// The largest buffer that is kept: one huge response must not occupy memory forever. A guess.
const CAPACITY_MAX: usize = 64 * 1024;

thread_local! {
    static IDLE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer that returns to the pool of the thread that drops it.
#[derive(Debug)]
pub(crate) struct Pooled(Vec<u8>);

impl Pooled {
    /// An empty buffer, reused if the thread has one.
    #[cfg_attr(not(feature = "json"), allow(dead_code, reason = "JSON is what is pooled"))]
    pub(crate) fn take() -> Self {
        Pooled(IDLE.with_borrow_mut(Vec::pop).unwrap_or_default())
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.0);
        if !(1..=CAPACITY_MAX).contains(&buffer.capacity()) {
            return;
        }
        buffer.clear();
        // A thread that is ending no longer has a pool; then the buffer is freed.
        let _ = IDLE.try_with(|idle| {
            let mut idle = idle.borrow_mut();
            if idle.len() < IDLE_MAX {
                idle.push(buffer);
            }
        });
    }
}

impl Deref for Pooled {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a buffer comes back empty and with its capacity; a huge one does not.
    #[test]
    fn buffers_return_within_bounds() {
        let with_capacity = |capacity: usize| {
            let mut buffer = Pooled::take();
            *buffer = Vec::with_capacity(capacity);
            buffer.push(1);
            drop(buffer);
            let buffer = Pooled::take();
            assert!(buffer.is_empty());
            std::mem::take(&mut buffer.0.clone());
            buffer.capacity()
        };
        assert_eq!(with_capacity(CAPACITY_MAX), CAPACITY_MAX);
        IDLE.with_borrow_mut(Vec::clear);
        assert_eq!(with_capacity(CAPACITY_MAX + 1), 0);
    }

    /// Purpose: the pool's size is bounded.
    #[test]
    fn idle_buffers_are_bounded() {
        let buffers: Vec<Pooled> = (0..IDLE_MAX + 1)
            .map(|_| {
                let mut buffer = Pooled::take();
                buffer.push(1);
                buffer
            })
            .collect();
        drop(buffers);
        assert_eq!(IDLE.with_borrow(Vec::len), IDLE_MAX);
    }
}
