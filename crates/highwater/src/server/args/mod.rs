//! Which settings does every service share, and where do they come from?
//!
//! [`ServerArgs`] is flattened into a service's own arguments; [`parse`] reads all of them from
//! flags, environment variables and a TOML file, in this order of precedence, before the defaults:
//!
//! ```no_run
//! use highwater::server::args::{self, ServerArgs};
//!
//! /// Serves greetings.
//! #[derive(clap::Parser)]
//! #[command(version)]
//! struct Args {
//!     /// Whom to greet
//!     #[arg(long, default_value = "world")]
//!     name: String,
//!     #[command(flatten)]
//!     server: ServerArgs,
//! }
//!
//! let args: Args = args::parse();
//! let config = args.server.config();
//! ```
//!
//! Every wrong setting ends the program with status 2 and a line that names the setting, its value,
//! where it came from, and what to write instead.
//!
//! `layers.rs` merges the sources, `file.rs` reads the file, `value.rs` the values; `idle.rs` finds settings
//! without effect, and `source.rs` formats the messages about all of them.

mod file;
mod idle;
mod layers;
mod source;
mod value;

use core::num::NonZeroUsize;
use core::ops::RangeInclusive;
use core::time::Duration;
use std::net::SocketAddr;

use highwater_core::http::Limits;
use highwater_core::limit::LIMIT_MAX;

use self::value::{
    duration_or_off, fair, gate, gate_refusal, limiter, log_format, number_or_auto, on_or_off, pin,
    refuse, shed, transport,
};
use super::config::{Pin, ServerConfig, TransportChoice};
use super::listener::Listen;
use crate::admission::{Fair, GateChoice, GateRefusal, Limiter, Refuse, Shed};
use crate::logging::LogFormat;
use crate::proxies::TrustedProxies;

pub use self::idle::Idle;
pub use self::layers::{parse, parse_checked, try_parse_checked_from, try_parse_from};
pub use self::value::{address, address_or_off, duration, number, one_of, size};

/// The range of a timeout. Below a tenth of a second, an ordinary hiccup of the network would end connections;
/// above an hour it protects nothing.
const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
/// Idle connections may be kept for a day: behind a balancer with a pool that is a sane choice.
const IDLE: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(86_400);
/// The kernel counts whole seconds, up to nine hours of them.
const KEEP_ALIVE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
/// Draining may take no time at all, or an hour.
const DRAIN: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);
/// At least enough for a `Host` field; at most more than any browser sends.
const HEADER: RangeInclusive<u64> = 256..=(1 << 20);
const URI: RangeInclusive<u64> = 64..=(1 << 20);
/// Bodies taken whole live in memory; larger ones are for routes that stream.
const BODY: RangeInclusive<u64> = 1..=(1 << 30);
/// A mebibyte is one body by default; a tebibyte, more than any machine has for this.
const POOL_THREADS: RangeInclusive<NonZeroUsize> =
    NonZeroUsize::MIN..=NonZeroUsize::new(65_536).expect("it is not zero");
const BODY_MEMORY: RangeInclusive<u64> = (1 << 20)..=(1 << 40);
/// Zero disables the least rate.
const RATE: RangeInclusive<u32> = 0..=(1 << 30);
const WORKERS: RangeInclusive<usize> = 1..=1024;
/// Sixteen times the kernel's default bound of descriptors in a process.
const CONNECTIONS: RangeInclusive<u32> = 1..=(1 << 24);
/// Connections with work at once.
const LIMIT: RangeInclusive<u32> = 1..=LIMIT_MAX;
/// Below ten milliseconds random delays would count as overload; beyond a minute no client still waits.
const PATIENCE: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(60);
/// Below a millisecond, the scheduler's own hiccups would count as overload; above ten seconds no request can
/// be served in time.
const QUEUE_TARGET: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);

/// The settings that every service shares.
///
/// The fields that take part in [`Limits`] are explained there.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Server")]
pub struct ServerArgs {
    /// Where to serve: IP:PORT or unix:PATH; again for more [default: 127.0.0.1:8080, or inherited sockets]
    #[arg(long, value_name = "ADDRESS[,OPTION]", value_delimiter = ' ')]
    pub listen: Vec<Listen>,

    /// Where to serve /metrics, /livez and /readyz, or off [default: 127.0.0.1:9090, or the next free port]
    // The full path keeps clap from reading the inner type as "may be absent".
    #[arg(long, value_name = "ADDRESS|off", value_parser = address_or_off)]
    pub metrics: Option<::core::option::Option<SocketAddr>>,

    /// Worker threads [default: the cores that affinity and cgroup allow]
    #[arg(long, value_name = "N", value_parser = value::workers(WORKERS))]
    pub workers: Option<NonZeroUsize>,

    /// I/O interface; auto uses io_uring if the kernel permits it, else epoll
    #[arg(long, value_name = "auto|uring|epoll", default_value = "auto", value_parser = transport)]
    pub transport: TransportChoice,

    /// Whether each worker is pinned to a core; auto pins if there are no more workers than cores
    #[arg(long, value_name = "auto|on|off", default_value = "auto", value_parser = pin)]
    pub pin: Pin,

    /// Most connections open at once [default: what the descriptors allow]
    #[arg(long, value_name = "N", value_parser = number(CONNECTIONS))]
    pub connections_max: Option<u32>,

    /// How excess load is refused [default: kernel if the machine allows it, else accept]
    #[arg(long, value_name = "none|app|accept|kernel", value_parser = shed)]
    pub shed: Option<Shed>,

    /// Which kernel mechanism refuses connections, with --shed kernel
    #[arg(long, value_name = "auto|ebpf|nft|iptables", default_value = "auto", value_parser = gate)]
    pub gate: GateChoice,

    /// How the kernel refuses: with a reset, silently, or with resets until they cost too much
    #[arg(long, value_name = "auto|reset|drop", default_value = "auto", value_parser = gate_refusal)]
    pub gate_refusal: GateRefusal,

    /// What is refused under overload: auto refuses requests where connections are reused, as behind proxies
    #[arg(long, value_name = "auto|connections|requests", default_value = "auto", value_parser = refuse)]
    pub refuse: Refuse,

    /// Who gets an equal share while more is asked than can be done: nobody, or each client's address
    #[arg(long, value_name = "off|address", default_value = "address", value_parser = fair)]
    pub fair: Fair,

    /// Proxies that may name the client of a request, in X-Forwarded-For or Forwarded; unix for Unix sockets
    #[arg(long, value_name = "CIDR|unix[,...]")]
    pub trusted_proxies: Option<TrustedProxies>,

    /// Whether a request refused for load also closes its connection: for connection-level load balancers
    #[arg(long, value_name = "on|off", default_value = "off", value_parser = on_or_off, action = clap::ArgAction::Set)]
    pub refuse_close: bool,

    /// /readyz answers 503 after an overload of this length, until there was none for as long; or off
    #[arg(long, value_name = "TIME|off", default_value = "off", value_parser = duration_or_off(TIMEOUT))]
    pub unready_after: ::core::option::Option<Duration>,

    /// Most connections with work at the same time; auto lets --limiter find the number
    // A negative number is refused with the range, not taken for a flag.
    #[arg(long, allow_negative_numbers = true, value_name = "N|auto", default_value = "auto", value_parser = number_or_auto(LIMIT))]
    pub connection_limit: ::core::option::Option<u32>,

    /// How the limit is found [default: gradient, or fixed with a --connection-limit]
    #[arg(long, value_name = "fixed|hill-climb|gradient|aimd", value_parser = limiter)]
    pub limiter: Option<Limiter>,

    /// How long clients wait for an answer; no request is refused that could be answered in time
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration(PATIENCE))]
    pub patience: Duration,

    /// How long a request may wait in the queue while more requests arrive than are answered
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = duration(QUEUE_TARGET))]
    pub queue_target: Duration,

    /// Longest deadline that a client may set; a longer one is cut to this
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration(TIMEOUT))]
    pub deadline_max: Duration,

    /// Time to receive the whole head of a request; then 408
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration(TIMEOUT))]
    pub header_timeout: Duration,

    /// Longest pause within a request's body; then 408
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration(TIMEOUT))]
    pub body_timeout: Duration,

    /// Lowest average rate of a body in bytes per second, after 5 s of grace; 0 for none; then 408
    #[arg(long, value_name = "N", default_value = "240", value_parser = number(RATE))]
    pub body_rate_min: u32,

    /// Longest wait for the next request on a connection; then the connection is closed
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration(IDLE))]
    pub idle_timeout: Duration,

    /// Longest wait for a client to read more of a response; then the connection is cut
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration(TIMEOUT))]
    pub write_timeout: Duration,

    /// How long a half-closed client waits for a response that makes no progress; then a reset
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration(TIMEOUT))]
    pub half_closed_timeout: Duration,

    /// Silence after which a client is probed; after as long again it is disconnected; or off
    #[arg(long, value_name = "TIME|off", default_value = "60s",
          value_parser = duration_or_off(KEEP_ALIVE))]
    pub tcp_keep_alive: ::core::option::Option<Duration>,

    /// Largest header section; beyond it 431
    #[arg(long, value_name = "SIZE", default_value = "16KiB", value_parser = size(HEADER))]
    pub header_max: u64,

    /// Longest request target; beyond it 414
    #[arg(long, value_name = "SIZE", default_value = "8KiB", value_parser = size(URI))]
    pub uri_max: u64,

    /// Largest request body, unless a route sets its own limit; beyond it 413
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = size(BODY))]
    pub body_max: u64,

    /// Most memory for request bodies, over all connections; beyond it 503 [default: a quarter of the memory]
    #[arg(long, value_name = "SIZE", value_parser = size(BODY_MEMORY))]
    pub body_memory_max: Option<u64>,

    /// Most threads for handlers that block; they start when jobs wait, and end when idle
    #[arg(long, value_name = "N", default_value = "512", value_parser = number(POOL_THREADS))]
    pub pool_threads: NonZeroUsize,

    /// Requests served on one connection before it is closed [default: any number]
    #[arg(long, value_name = "N", value_parser = number(1..=u32::MAX))]
    pub max_requests_per_connection: Option<u32>,

    /// How long requests in flight may take to finish after SIGTERM or SIGINT
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration(DRAIN))]
    pub drain_timeout: Duration,

    /// How to log to standard error, unless the program has its own tracing subscriber
    #[arg(long, value_name = "text|json|off", default_value = "text", value_parser = log_format)]
    pub log: LogFormat,
}

impl ServerArgs {
    /// The bounds of each connection.
    pub fn limits(&self) -> Limits {
        let small = |bytes: u64| usize::try_from(bytes).expect("its range ends at a mebibyte");
        Limits {
            uri_max: small(self.uri_max),
            header_max: small(self.header_max),
            body_max: self.body_max,
            header_timeout: self.header_timeout,
            body_timeout: self.body_timeout,
            body_rate_min: self.body_rate_min,
            idle_timeout: self.idle_timeout,
            write_timeout: self.write_timeout,
            half_closed_timeout: self.half_closed_timeout,
            requests_max: self.max_requests_per_connection.unwrap_or(u32::MAX),
            ..Limits::default()
        }
    }

    /// All settings, as the server takes them.
    pub fn config(&self) -> ServerConfig {
        ServerConfig {
            listen: self.listen.clone(),
            inherited: ServerConfig::default().inherited,
            metrics: self.metrics.unwrap_or(ServerConfig::default().metrics),
            metrics_is_fixed: self.metrics.is_some(),
            workers: self.workers,
            transport: self.transport,
            pin: self.pin,
            connections_max: self.connections_max,
            shed: self.shed,
            gate: self.gate,
            gate_refusal: self.gate_refusal,
            refuse: self.refuse,
            fair: self.fair,
            trusted_proxies: self.trusted_proxies.clone().unwrap_or_default(),
            refuse_close: self.refuse_close,
            unready_after: self.unready_after,
            connection_limit: self.connection_limit,
            limiter: self.limiter,
            patience: self.patience,
            queue_target: self.queue_target,
            deadline_max: self.deadline_max,
            body_memory_max: self.body_memory_max,
            pool_threads: self.pool_threads,
            limits: self.limits(),
            tcp_keep_alive: self.tcp_keep_alive,
            drain_timeout: self.drain_timeout,
            log: self.log,
        }
    }
}

impl From<&ServerArgs> for ServerConfig {
    fn from(args: &ServerArgs) -> Self {
        args.config()
    }
}

#[cfg(test)]
mod tests;
