//! Faults of the machine and its network that the simulation injects.

use std::time::Duration;

/// How often each fault happens: one chance in this many; zero for never.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// A client's connection breaks, per act of a client.
    pub(crate) reset_one_in: u64,
    /// How long a turn of the worker takes at most, in microseconds; one if zero.
    pub(crate) turn_micros_max: u64,
    /// The machine stands still for up to `jump_max`, per poll.
    pub(crate) jump_one_in: u64,
    /// The longest standstill.
    pub(crate) jump_max: Duration,
    /// The kernel runs out of a resource, per accepted connection.
    pub(crate) accept_failure_one_in: u64,
}
