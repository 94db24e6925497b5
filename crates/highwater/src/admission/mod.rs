//! Who gets in when there is more work than can be done?
//!
//! ```text
//!  gate        connections: who is accepted at all      one per worker, bound by one shared limit
//!  limit       how many that is                         highwater_core::limit
//! ```
//!
//! Invariant: with the default settings nothing is refused before work really queues.

#[allow(dead_code, reason = "the worker's turn takes it up next")]
pub(crate) mod gate;
pub(crate) mod signal;

pub use self::signal::{Signal, Signals};

/// How excess work is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shed {
    /// Not at all. Past its capacity such a server answers nobody in time.
    None,
    /// With a 503 once the request has been parsed. Costs about as much as serving it: for
    /// comparison with servers that do so.
    App,
    /// By not accepting connections beyond the limit, and not starting requests that waited too
    /// long. Needs no privilege.
    Accept,
    /// In the kernel, before there is a connection; and not starting requests that waited too long.
    /// Needs CAP_BPF or CAP_NET_ADMIN.
    Kernel,
}

/// Which mechanism of the kernel refuses connections under [`Shed::Kernel`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GateChoice {
    /// The cheapest that this machine and our privileges allow.
    #[default]
    Auto,
    /// A BPF program at the socket lookup, or do not start.
    Ebpf,
    /// An nftables table of our own, or do not start.
    Nft,
    /// An iptables rule, or do not start.
    Iptables,
}

/// What decides how many connections may have work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limiter {
    /// The operator does, with a number.
    Fixed,
    /// Steps of a hundred along the request rate.
    HillClimb,
    /// Queueing delay and Little's law.
    Gradient,
    /// One more while all is well, a tenth less when it is not.
    Aimd,
}

impl Shed {
    /// As the settings call it.
    pub const fn name(self) -> &'static str {
        match self {
            Shed::None => "none",
            Shed::App => "app",
            Shed::Accept => "accept",
            Shed::Kernel => "kernel",
        }
    }
}

impl Limiter {
    /// As the settings call it.
    pub const fn name(self) -> &'static str {
        match self {
            Limiter::Fixed => "fixed",
            Limiter::HillClimb => "hill-climb",
            Limiter::Gradient => "gradient",
            Limiter::Aimd => "aimd",
        }
    }
}

/// Either the operator knows the limit or an algorithm finds it: refuses neither, and both.
///
/// # Errors
/// What is wrong and, after a semicolon, what to write instead.
pub(crate) fn check_limiter(
    limiter: Option<Limiter>,
    connection_limit: Option<u32>,
) -> Result<(), &'static str> {
    match (limiter, connection_limit) {
        (Some(Limiter::Fixed), None) => Err("does not find a limit; add --connection-limit N"),
        (Some(Limiter::HillClimb | Limiter::Gradient | Limiter::Aimd), Some(_)) => {
            Err("finds the limit itself; leave --connection-limit at auto, or use fixed")
        }
        (Some(Limiter::Fixed) | None, Some(_)) | (_, None) => Ok(()),
    }
}
