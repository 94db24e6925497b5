//! When did bytes arrive? The kernel knows, even if the caller looks later.

use std::os::fd::RawFd;
use std::time::Duration;

use crate::call::check;

/// When the bytes of an event arrived. Asking costs a system call, so it is done only on request.
#[derive(Clone, Copy, Debug)]
pub struct Arrival(Source);

#[derive(Clone, Copy, Debug)]
enum Source {
    Socket(RawFd),
    Known(Duration),
}

impl Arrival {
    pub(crate) fn at(socket: RawFd) -> Arrival {
        Arrival(Source::Socket(socket))
    }

    /// An arrival this long ago, for a simulated dialer.
    pub fn known(ago: Duration) -> Arrival {
        Arrival(Source::Known(ago))
    }

    /// How long ago the connection's last byte came, to the kernel's tick (10 ms at most). Call it
    /// only while the event is handled. `None` if the kernel does not report it.
    pub fn ago(&self) -> Option<Duration> {
        match self.0 {
            Source::Socket(fd) => last_received(fd),
            Source::Known(ago) => Some(ago),
        }
    }
}

fn last_received(fd: RawFd) -> Option<Duration> {
    // `tcpi_last_data_recv` of `linux/tcp.h`, in milliseconds: the twelfth word after eight bytes.
    const LAST_DATA: usize = 13;
    let mut info = [0_u32; LAST_DATA + 1];
    let mut len = size_of_val(&info) as libc::socklen_t;
    let (level, place) = (libc::IPPROTO_TCP, info.as_mut_ptr().cast());
    // SAFETY: `info` and `len` are valid for writes, and `len` says how much there is room for.
    check(unsafe { libc::getsockopt(fd, level, libc::TCP_INFO, place, &raw mut len) }).ok()?;
    let is_whole = len as usize == size_of_val(&info);
    is_whole.then(|| Duration::from_millis(info[LAST_DATA].into()))
}
