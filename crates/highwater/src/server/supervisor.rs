//! Which states of the server are reported to the service manager?
//!
//! `READY=1` when every worker accepts, and `STOPPING=1` when the drain begins, as `sd_notify(3)` says: datagrams to the
//! socket that `NOTIFY_SOCKET` names. So `Type=notify` units start what depends on the server only when it serves. And
//! `WATCHDOG=1` while every worker has turns, for units with `WatchdogSec=`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Every worker accepts.
pub(super) const READY: &str = "READY=1\n";

/// The drain has begun.
pub(super) const STOPPING: &str = "STOPPING=1\n";

/// Every worker has turns.
pub(super) const ALIVE: &str = "WATCHDOG=1\n";

/// The time within which the service manager expects `WATCHDOG=1`, if it expects that (`sd_watchdog_enabled(3)`).
pub(super) fn patience() -> Option<Duration> {
    patience_in(|name| env::var(name).ok(), std::process::id())
}

fn patience_in(variable: impl Fn(&str) -> Option<String>, own: u32) -> Option<Duration> {
    let is_meant = variable("WATCHDOG_PID").is_none_or(|process| process.parse() == Ok(own));
    let micros =
        variable("WATCHDOG_USEC")?.parse().ok().filter(|micros| *micros > 0 && is_meant)?;
    Some(Duration::from_micros(micros))
}

/// Notifies the service manager, if there is one.
pub(super) fn notify(state: &str) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, state) {
        tracing::warn!(
            socket = %socket.display(),
            cause = %error,
            state = state.trim_end(),
            "the service manager cannot be notified",
        );
    }
}

fn send(socket: &OsString, state: &str) -> io::Result<()> {
    let address = address(socket)?;
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

/// A path, or `@` and an abstract name.
fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    match socket.as_bytes() {
        [b'/', ..] => SocketAddr::from_pathname(socket),
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "NOTIFY_SOCKET is neither a path nor an abstract name",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: both kinds of sockets get the message, and other kinds are an error.
    #[test]
    fn paths_and_abstract_names() {
        let id = std::process::id();
        let path = env::temp_dir().join(format!("hw-notify-{id}"));
        for name in [path.clone().into_os_string(), format!("@hw-notify-{id}").into()] {
            let at = address(&name).expect("it is an address");
            let manager = UnixDatagram::bind_addr(&at).expect("nobody listens there");
            send(&name, READY).expect("the manager listens");
            let mut received = [0; 64];
            let len = manager.recv(&mut received).expect("it was sent");
            assert_eq!(&received[..len], b"READY=1\n");
        }
        let _ = std::fs::remove_file(&path);
        assert!(send(&path.into_os_string(), READY).is_err(), "nobody listens any more");
        assert!(address(OsStr::new("vsock:2:1")).is_err());
    }

    /// Purpose: only the process that the service manager names sends `WATCHDOG=1`, and only if the manager expects it.
    #[test]
    fn signs_of_life_are_wanted_of_this_process() {
        let patience = |variables: &[(&str, &str)]| {
            let variable = |wanted: &str| {
                variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).into())
            };
            patience_in(variable, 42)
        };
        let wanted = ("WATCHDOG_USEC", "1500000");
        assert_eq!(patience(&[wanted]), Some(Duration::from_millis(1500)));
        assert_eq!(patience(&[wanted, ("WATCHDOG_PID", "42")]), Some(Duration::from_millis(1500)));
        assert_eq!(patience(&[wanted, ("WATCHDOG_PID", "41")]), None);
        for usec in ["", "0", "soon"] {
            assert_eq!(patience(&[("WATCHDOG_USEC", usec)]), None, "{usec}");
        }
        assert_eq!(patience(&[]), None);
    }
}
