//! Does this driver work here? Tries a ring like the real one, with one multishot receive.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

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

/// Whether one receive can take several buffers at once, and of no more bytes than it is told, each time. Kernels have bundles
/// from 6.10 on, but keep to a bound from 6.17 on. Without it, a peer that does not wait for answers would have a megabyte
/// of its input in memory. Tried once per process.
pub(super) fn bundles_are_bounded() -> bool {
    static ARE_BOUNDED: OnceLock<bool> = OnceLock::new();
    *ARE_BOUNDED.get_or_init(|| try_bundles().unwrap_or(false))
}

/// Sends three times the bound over TCP, since other sockets do not tell the kernel how much there is, and looks how it is
/// received.
fn try_bundles() -> io::Result<bool> {
    const MAX: usize = 128;
    let mut ring = Ring::new(2, 16).map_err(|refusal| refusal.cause)?;
    if !ring.has_bundles() {
        return Ok(false);
    }
    let mut buffers = Buffers::new(&ring, 16, 64)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut peer = TcpStream::connect(listener.local_addr()?)?;
    let (socket, _) = listener.accept()?;
    peer.write_all(&[0; 3 * MAX])?;
    ring.receive_bundles(socket.as_raw_fd(), MAX as u32, Token::WAKE);
    ring.flush()?;
    let mut lengths = Vec::new();
    while let Some(entry) = ring.next() {
        if let (len @ 1.., Some(id)) = (entry.result(), cqueue::buffer_select(entry.flags())) {
            buffers.take(id, len as usize, |_| ());
            lengths.push(len as usize);
        }
    }
    drop(peer);
    ring.cancel_all();
    let _ = ring.flush();
    Ok(lengths.iter().sum::<usize>() == 3 * MAX && lengths.iter().all(|len| *len <= MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the trial tells apart what it should, on a kernel that is known to have it.
    #[test]
    fn bundles_of_this_kernel() {
        if let Err(refusal) = try_out() {
            return highwater_skip::skip("io_uring", refusal.cause);
        }
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux has it");
        let mut numbers = release.split('.').map_while(|part| part.parse::<u32>().ok());
        let release = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let tried = try_bundles().expect("loopback works");
        assert!(tried || release < (6, 17), "Linux {release:?} has bundles with a bound");
        assert!(!tried || release >= (6, 10), "Linux {release:?} has no bundles");
    }
}
