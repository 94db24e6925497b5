//! What do the workers of a server accept from?
//!
//! ```text
//!  a socket that code gave         TCP: each worker has its own beside it
//!  else LISTEN_FDS                 shared by all workers, and with the service manager
//!     and the addresses that are set, where no inherited socket listens already
//!                                  TCP: each worker has its own;  Unix: shared by all workers
//! ```
//!
//! Inherited sockets are never joined by others. The manager keeps them open, so a connection that waits there
//! outlives this process; one that waits at a socket of a worker's own is reset when that is closed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use highwater_core::protocol::Versions;
use highwater_sys::{Address, KeepAlive, Listener, SocketFile, bind_unix, inherited};

use super::config::ServerConfig;
use super::error::ServerError;
use super::listener::{LISTENERS_MAX, Listen};
use super::worker::{BACKLOG, ListenerTerms, Sealer};
use crate::admission::Entry;

/// How long the server retries to bind a port that is still taken. The kernel dismantles a process with an
/// io_uring in the background: a killed process was seen to hold its port for some milliseconds after its
/// parent learned of its end, and a supervisor restarts it that quickly.
const BIND_PATIENCE: Duration = Duration::from_secs(1);

/// Where a server listens if nothing is set and nothing is inherited.
pub(super) const DEFAULT: SocketAddr =
    SocketAddr::V4(std::net::SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8080));

/// The last port that is tried for metrics where the default is taken; then any free one is.
const METRICS_PORT_MAX: u16 = 9099;

/// How long to wait before trying again.
const BIND_PAUSE: Duration = Duration::from_millis(5);

/// A place where the server listens.
pub(super) struct Bound {
    pub(super) address: Address,
    /// The header of a proxy comes before all other bytes of its connections.
    has_proxy_header: bool,
    /// It speaks TLS.
    is_tls: bool,
    /// Which versions of HTTP its clients may speak.
    versions: Versions,
    /// One per worker.
    sockets: Vec<Listener>,
    /// It is the service manager's, and the name by which that calls it.
    inherited: Option<String>,
    /// The file of a Unix socket.
    file: Option<SocketFile>,
}

impl Bound {
    fn entry(&self) -> Option<Entry<'_>> {
        let address = self.address.tcp()?;
        Some(Entry { address, listeners: &self.sockets, is_ours: self.inherited.is_none() })
    }
}

/// All places where the server listens.
pub(super) struct Listeners(Vec<Bound>);

impl Listeners {
    pub(super) fn addresses(&self) -> Vec<Address> {
        self.0.iter().map(|bound| bound.address.clone()).collect()
    }

    /// What admission needs to know of them.
    pub(super) fn entries(&self) -> Vec<Entry<'_>> {
        self.0.iter().filter_map(Bound::entry).collect()
    }

    /// How the workers treat each of them, where `sealer` seals connections.
    pub(super) fn terms(&self, sealer: impl Fn(Versions) -> Arc<dyn Sealer>) -> Vec<ListenerTerms> {
        let terms = |bound: &Bound| {
            let sealer = bound.is_tls.then(|| sealer(bound.versions));
            let is_tcp = bound.address.tcp().is_some();
            let is_shared = !is_tcp || bound.inherited.is_some();
            let shared_by = if is_shared { bound.sockets.len() as u32 } else { 1 };
            let (versions, has_preamble) = (bound.versions, bound.has_proxy_header);
            ListenerTerms { is_gated: is_tcp, shared_by, versions, has_preamble, sealer }
        };
        self.0.iter().map(terms).collect()
    }

    /// The URL of the first listener that has an IP address.
    pub(super) fn url(&self) -> Option<String> {
        let scheme = |bound: &Bound| if bound.is_tls { "https" } else { "http" };
        self.0
            .iter()
            .find_map(|bound| Some(format!("{}://{}/", scheme(bound), bound.address.tcp()?)))
    }

    /// The sockets of each worker, and the files, which are removed when they are dropped.
    pub(super) fn divide(self) -> (Vec<Vec<Listener>>, Vec<SocketFile>) {
        let workers = self.0.first().map_or(0, |bound| bound.sockets.len());
        let mut divided: Vec<Vec<Listener>> = (0..workers).map(|_| Vec::new()).collect();
        let mut files = Vec::new();
        for bound in self.0 {
            divided.iter_mut().zip(bound.sockets).for_each(|(own, socket)| own.push(socket));
            files.extend(bound.file);
        }
        (divided, files)
    }
}

/// Listens wherever the server is to: on the socket that is given, else on inherited ones and on the addresses that
/// are set. If one of them fails, none stays open. A socket that is given is TLS if there are certificates.
pub(super) fn listen(
    given: Option<std::net::TcpListener>,
    config: &ServerConfig,
    workers: usize,
    has_certificates: bool,
) -> Result<Listeners, ServerError> {
    if let Some(given) = given {
        let bound = adopt(given, config, workers, has_certificates)?;
        return Ok(Listeners(vec![bound]));
    }
    let mut all = inherit(config, workers)?;
    let default = [Listen::tcp(DEFAULT)];
    let wanted = match &config.listen[..] {
        [] if all.is_empty() => &default[..],
        wanted => wanted,
    };
    for listen in wanted {
        let is_same =
            |bound: &&mut Bound| bound.inherited.is_some() && bound.address == listen.address;
        match all.iter_mut().find(is_same) {
            // The manager has bound it, as the setting demands.
            Some(bound) => {
                (bound.is_tls, bound.versions) = (listen.is_tls(), listen.versions);
                bound.has_proxy_header = listen.has_proxy_header();
            }
            None => match bind_all(listen, config, workers) {
                Ok(bound) => all.push(bound),
                Err(error) => {
                    return Err(explained(error, listen.address.tcp(), &all, Place::Listen));
                }
            },
        }
    }
    if all.len() > LISTENERS_MAX {
        let count = all.len();
        let text = format!("{count} listeners are too many; use up to {LISTENERS_MAX}");
        return Err(ServerError::Settings(text));
    }
    Ok(Listeners(all))
}

/// Takes over a socket that listens.
fn adopt(
    given: std::net::TcpListener,
    config: &ServerConfig,
    workers: usize,
    is_tls: bool,
) -> Result<Bound, ServerError> {
    let address = given.local_addr().map_err(ServerError::Io)?;
    let failed = |error| ServerError::bind(Address::Tcp(address), error);
    let mut first = Listener::adopt(given).map_err(failed)?;
    keep_alive(&mut first, config).map_err(failed)?;
    let sockets = multiply(first, workers, |first| first.another().or_else(|_| first.share()));
    let (address, versions, sockets) =
        (Address::Tcp(address), Versions::Both, sockets.map_err(failed)?);
    let (has_proxy_header, inherited, file) = (false, None, None);
    Ok(Bound { address, has_proxy_header, is_tls, versions, sockets, inherited, file })
}

/// The sockets that the process was started with.
fn inherit(config: &ServerConfig, workers: usize) -> Result<Vec<Bound>, ServerError> {
    if !config.inherited {
        return Ok(Vec::new());
    }
    let all = inherited(|name| std::env::var(name).ok());
    let all = all.map_err(|error| ServerError::Settings(error.to_string()))?;
    let bind = |socket: highwater_sys::Inherited| {
        let address = socket.address;
        let failed = |error| ServerError::bind(address.clone(), error);
        let mut first = socket.listener;
        if address.tcp().is_some() {
            keep_alive(&mut first, config).map_err(failed)?;
            // A predecessor may have shortened it.
            first.set_backlog(BACKLOG).map_err(failed)?;
        }
        let sockets = multiply(first, workers, Listener::share).map_err(failed)?;
        let inherited = Some(socket.name.unwrap_or_else(|| socket.number.to_string()));
        let (has_proxy_header, is_tls, versions) = (false, false, Versions::Both);
        Ok(Bound { address, has_proxy_header, is_tls, versions, sockets, inherited, file: None })
    };
    let all: Vec<Bound> = all.into_iter().map(bind).collect::<Result<_, ServerError>>()?;
    for Bound { address, inherited, .. } in &all {
        let name = inherited.as_deref().unwrap_or_default();
        tracing::info!(address = %address, name, "listening on an inherited socket");
    }
    Ok(all)
}

/// Listens on an address, for each worker.
fn bind_all(listen: &Listen, config: &ServerConfig, workers: usize) -> Result<Bound, ServerError> {
    let failed = |error| ServerError::bind(listen.address.clone(), error);
    let (is_tls, versions) = (listen.is_tls(), listen.versions);
    let has_proxy_header = listen.has_proxy_header();
    match &listen.address {
        Address::Tcp(address) => {
            let first = bind(*address, config)?;
            let address = Address::Tcp(first.local_addr().map_err(failed)?);
            let sockets = multiply(first, workers, Listener::another).map_err(failed)?;
            let (inherited, file) = (None, None);
            Ok(Bound { address, has_proxy_header, is_tls, versions, sockets, inherited, file })
        }
        Address::Unix(path) => {
            let (first, file) =
                patiently(|| bind_unix(path, listen.mode, BACKLOG)).map_err(failed)?;
            let sockets = multiply(first, workers, Listener::share).map_err(failed)?;
            let (address, file) = (listen.address.clone(), Some(file));
            let inherited = None;
            Ok(Bound { address, has_proxy_header, is_tls, versions, sockets, inherited, file })
        }
    }
}

/// A socket for each worker, made by `more` from the first.
fn multiply(
    first: Listener,
    workers: usize,
    more: impl Fn(&Listener) -> io::Result<Listener>,
) -> io::Result<Vec<Listener>> {
    let mut sockets = vec![first];
    for _ in 1..workers {
        sockets.push(more(&sockets[0])?);
    }
    Ok(sockets)
}

/// Listens, and waits a moment for a predecessor to let go of the port.
pub(super) fn bind(address: SocketAddr, config: &ServerConfig) -> Result<Listener, ServerError> {
    let failed = |error| ServerError::bind(Address::Tcp(address), error);
    let mut listener = patiently(|| Listener::bind(address, BACKLOG)).map_err(failed)?;
    keep_alive(&mut listener, config).map_err(failed)?;
    Ok(listener)
}

/// Listens for the metrics port. Nobody asked for the default port, so the server starts even if that one is taken.
pub(super) fn bind_metrics(
    wanted: SocketAddr,
    config: &ServerConfig,
    listeners: &Listeners,
) -> Result<Listener, ServerError> {
    let is_default = Some(wanted) == ServerConfig::default().metrics && !config.metrics_is_fixed;
    match bind(wanted, config) {
        Err(error) if is_default && is_taken(&error) => {}
        bound => {
            return bound
                .map_err(|error| explained(error, Some(wanted), &listeners.0, Place::Metrics));
        }
    }
    let next = (wanted.port() + 1..=METRICS_PORT_MAX).chain([0]);
    for address in next.map(|port| SocketAddr::new(wanted.ip(), port)) {
        let Ok(mut listener) = Listener::bind(address, BACKLOG) else { continue };
        let failed = |error| ServerError::bind(Address::Tcp(address), error);
        keep_alive(&mut listener, config).map_err(failed)?;
        tracing::warn!(
            address = %wanted,
            instead = %listener.local_addr().map_err(failed)?,
            "the default metrics port is taken, so another one is used; set HIGHWATER_METRICS or --metrics to a port \
             of your choice, or to off",
        );
        return Ok(listener);
    }
    bind(wanted, config)
}

/// For what an address is wanted.
#[derive(Clone, Copy)]
enum Place {
    Listen,
    Metrics,
}

/// The error about an IP address with the setting that it comes from, by whatever way that was set.
fn named(error: ServerError, place: Place) -> ServerError {
    let setting = match place {
        Place::Listen => "listen, or HIGHWATER_LISTEN",
        Place::Metrics => "metrics, or HIGHWATER_METRICS",
    };
    match error {
        ServerError::Bind(address @ Address::Tcp(_), error) => {
            let named = format!("{error} (the setting {setting})");
            ServerError::bind(address, io::Error::new(error.kind(), named))
        }
        other => other,
    }
}

/// The error with the setting to change. If this server itself has taken the address, that is the error: no other process
/// could be stopped then.
fn explained(
    error: ServerError,
    wanted: Option<SocketAddr>,
    all: &[Bound],
    place: Place,
) -> ServerError {
    let Some(wanted) = wanted.filter(|_| is_taken(&error)) else { return named(error, place) };
    let own = all.iter().filter_map(|bound| bound.address.tcp());
    let Some((own, how)) = own.filter_map(|own| Some((own, overlap(own, wanted)?))).next() else {
        return named(error, place);
    };
    ServerError::Settings(match place {
        Place::Listen => format!(
            "cannot listen on {wanted}: this server's own listener {own} {how} that address; leave one of the two out, or \
             use another port"
        ),
        Place::Metrics => format!(
            "metrics cannot be on {wanted}: this server's own listener {own} {how} that address; use another port for one \
             of the two, or no metrics"
        ),
    })
}

/// What the listener `own` does to the address `wanted`, if both cannot be listened on.
fn overlap(own: SocketAddr, wanted: SocketAddr) -> Option<&'static str> {
    // The wildcard of IPv6 takes IPv4 as well.
    let covers = |ip: IpAddr, other: IpAddr| {
        ip == other || (ip.is_unspecified() && (ip.is_ipv6() || other.is_ipv4()))
    };
    let (ip, other) = (own.ip().to_canonical(), wanted.ip().to_canonical());
    match own.port() == wanted.port() {
        true if covers(ip, other) => Some("covers"),
        true if covers(other, ip) => Some("is a part of"),
        _ => None,
    }
}

fn is_taken(error: &ServerError) -> bool {
    matches!(error, ServerError::Bind(_, cause) if cause.kind() == io::ErrorKind::AddrInUse)
}

/// Enables the kernel's probes of silent peers, if they are wanted.
fn keep_alive(listener: &mut Listener, config: &ServerConfig) -> io::Result<()> {
    let Some(idle) = config.tcp_keep_alive else { return Ok(()) };
    // A client must not count as dead for as long as it is allowed to be slow.
    listener.keep_alive(KeepAlive { idle, unacknowledged_max: config.limits.write_timeout })
}

fn patiently<T>(bind: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let until = Instant::now() + BIND_PATIENCE;
    loop {
        match bind() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                thread::sleep(BIND_PAUSE);
            }
            bound => return bound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message if the second of two addresses on one port is taken.
    fn message(first: &str, second: &str, is_metrics: bool) -> String {
        let address = |ip: &str, port: u16| -> SocketAddr {
            SocketAddr::new(ip.parse().expect("an address"), port)
        };
        let free = std::net::TcpListener::bind(address(first, 0)).expect("a port is free");
        let port = free.local_addr().expect("it has one").port();
        drop(free);
        let (first, second) = (address(first, port), address(second, port));
        let both = [first, second].map(Listen::tcp);
        let listen_at = both[..if is_metrics { 1 } else { 2 }].to_vec();
        let config =
            ServerConfig { listen: listen_at, inherited: false, ..ServerConfig::default() };
        let listeners = listen(None, &config, 1, false);
        let error = match is_metrics {
            true => bind_metrics(second, &config, &listeners.expect("it is free")).err(),
            false => listeners.err(),
        };
        let error = error.expect("it is taken");
        assert!(error.is_setting(), "{error}");
        error.to_string().replace(&format!(":{port}"), ":P")
    }

    /// Purpose: if two addresses of one server exclude each other, the message names its own listener, not another process, which nobody
    /// would find.
    #[test]
    fn own_listeners_are_named() {
        assert_eq!(
            message("127.0.0.1", "0.0.0.0", false),
            "cannot listen on 0.0.0.0:P: this server's own listener 127.0.0.1:P is a part of that address; leave one of the \
             two out, or use another port"
        );
        assert_eq!(
            message("0.0.0.0", "127.0.0.2", false),
            "cannot listen on 127.0.0.2:P: this server's own listener 0.0.0.0:P covers that address; leave one of the two \
             out, or use another port"
        );
        assert_eq!(
            message("0.0.0.0", "127.0.0.1", true),
            "metrics cannot be on 127.0.0.1:P: this server's own listener 0.0.0.0:P covers that address; use another port \
             for one of the two, or no metrics"
        );
        if std::net::TcpListener::bind("[::]:0").is_ok() {
            assert_eq!(
                message("::", "0.0.0.0", false),
                "cannot listen on 0.0.0.0:P: this server's own listener [::]:P covers that address; leave one of the two \
                 out, or use another port"
            );
        }
    }

    /// Purpose: an address that another process has is not put down to this server.
    #[test]
    fn other_processes_are_reported() {
        let theirs = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = theirs.local_addr().expect("it has one");
        let listen_at = vec![Listen::tcp(([127, 0, 0, 2], 0).into()), Listen::tcp(address)];
        let config =
            ServerConfig { listen: listen_at, inherited: false, ..ServerConfig::default() };
        let error = listen(None, &config, 1, false).err().expect("it is taken").to_string();
        let expected = "; another process listens there: stop it, or choose another port (the setting listen, or \
                        HIGHWATER_LISTEN)";
        assert!(error.ends_with(expected), "{error}");
    }

    /// Purpose: only addresses that exclude each other overlap.
    #[test]
    fn overlaps() {
        for (own, wanted, expected) in [
            ("127.0.0.1:1", "0.0.0.0:1", Some("is a part of")),
            ("127.0.0.1:1", "[::]:1", Some("is a part of")),
            ("0.0.0.0:1", "[::]:1", Some("is a part of")),
            ("[::]:1", "[::1]:1", Some("covers")),
            ("[::]:1", "127.0.0.1:1", Some("covers")),
            ("0.0.0.0:1", "[::ffff:127.0.0.1]:1", Some("covers")),
            ("127.0.0.1:1", "127.0.0.1:1", Some("covers")),
            ("0.0.0.0:1", "[::1]:1", None),
            ("127.0.0.1:1", "127.0.0.2:1", None),
            ("0.0.0.0:1", "127.0.0.1:2", None),
        ] {
            let address = |text: &str| text.parse().expect("an address");
            assert_eq!(overlap(address(own), address(wanted)), expected, "{own}, {wanted}");
        }
    }
}
