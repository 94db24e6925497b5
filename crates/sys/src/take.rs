//! Bytes that have arrived, straight into the memory that keeps them.

use std::io::{self, ErrorKind};
use std::os::fd::RawFd;

use highwater_core::http::make_room;

use crate::call::{check, check_size};

/// The most bytes of one call, so that a fast client does not keep the others waiting.
const TAKE_MAX: usize = 256 * 1024;

/// What one call took.
pub(crate) struct Taken {
    pub(crate) len: usize,
    /// That was all that had arrived. Whatever comes from then on is news.
    pub(crate) is_all: bool,
}

/// Takes what has arrived, `max` bytes at most, to the end of `into`, which grows for no more than that.
///
/// # Errors
/// The connection has failed.
pub(crate) fn take(fd: RawFd, into: &mut Vec<u8>, max: u64) -> io::Result<Taken> {
    let arrived = arrived(fd)?;
    let len = arrived.min(TAKE_MAX).min(usize::try_from(max).unwrap_or(usize::MAX));
    if len == 0 {
        // Not even asked for: a failure that a receive reports is not reported again.
        return Ok(Taken { len, is_all: arrived == 0 });
    }
    make_room(into, len, Some(max));
    let room = &mut into.spare_capacity_mut()[..len];
    let start = room.as_mut_ptr().cast();
    // SAFETY: the room is valid for writes of its length.
    match check_size(unsafe { libc::recv(fd, start, len, libc::MSG_DONTWAIT) }) {
        Ok(taken) => {
            assert!(taken <= len, "the kernel takes no more than it is told");
            // SAFETY: the kernel has written so many bytes behind the others, within the room.
            unsafe { into.set_len(into.len() + taken) };
            Ok(Taken { len: taken, is_all: taken == arrived })
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(Taken { len: 0, is_all: false })
        }
        Err(error) => Err(error),
    }
}

/// How many bytes have arrived that nobody has received.
fn arrived(fd: RawFd) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: this request writes one `int`, which lives until the call returns.
    check(unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut count) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    /// Purpose: memory is taken for what has arrived, whatever is promised; no byte beyond the bound is touched; and it is
    /// said whether that was all.
    #[test]
    fn what_has_arrived_and_no_more() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let mut peer = TcpStream::connect(address).expect("it listens");
        let (socket, _) = listener.accept().expect("one waits");
        let mut body = b"0123".to_vec();
        let taken = take(socket.as_raw_fd(), &mut body, 1 << 40).expect("it is open");
        assert!(taken.len == 0 && taken.is_all && body.capacity() == 4);
        peer.write_all(&[b'x'; 5000]).expect("there is room");
        while arrived(socket.as_raw_fd()).expect("it is open") < 5000 {
            std::thread::yield_now();
        }
        let taken = take(socket.as_raw_fd(), &mut body, 1000).expect("it is open");
        assert!(taken.len == 1000 && !taken.is_all && body.len() == 1004);
        let taken = take(socket.as_raw_fd(), &mut body, 1 << 40).expect("it is open");
        assert!(taken.len == 4000 && taken.is_all && body.len() == 5004);
        assert!(body.capacity() <= 2 * body.len(), "{}", body.capacity());
        drop(peer);
        let taken = take(socket.as_raw_fd(), &mut body, 1 << 40).expect("an end is no failure");
        assert!(taken.len == 0 && taken.is_all);
    }
}
