//! How do newcomers get in when there is no room, and all who are there are in the way?
//!
//! On the metrics port nobody has a claim to stay: what is asked there is answered within a turn, and
//! whoever needs longer is slow, silent, or does not read. So when there is no room the connections that
//! have been there longest are reset, a few at a time, whatever they are at. A probe that comes while hundreds of
//! others hold on to their connections is served like on an empty server.

use highwater_core::driver::{Close, ConnId, Driver};

use super::worker::Worker;

/// One in so many connections is reset at a time, so that whoever comes has some turns to say what it
/// wants before it is among the oldest.
const OLDEST_SHARE: usize = 8;

impl<D: Driver> Worker<D> {
    /// Resets the connections that have been there longest. To be called when there is no room.
    pub(super) fn make_room(&mut self) {
        let slots = self.state.slots.iter().enumerate();
        let open = slots.filter(|(_, slot)| slot.alive && !slot.closing);
        let mut open: Vec<_> =
            open.map(|(index, slot)| (slot.accepted_at(), ConnId(index as u32))).collect();
        let count = (open.len() / OLDEST_SHARE).max(1);
        if (open.len() as u32) + (count as u32) < self.state.connections {
            return; // Some were reset a moment ago; they are about to be gone.
        }
        open.sort_unstable();
        for &(_, id) in open.iter().take(count) {
            self.close(id, Close::Reset);
        }
    }
}
