//! The memory that a driver shares with the kernel, before it accepts anything.

use std::io;

use super::buffers::Buffers;
use super::ring::Ring;
use super::{Uring, context, trial};
use crate::{DriverConfig, Listener};

/// The memory that a driver shares with the kernel: its queues and buffers. The kernel may count them as locked memory
/// (`RLIMIT_MEMLOCK`), over all processes of a user, so there may be enough for a [trial](crate::probe()) and not for one
/// more worker. So allocating it is a separate step, which takes no listeners yet.
pub struct UringMemory {
    pub(super) ring: Ring,
    pub(super) buffers: Buffers,
}

impl UringMemory {
    /// Call it on the thread that will poll.
    ///
    /// # Errors
    /// What [`probe`](crate::probe()) would report, or lack of memory or descriptors.
    pub fn new(config: &DriverConfig) -> io::Result<Self> {
        let mut ring = Ring::new(config.submission_queue, config.completion_queue)
            .map_err(|refusal| context(refusal.cause, refusal.step))?;
        ring.use_bundles(trial::bundles_are_bounded());
        let buffers = Buffers::new(&ring, config.buffer_count, config.buffer_size)
            .map_err(|cause| context(cause, "registering receive buffers"))?;
        Ok(UringMemory { ring, buffers })
    }

    /// A driver that accepts from `listeners`, when told to.
    ///
    /// # Errors
    /// Lack of memory or descriptors.
    pub fn accept_from(self, listeners: Vec<Listener>, config: &DriverConfig) -> io::Result<Uring> {
        Uring::with(self, listeners, config)
    }
}
