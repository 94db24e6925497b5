//! Routes without parameters, by their path: most requests of most services are for one of them, and literals take
//! precedence, so a path that equals one needs no search in the tree.
//!
//! A hash table with open addressing, at most half full. Its keys come from the application, so no client can choose keys
//! that collide.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::RouteId;

/// Slots of the smallest table.
const SLOTS_MIN: usize = 16;

#[derive(Clone, Debug, Default)]
pub(super) struct Literals {
    /// A power of two of them, or none.
    slots: Vec<Option<Literal>>,
    count: usize,
    /// Bit `n` is set if there is a path of `n` bytes, the highest bit if there is a longer one: most paths with
    /// parameters need not be looked up.
    lengths: u64,
}

#[derive(Clone, Debug)]
struct Literal {
    path: Box<[u8]>,
    route: RouteId,
}

impl Literals {
    /// Adds a path that is not there yet.
    pub(super) fn insert(&mut self, path: Box<[u8]>, route: RouteId) {
        self.count += 1;
        if self.count * 2 > self.slots.len() {
            let slots = SLOTS_MIN.max(self.slots.len() * 2);
            let before = core::mem::take(&mut self.slots);
            self.slots.resize(slots, None);
            before.into_iter().flatten().for_each(|literal| self.place(literal));
        }
        self.lengths |= length_bit(&path);
        self.place(Literal { path, route });
    }

    fn place(&mut self, literal: Literal) {
        let mask = self.slots.len() - 1;
        let mut at = hash(&literal.path) & mask;
        while self.slots[at].is_some() {
            at = (at + 1) & mask;
        }
        self.slots[at] = Some(literal);
    }

    /// The route of `path`, if it is one without parameters.
    #[inline]
    pub(super) fn get(&self, path: &[u8]) -> Option<RouteId> {
        if self.lengths & length_bit(path) == 0 {
            return None;
        }
        let mask = self.slots.len().checked_sub(1)?;
        let mut at = hash(path) & mask;
        while let Some(literal) = self.slots.get(at)? {
            if *literal.path == *path {
                return Some(literal.route);
            }
            at = (at + 1) & mask;
        }
        None
    }
}

/// The bit of [`Literals::lengths`] for a path.
#[inline]
fn length_bit(path: &[u8]) -> u64 {
    1 << path.len().min(63)
}

/// Eight bytes at a time, each word multiplied by an odd number that mixes its bits upwards (2⁶⁴ over the golden ratio).
#[inline]
fn hash(path: &[u8]) -> usize {
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |sum: u64, word: u64| (sum.rotate_left(23) ^ word).wrapping_mul(MIX);
    let len = path.len() as u64;
    let (Some((first, mut rest)), Some(last)) = (path.split_first_chunk(), path.last_chunk())
    else {
        let word = path.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
        return (mix(len, word) >> 32) as usize;
    };
    let mut sum = mix(len, u64::from_le_bytes(*first));
    // Most paths are the first and the last word: what prepares a loop is not for them.
    while rest.len() > 8
        && let Some((word, behind)) = rest.split_first_chunk()
    {
        sum = mix(sum, u64::from_le_bytes(*word));
        rest = behind;
    }
    (mix(sum, u64::from_le_bytes(*last)) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::string::String;

    /// Purpose: every path that was added is found, at each size of the table, and none that was not.
    #[test]
    fn finds_what_is_there() {
        let mut literals = Literals::default();
        assert_eq!(literals.get(b"/"), None);
        let path = |n: usize| format!("/{}", "ab/".repeat(n % 7)) + &format!("{n}");
        for n in 0..200 {
            literals.insert(Box::from(path(n).as_bytes()), RouteId(n as u32));
            for known in 0..=n {
                let found = literals.get(path(known).as_bytes());
                assert_eq!(found, Some(RouteId(known as u32)), "{}", path(known));
            }
            assert_eq!(literals.get(path(n + 1).as_bytes()), None);
            assert!(literals.count * 2 <= literals.slots.len(), "a free slot ends each search");
        }
        let longer: String = path(199) + "/";
        assert_eq!(literals.get(longer.as_bytes()), None);
        for len in [62, 63, 64, 65, 200] {
            let long = "x".repeat(len);
            assert_eq!(literals.get(long.as_bytes()), None);
            literals.insert(Box::from(long.as_bytes()), RouteId(len as u32));
            assert_eq!(literals.get(long.as_bytes()), Some(RouteId(len as u32)));
        }
    }
}
