//! How does a ring end without leaving memory that the kernel may still write to?

use highwater_core::time::Instant;
use io_uring::cqueue;

use super::Uring;
use super::slots::{
    CLOSE_QUEUED, IN_FLIGHT, Operation, RECEIVING, SENDING, Slot, Slots, Token, WATCHING,
};
use crate::direct;

impl Drop for Uring {
    /// Cancels what is in flight and waits for it, so that no memory is freed under the kernel.
    fn drop(&mut self) {
        // Each by name: see `Ring::cancel_all`.
        let open = self.slots.iter().enumerate().filter(|(_, slot)| slot.fd != -1);
        let open: Vec<u32> = open.map(|(index, _)| index as u32).collect();
        open.into_iter().for_each(|index| self.shut(index));
        let mut attempts = 0;
        while !self.is_quiet() && self.ring.end_more(&mut attempts) {
            while let Some(entry) = self.ring.next() {
                self.discard(&entry);
            }
        }
        for slot in self.slots.iter().filter(|slot| slot.fd != -1) {
            direct::close(slot.fd);
        }
        if !self.is_quiet() {
            self.buffers.leak();
            std::mem::forget(std::mem::replace(&mut self.slots, Slots::new()));
            std::mem::forget(std::mem::replace(&mut self.wake_bytes, Box::new([0; 64])));
        }
    }
}

/// Ending.
impl Uring {
    fn is_quiet(&self) -> bool {
        let busy = |slot: &Slot| slot.is(IN_FLIGHT);
        let idle = !self.waking && self.alarm_at == Instant::MAX && !self.acceptor.is_armed();
        idle && !self.slots.iter().any(busy)
    }

    /// Notes that an operation is over, and does nothing else.
    fn discard(&mut self, entry: &cqueue::Entry) {
        let token = Token(entry.user_data());
        let over = |flag: u16| if cqueue::more(entry.flags()) { 0 } else { flag };
        match token.operation() {
            Operation::Wake => self.waking = false,
            Operation::Alarm => self.alarm_at = Instant::MAX,
            Operation::Cancel => {}
            Operation::Accept => self.acceptor.discard(entry),
            Operation::Receive => self.slots.at(token.index()).clear(over(RECEIVING)),
            Operation::Watch => self.slots.at(token.index()).clear(over(WATCHING)),
            Operation::Send => self.slots.at(token.index()).clear(SENDING),
            Operation::Close => {
                let slot = self.slots.at(token.index());
                slot.clear(CLOSE_QUEUED);
                if entry.result() != -libc::ECANCELED {
                    slot.fd = -1;
                }
            }
        }
    }
}
