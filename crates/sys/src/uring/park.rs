//! How can other code wait for this ring?
//!
//! With an eventfd that the kernel signals for each completion. It is switched on only while other
//! code waits, so it costs nothing under load.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::Uring;
use crate::{External, Waker};

impl External for Uring {
    /// An eventfd: waiting for the ring itself would hang when completions are deferred.
    fn readiness_fd(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }

    fn prepare_wait(&mut self) -> io::Result<bool> {
        if self.has_listener_to_drain() || !self.starved.is_empty() || self.ring.ready() > 0 {
            return Ok(false);
        }
        if !self.is_registered {
            self.ring.submitter().register_eventfd(self.readiness.as_raw_fd())?;
            self.is_registered = true;
        }
        if self.ring.has_submissions() {
            // First without notifications: most operations complete at once, and the driver looks
            // itself.
            self.ring.flush()?;
            if self.ring.ready() > 0 {
                return Ok(false);
            }
        }
        // Completions before notifications were switched on show in this flush; later ones signal
        // the eventfd.
        self.parked = true;
        self.ring.set_notifications(true);
        self.ring.flush()?;
        // The kernel may end only some of what it has left, and does not signal the rest again (`Ring::has_work`).
        Ok(self.ring.ready() == 0 && !self.ring.has_submissions() && !self.ring.has_work())
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }
}
