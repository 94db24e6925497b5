//! A listener as settings describe it: an address, and options behind commas.
//!
//! ```text
//!  127.0.0.1:8080    [::]:80,http1    unix:/run/app.sock,mode=660
//! ```

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

pub use highwater_sys::Address;

use super::address;
pub(super) use crate::metrics::LISTENERS_MAX;

/// Begins the path of a Unix socket.
const UNIX: &str = "unix:";

/// Where a server listens, and how: an address, and options behind commas.
///
/// | address | |
/// |---|---|
/// | `127.0.0.1:8080`, `0.0.0.0:80`, `[::1]:8080` | An IP address and a port; port 0 lets the kernel choose one. `[::]` is IPv4's as well. |
/// | `unix:/run/app.sock` | A Unix stream socket at this path, which contains no comma. |
///
/// | option | |
/// |---|---|
/// | `http1` | HTTP/1.1 only, which is all there is so far. |
/// | `mode=OCTAL` | For Unix sockets: the permissions of the file, such as `mode=660`. A client needs the one to write. Without this option, those that the process's umask leaves of 777. |
///
/// **The file of a Unix socket** is there as soon as the server accepts, and is removed when it begins to drain. A file
/// that a dead process left behind is replaced; if somebody listens there, or if it is not a socket, the server does not
/// start. The gates of the kernel and the accept gate do not apply to Unix sockets: whoever connects there is a proxy
/// of the same machine, which takes a refused connection for a broken server. Under overload, its requests are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    pub(super) address: Address,
    /// The permissions of a Unix socket's file.
    pub(super) mode: Option<u32>,
    /// The option `http1` was given.
    is_http1_only: bool,
}

impl Listen {
    /// Listens on an IP address and a port.
    pub fn tcp(address: SocketAddr) -> Self {
        Listen { address: Address::Tcp(address), mode: None, is_http1_only: false }
    }

    /// Listens on a Unix stream socket at `path`.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Listen { address: Address::Unix(path.into()), mode: None, is_http1_only: false }
    }

    /// Sets the permissions of a Unix socket's file, such as `0o660`. Without effect on TCP.
    #[must_use]
    pub fn mode(self, mode: u32) -> Self {
        Listen { mode: Some(mode), ..self }
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
                ("http1", "") => listen.is_http1_only = true,
                ("mode", mode) if is_unix => listen.mode = Some(file_mode(mode)?),
                ("mode", _) => return Err("mode is for Unix sockets; leave it out".to_owned()),
                _ => return Err(unknown(option)),
            }
        }
        Ok(listen)
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
    format!("the option {option:?} is unknown; use http1, and mode=OCTAL for Unix sockets")
}

/// As it is written in settings.
impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if self.is_http1_only {
            f.write_str(",http1")?;
        }
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
                "127.0.0.1:80,tls",
                "the option \"tls\" is unknown; use http1, and mode=OCTAL for Unix sockets",
            ),
            (
                "127.0.0.1:80,",
                "the option \"\" is unknown; use http1, and mode=OCTAL for Unix sockets",
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
