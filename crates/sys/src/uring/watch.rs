//! Who tells that a connection has ended while nothing is received from it?
//!
//! A poll that stays armed from the first time reading stops: a receive would tell of an end only
//! behind the bytes before it, which nobody wants now. A connection that is always read from never has
//! one, so the plain path pays nothing. It goes on while reading resumes: to stop and start it would
//! cost more than what it tells then, which is at most one FIN and one failure.

use highwater_core::driver::{ConnId, Event};
use io_uring::cqueue;

use super::Uring;
use super::slots::{CLOSING, EOF, HUNG_UP, Operation, Token, UNWATCHING, WATCHING};
use crate::socket;

const FAILURE: i32 = (libc::POLLERR | libc::POLLHUP) as i32;

impl Uring {
    /// Has the kernel tell when the connection ends, if it does not yet.
    pub(super) fn watch(&mut self, index: u32) {
        let token = self.slots.token(Operation::Watch, index);
        let slot = self.slots.at(index);
        if !slot.is(WATCHING | CLOSING) {
            slot.set(WATCHING);
            self.ring.watch(slot.fd, token);
        }
    }

    /// An armed poll would hold the connection open beyond a close.
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
        let (index, told) = (token.index(), entry.result());
        let more = cqueue::more(entry.flags());
        let slot = self.slots.find(token).expect("a slot outlives what it has in flight");
        if !more {
            slot.clear(WATCHING | UNWATCHING);
        }
        // A negative result says that the poll itself is over.
        if told > 0 && !slot.is(CLOSING) {
            // Both sides may have finished in good order: only an error is the end before `close`.
            if told & FAILURE != 0 && socket::take_error(slot.fd) != 0 {
                self.shut(index);
            } else if !slot.is(EOF | HUNG_UP) {
                slot.set(HUNG_UP);
                on_event(Event::HungUp(ConnId(index)));
            }
        }
        if !more {
            self.free_if_done(index, on_event);
        }
    }
}
