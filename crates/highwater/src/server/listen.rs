//! What do the workers of a server accept from?

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use highwater_sys::{KeepAlive, Listener};

use super::config::ServerConfig;
use super::error::ServerError;
use super::worker::BACKLOG;

/// How long the server retries to bind a port that is still taken. The kernel dismantles a process with an
/// io_uring in the background: a killed process was seen to hold its port for some milliseconds after its
/// parent learned of its end, and a supervisor restarts it that quickly.
const BIND_PATIENCE: Duration = Duration::from_secs(1);

/// The last port that is tried for metrics where the default is taken; then any free one is.
const METRICS_PORT_MAX: u16 = 9099;

/// How long to wait before trying again.
const BIND_PAUSE: Duration = Duration::from_millis(5);

/// One listener for each worker: on a socket that was given, or else on the address that is set.
pub(super) fn listen(
    given: Option<std::net::TcpListener>,
    config: &ServerConfig,
    workers: usize,
) -> Result<Vec<Listener>, ServerError> {
    let address = given.as_ref().and_then(|given| given.local_addr().ok()).unwrap_or(config.listen);
    let failed = |error| ServerError::bind(address, error);
    let is_given = given.is_some();
    let first = match given {
        Some(given) => adopt(given, config).map_err(failed)?,
        None => bind(address, config)?,
    };
    let mut listeners = vec![first];
    for _ in 1..workers {
        let another = match listeners[0].another() {
            Err(_) if is_given => listeners[0].share(),
            another => another,
        };
        listeners.push(another.map_err(failed)?);
    }
    Ok(listeners)
}

/// Takes over a socket that listens.
fn adopt(given: std::net::TcpListener, config: &ServerConfig) -> io::Result<Listener> {
    let mut listener = Listener::adopt(given)?;
    keep_alive(&mut listener, config)?;
    Ok(listener)
}

/// Listens, and waits a moment for a predecessor to let go of the port.
pub(super) fn bind(address: SocketAddr, config: &ServerConfig) -> Result<Listener, ServerError> {
    let mut listener = bind_patiently(address)?;
    keep_alive(&mut listener, config).map_err(|error| ServerError::bind(address, error))?;
    Ok(listener)
}

/// Listens for the metrics port. Nobody asked for the default port, so the server starts even if that one is taken.
pub(super) fn bind_metrics(
    wanted: SocketAddr,
    config: &ServerConfig,
) -> Result<Listener, ServerError> {
    let is_default = Some(wanted) == ServerConfig::default().metrics && !config.metrics_is_fixed;
    match bind(wanted, config) {
        Err(error) if is_default && is_taken(&error) => {}
        bound => return bound,
    }
    let next = (wanted.port() + 1..=METRICS_PORT_MAX).chain([0]);
    for address in next.map(|port| SocketAddr::new(wanted.ip(), port)) {
        let Ok(mut listener) = Listener::bind(address, BACKLOG) else { continue };
        let failed = |error| ServerError::bind(address, error);
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

fn is_taken(error: &ServerError) -> bool {
    matches!(error, ServerError::Bind(_, cause) if cause.kind() == io::ErrorKind::AddrInUse)
}

/// Enables the kernel's probes of silent peers, if they are wanted.
fn keep_alive(listener: &mut Listener, config: &ServerConfig) -> io::Result<()> {
    let Some(idle) = config.tcp_keep_alive else { return Ok(()) };
    // A client must not count as dead for as long as it is allowed to be slow.
    listener.keep_alive(KeepAlive { idle, unacknowledged_max: config.limits.write_timeout })
}

fn bind_patiently(address: SocketAddr) -> Result<Listener, ServerError> {
    let until = Instant::now() + BIND_PATIENCE;
    loop {
        match Listener::bind(address, BACKLOG) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                thread::sleep(BIND_PAUSE);
            }
            bound => return bound.map_err(|error| ServerError::bind(address, error)),
        }
    }
}
