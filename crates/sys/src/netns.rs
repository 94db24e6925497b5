//! A network namespace: interfaces, addresses, rules and gates that nothing else on the machine sees.
//!
//! A namespace lives as long as its handle, the threads and processes inside it, and the sockets they opened there.
//! However these end, even by `SIGKILL`, the kernel then removes it with everything in it. Making and entering one
//! needs CAP_SYS_ADMIN.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use crate::call::{check, context};

/// The kernel's file for the namespace of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace.
#[derive(Debug)]
pub struct Namespace(File);

impl Namespace {
    /// Makes a namespace in which no interface is up.
    ///
    /// # Errors
    /// Whatever `unshare(2)` reports: `EPERM` without CAP_SYS_ADMIN.
    pub fn new() -> io::Result<Namespace> {
        // On a thread of its own: the calling one stays where it is.
        let made = std::thread::Builder::new().spawn(|| {
            // SAFETY: takes no pointer, and changes this thread only.
            check(unsafe { libc::unshare(libc::CLONE_NEWNET) })
                .map_err(|error| context(error, "unshare"))?;
            File::open(OWN).map(Namespace)
        })?;
        made.join().unwrap_or_else(|_| Err(io::Error::other("the thread that made it panicked")))
    }

    /// Runs `act` on the calling thread inside the namespace: the sockets, threads and processes that it starts are
    /// inside too, and stay there. The thread is back outside afterwards.
    ///
    /// # Errors
    /// Whatever `setns(2)` reports: `EPERM` without CAP_SYS_ADMIN. Then `act` was not run.
    ///
    /// # Panics
    /// If the thread cannot return: it must not continue in the wrong network.
    pub fn inside<T>(&self, act: impl FnOnce() -> T) -> io::Result<T> {
        /// Returns even if `act` panics.
        struct Home(File);
        impl Drop for Home {
            fn drop(&mut self) {
                enter(&self.0).expect("a thread that left its namespace can return");
            }
        }
        let home = File::open(OWN)?;
        enter(&self.0)?;
        let _home = Home(home);
        Ok(act())
    }

    /// The descriptor, which other processes can open as `/proc/PID/fd/N`.
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn enter(namespace: &File) -> io::Result<()> {
    // SAFETY: takes no pointer, and changes this thread only.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })
        .map_err(|error| context(error, "setns"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    /// Purpose: code inside sees nothing of the machine's network, and the thread returns.
    #[test]
    fn a_thread_goes_in_and_comes_back() {
        let namespace = match Namespace::new() {
            Ok(namespace) => namespace,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return highwater_skip::skip("root", "a network namespace");
            }
            Err(error) => panic!("{error}"),
        };
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback is up outside");
        let port = listener.local_addr().expect("it is bound").port();
        // Loopback of a new namespace is down: nothing can be sent, and the port is free.
        let (bound, sent) = namespace
            .inside(|| {
                let socket = UdpSocket::bind(("0.0.0.0", 0)).expect("no interface is needed");
                (TcpListener::bind(("0.0.0.0", port)), socket.send_to(b"x", ("127.0.0.1", 9)))
            })
            .expect("it can be entered");
        assert!(bound.is_ok() && sent.is_err(), "{bound:?} {sent:?}");
        assert!(TcpListener::bind(("127.0.0.1", port)).is_err(), "the thread is not back");
        assert!(
            std::path::Path::new(&format!("/proc/self/fd/{}", namespace.descriptor())).exists()
        );
    }
}
