//! How can a worker wait for this ring somewhere else?
//!
//! By an eventfd that the kernel signals with each completion, switched on only while somebody waits:
//! under load it costs nothing.

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
        if self.has_listener_to_drain() || self.ring.ready() > 0 {
            return Ok(false);
        }
        if !self.is_registered {
            self.ring.submitter().register_eventfd(self.readiness.as_raw_fd())?;
            self.is_registered = true;
        }
        if self.ring.has_submissions() {
            // First without notifications: most of it completes at once, and we look ourselves.
            self.ring.flush()?;
            if self.ring.ready() > 0 {
                return Ok(false);
            }
        }
        // Whatever happened before notifications were on shows in this flush, whatever happens
        // after it signals the eventfd.
        self.parked = true;
        self.ring.set_notifications(true);
        self.ring.flush()?;
        Ok(self.ring.ready() == 0 && !self.ring.has_submissions())
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }
}
