//! Why was something refused, or ended?
//!
//! The reasons, each with the labels it goes by on the page. Counting them is `counters.rs`'s business.

use highwater_core::driver::AcceptError;
use highwater_core::http1::Reject;

/// What ended a connection that took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// A request head did not arrive in time, or none began on a new connection.
    Header,
    /// A request body stalled or came too slowly.
    Body,
    /// No further request came on a kept-alive connection.
    Idle,
    /// The peer did not take what was sent.
    Write,
    /// The peer had finished sending, and nothing of its answer moved.
    HalfClosed,
    /// Still unfinished when the drain's time was up.
    Drain,
}

impl Timeout {
    pub(super) const ALL: [Timeout; 6] = [
        Timeout::Header,
        Timeout::Body,
        Timeout::Idle,
        Timeout::Write,
        Timeout::HalfClosed,
        Timeout::Drain,
    ];

    /// The value of the label `kind`.
    pub const fn name(self) -> &'static str {
        match self {
            Timeout::Header => "header",
            Timeout::Body => "body",
            Timeout::Idle => "idle",
            Timeout::Write => "write",
            Timeout::HalfClosed => "half_closed",
            Timeout::Drain => "drain",
        }
    }
}

impl From<AcceptError> for Rejection {
    fn from(error: AcceptError) -> Self {
        match error {
            AcceptError::Descriptors => Rejection::AcceptDescriptors,
            AcceptError::Memory => Rejection::AcceptMemory,
            AcceptError::Other(_) => Rejection::AcceptOther,
        }
    }
}

/// Work that was refused, by the layer that refused it and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rejection {
    /// Accepting paused because no descriptor was left.
    AcceptDescriptors,
    /// Accepting paused because the kernel had no memory left.
    AcceptMemory,
    /// Accepting paused for another failure of the system.
    AcceptOther,
    /// A connection was closed, or accepting paused, at `--connections-max`.
    AcceptConnectionsMax,
    /// A request waited in the worker's queue for longer than an overloaded server lets it.
    QueueDelay,
    /// A request's own deadline passed before its turn came.
    QueueDeadline,
    /// A request's client had hung up before its turn came. Nobody is answered.
    QueueHungUp,
    /// A request was refused at its route's limit.
    RequestLimit,
    /// A request was refused in favour of more important ones.
    RequestPriority,
    /// A request was refused after parsing, by `--shed app`.
    RequestApp,
    /// A body was refused at `--body-memory-max`.
    RequestMemory,
    /// A request was refused by the protocol engine.
    Request(Reject),
}

impl Rejection {
    /// Labels `layer` and `reason`, at [`Rejection::index`]. A further layer appends its rows.
    pub(super) const LABELS: [(&str, &str); 18] = [
        ("accept", "descriptors"),
        ("accept", "memory"),
        ("accept", "other"),
        ("accept", "connections_max"),
        ("request", "malformed_request"),
        ("request", "request_timeout"),
        ("request", "body_too_large"),
        ("request", "uri_too_long"),
        ("request", "expectation_failed"),
        ("request", "header_too_large"),
        ("request", "version_not_supported"),
        ("queue", "delay"),
        ("queue", "deadline"),
        ("queue", "hung_up"),
        ("request", "limit"),
        ("request", "priority"),
        ("request", "app"),
        ("request", "memory"),
    ];

    pub(super) const fn index(self) -> usize {
        match self {
            Rejection::AcceptDescriptors => 0,
            Rejection::AcceptMemory => 1,
            Rejection::AcceptOther => 2,
            Rejection::AcceptConnectionsMax => 3,
            Rejection::QueueDelay => 11,
            Rejection::QueueDeadline => 12,
            Rejection::QueueHungUp => 13,
            Rejection::RequestLimit => 14,
            Rejection::RequestPriority => 15,
            Rejection::RequestApp => 16,
            Rejection::RequestMemory => 17,
            Rejection::Request(reject) => match reject.status() {
                408 => 5,
                413 => 6,
                414 => 7,
                417 => 8,
                431 => 9,
                505 => 10,
                _ => 4,
            },
        }
    }

    /// Work that was ready and is turned away for there being too much of it.
    pub(super) const SHED: [Rejection; 6] = [
        Rejection::QueueDelay,
        Rejection::QueueDeadline,
        Rejection::QueueHungUp,
        Rejection::RequestLimit,
        Rejection::RequestPriority,
        Rejection::RequestApp,
    ];

    /// Whether it says that there is more work than the workers can do. A client that has gone, a deadline
    /// of the client's own and the limit of a route do not.
    pub(crate) const fn is_for_load(self) -> bool {
        matches!(self, Rejection::QueueDelay | Rejection::RequestPriority | Rejection::RequestApp)
    }

    /// The value of the label `layer`: `accept`, `queue` or `request`.
    pub const fn layer(self) -> &'static str {
        Rejection::LABELS[self.index()].0
    }

    /// The value of the label `reason`.
    pub const fn reason(self) -> &'static str {
        Rejection::LABELS[self.index()].1
    }
}
