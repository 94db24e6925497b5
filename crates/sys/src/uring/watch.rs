//! How does the driver notice that a connection has ended while nothing is received from it?
//!
//! With a poll operation that is armed when reading stops for the first time, and stays armed. A
//! receive would report the end only behind earlier bytes, which the worker does not want now. A
//! connection that is always read from never has such a poll, so the plain path pays nothing. The
//! poll stays while reading resumes: to stop and restart it would cost more than its events, which
//! are at most one FIN and one failure.

use highwater_core::driver::{ConnId, Event};
use io_uring::cqueue;

use super::Uring;
use super::slots::{CLOSING, EOF, HUNG_UP, Operation, Token, UNWATCHING, WATCHING};
use crate::socket;

const FAILURE: i32 = (libc::POLLERR | libc::POLLHUP) as i32;

impl Uring {
    /// Arms the poll for the end of the connection, if it is not armed.
    pub(super) fn watch(&mut self, index: u32) {
        let token = self.slots.token(Operation::Watch, index);
        let slot = self.slots.at(index);
        if !slot.is(WATCHING | CLOSING) {
            slot.set(WATCHING);
            self.ring.watch(slot.fd, token);
        }
    }

    /// Cancels the poll. While armed, it would keep the connection open beyond a close.
    pub(super) fn unwatch(&mut self, index: u32) {
        let slot = self.slots.at(index);
        if slot.is(WATCHING) && !slot.is(UNWATCHING) {
            slot.set(UNWATCHING);
            let token = self.slots.token(Operation::Watch, index);
            self.ring.cancel(token);
        }
    }

    #[cold]
    pub(super) fn on_watched(
        &mut self,
        token: Token,
        entry: &cqueue::Entry,
        on_event: &mut impl FnMut(Event<'_>),
    ) {
        let (index, events) = (token.index(), entry.result());
        let more = cqueue::more(entry.flags());
        let slot = self.slots.find(token).expect("a slot outlives what it has in flight");
        if !more {
            slot.clear(WATCHING | UNWATCHING);
        }
        // A negative result says that the poll itself is over.
        if events > 0 && !slot.is(CLOSING) {
            // Both sides may have finished normally: only an error is the end before `close`.
            if events & FAILURE != 0 && socket::take_error(slot.fd) != 0 {
                self.shut(index);
            } else if !slot.is(EOF | HUNG_UP) {
                slot.set(HUNG_UP);
                on_event(Event::HungUp(ConnId(index)));
            }
        }
        if !more {
            // The kernel also ends a poll whose report found the completion queue full.
            if events > 0 {
                self.watch(index);
            }
            self.free_if_done(index, on_event);
        }
    }
}
