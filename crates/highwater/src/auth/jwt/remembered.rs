//! Tokens that a worker has verified.

use std::collections::HashMap;
use std::sync::Arc;

use super::token::Verified;

/// The most verified tokens that a worker remembers for each layer.
pub const REMEMBERED_MAX: usize = 2048;

/// Verified tokens, in two halves: when the young one is full, it becomes the old one, whose entries are dropped. A
/// token that is used moves back to the young one. Keyed at random, so that clients cannot choose tokens that collide.
#[derive(Default)]
pub(super) struct Remembered {
    young: HashMap<Box<str>, Arc<Verified>>,
    old: HashMap<Box<str>, Arc<Verified>>,
}

impl Remembered {
    pub(super) fn find(&mut self, token: &str) -> Option<&Arc<Verified>> {
        if let Some((token, verified)) = self.old.remove_entry(token) {
            self.put(token, verified);
        }
        self.young.get(token)
    }

    pub(super) fn add(&mut self, token: &str, verified: Arc<Verified>) {
        self.put(token.into(), verified);
    }

    fn put(&mut self, token: Box<str>, verified: Arc<Verified>) {
        if self.young.len() >= REMEMBERED_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(token, verified);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}
