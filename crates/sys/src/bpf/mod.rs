//! How does the kernel refuse a connection before it exists?
//!
//! With BPF programs of a few dozen instructions, written (`program.rs`) with our own assembler
//! (`asm.rs`) and loaded with plain `bpf(2)`. Program and server share a [page](Words) of counters:
//! how much work is in progress, and how much is allowed.
//!
//! * [`SocketGate`] protects listeners of this process. It needs `CAP_BPF`.
//! * [`PortGate`] protects a port of another server. It needs `CAP_BPF`, and `CAP_NET_ADMIN` to
//!   learn when connections end.
//!
//! A gate acts in the network namespace of the thread that made it. Once made, it needs no
//! privilege. It disappears with the process, however that ends: only descriptors keep it alive in
//! the kernel.

mod asm;
mod call;
mod cookies;
mod counters;
mod map;
mod program;
mod reconcile;
mod sources;

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use highwater_core::time::Instant;

use crate::call::{check, context};
use crate::capability::{self, Capability};
use crate::{ListenQueue, Listener};
use call::Purpose;
use cookies::Cookies;
use reconcile::{Reconciler, Totals};

pub use counters::PassiveOpens;
pub use map::{Counts, Mode, Words};
pub use sources::Sources;

/// A gate before listeners of this process.
///
/// # How exact is the limit?
/// A SYN takes a place. So simultaneous SYNs can never get more places than there are: while every
/// handshake completes, connections accepted or waiting to be accepted never exceed the limit.
///
/// Handshakes that do not complete would hold places. So [`reconcile`](SocketGate::reconcile) frees
/// as many places as handshakes were missing throughout the last second, plus the number expected
/// to be missing from the recent share of losses. A connection that still arrives exceeds the limit
/// until the next call. So the limit is exceeded by no more than the handshakes in progress plus
/// what a flood sends between two calls (at most 1000). While places are freed in advance,
/// [`Words::taken`] may be below 0.
///
/// A flood of SYNs with forged addresses takes places for about a second, until it is recognized.
///
/// While the kernel answers SYNs with cookies, the gate drops instead of resetting: a reset would
/// hit clients that return a cookie. It may reset some until the next call has noticed the cookies.
#[derive(Debug)]
pub struct SocketGate {
    words: Words,
    sources: Sources,
    reconciler: Reconciler,
    queues: Vec<ListenQueue>,
    cookies: Cookies,
    /// What to do with connections beyond the limit, unless cookies forbid it.
    mode: Mode,
    /// The lookup programs are attached as long as these are open.
    _lookups: Vec<OwnedFd>,
}

impl SocketGate {
    /// Protects addresses, each with all the listeners there, in [`Mode::Reset`]. They share the limit. A
    /// listener that is made later is not covered.
    ///
    /// A wildcard address covers its port on every address of the network namespace.
    ///
    /// # Errors
    /// The refused operation, and what to change. Nothing is left behind.
    pub fn attach(places: &[(SocketAddr, &[Listener])], limit: u32) -> io::Result<SocketGate> {
        let words = Words::new(limit).map_err(|error| explain("creating a BPF map", &error))?;
        let sources = Sources::new().map_err(|error| explain("creating a BPF map", &error))?;
        let (map, of_sources) = (words.map().as_raw_fd(), sources.map().as_raw_fd());
        let filter = program::listener_filter(map, of_sources);
        let filter = call::load(&filter, Purpose::Filter, "highwater_admit")
            .map_err(|error| explain("loading a socket filter", &error))?;
        let lookup = |&(address, _): &(SocketAddr, &[Listener])| {
            attach_lookup(&program::socket_lookup(map, of_sources, address))
        };
        let lookups = places.iter().map(lookup).collect::<io::Result<_>>()?;
        let listeners = || places.iter().flat_map(|(_, listeners)| *listeners);
        for listener in listeners() {
            listener
                .attach_filter(filter.as_fd())
                .map_err(|error| explain("attaching a socket filter", &error))?;
        }
        words.set_mode(Mode::Reset);
        Ok(SocketGate {
            words,
            sources,
            reconciler: Reconciler::default(),
            queues: listeners().map(Listener::queue).collect(),
            cookies: Cookies::watch(),
            mode: Mode::Reset,
            _lookups: lookups,
        })
    }

    /// The page shared with the programs.
    pub fn words(&self) -> &Words {
        &self.words
    }

    /// Where connections come from, and how many each source may open. Sources are not looked at unless
    /// [`Sources::count`] is called.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Sets what happens to connections beyond the limit. While the kernel sends cookies,
    /// [`Mode::Reset`] drops.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
        self.words.set_mode(mode);
    }

    /// Frees the places of handshakes that will not complete; `accepted` is how many connections
    /// were accepted so far. Call it about ten times per second.
    pub fn reconcile(&mut self, now: Instant, accepted: u64) {
        // Arrivals first. A connection that is admitted and arrives between the readings then counts as
        // missing, until the next call corrects it. In the other order it would hide a lost place for the
        // whole second over which the smallest count is taken.
        let waiting: u64 = self.queues.iter().filter_map(ListenQueue::waiting).map(u64::from).sum();
        let Counts { admitted, reset, dropped } = self.words.counts();
        let (refused, arrived) = (reset + dropped, accepted + waiting);
        let correction = self.reconciler.reconcile(now, Totals { admitted, refused, arrived });
        self.words.add_taken(correction);
        self.words.set_mode(match self.mode {
            Mode::Reset if self.cookies.are_out(now) => Mode::Drop,
            mode => mode,
        });
    }
}

impl Drop for SocketGate {
    /// The filters stay attached to their listeners, but refuse nothing any more.
    fn drop(&mut self) {
        self.words.set_mode(Mode::Off);
    }
}

/// How long a handshake with another server keeps its place. Clients with a longer round trip wait for the
/// network, not for the server; they count again once they are connected.
const HANDSHAKE: Duration = Duration::from_millis(100);

/// A gate before a port on which another process listens.
///
/// # How exact is the limit?
/// With a control group, a place is taken by a SYN that begins a handshake, and freed when the
/// connection ends. Packets of connections that do not exist take no place. Of handshakes that do not
/// complete, [`reconcile`](PortGate::reconcile) frees the places, a tenth of a second later. The limit
/// is exceeded by at most one connection per core, if SYNs come at the same moment, plus the
/// handshakes that take longer than that.
///
/// While the kernel answers SYNs with cookies, only established connections count against the limit: a client that returns a
/// cookie would else find its own place taken, and be reset.
///
/// Without a control group, every packet that belongs to no connection takes a place, until the owner
/// corrects [`Words::taken`] by the kernel's list of connections.
#[derive(Debug)]
pub struct PortGate {
    words: Words,
    reconciler: Reconciler,
    cookies: Cookies,
    _lookup: OwnedFd,
    events: Option<OwnedFd>,
}

impl PortGate {
    /// Protects `address` in this thread's network namespace, in [`Mode::Reset`]. [`Mode::Drop`] does the
    /// same, because only the listener's owner can drop. The IPv6 wildcard means the port on every address,
    /// including IPv4. The IPv4 wildcard is refused: the end of a connection does not show which wildcard
    /// accepted it.
    ///
    /// The processes that listen must be in `cgroup` (a directory of a cgroup v2 file system, see
    /// [`cgroup_root`]) or below: then the gate learns when connections begin and end. If they are not,
    /// it learns nothing and refuses nothing: [`Words::lives`] stays at 0. Without a cgroup, the caller
    /// must correct the count with [`Words::set_taken`].
    ///
    /// # Errors
    /// The refused operation, and what to change. Nothing is left behind.
    pub fn attach(address: SocketAddr, cgroup: Option<&Path>, limit: u32) -> io::Result<PortGate> {
        if address.ip() == IpAddr::V4(Ipv4Addr::UNSPECIFIED) {
            let text = "0.0.0.0 has no gate of its own: use [::], which means every address";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let words = Words::new(limit).map_err(|error| explain("creating a BPF map", &error))?;
        let map = words.map().as_raw_fd();
        let (events, lookup) = match cgroup {
            Some(cgroup) => {
                let events = attach_events(map, address, cgroup)?;
                (Some(events), program::port_lookup(map, address))
            }
            None => (None, program::counting_lookup(map, address)),
        };
        let lookup = attach_lookup(&lookup)?;
        words.set_mode(Mode::Reset);
        let reconciler = Reconciler::with_patience(HANDSHAKE);
        Ok(PortGate { words, reconciler, cookies: Cookies::watch(), _lookup: lookup, events })
    }

    /// Frees the places of handshakes that will not complete, if there is a control group, and notices whether the kernel
    /// sends cookies, which sets the mode. Call it ten times per second or more often.
    pub fn reconcile(&mut self, now: Instant) {
        if self.events.is_none() {
            return;
        }
        // Arrivals first, as for a gate of our own.
        let (arrived, _) = self.words.lives();
        let Counts { admitted, reset: refused, .. } = self.words.counts();
        let correction = self.reconciler.reconcile(now, Totals { admitted, refused, arrived });
        self.words.add_taken(correction);
        self.words.set_mode(match self.cookies.are_out(now) {
            true => Mode::ResetBeyondEstablished,
            false => Mode::Reset,
        });
    }

    /// The page shared with the programs.
    pub fn words(&self) -> &Words {
        &self.words
    }
}

/// Where the cgroup v2 hierarchy is mounted, if it is.
pub fn cgroup_root() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    find_cgroup2(&mounts).map(PathBuf::from)
}

/// The first mount of type `cgroup2` in the text of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
fn find_cgroup2(mounts: &str) -> Option<&str> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let is_cgroup2 = after.split(' ').next() == Some("cgroup2");
        is_cgroup2.then(|| before.split(' ').nth(4)).flatten()
    })
}

fn attach_lookup(program: &asm::Program) -> io::Result<OwnedFd> {
    let program = call::load(program, Purpose::Lookup, "highwater_gate")
        .map_err(|error| explain("loading a socket lookup", &error))?;
    let namespace = File::open("/proc/thread-self/ns/net")
        .map_err(|error| context(error, "opening /proc/thread-self/ns/net"))?;
    call::link(&program, namespace.as_fd(), Purpose::Lookup)
        .map_err(|error| explain("attaching a socket lookup", &error))
}

fn attach_events(map: i32, address: SocketAddr, cgroup: &Path) -> io::Result<OwnedFd> {
    let what = format!("watching the control group {}", cgroup.display());
    let refused = |error: &io::Error| match error.raw_os_error() {
        Some(libc::EBADF | libc::EINVAL | libc::ENOENT | libc::ENOTDIR) => {
            io::Error::new(error.kind(), format!("{what}: {error} (no cgroup v2 is mounted there)"))
        }
        _ => explain(&what, error),
    };
    let cookie = namespace_cookie().map_err(|error| context(error, "SO_NETNS_COOKIE"))?;
    let directory = File::open(cgroup).map_err(|error| refused(&error))?;
    let program = program::connection_events(map, address, cookie);
    let program = call::load(&program, Purpose::Events, "highwater_lives")
        .map_err(|error| explain("loading a program of socket events", &error))?;
    call::link(&program, directory.as_fd(), Purpose::Events).map_err(|error| refused(&error))
}

/// A number that names this thread's network namespace, as the kernel's programs see it.
fn namespace_cookie() -> io::Result<u64> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    let (mut cookie, mut len) = (0_u64, size_of::<u64>() as libc::socklen_t);
    // SAFETY: both pointers are valid for writes, and `len` says how much there is room for.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    })?;
    Ok(cookie)
}

/// The failed step with its error, and what usually causes it.
fn explain(step: &str, error: &io::Error) -> io::Error {
    let may = capability::has(Capability::Bpf) || capability::has(Capability::SysAdmin);
    let likely = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if !may => {
            "CAP_BPF is missing: setcap cap_bpf+ep on the program, AmbientCapabilities=CAP_BPF in \
             systemd, --cap-add BPF in a container"
        }
        Some(libc::EPERM | libc::EACCES) if !capability::has(Capability::NetAdmin) => {
            "CAP_NET_ADMIN is missing: setcap cap_bpf,cap_net_admin+ep on the program"
        }
        Some(libc::EPERM | libc::EACCES) => {
            "a seccomp profile, a security module or a user namespace refuses it"
        }
        Some(libc::E2BIG) => {
            "64 programs are attached to this network namespace already, which is the kernel's limit"
        }
        Some(libc::ENOSYS) => "this kernel was built without BPF, or a sandbox hides it",
        Some(libc::EINVAL) => "this kernel is too old: Linux 5.12 or later is needed",
        _ => return context(io::Error::new(error.kind(), error.to_string()), step),
    };
    io::Error::new(error.kind(), format!("{step}: {error} ({likely})"))
}
