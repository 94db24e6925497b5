//! Which listening sockets was this process started with?
//!
//! A service manager that listens for a service passes its sockets as `sd_listen_fds(3)` describes: from descriptor 3 on,
//! as many as `LISTEN_FDS` says, named by `LISTEN_FDNAMES`, for the process that `LISTEN_PID` names. They stay open in the
//! manager. So connections wait there while the service restarts, and none is lost.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::call::check;
use crate::socket::{option, set_for_connections};
use crate::{Address, Listener};

/// The first descriptor that is passed.
const FIRST: RawFd = 3;

/// More sockets than a service manager passes: a descriptor's number is not a size.
const COUNT_MAX: usize = 1024;

/// A listening socket that this process was started with. It is [shared](Listener::share).
#[derive(Debug)]
pub struct Inherited {
    /// The number of its descriptor.
    pub number: i32,
    /// The name that the service manager gave it, if it gave one.
    pub name: Option<String>,
    /// The socket.
    pub listener: Listener,
    /// Where it listens.
    pub address: Address,
}

/// The sockets that this process was started with, as `variable` reads the environment. Only the first call gets
/// them: they have one owner.
///
/// # Errors
/// Which descriptor is not a listening stream socket, and what it is instead.
pub fn inherited(variable: impl Fn(&str) -> Option<String>) -> io::Result<Vec<Inherited>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let Some(names) = announced(variable, std::process::id())? else { return Ok(Vec::new()) };
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(Vec::new());
    }
    (FIRST..).zip(names).map(|(number, name)| take(number, name)).collect()
}

/// The names of the sockets that are announced to the process `own`, if any are.
fn announced(
    variable: impl Fn(&str) -> Option<String>,
    own: u32,
) -> io::Result<Option<Vec<Option<String>>>> {
    let (Some(process), Some(count)) = (variable("LISTEN_PID"), variable("LISTEN_FDS")) else {
        return Ok(None);
    };
    // Variables of a parent, which passed its sockets to another process.
    if process.parse() != Ok(own) {
        return Ok(None);
    }
    let count = count.parse().ok().filter(|count| *count <= COUNT_MAX).ok_or_else(|| {
        invalid(format!("LISTEN_FDS={count:?} is not a number of sockets; use 0 to {COUNT_MAX}"))
    })?;
    let given = variable("LISTEN_FDNAMES").unwrap_or_default();
    let given = given.split(':').map(|name| Some(name.to_owned()).filter(|name| !name.is_empty()));
    let names = given.chain(std::iter::repeat(None)).take(count).collect();
    Ok(Some(names))
}

/// Takes over descriptor `number`.
fn take(number: RawFd, name: Option<String>) -> io::Result<Inherited> {
    let wrong = |what: &str| {
        let named = name.as_ref().map(|name| format!(" ({name:?})")).unwrap_or_default();
        invalid(format!(
            "descriptor {number}{named} of LISTEN_FDS is {what}; pass listening stream sockets only, TCP or Unix \
             (ListenStream= with Accept=no)"
        ))
    };
    // SAFETY: takes no pointers. It fails if there is no such descriptor.
    check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })
        .map_err(|_| wrong("not open"))?;
    let kind = option(number, libc::SO_TYPE).map_err(|_| wrong("not a socket"))?;
    if kind != libc::SOCK_STREAM {
        return Err(wrong(match kind {
            libc::SOCK_DGRAM => "a datagram socket",
            _ => "a socket of another type",
        }));
    }
    if option(number, libc::SO_ACCEPTCONN)? == 0 {
        return Err(wrong("a socket that does not listen"));
    }
    let family = option(number, libc::SO_DOMAIN)?;
    if !matches!(family, libc::AF_INET | libc::AF_INET6 | libc::AF_UNIX) {
        return Err(wrong("a socket of another family"));
    }
    // SAFETY: the service manager opened it for this process, as `LISTEN_PID` says; it is taken only once.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    let (mut listener, address) = if family == libc::AF_UNIX {
        let path = unix_path(&fd)?;
        (Listener::of(fd, BACKLOG), Address::Unix(path))
    } else {
        set_for_connections(&fd)?;
        let listener = Listener::of(fd, BACKLOG);
        let address = Address::Tcp(listener.local_addr()?);
        (listener, address)
    };
    listener.set_kept();
    Ok(Inherited { number, name, listener, address })
}

/// What its backlog is taken for.
const BACKLOG: u32 = 4096;

/// The path of a listening Unix socket.
fn unix_path(fd: &OwnedFd) -> io::Result<PathBuf> {
    use std::os::linux::net::SocketAddrExt;

    let address = UnixListener::from(fd.try_clone()?).local_addr()?;
    Ok(match (address.as_pathname(), address.as_abstract_name()) {
        (Some(path), _) => path.to_owned(),
        (None, Some(name)) => format!("@{}", String::from_utf8_lossy(name)).into(),
        (None, None) => format!("@descriptor-{}", fd.as_raw_fd()).into(),
    })
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(variables: &[(&str, &str)]) -> Result<Option<Vec<Option<String>>>, String> {
        let variable = |wanted: &str| {
            variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned())
        };
        announced(variable, 42).map_err(|error| error.to_string())
    }

    /// Purpose: sockets are taken only by the process that they are meant for, with the names that were given.
    #[test]
    fn announced_to_this_process() {
        assert_eq!(names(&[]), Ok(None));
        assert_eq!(names(&[("LISTEN_FDS", "1")]), Ok(None));
        assert_eq!(names(&[("LISTEN_FDS", "1"), ("LISTEN_PID", "41")]), Ok(None));
        assert_eq!(names(&[("LISTEN_FDS", "x"), ("LISTEN_PID", "")]), Ok(None));
        let two = [("LISTEN_FDS", "2"), ("LISTEN_PID", "42")];
        assert_eq!(names(&two), Ok(Some(vec![None, None])));
        let named = [&two[..], &[("LISTEN_FDNAMES", "web:")]].concat();
        assert_eq!(names(&named), Ok(Some(vec![Some("web".into()), None])));
        for count in ["", "x", "-1", "1025"] {
            let message = names(&[("LISTEN_FDS", count), ("LISTEN_PID", "42")]).expect_err(count);
            assert_eq!(
                message,
                format!("LISTEN_FDS={count:?} is not a number of sockets; use 0 to 1024")
            );
        }
    }

    /// Purpose: a descriptor that is not a listening stream socket is refused by its number and name.
    #[test]
    fn what_does_not_listen_is_refused() {
        use std::net::{TcpStream, UdpSocket};

        let refused = |fd: OwnedFd| {
            let number = fd.as_raw_fd();
            let error = take(number, Some("web".into())).expect_err("it does not listen");
            let message = error.to_string();
            let named = format!("descriptor {number} (\"web\") of LISTEN_FDS is ");
            message.strip_prefix(&named).unwrap_or_else(|| panic!("{message}")).to_owned()
        };
        let datagram = UdpSocket::bind("127.0.0.1:0").expect("there is a port");
        assert!(refused(datagram.into()).starts_with("a datagram socket; pass listening stream"));
        let file = std::fs::File::open("/proc/self/stat").expect("it can be read");
        assert!(refused(file.into()).starts_with("not a socket; "));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let at = listener.local_addr().expect("it is bound");
        let connected = TcpStream::connect(at).expect("it listens");
        assert!(refused(connected.into()).starts_with("a socket that does not listen; "));
        let message = take(99_999, None).expect_err("it is not open").to_string();
        assert!(message.starts_with("descriptor 99999 of LISTEN_FDS is not open; "), "{message}");
    }

    /// Purpose: a socket that listens is taken with its address, and drivers know that others wait there, too.
    #[test]
    fn what_listens_is_taken() {
        use std::os::fd::IntoRawFd;

        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let at = listener.local_addr().expect("it is bound");
        let taken = take(listener.into_raw_fd(), None).expect("it listens");
        assert_eq!(taken.address, Address::Tcp(at));
        assert!(taken.listener.is_shared());
    }
}
