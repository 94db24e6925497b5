//! The settings of admission, and which of them can be combined.

use std::time::Duration;

use highwater_core::limit::{Aimd, Fixed, HillClimb, LIMIT_MAX, Limit, QueueDelay};

use super::gate::Counts;
use crate::choice::choices;

choices! {
    /// How excess work is turned away.
    pub enum Shed {
        /// Not at all. Beyond its capacity such a server answers no request in time.
        None = "none",
        /// With a 503 after parsing the request. Costs about as much as serving it: for comparison with servers
        /// that do so.
        App = "app",
        /// By not accepting connections beyond the limit, and not starting requests that waited too
        /// long. Needs no privilege.
        Accept = "accept",
        /// In the kernel, before there is a connection; and not starting requests that waited too long.
        /// Needs CAP_BPF or CAP_NET_ADMIN.
        Kernel = "kernel",
    }
}

choices! {
    /// Which mechanism of the kernel refuses connections under [`Shed::Kernel`].
    #[derive(Default)]
    pub enum GateChoice {
        /// The cheapest that the machine and the process's privileges allow.
        #[default]
        Auto = "auto",
        /// A BPF program at the socket lookup, or do not start.
        Ebpf = "ebpf",
        /// An nftables table of our own, or do not start.
        Nft = "nft",
        /// An iptables rule, or do not start.
        Iptables = "iptables",
    }
}

choices! {
    /// How the gate in the kernel refuses.
    #[derive(Default)]
    pub enum GateRefusal {
        /// With resets, but silently while resets would cost too much.
        #[default]
        Auto = "auto",
        /// With a reset: clients learn it at once, and retry at once.
        Reset = "reset",
        /// Silently: clients learn it by their own timeout. The cheapest refusal there is.
        Drop = "drop",
    }
}

choices! {
    /// What is refused during an overload.
    #[derive(Default)]
    pub enum Refuse {
        /// Requests where connections are kept for several of them, as by proxies; else connections.
        #[default]
        Auto = "auto",
        /// Connections, before they exist or are accepted: the cheapest where each brings one request.
        Connections = "connections",
        /// Requests, with a 503: every connection is accepted.
        Requests = "requests",
    }
}

choices! {
    /// Who gets an equal share during an overload.
    #[derive(Default)]
    pub enum Fair {
        /// Nobody: who asks most is served most.
        Off = "off",
        /// Each client: as the application says ([`Router::fair_by`](crate::Router::fair_by)), else each address that
        /// connections come from; of IPv6 each network of 64 bits.
        #[default]
        Address = "address",
    }
}

choices! {
    /// What decides how many connections may have work.
    pub enum Limiter {
        /// The operator does, with a number.
        Fixed = "fixed",
        /// Steps of a hundred along the request rate.
        HillClimb = "hill-climb",
        /// Queueing delay: no limit without a standing queue, else as many as can wait for no longer than the
        /// target.
        Gradient = "gradient",
        /// One more while there is no overload, a tenth less when there is (AIMD).
        Aimd = "aimd",
    }
}

/// Either the operator sets the limit or an algorithm finds it: neither and both are errors.
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

/// The server's settings of admission.
#[derive(Clone, Debug)]
pub(crate) struct AdmissionSettings {
    pub(crate) shed: Option<Shed>,
    pub(crate) gate: GateChoice,
    pub(crate) gate_refusal: GateRefusal,
    pub(crate) refuse: Refuse,
    /// Clients with shares are distinguished by their addresses.
    pub(crate) shares_addresses: bool,
    pub(crate) connection_limit: Option<u32>,
    pub(crate) limiter: Option<Limiter>,
    pub(crate) patience: Duration,
    pub(crate) queue_target: Duration,
    /// How long a queue stands before the server reports that it is not ready; `None` for never.
    pub(crate) unready_after: Option<Duration>,
    /// Most open connections.
    pub(crate) connections_max: u32,
    /// Worker threads.
    pub(crate) workers: usize,
}

impl AdmissionSettings {
    /// The algorithm, with its initial limit.
    pub(super) fn limit(&self) -> Result<Box<dyn Limit>, String> {
        if let Some(limit) = self.connection_limit.filter(|limit| !(1..=LIMIT_MAX).contains(limit))
        {
            return Err(format!(
                "a connection limit of {limit}: out of range; use 1 to {LIMIT_MAX}"
            ));
        }
        check_limiter(self.limiter, self.connection_limit).map_err(|remedy| {
            let limiter = self.limiter.unwrap_or(Limiter::Fixed);
            format!("the limiter {}: {remedy}", limiter.name())
        })?;
        if self.refuse == Refuse::Requests && self.counts() == Counts::Work {
            return Err("--refuse requests: a limit on connections is set as well; leave --connection-limit \
                        at auto and --limiter at gradient, or use --refuse connections"
                .to_owned());
        }
        // Not --connections-max: beyond it connections wait, and idle ones are closed for them; with that
        // value as limit the kernel would refuse them.
        let limit_max = LIMIT_MAX;
        Ok(match (self.connection_limit, self.limiter) {
            _ if self.shed == Some(Shed::None) => Box::new(Fixed::new(LIMIT_MAX)),
            (Some(limit), _) => Box::new(Fixed::new(limit)),
            (None, Some(Limiter::HillClimb)) => Box::new(HillClimb::new(limit_max)),
            (None, Some(Limiter::Aimd)) => Box::new(Aimd::new(limit_max, self.queue_target / 2)),
            (None, _) => Box::new(QueueDelay::new(self.patience, limit_max)),
        })
    }

    /// What is refused. A limit that counts work always refuses connections.
    pub(super) fn refuses(&self) -> Refuse {
        match self.counts() {
            Counts::Time => self.refuse,
            Counts::Work => Refuse::Connections,
        }
    }

    /// Whether the gate gives each source of connections its share. A limit that counts work is exact for any mix of sources.
    pub(super) fn shares_connections(&self) -> bool {
        self.shares_addresses && self.counts() == Counts::Time
    }

    /// What it counts as load.
    pub(super) fn counts(&self) -> Counts {
        let by_hand = self.connection_limit.is_some();
        match self.limiter {
            Some(Limiter::HillClimb | Limiter::Aimd) => Counts::Work,
            Some(Limiter::Fixed | Limiter::Gradient) | None if by_hand => Counts::Work,
            Some(Limiter::Fixed | Limiter::Gradient) | None => Counts::Time,
        }
    }
}
