//! How does the driver send content from a sealed file?
//!
//! With `sendfile(2)`, at once. The ring has an operation for it, but the kernel would start a thread for each. What the
//! ring then has in flight, under the name of a send, only stands for that call: an operation that completes at once, if
//! the kernel took something, so that the next poll reports it; else a poll for room in the socket's buffer. Either can be
//! cancelled like a send, and is followed by the next part.
//!
//! ```text
//!  push_send ─▶ sendfile ─┬─ some ──▶ nothing() ─────▶ on_sent: Sent, or Progress and push_send
//!                         ├─ none ──▶ await_room() ──▶ on_sent: push_send
//!                         └─ fails ─▶ a send of the bytes, which reports what is wrong
//! ```
//!
//! The call must not wait, and there is no flag for that: the socket is nonblocking during the call, and only then, since
//! the ring does not wait for a nonblocking one.

use std::io::ErrorKind;

use super::Uring;
use super::slots::{DIRECT, Operation};
use crate::{sealed, socket};

impl Uring {
    /// Sends from a sealed file, if the rest of the send in flight stands in one. Returns whether that is under way.
    pub(super) fn push_sealed(&mut self, index: u32) -> bool {
        let token = self.slots.token(Operation::Send, index);
        let slot = self.slots.at(index);
        let Some([head, content]) = slot.shared_rest() else { return false };
        let Some(place) = sealed::find(content) else { return false };
        if socket::set_nonblocking(slot.fd, true).is_err() {
            return false;
        }
        let sent = place.send(slot.fd, head);
        socket::set_nonblocking(slot.fd, false).expect("it could be set, so it can be cleared");
        match sent {
            Ok(len @ 1..) => {
                slot.sent += len;
                self.ring.nothing(token);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.ring.await_room(slot.fd, token);
            }
            Ok(0) | Err(_) => return false,
        }
        self.slots.at(index).set(DIRECT);
        true
    }
}
