//! The memory for what clients send, over all connections of a server: the bodies of requests, and messages of WebSockets.
//!
//! Invariant: what is taken and not given back adds up to the counted bytes, and these never exceed the bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::logging::rate_limited;

/// The memory for what clients send to a server. Cheap to clone; by default without bound.
#[derive(Clone, Debug)]
pub(crate) struct BodyMemory {
    held: Arc<AtomicU64>,
    max: u64,
}

impl Default for BodyMemory {
    fn default() -> Self {
        BodyMemory::new(u64::MAX)
    }
}

impl BodyMemory {
    pub(crate) fn new(max: u64) -> Self {
        BodyMemory { held: Arc::default(), max }
    }

    /// The counter of bytes held, for the metrics.
    pub(crate) fn held(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.held)
    }

    /// Takes this many bytes more, if that many are left.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        self.take_below(bytes, self.max)
    }

    /// The same, and leaves this part (`1 / share`) of all memory free.
    pub(crate) fn take_leaving(&self, bytes: usize, share: u64) -> bool {
        self.take_below(bytes, self.max - self.max / share)
    }

    fn take_below(&self, bytes: usize, max: u64) -> bool {
        let with = |held: u64| held.checked_add(bytes as u64).filter(|&held| held <= max);
        self.held.fetch_update(Relaxed, Relaxed, with).is_ok()
    }

    /// Replaces `before` bytes, which are taken, by `after`. False if there is no room for so many more: then all are given
    /// back.
    pub(crate) fn change(&self, before: usize, after: usize) -> bool {
        let is_taken = after <= before || self.take(after - before);
        self.give_back(before.saturating_sub(if is_taken { after } else { 0 }));
        is_taken
    }

    /// Logs that something was refused since too little was left for it.
    #[cold]
    pub(crate) fn report_full(&self) {
        rate_limited!(
            WARN,
            bytes = self.max,
            instead = "raise body-memory-max, or lower body-max and, for WebSockets, message_max",
            "the memory for what clients send is used up: bodies are refused, and WebSockets are closed",
        );
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        self.held.fetch_sub(bytes as u64, Relaxed);
    }
}

/// What one holder has taken. It is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    memory: BodyMemory,
    bytes: usize,
}

impl Charge {
    /// Nothing of this memory yet.
    pub(crate) fn new(memory: BodyMemory) -> Self {
        Charge { memory, bytes: 0 }
    }

    /// Bytes taken.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Holds `bytes` from now on. False if that is more than before, and not that much is left: then it holds none.
    pub(crate) fn set(&mut self, bytes: usize) -> bool {
        let is_taken = self.memory.change(self.bytes, bytes);
        self.bytes = if is_taken { bytes } else { 0 };
        is_taken
    }

    /// Logs that something was refused since too little was left for it.
    pub(crate) fn report_full(&self) {
        self.memory.report_full();
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a charge grows, shrinks, gives all back where there is no room for more, and when it ends.
    #[test]
    fn a_charge_is_given_back() {
        let memory = BodyMemory::new(100);
        let held = || memory.held().load(Relaxed);
        let (mut one, mut other) = (Charge::new(memory.clone()), Charge::new(memory.clone()));
        assert!(one.set(60) && one.set(40) && other.set(60));
        assert_eq!((held(), one.bytes(), other.bytes()), (100, 40, 60));
        assert!(!one.set(41));
        assert_eq!((held(), one.bytes()), (60, 0));
        assert!(one.set(40));
        drop(other);
        assert_eq!(held(), 40);
        drop(one);
        assert_eq!(held(), 0);
    }
}
