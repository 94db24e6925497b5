//! How many connections wait at a listening socket?

use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};

use crate::call::check;

/// The connections that wait at a listener to be accepted. Does not keep it open.
#[derive(Clone, Debug)]
pub struct ListenQueue(Weak<OwnedFd>);

impl ListenQueue {
    pub(crate) fn of(listener: &Arc<OwnedFd>) -> Self {
        ListenQueue(Arc::downgrade(listener))
    }

    /// How many attempts to connect found no room since the listener was made, modulo 2³². The
    /// kernel drops them, and this counter is the only trace. A repeated attempt (by default after
    /// a second) counts again, and so does an attempt that a gate's program dropped. `None` once
    /// the listener is closed, or if the kernel does not report it.
    pub fn overflows(&self) -> Option<u32> {
        // `SK_MEMINFO_DROPS` of `linux/sock_diag.h`, the last word.
        const DROPS: usize = 8;
        let memory: [u32; DROPS + 1] = self.option(libc::SOL_SOCKET, libc::SO_MEMINFO)?;
        Some(memory[DROPS])
    }

    /// How many wait now: their handshake is complete, but they are not accepted yet. `None` as for
    /// [`overflows`](ListenQueue::overflows).
    pub fn waiting(&self) -> Option<u32> {
        // `tcpi_unacked` of `linux/tcp.h`; a listener reports the queue there. It is the fifth word
        // after the first eight bytes. The structure grows with the kernel, at its end.
        const UNACKED: usize = 6;
        let info: [u32; UNACKED + 1] = self.option(libc::IPPROTO_TCP, libc::TCP_INFO)?;
        Some(info[UNACKED])
    }

    /// How many may wait. `None` as for [`overflows`](ListenQueue::overflows).
    pub(crate) fn room_max(&self) -> Option<u32> {
        // `tcpi_sacked` of `linux/tcp.h`; a listener reports the bound there. The word after
        // `tcpi_unacked`.
        const SACKED: usize = 7;
        let info: [u32; SACKED + 1] = self.option(libc::IPPROTO_TCP, libc::TCP_INFO)?;
        Some(info[SACKED]).filter(|room| *room > 0)
    }

    /// The beginning of an option that consists of words.
    fn option<const N: usize>(&self, level: i32, option: i32) -> Option<[u32; N]> {
        let fd = self.0.upgrade()?;
        let mut words = [0_u32; N];
        let mut len = mem::size_of_val(&words) as libc::socklen_t;
        let place = words.as_mut_ptr().cast();
        // SAFETY: `words` and `len` are valid for writes, and `len` says how much there is room for.
        let result =
            unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, place, &raw mut len) };
        check(result).ok()?;
        (len as usize == mem::size_of_val(&words)).then_some(words)
    }
}
