//! Which settings does a server have?
//!
//! One table: each row of [`ServerConfig`] is a setting with its type, its default, the form and range of its values,
//! and its help. Flags, variables, keys of files, help texts, messages about mistakes (`args`) and the table in
//! `docs/configuration.md` all come from it. A row without a form can only be set in code.

use core::num::NonZeroUsize;
use core::time::Duration;
use std::net::SocketAddr;
use std::path::PathBuf;

use highwater_core::http::Limits;
#[cfg(feature = "cli")]
use highwater_core::limit::LIMIT_MAX;

use super::listener::{Address, LISTENERS_MAX, Listen};
#[cfg(feature = "cli")]
use super::setting::{Setting, address, choice, file, number, size, switch, text, time};
use crate::admission::per_client::PerClient;
use crate::admission::worker::Terms;
use crate::admission::{Fair, GateChoice, GateRefusal, Limiter, Refuse, Shed, TURN_MAX};
use crate::choice::choices;
use crate::logging::LogFormat;
use crate::proxies::TrustedProxies;

choices! {
    /// The interface for I/O between kernel and worker.
    #[derive(Default)]
    pub enum TransportChoice {
        /// io_uring if the kernel permits all that it needs, else epoll.
        #[default]
        Auto = "auto",
        /// io_uring, or do not start.
        Uring = "uring",
        /// epoll.
        Epoll = "epoll",
        /// What every system has, for development on macOS and Windows, where `auto` is this. Slower than the others.
        Portable = "portable",
    }
}

choices! {
    /// Whether each worker stays on a core of its own.
    #[derive(Default)]
    pub enum Pin {
        /// If there are as many workers as cores this process may use.
        #[default]
        Auto = "auto",
        /// Always.
        On = "on",
        /// Never.
        Off = "off",
    }
}

choices! {
    /// The oldest version of TLS that a server speaks.
    #[derive(Default)]
    pub enum TlsMin {
        /// TLS 1.2, with the ciphers that are considered safe: forward secrecy and authenticated encryption.
        #[default]
        Tls12 = "1.2",
        /// TLS 1.3.
        Tls13 = "1.3",
    }
}

choices! {
    /// Whether clients of TLS have to show a certificate, where there are authorities to check it with.
    #[derive(Default)]
    pub enum ClientAuth {
        /// A handshake without one fails.
        #[default]
        Required = "required",
        /// A client may come without one.
        Optional = "optional",
    }
}

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

const fn s(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Below a tenth of a second, an ordinary hiccup of the network would end connections; above an hour a timeout protects
/// nothing.
#[cfg(feature = "cli")]
const TIMEOUT: core::ops::RangeInclusive<Duration> = ms(100)..=s(3600);

/// Declares a configuration, and the table of its settings.
macro_rules! settings {
    (
        $(#[$meta:meta])*
        pub struct $config:ident {$(
            $(#[$doc:meta])*
            $field:ident: $type:ty = $default:expr
                $(=> $form:expr, $help:literal)?
                $(, {$( $inner:ident $(as $name:ident)?: $inner_form:expr, $inner_help:literal; )+})?;
        )+}
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $config {$(
            $(#[doc = $help] #[doc = ""])?
            $(#[$doc])*
            #[doc = ""]
            #[doc = concat!("Default: `", stringify!($default), "`.")]
            pub $field: $type,
        )+}

        impl Default for $config {
            fn default() -> Self {
                $config { $($field: $default,)+ }
            }
        }

        #[cfg(feature = "cli")]
        impl $config {
            /// The settings that flags, variables and files have, in the order of help texts.
            pub(super) fn settings() -> Vec<Setting<Self>> {
                vec![$(
                    $(Setting::new(stringify!($field), $help, $form, |config: &mut Self| &mut config.$field),)?
                    $($(
                        Setting::new(
                            settings!(@name $inner $($name)?), $inner_help, $inner_form,
                            |config: &mut Self| &mut config.$field.$inner,
                        ),
                    )+)?
                )+]
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:ident) => { stringify!($name) };
}

settings! {
    /// The settings of a server.
    ///
    /// A field is also a flag, a variable and a key of the configuration file, under its own name with dashes
    /// (`--queue-target`), and in capitals with a prefix (`HIGHWATER_QUEUE_TARGET`), if it can be written as one.
    /// `docs/configuration.md` has the table, with ranges; those apply to what is written, not to what code sets.
    pub struct ServerConfig {
        /// At most 16. If it is empty, the server listens only on the sockets that the process was started with; without
        /// any of those, on 127.0.0.1:8080.
        listen: Vec<Listen> = Vec::new() => text("ADDRESS[,OPTION]").several("127.0.0.1:8080, or inherited sockets"),
            "Where to listen: IP:PORT or unix:PATH; repeat for more";

        tls_cert: Vec<PathBuf> = Vec::new() => file().several("none"),
            "Certificate chain in PEM, for listeners with the option tls; repeat for more, chosen by name (SNI)";

        /// One for each of `tls_cert`, in the same order.
        tls_key: Vec<PathBuf> = Vec::new() => file().several("none"),
            "Private key in PEM, one for each certificate and in the same order";

        tls_min: TlsMin = TlsMin::Tls12 => choice(),
            "Oldest version of TLS; older clients fail the handshake";

        tls_client_ca: Option<PathBuf> = None => file().optional("none: clients are not asked for certificates"),
            "Authorities in PEM that issue client certificates";

        /// Only with `tls_client_ca`: without it, no client is asked, and the server does not start.
        tls_client_auth: Option<ClientAuth> = None => choice().optional("required"),
            "With --tls-client-ca: whether a client without a certificate fails the handshake";

        /// Whether the server also serves on the sockets that the process was started with (`LISTEN_FDS`), which a service
        /// manager passes. The first such server of the process gets them. For a server beside the main one, which
        /// may start earlier, set it to false.
        inherited: bool = true;

        /// `None` is off.
        metrics: Option<SocketAddr> = Some(([127, 0, 0, 1], 9090).into())
            => address().or("off").described("127.0.0.1:9090, or the next free port"),
            "Where to serve /metrics, /livez and /readyz, or off";

        /// Whether the server fails to start if `metrics` is taken. Without this, and only if `metrics` is the default,
        /// it takes the next free port up to 9099, or any free one, and logs a warning: nobody asked for that port.
        /// `--metrics` and `HIGHWATER_METRICS` set it.
        metrics_is_fixed: bool = false;

        workers: Option<NonZeroUsize> = None
            => number(NonZeroUsize::MIN..=at_most(1024)).optional("the cores that affinity and cgroup allow"),
            "Worker threads";

        transport: TransportChoice = TransportChoice::Auto => choice(),
            "I/O interface; auto uses io_uring if the kernel permits it, else epoll; portable works on every system, for development";

        pin: Pin = Pin::Auto => choice(),
            "Whether each worker is pinned to a core; auto pins if there are as many workers as cores, and more than one";

        /// Over all workers. The range ends at sixteen times the kernel's default bound of descriptors in a process.
        connections_max: Option<u32> = None => number(1..=1 << 24).optional("what the descriptors allow"),
            "Maximum number of open connections";

        /// Over all workers. A client is an address, or of IPv6 a network of 64 bits; trusted proxies and the peers of Unix
        /// sockets have no limit, and behind a header of the PROXY protocol the client is the one that it names. A
        /// connection beyond it is reset when it is accepted.
        connections_per_client: Option<u32> = None => number(1..=1 << 24).or("off"),
            "Maximum number of open connections per address (or IPv6 /64 network); further ones are reset; or off";

        /// `None` for the best way that the machine allows.
        shed: Option<Shed> = None => choice().optional("kernel if the machine allows it, else accept"),
            "How excess load is refused";

        gate: GateChoice = GateChoice::Auto => choice(),
            "Which kernel mechanism refuses connections, with --shed kernel";

        gate_refusal: GateRefusal = GateRefusal::Auto => choice(),
            "How the kernel refuses: with a reset, silently, or with resets until they cost too much";

        refuse: Refuse = Refuse::Auto => choice(),
            "What to refuse under overload; auto refuses requests where connections are reused, such as behind proxies";

        /// [`Router::fair_by`](crate::Router::fair_by) tells clients apart by something else.
        fair: Fair = Fair::Address => choice(),
            "Whether each client address gets an equal share during an overload";

        /// Without any, the fields are not looked at.
        trusted_proxies: TrustedProxies = TrustedProxies::default() => text("CIDR|unix[,...]").described("none"),
            "Proxies that may name the client of a request, in X-Forwarded-For or Forwarded; unix for Unix sockets";

        /// The client's next connection may reach another server.
        refuse_close: bool = false => switch(),
            "Whether refusing a request under load also closes its connection; for connection-level load balancers";

        /// `None` for never: see `docs/behind-a-proxy.md` first.
        unready_after: Option<Duration> = None => time(TIMEOUT).or("off"),
            "Duration of an overload after which /readyz answers 503, until it has been over for as long; or off";

        /// Over all workers; `None` is auto. A number counts connections until their request is answered, whatever their
        /// handlers wait for.
        connection_limit: Option<u32> = None => number(1..=LIMIT_MAX).or("auto"),
            "Maximum number of connections with work at the same time; auto lets --limiter find it";

        limiter: Option<Limiter> = None => choice().optional("gradient, or fixed with a --connection-limit"),
            "How the limit is found";

        /// Unless they set a deadline themselves. Below the range, random delays would count as overload; beyond it no
        /// client still waits.
        patience: Duration = s(1) => time(ms(10)..=s(60)),
            "How long clients wait for an answer; no request is refused that could be answered in time";

        /// Four times the cost of a request, if that is longer. Below the range, the scheduler's own hiccups would count as
        /// overload; above it, no request can be served in time.
        queue_target: Duration = ms(10) => time(ms(1)..=s(10)),
            "How long a request may wait in the queue during an overload";

        deadline_max: Duration = s(60) => time(TIMEOUT),
            "Longest deadline that a client may set; longer ones are shortened to this";

        /// The bounds of each connection.
        limits: Limits = Limits::default(), {
            header_timeout: time(TIMEOUT),
                "Time to receive the whole head of a request; then 408";
            body_timeout: time(TIMEOUT),
                "Longest pause within a request's body; then 408";
            body_rate_min: number(0..=1 << 30),
                "Lowest average rate of a body in bytes per second, after 5 s of grace; 0 for none; then 408";
            // A day: behind a balancer with a pool that is a sane choice.
            idle_timeout: time(ms(100)..=s(86_400)),
                "Longest wait for the next request on a connection; then the connection is closed";
            write_timeout: time(TIMEOUT),
                "Longest wait for a client to read more of a response; then the connection is cut";
            half_closed_timeout: time(TIMEOUT),
                "How long a connection may be half-closed, by a client that waits for its response or as an upgraded one, without progress; then a reset";
            // At least enough for a `Host` field; at most more than any browser sends.
            header_max: size(256..=1 << 20),
                "Largest header section, of at most 100 fields; beyond it 431";
            uri_max: size(64..=1 << 20),
                "Longest request target; beyond it 414";
            // Bodies taken whole live in memory; larger ones are for routes that stream.
            body_max: size(1..=1 << 30),
                "Largest request body, unless a route sets its own limit; beyond it 413";
            requests_max as max_requests_per_connection: number(1..=u32::MAX).described("any number"),
                "Requests served on one connection before it is closed";
        };

        /// `None` never probes. The kernel counts whole seconds.
        tcp_keep_alive: Option<Duration> = Some(s(60)) => time(s(1)..=s(3600)).or("off"),
            "Silence after which a client is probed; after the same time again it is disconnected; or off";

        /// A body that would be collected beyond it is answered 503 with `Retry-After`; one that is streamed to its
        /// handler is read in smaller portions. Requests without a body, and bodies that arrive with their heads, are not
        /// affected. Messages of WebSockets that are not complete, or not received by their handlers, are counted too, from 16 KiB
        /// per connection on; beyond the maximum, a connection whose messages grow is closed with 1013. The memory is that of
        /// the machine or the control group. The range begins at one body of the default size.
        body_memory_max: Option<u64> = None => size(1 << 20..=1 << 40).optional("a quarter of the memory"),
            "Maximum memory for request bodies, over all connections; beyond it 503";

        /// Up to 32 start as jobs come; more start while jobs wait and the running ones block rather than compute
        /// ([`blocking`](crate::blocking)).
        pool_threads: NonZeroUsize = at_most(512) => number(NonZeroUsize::MIN..=at_most(65_536)),
            "Maximum number of threads for blocking handlers; they start when jobs wait, and end when idle";

        /// Then they are cut.
        drain_timeout: Duration = s(10) => time(Duration::ZERO..=s(3600)),
            "How long requests in flight may take to finish after SIGTERM or SIGINT";

        /// See [`logging`](crate::logging).
        log: LogFormat = LogFormat::Text => choice(),
            "How to log to standard error, unless the program has its own tracing subscriber";
    }
}

/// What is wrong with [`ServerConfig::unbelieved_listener`], and what to write instead.
pub(super) const UNBELIEVED: &str = "only trusted proxies may say who their clients are, and none is trusted; set \
     trusted-proxies, such as --trusted-proxies 10.0.0.0/8, or leave out the option proxy";

const fn at_most(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).expect("it is not zero")
}

impl ServerConfig {
    /// Checks that no two listeners exclude each other.
    ///
    /// # Errors
    /// Which address is a mistake, and what to write instead.
    pub(super) fn check_listeners(&self) -> Result<(), String> {
        if self.listen.len() > LISTENERS_MAX {
            let count = self.listen.len();
            return Err(format!("{count} listeners are too many; use up to {LISTENERS_MAX}"));
        }
        if let Some(listen) = self.unbelieved_listener() {
            return Err(format!("the listener {listen}: {UNBELIEVED}"));
        }
        match clash(&self.listen, self.metrics.filter(|_| self.metrics_is_fixed)) {
            Some((address, true)) => Err(format!("{address} is listed twice; leave one out")),
            Some((address, false)) => Err(format!(
                "metrics cannot be on {address}, which is the server's own address; use another port, or no metrics"
            )),
            None => Ok(()),
        }
    }

    /// A listener that takes the headers of proxies, although none is trusted.
    pub(super) fn unbelieved_listener(&self) -> Option<&Listen> {
        let wants = self.listen.iter().find(|listen| listen.has_proxy_header());
        wants.filter(|_| self.trusted_proxies.is_empty())
    }

    /// Checks that settings of TLS are complete, for a server that has certificates already if `has_certificates`, and
    /// serves on a socket that code has given if `is_given`: that one is TLS whenever there are certificates.
    ///
    /// # Errors
    /// Which setting is a mistake, and what to write instead.
    #[cfg(feature = "tls")]
    pub(super) fn check_tls(&self, has_certificates: bool, is_given: bool) -> Result<(), String> {
        let (certificates, keys) = (self.tls_cert.len(), self.tls_key.len());
        if certificates != keys {
            let times =
                |count| if count == 1 { "1 time".to_owned() } else { format!("{count} times") };
            let (certificates, keys) = (times(certificates), times(keys));
            return Err(format!(
                "tls-cert is given {certificates} and tls-key {keys}; give one key for each certificate, in the same order"
            ));
        }
        if let (Some(auth), None) = (self.tls_client_auth, &self.tls_client_ca) {
            return Err(format!(
                "tls-client-auth {auth} has no effect without tls-client-ca: no client is asked for a certificate; name the \
                 authorities of clients there, or leave tls-client-auth out"
            ));
        }
        let has_certificates = has_certificates || certificates > 0;
        let listener = self.listen.iter().find(|listen| listen.is_tls()).filter(|_| !is_given);
        match listener {
            Some(listen) if !has_certificates => Err(format!(
                "the listener {listen} has no certificate; set tls-cert and tls-key, or leave out the option tls"
            )),
            None if has_certificates && !is_given => Err(
                "there are certificates, but no listener speaks TLS; give one the option tls, such as \
                 --listen 0.0.0.0:443,tls"
                    .to_owned(),
            ),
            _ if self.tls_client_ca.is_some() && certificates == 0 => Err(
                "tls-client-ca has no effect without tls-cert and tls-key; set them, or leave it out".to_owned(),
            ),
            _ => Ok(()),
        }
    }

    /// The first setting that asks for TLS.
    #[cfg(not(feature = "tls"))]
    pub(super) fn wants_tls(&self) -> Option<String> {
        let listener = self.listen.iter().find(|listen| listen.is_tls());
        let listener = listener.map(|listen| format!("the listener {listen}"));
        let file =
            |name, path: Option<&PathBuf>| path.map(|path| format!("{name} {}", path.display()));
        listener
            .or_else(|| file("tls-cert", self.tls_cert.first()))
            .or_else(|| file("tls-key", self.tls_key.first()))
            .or_else(|| file("tls-client-ca", self.tls_client_ca.as_ref()))
            .or_else(|| self.tls_client_auth.map(|auth| format!("tls-client-auth {auth}")))
    }

    /// What counts the connections of each client, if there is a limit.
    pub(crate) fn per_client(&self) -> Option<PerClient> {
        let max = self.connections_per_client?;
        Some(PerClient::new(max, self.trusted_proxies.clone()))
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

/// The first address that two of `listen` have, or one of them and `metrics`; and whether it is the former.
pub(super) fn clash(listen: &[Listen], metrics: Option<SocketAddr>) -> Option<(&Address, bool)> {
    listen.iter().map(Listen::address).enumerate().find_map(|(index, address)| {
        let is_chosen_later = address.tcp().is_some_and(|address| address.port() == 0);
        let is_twice = listen[..index].iter().any(|other| other.address == *address);
        let is_metrics = metrics.is_some() && metrics == address.tcp();
        (!is_chosen_later && (is_twice || is_metrics)).then_some((address, is_twice))
    })
}
