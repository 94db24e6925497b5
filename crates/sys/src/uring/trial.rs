//! Does this driver work here? Tries a ring like the real one, with one multishot receive.

use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use io_uring::cqueue;

use super::Refusal;
use super::buffers::Buffers;
use super::ring::Ring;
use super::slots::Token;

/// Tries the operation that the driver depends on: receives into provided buffers, armed once for many.
pub(crate) fn try_out() -> Result<(), Refusal> {
    let refused = |step| move |cause| Refusal { step, cause };
    let mut ring = Ring::new(2, 4)?;
    // Two: a receive that takes the last buffer ends.
    let mut buffers = Buffers::new(&ring, 2, 64).map_err(refused("registering receive buffers"))?;
    let (mut peer, socket) = UnixStream::pair().map_err(refused("socketpair"))?;
    peer.write_all(b"?").map_err(refused("write"))?;
    ring.receive_stream(socket.as_raw_fd(), Token::WAKE);
    // The byte is there already: if receiving works at all, it works in this call.
    ring.flush().map_err(refused("io_uring_enter"))?;

    let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
    let outcome = match ring.next() {
        Some(entry) if entry.result() < 0 => Err(io::Error::from_raw_os_error(-entry.result())),
        Some(entry) => match cqueue::buffer_select(entry.flags()) {
            Some(id) if cqueue::more(entry.flags()) => {
                let mut is_right = false;
                buffers.take(id, 1, |bytes| is_right = bytes == b"?");
                if is_right { Ok(()) } else { Err(invalid()) }
            }
            _ => Err(invalid()),
        },
        None => Err(invalid()),
    };
    // Ends the receive before its buffers go. The peer wrote one byte, so it writes to none.
    drop(peer);
    ring.cancel_all();
    let _ = ring.flush();
    outcome.map_err(refused("a multishot receive"))
}
