//! Why was work refused, or a connection ended?
//!
//! The reasons, each with its labels on the page. `counters.rs` counts them.

use highwater_core::driver::AcceptError;
use highwater_core::http::Reject;

/// Why a slow connection was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timeout {
    /// A request head did not arrive in time, or none began on a new connection.
    Header,
    /// A request body stalled or came too slowly.
    Body,
    /// No further request came on a kept-alive connection.
    Idle,
    /// The peer did not take what was sent.
    Write,
    /// The peer had finished sending, and no part of its answer moved.
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
    pub(crate) const fn name(self) -> &'static str {
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
pub(crate) enum Rejection {
    /// Accepting paused because no descriptor was left.
    AcceptDescriptors,
    /// Accepting paused because the kernel had no memory left.
    AcceptMemory,
    /// Accepting paused for another failure of the system.
    AcceptOther,
    /// A connection was closed, or accepting paused, at `--connections-max`.
    AcceptConnectionsMax,
    /// A connection was reset because its client had as many as it may have, at `--connections-per-client`.
    AcceptClientConnections,
    /// A connection that was to begin with the header of a proxy came from a peer that is not trusted to be one.
    AcceptUntrusted,
    /// A connection of a proxy did not begin with a well-formed header.
    AcceptProxyHeader,
    /// A request waited in the worker's queue for longer than an overloaded server allows.
    QueueDelay,
    /// A request came while more waited than can be refused in time.
    QueueFull,
    /// A request of a client that has had its share was refused for others.
    QueueShare,
    /// A request's own deadline passed before its turn came.
    QueueDeadline,
    /// A request's client had hung up before its turn came. No answer is sent.
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
    /// The row it is counted in.
    pub(super) const fn row(self) -> Row {
        match self {
            Rejection::AcceptDescriptors => Row::AcceptDescriptors,
            Rejection::AcceptMemory => Row::AcceptMemory,
            Rejection::AcceptOther => Row::AcceptOther,
            Rejection::AcceptConnectionsMax => Row::AcceptConnectionsMax,
            Rejection::AcceptClientConnections => Row::AcceptClientConnections,
            Rejection::AcceptUntrusted => Row::AcceptUntrusted,
            Rejection::AcceptProxyHeader => Row::AcceptProxyHeader,
            Rejection::QueueDelay => Row::QueueDelay,
            Rejection::QueueFull => Row::QueueFull,
            Rejection::QueueShare => Row::QueueShare,
            Rejection::QueueDeadline => Row::QueueDeadline,
            Rejection::QueueHungUp => Row::QueueHungUp,
            Rejection::RequestLimit => Row::RequestLimit,
            Rejection::RequestPriority => Row::RequestPriority,
            Rejection::RequestApp => Row::RequestApp,
            Rejection::RequestMemory => Row::RequestMemory,
            Rejection::Request(reject) => match reject {
                Reject::HeaderTimeout | Reject::BodyTimeout => Row::Timeout,
                Reject::BodyTooLarge => Row::BodyTooLarge,
                Reject::UriTooLong => Row::UriTooLong,
                Reject::Expectation => Row::Expectation,
                Reject::HeaderTooLarge => Row::HeaderTooLarge,
                Reject::VersionUnsupported => Row::VersionUnsupported,
                Reject::BodyMemory => Row::RequestMemory,
                Reject::Protocol => Row::NotImplemented,
                _ => Row::Malformed,
            },
        }
    }

    /// The place of its row in [`Row::ALL`].
    pub(super) const fn index(self) -> usize {
        self.row() as usize
    }

    /// Work that was ready and is refused because of load.
    pub(super) const SHED: [Rejection; 8] = [
        Rejection::QueueDelay,
        Rejection::QueueFull,
        Rejection::QueueShare,
        Rejection::QueueDeadline,
        Rejection::QueueHungUp,
        Rejection::RequestLimit,
        Rejection::RequestPriority,
        Rejection::RequestApp,
    ];

    /// Whether it means that there is more work than the workers can do. A client that has gone, a
    /// client's own deadline and a route's limit do not.
    pub(crate) const fn is_for_load(self) -> bool {
        use Rejection::{QueueDelay, QueueFull, QueueShare, RequestApp, RequestPriority};
        matches!(self, QueueDelay | QueueFull | QueueShare | RequestPriority | RequestApp)
    }
}

/// What rejections are counted as: a row of `http_rejections_total`. A request that the protocol engine
/// refuses goes by its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    AcceptDescriptors,
    AcceptMemory,
    AcceptOther,
    AcceptConnectionsMax,
    AcceptClientConnections,
    AcceptUntrusted,
    AcceptProxyHeader,
    Malformed,
    Timeout,
    BodyTooLarge,
    UriTooLong,
    Expectation,
    HeaderTooLarge,
    VersionUnsupported,
    NotImplemented,
    QueueDelay,
    QueueFull,
    QueueShare,
    QueueDeadline,
    QueueHungUp,
    RequestLimit,
    RequestPriority,
    RequestApp,
    RequestMemory,
}

impl Row {
    /// All of them, each at its own number, which the next lines make sure of.
    pub(super) const ALL: [Row; Row::RequestMemory as usize + 1] = [
        Row::AcceptDescriptors,
        Row::AcceptMemory,
        Row::AcceptOther,
        Row::AcceptConnectionsMax,
        Row::AcceptClientConnections,
        Row::AcceptUntrusted,
        Row::AcceptProxyHeader,
        Row::Malformed,
        Row::Timeout,
        Row::BodyTooLarge,
        Row::UriTooLong,
        Row::Expectation,
        Row::HeaderTooLarge,
        Row::VersionUnsupported,
        Row::NotImplemented,
        Row::QueueDelay,
        Row::QueueFull,
        Row::QueueShare,
        Row::QueueDeadline,
        Row::QueueHungUp,
        Row::RequestLimit,
        Row::RequestPriority,
        Row::RequestApp,
        Row::RequestMemory,
    ];

    /// The values of the labels `layer` and `reason`.
    pub(super) const fn labels(self) -> (&'static str, &'static str) {
        match self {
            Row::AcceptDescriptors => ("accept", "descriptors"),
            Row::AcceptMemory => ("accept", "memory"),
            Row::AcceptOther => ("accept", "other"),
            Row::AcceptConnectionsMax => ("accept", "connections_max"),
            Row::AcceptClientConnections => ("accept", "client_connections"),
            Row::AcceptUntrusted => ("accept", "untrusted_proxy"),
            Row::AcceptProxyHeader => ("accept", "proxy_header"),
            Row::Malformed => ("request", "malformed_request"),
            Row::Timeout => ("request", "request_timeout"),
            Row::BodyTooLarge => ("request", "body_too_large"),
            Row::UriTooLong => ("request", "uri_too_long"),
            Row::Expectation => ("request", "expectation_failed"),
            Row::HeaderTooLarge => ("request", "header_too_large"),
            Row::VersionUnsupported => ("request", "version_not_supported"),
            Row::NotImplemented => ("request", "not_implemented"),
            Row::QueueDelay => ("queue", "delay"),
            Row::QueueFull => ("queue", "full"),
            Row::QueueShare => ("queue", "share"),
            Row::QueueDeadline => ("queue", "deadline"),
            Row::QueueHungUp => ("queue", "hung_up"),
            Row::RequestLimit => ("request", "limit"),
            Row::RequestPriority => ("request", "priority"),
            Row::RequestApp => ("request", "app"),
            Row::RequestMemory => ("request", "memory"),
        }
    }
}

const _: () = {
    let mut index = 0;
    while index < Row::ALL.len() {
        assert!(Row::ALL[index] as usize == index);
        index += 1;
    }
};
