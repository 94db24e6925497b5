//! Receives: how they are armed, and how those that found no buffer are repeated.
//!
//! A receive fails when more connections become readable at once than there are buffers. It is armed again after the poll that
//! reported it: by then the poll has returned buffers, or completions in the queue hold them.

use highwater_core::driver::{ConnId, Event, Reading};
use io_uring::cqueue;

use super::Uring;
use super::slots::{CANCELLING, CLOSING, EOF, MORE, Operation, RECEIVING, STARVED, Token, UNIX};

impl Uring {
    #[inline]
    pub(super) fn on_received(
        &mut self,
        token: Token,
        entry: &cqueue::Entry,
        on_event: &mut impl FnMut(Event<'_>),
    ) {
        let (index, more) = (token.index(), cqueue::more(entry.flags()));
        let mut buffer = cqueue::buffer_select(entry.flags());
        let slot = self.slots.find(token).expect("a slot outlives what it has in flight");
        if !more {
            slot.clear(RECEIVING | CANCELLING);
        }
        match entry.result() {
            len @ 1.. if !slot.is(CLOSING) => {
                let once = slot.reading.is_once();
                if once {
                    slot.reading = Reading::Stop;
                    if self.buffers.fills(len as usize) {
                        slot.set(MORE);
                    }
                }
                let buffer = buffer.take().expect("every receive selects a buffer");
                let on_bytes = |bytes: &mut [u8]| on_event(Event::Received(ConnId(index), bytes));
                self.buffers.take(buffer, len as usize, on_bytes);
                if once && more {
                    self.cancel_receive(index);
                }
            }
            0 if !slot.is(CLOSING) => {
                slot.set(EOF);
                on_event(Event::Eof(ConnId(index)));
            }
            0.. => {} // It is not wanted any more.
            error => self.receive_failed(token, -error),
        }
        if let Some(buffer) = buffer {
            self.buffers.take(buffer, entry.result().max(0) as usize, |_| ());
        }
        if !more {
            self.arm_receive(index);
            self.free_if_done(index, on_event);
        }
    }

    #[cold]
    fn receive_failed(&mut self, token: Token, error: i32) {
        let slot = self.slots.at(token.index());
        match error {
            libc::ECANCELED | libc::EINTR | libc::EAGAIN => {} // Armed again if still wanted.
            libc::ENOBUFS if !slot.is(CLOSING) => {
                slot.set(STARVED);
                self.starved.push_back(token);
            }
            _ => self.shut(token.index()),
        }
    }

    /// Arms a receive if one is wanted and none is armed.
    #[inline]
    pub(super) fn arm_receive(&mut self, index: u32) {
        let token = self.slots.token(Operation::Receive, index);
        let slot = self.slots.at(index);
        if slot.is(RECEIVING | CLOSING | EOF | STARVED) {
            return;
        }
        match slot.reading {
            Reading::Once | Reading::Brief => self.ring.receive_once(slot.fd, token),
            Reading::Stream if slot.is(UNIX) => self.ring.receive_once(slot.fd, token),
            Reading::Stream => self.ring.receive_stream(slot.fd, token),
            Reading::Stop => return,
        }
        slot.set(RECEIVING);
        slot.clear(MORE);
    }

    pub(super) fn cancel_receive(&mut self, index: u32) {
        let slot = self.slots.at(index);
        if slot.is(RECEIVING) && !slot.is(CANCELLING) {
            slot.set(CANCELLING);
            let token = self.slots.token(Operation::Receive, index);
            self.ring.cancel(token);
        }
    }

    /// Arms receives that found no buffer: as many as there are buffers. The others would find none and fail once more,
    /// poll after poll. They wait for the next poll, which does not wait for anything else.
    pub(super) fn feed_starved(&mut self) {
        let fed = self.starved.len().min(self.buffers.count());
        for _ in 0..fed {
            let Some(token) = self.starved.pop_front() else { break };
            if let Some(slot) = self.slots.find(token) {
                slot.clear(STARVED);
                self.arm_receive(token.index());
            }
        }
    }
}
