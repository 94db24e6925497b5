//! Which settings does a server have?
//!
//! Plain values with their defaults. `args` reads them from flags, variables and a file; the server applies them.

use core::num::NonZeroUsize;
use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use highwater_core::http::Limits;

use super::listener::{LISTENERS_MAX, Listen};
use crate::admission::worker::Terms;
use crate::admission::{Fair, GateChoice, GateRefusal, Limiter, Refuse, Shed, TURN_MAX};
use crate::logging::LogFormat;
use crate::proxies::TrustedProxies;

/// The interface for I/O between kernel and worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// io_uring if the kernel permits all that it needs, else epoll.
    #[default]
    Auto,
    /// io_uring, or do not start.
    Uring,
    /// epoll.
    Epoll,
}

/// Whether each worker stays on a core of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pin {
    /// If there are as many workers as cores this process may use.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// Most threads for handlers that block, unless set otherwise.
pub(crate) const POOL_THREADS: NonZeroUsize = NonZeroUsize::new(512).expect("it is not zero");

/// The settings of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Where to serve; empty for 127.0.0.1:8080, or only where sockets listen that the process was started with.
    /// At most 16. `--listen`.
    pub listen: Vec<Listen>,
    /// Whether the server also serves on the sockets that the process was started with (`LISTEN_FDS`), which a service
    /// manager passes; true. The first such server of the process gets them. For a server beside the main one, which
    /// may start earlier, set it to false.
    pub inherited: bool,
    /// Where to serve metrics and health checks; `None` for nowhere. `--metrics`, 127.0.0.1:9090.
    pub metrics: Option<SocketAddr>,
    /// Whether the server fails to start if `metrics` is taken. Without this, and only if `metrics` is the default,
    /// it takes the next free port up to 9099, or any free one, and logs a warning: nobody asked for that port.
    /// `--metrics` and `HIGHWATER_METRICS` set it.
    pub metrics_is_fixed: bool,
    /// Worker threads; `None` for one per core that affinity and cgroup allow. `--workers`.
    pub workers: Option<NonZeroUsize>,
    /// The I/O interface. `--transport`, auto.
    pub transport: TransportChoice,
    /// Whether workers are pinned to their cores. `--pin`, auto.
    pub pin: Pin,
    /// Most connections open at once, over all workers; `None` for what the descriptors allow.
    /// `--connections-max`.
    pub connections_max: Option<u32>,
    /// How excess load is refused; `None` for the best way that the machine allows: in the kernel,
    /// else by not accepting. `--shed`.
    pub shed: Option<Shed>,
    /// Which mechanism of the kernel. `--gate`, auto.
    pub gate: GateChoice,
    /// How the kernel refuses. `--gate-refusal`, auto.
    pub gate_refusal: GateRefusal,
    /// Whether connections or requests are refused. `--refuse`, auto.
    pub refuse: Refuse,
    /// Whether each client gets an equal share of the server while more is asked than can be done: each address, or what
    /// [`Router::fair_by`](crate::Router::fair_by) says. `--fair`, address.
    pub fair: Fair,
    /// Which proxies may name the client of a request, in `X-Forwarded-For` or `Forwarded`; by default none, and the
    /// fields are not looked at. `--trusted-proxies`.
    pub trusted_proxies: TrustedProxies,
    /// Whether a request that is refused for load also closes its connection: for clients whose next connection
    /// reaches another server. `--refuse-close`, false.
    pub refuse_close: bool,
    /// After an overload of this length, `/readyz` answers 503, until there has been none for as long; `None` for
    /// never: see `docs/behind-a-proxy.md` first. `--unready-after`, off; 100 ms to 1 h.
    pub unready_after: Option<Duration>,
    /// Most connections with work at once, over all workers; `None` to let `limiter` find it. A number
    /// counts connections until their request is answered, whatever their handlers wait for.
    /// 1 to 1 048 576; `--connection-limit`, auto.
    pub connection_limit: Option<u32>,
    /// How the limit is found; `None` for [`Limiter::Fixed`] if `connection_limit` is a number, else
    /// [`Limiter::Gradient`]. `--limiter`.
    pub limiter: Option<Limiter>,
    /// How long clients wait for an answer, unless they set a deadline themselves: no request is refused
    /// that could have been answered within this time. `--patience`, 1 s; 10 ms to 1 min.
    pub patience: Duration,
    /// How long a request may wait in the queue while more requests arrive than are answered; four times
    /// the cost of a request, if that is longer. `--queue-target`, 10 ms.
    pub queue_target: Duration,
    /// The longest deadline that a client may set; a longer one is cut to this.
    /// `--deadline-max`, 60 s.
    pub deadline_max: Duration,
    /// Most memory for bodies of requests, over all connections, in bytes; `None` for a quarter of the memory of
    /// the machine or the control group. A body that would be collected beyond it is answered 503 with
    /// `Retry-After`; one that is streamed to its handler is read in smaller portions. Requests without a body, and
    /// bodies that arrive with their heads, are not affected. `--body-memory-max`.
    pub body_memory_max: Option<u64>,
    /// Most threads for handlers that block ([`blocking`](crate::blocking)). Up to 32 start as jobs come; more
    /// start while jobs wait and the running ones block rather than compute. Threads that are not needed end again.
    /// 1 to 65 536; `--pool-threads`, 512.
    pub pool_threads: NonZeroUsize,
    /// The bounds of each connection.
    pub limits: Limits,
    /// After this time without data from a client its connection is probed; a client that lost its power or its
    /// network is detected after twice that time. `None` never probes. `--tcp-keep-alive`, 60 s.
    pub tcp_keep_alive: Option<Duration>,
    /// How long requests in flight may take to finish after a signal to stop; then they are cut.
    /// `--drain-timeout`, 10 s.
    pub drain_timeout: Duration,
    /// How events are written to standard error, if the application has not set a subscriber of its own
    /// ([`logging`](crate::logging)). `--log`, text.
    pub log: LogFormat,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            listen: Vec::new(),
            inherited: true,
            metrics: Some(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9090))),
            metrics_is_fixed: false,
            workers: None,
            transport: TransportChoice::Auto,
            pin: Pin::Auto,
            connections_max: None,
            shed: None,
            gate: GateChoice::Auto,
            gate_refusal: GateRefusal::Auto,
            refuse: Refuse::Auto,
            fair: Fair::Address,
            trusted_proxies: TrustedProxies::default(),
            refuse_close: false,
            unready_after: None,
            connection_limit: None,
            limiter: None,
            patience: Duration::from_secs(1),
            queue_target: Duration::from_millis(10),
            deadline_max: Duration::from_secs(60),
            body_memory_max: None,
            pool_threads: POOL_THREADS,
            limits: Limits::default(),
            tcp_keep_alive: Some(Duration::from_secs(60)),
            drain_timeout: Duration::from_secs(10),
            log: LogFormat::Text,
        }
    }
}

impl ServerConfig {
    /// Checks that the listeners do not stand in each other's way.
    ///
    /// # Errors
    /// Which address is a mistake, and what to write instead.
    pub(super) fn check_listeners(&self) -> Result<(), String> {
        if self.listen.len() > LISTENERS_MAX {
            let count = self.listen.len();
            return Err(format!("{count} listeners are too many; use up to {LISTENERS_MAX}"));
        }
        for (index, Listen { address, .. }) in self.listen.iter().enumerate() {
            let port = address.tcp().map(|address| address.port());
            if port == Some(0) {
                continue;
            }
            if self.listen[..index].iter().any(|other| other.address == *address) {
                return Err(format!("{address} is listed twice; leave one out"));
            }
            if self.metrics_is_fixed && self.metrics.is_some() && self.metrics == address.tcp() {
                return Err(format!(
                    "metrics cannot be on {address}, which is the server's own address; use another port, or no \
                     metrics"
                ));
            }
        }
        Ok(())
    }

    /// How a worker admits requests.
    pub(crate) fn terms(&self) -> Terms {
        Terms {
            patience: self.patience,
            queue_target: self.queue_target,
            deadline_max: self.deadline_max,
            turn_max: TURN_MAX,
            refuse_close: self.refuse_close,
            is_fair: self.fair != Fair::Off,
        }
    }
}
