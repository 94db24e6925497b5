//! A listener as settings describe it: an address, and options separated by commas.
//!
//! ```text
//!  127.0.0.1:8080    [::]:443,proxy,tls    unix:/run/app.sock,mode=660
//! ```

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use highwater_core::protocol::Versions;
pub use highwater_sys::Address;

use super::address;
pub(super) use crate::metrics::LISTENERS_MAX;

/// Begins the path of a Unix socket.
const UNIX: &str = "unix:";

/// The address of a listener, and its options, separated by commas.
///
/// | address | |
/// |---|---|
/// | `127.0.0.1:8080`, `0.0.0.0:80`, `[::1]:8080` | An IP address and a port; port 0 lets the kernel choose one. `[::]` is IPv4's as well. |
/// | `unix:/run/app.sock` | A Unix stream socket at this path, which contains no comma. |
///
/// | option | |
/// |---|---|
/// | `proxy` | A header of the PROXY protocol, version 1 or 2, comes before everything else and names the client. Only from `trusted-proxies`; connections of others are reset. |
/// | `tls` | TLS, with the certificates of the settings (`tls-cert`) or of the code (`Tls`): feature `tls`. |
/// | `http1` | HTTP/1.1 only. Without it and `http2`, a client may speak either: with TLS as agreed (ALPN), else HTTP/2 with prior knowledge. |
/// | `http2` | HTTP/2 only: with TLS as agreed, else with prior knowledge. |
/// | `mode=OCTAL` | For Unix sockets: the permissions of the file, such as `mode=660`. A client needs write permission. Without this option, they are 777 without the bits of the process's umask. |
///
/// **The file of a Unix socket** is there as soon as the server accepts, and is removed when it begins to drain. A file
/// that a dead process left behind is replaced; if another process listens on it, or if it is not a socket, the server does
/// not start. The gates of the kernel and the accept gate do not apply to Unix sockets, because their peers are proxies on
/// the same machine, which mistake a refused connection for a broken server. Under overload, requests over them are
/// refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    pub(super) address: Address,
    /// The permissions of a Unix socket's file.
    pub(super) mode: Option<u32>,
    /// The option `proxy` was given.
    has_proxy_header: bool,
    /// The option `tls` was given.
    is_tls: bool,
    /// Which versions of HTTP its clients may speak.
    pub(super) versions: Versions,
}

impl Listen {
    /// Listens on an IP address and a port.
    pub fn tcp(address: SocketAddr) -> Self {
        Listen::new(Address::Tcp(address))
    }

    /// Listens on a Unix stream socket at `path`.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Listen::new(Address::Unix(path.into()))
    }

    fn new(address: Address) -> Self {
        Listen {
            address,
            mode: None,
            has_proxy_header: false,
            is_tls: false,
            versions: Versions::Both,
        }
    }

    /// Expects a header of the PROXY protocol at the beginning of each connection, from trusted proxies only: the option
    /// `proxy`.
    #[must_use]
    pub fn proxy_header(self) -> Self {
        Listen { has_proxy_header: true, ..self }
    }

    /// Whether each connection begins with a header of the PROXY protocol.
    pub fn has_proxy_header(&self) -> bool {
        self.has_proxy_header
    }

    /// Uses TLS: the option `tls`.
    #[must_use]
    pub fn tls(self) -> Self {
        Listen { is_tls: true, ..self }
    }

    /// Whether it speaks TLS.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Sets the permissions of a Unix socket's file, such as `0o660`. Without effect on TCP.
    #[must_use]
    pub fn mode(self, mode: u32) -> Self {
        Listen { mode: Some(mode), ..self }
    }

    /// Serves HTTP/1.1 only: the option `http1`.
    #[must_use]
    pub fn http1_only(self) -> Self {
        Listen { versions: Versions::Http1, ..self }
    }

    /// Serves HTTP/2 only: the option `http2`.
    #[must_use]
    pub fn http2_only(self) -> Self {
        Listen { versions: Versions::Http2, ..self }
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Self {
        Listen::tcp(address)
    }
}

/// The bytes of an IPv4 address, and a port.
impl From<([u8; 4], u16)> for Listen {
    fn from(address: ([u8; 4], u16)) -> Self {
        Listen::tcp(address.into())
    }
}

impl FromStr for Listen {
    type Err = String;

    /// The error says what is wrong, and what to write instead.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let address = parts.next().expect("a text has a first part");
        let mut listen = match address.strip_prefix(UNIX) {
            Some(path) => Listen::unix(unix_path(path)?),
            None => Listen::tcp(address::parse(address)?),
        };
        let is_unix = matches!(listen.address, Address::Unix(_));
        for option in parts {
            match option.split_once('=').unwrap_or((option, "")) {
                ("proxy", "") => listen.has_proxy_header = true,
                ("tls", "") => listen.is_tls = true,
                ("http1" | "http2", "") => listen.versions = listen.narrowed(option)?,
                ("mode", mode) if is_unix => listen.mode = Some(file_mode(mode)?),
                ("mode", _) => return Err("mode is for Unix sockets; leave it out".to_owned()),
                _ => return Err(unknown(option)),
            }
        }
        Ok(listen)
    }
}

impl Listen {
    /// The versions that are left with the option `http1` or `http2`.
    fn narrowed(&self, option: &str) -> Result<Versions, String> {
        let wanted = if option == "http1" { Versions::Http1 } else { Versions::Http2 };
        match self.versions {
            versions if versions == Versions::Both || versions == wanted => Ok(wanted),
            _ => Err("http1 and http2 exclude each other; leave out both to serve both".to_owned()),
        }
    }
}

fn unix_path(path: &str) -> Result<&str, String> {
    match path {
        "" => Err("the path is missing; use the form unix:/run/app.sock".to_owned()),
        _ if path.starts_with('@') => {
            Err("an abstract name has no permissions; use a path, such as unix:/run/app.sock"
                .to_owned())
        }
        path => Ok(path),
    }
}

fn file_mode(text: &str) -> Result<u32, String> {
    let is_octal = !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777);
    mode.ok_or_else(|| {
        format!("mode={text} is not a set of permissions; use three octal digits, such as mode=660")
    })
}

fn unknown(option: &str) -> String {
    format!(
        "the option {option:?} is unknown; use proxy, tls, http1 or http2, and mode=OCTAL for Unix sockets"
    )
}

/// As it is written in settings.
impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        f.write_str(if self.has_proxy_header { ",proxy" } else { "" })?;
        f.write_str(if self.is_tls { ",tls" } else { "" })?;
        f.write_str(match self.versions {
            Versions::Both => "",
            Versions::Http1 => ",http1",
            Versions::Http2 => ",http2",
        })?;
        if let Some(mode) = self.mode {
            write!(f, ",mode={mode:o}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: what is read is what was meant, and is shown as it was written.
    #[test]
    fn addresses_and_options() {
        for text in [
            "127.0.0.1:8080",
            "[::1]:80,http1",
            "0.0.0.0:443,tls",
            "0.0.0.0:443,proxy,tls,http1",
            "unix:/run/app.sock,proxy",
            "unix:/run/app.sock,tls,http1,mode=660",
            "[::1]:80,http2",
            "unix:/run/app.sock",
            "unix:app.sock,http1,mode=660",
            "unix:/run/app.sock,mode=0",
        ] {
            let listen: Listen = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(listen.to_string(), text);
        }
        let listen: Listen = "unix:/run/app.sock,mode=0660".parse().expect("it is right");
        assert_eq!(listen, Listen::unix("/run/app.sock").mode(0o660));
        assert_eq!("127.0.0.1:80".parse(), Ok(Listen::from(([127, 0, 0, 1], 80))));
    }

    /// Purpose: a mistake is answered with what to write instead, and an unknown option with those there are.
    #[test]
    fn mistakes_get_their_remedy() {
        for (text, remedy) in [
            ("localhost:80", "a name is not an address; use 127.0.0.1:80"),
            ("unix:", "the path is missing; use the form unix:/run/app.sock"),
            ("unix:,http1", "the path is missing; use the form unix:/run/app.sock"),
            (
                "unix:@app",
                "an abstract name has no permissions; use a path, such as unix:/run/app.sock",
            ),
            (
                "127.0.0.1:80,ssl",
                "the option \"ssl\" is unknown; use proxy, tls, http1 or http2, and mode=OCTAL for Unix sockets",
            ),
            (
                "127.0.0.1:80,",
                "the option \"\" is unknown; use proxy, tls, http1 or http2, and mode=OCTAL for Unix sockets",
            ),
            (
                "127.0.0.1:80,http1,http2",
                "http1 and http2 exclude each other; leave out both to serve both",
            ),
            ("127.0.0.1:80,mode=660", "mode is for Unix sockets; leave it out"),
            (
                "unix:/s,mode=rw",
                "mode=rw is not a set of permissions; use three octal digits, such as mode=660",
            ),
            (
                "unix:/s,mode=1777",
                "mode=1777 is not a set of permissions; use three octal digits, such as mode=660",
            ),
            (
                "unix:/s,mode",
                "mode= is not a set of permissions; use three octal digits, such as mode=660",
            ),
        ] {
            assert_eq!(text.parse::<Listen>(), Err(remedy.to_owned()), "{text}");
        }
    }
}
