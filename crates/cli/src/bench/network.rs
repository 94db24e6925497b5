//! Where do servers and clients meet? On loopback, or in a network of their own.
//!
//! Two namespaces, one for each side, and a cable (veth) between them. The kernel's receive work for a side is
//! steered to that side's CPUs: over loopback, the client's half of TCP runs on the server's. Nothing outside the two is
//! touched, and the kernel removes them, with every rule and gate inside, however this process ends.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use highwater_sys::netns::Namespace;

use super::plan::{ADDRESSES, Cpus};

/// An address for documentation (RFC 5737): no machine has it, and the namespaces have no way out.
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Each adds another set of client ports.
const CLIENTS: std::ops::RangeInclusive<u8> = 2..=9;
/// The tools it needs.
const REMEDY: &str =
    "run it as root, in a container with --privileged, with iproute2 and util-linux installed";
/// A connection per request blocks a port for a minute each: the client gets nearly all of them, and may use them again.
/// The server may choose its backlog.
const SETTINGS: [(Side, &str, &str); 4] = [
    (Side::Server, "core/somaxconn", "65535"),
    (Side::Server, "ipv4/tcp_max_syn_backlog", "65535"),
    (Side::Client, "ipv4/ip_local_port_range", "1024 65000"),
    (Side::Client, "ipv4/tcp_tw_reuse", "1"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Server,
    Client,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Side::Server => "server",
            Side::Client => "client",
        }
    }
}

/// Loopback, or two namespaces.
#[derive(Clone, Debug, Default)]
pub(super) struct Network(Option<Arc<[Namespace; 2]>>);

impl Network {
    /// Everything on loopback.
    pub(super) fn loopback() -> Network {
        Network(None)
    }

    /// Two namespaces with a cable, for servers and clients on these CPUs.
    ///
    /// # Errors
    /// This machine, or this user, cannot have them; with the remedy.
    pub(super) fn isolated(cpus: &Cpus) -> Result<Network, String> {
        let namespace =
            || Namespace::new().map_err(|error| format!("no network namespace: {error}: {REMEDY}"));
        let network = Network(Some(Arc::new([namespace()?, namespace()?])));
        network.lay_cable()?;
        for (side, cpus) in [(Side::Server, &cpus.server), (Side::Client, &cpus.client)] {
            network.prepare(side, cpus)?;
        }
        Ok(network)
    }

    /// The address that servers listen on.
    pub(super) fn host(&self) -> Ipv4Addr {
        if self.0.is_some() { SERVER } else { Ipv4Addr::LOCALHOST }
    }

    /// The source addresses of clients with many connections, in the form of `highwater load`: those that end in
    /// `range`, or a few.
    pub(super) fn sources(&self, range: Option<[u8; 2]>) -> String {
        let net = if self.0.is_some() { "192.0.2" } else { "127.0.0" };
        let [first, last] = range.unwrap_or([*CLIENTS.start(), *CLIENTS.end()]);
        format!("{net}.{first}-{net}.{last}")
    }

    /// For the record.
    pub(super) fn describe(&self) -> &'static str {
        match self.0 {
            None => "loopback",
            Some(_) => {
                "veth between two network namespaces, each side's receive work on its own CPUs"
            }
        }
    }

    /// Runs `act` on the calling thread, on that side; processes that it starts stay there.
    ///
    /// # Errors
    /// That side cannot be entered.
    pub(super) fn on<T>(&self, side: Side, act: impl FnOnce() -> T) -> Result<T, String> {
        let Some(namespaces) = &self.0 else { return Ok(act()) };
        let namespace = &namespaces[usize::from(side == Side::Client)];
        namespace.inside(act).map_err(|error| format!("the {}'s side: {error}", side.name()))
    }

    /// A connection to `address` from that side.
    ///
    /// # Errors
    /// It is not established within `limit`.
    pub(super) fn connect(
        &self,
        side: Side,
        address: SocketAddr,
        limit: Duration,
    ) -> Result<TcpStream, String> {
        let connect = || TcpStream::connect_timeout(&address, limit);
        self.on(side, connect)?.map_err(|error| error.to_string())
    }

    fn lay_cable(&self) -> Result<(), String> {
        let Some(namespaces) = &self.0 else { return Ok(()) };
        let other = format!("/proc/{}/fd/{}", std::process::id(), namespaces[1].descriptor());
        let line = format!("ip link add server type veth peer name client netns {other}");
        self.run(Side::Server, &line)
    }

    fn prepare(&self, side: Side, cpus: &[usize]) -> Result<(), String> {
        let name = side.name();
        let addresses: Vec<String> = match side {
            Side::Server => vec![SERVER.to_string()],
            Side::Client => ADDRESSES.map(|last| format!("192.0.2.{last}")).collect(),
        };
        for address in addresses {
            self.run(side, &format!("ip address add {address}/24 dev {name}"))?;
        }
        self.run(side, &format!("ip link set {name} up"))?;
        self.run(side, "ip link set lo up")?;
        for (_, setting, value) in SETTINGS.iter().filter(|(of, ..)| *of == side) {
            let path = format!("/proc/sys/net/{setting}");
            let written = self.on(side, || fs::write(&path, value))?;
            written.map_err(|error| format!("{path} = {value}: {error}: {REMEDY}"))?;
        }
        // A separate mount of /sys, since /sys shows the interfaces of the namespace that mounted it.
        let steer = format!(
            "mount -t sysfs sysfs /sys && echo {} > /sys/class/net/{name}/queues/rx-0/rps_cpus",
            mask(cpus)
        );
        self.done(side, Command::new("unshare").args(["--mount", "sh", "-c", &steer]))
    }

    fn run(&self, side: Side, line: &str) -> Result<(), String> {
        let mut words = line.split(' ');
        self.done(side, Command::new(words.next().unwrap_or_default()).args(words))
    }

    fn done(&self, side: Side, command: &mut Command) -> Result<(), String> {
        command.stdin(Stdio::null());
        let output = self.on(side, || command.output())?;
        let name = command.get_program().to_string_lossy().into_owned();
        let output = output.map_err(|error| format!("{name}: {error}: {REMEDY}"))?;
        if output.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        Err(format!("{name} for the {}'s side: {stderr}: {REMEDY}", side.name()))
    }
}

/// As the kernel reads sets of CPUs: 32-bit words in hexadecimal, the highest first.
fn mask(cpus: &[usize]) -> String {
    let words = cpus.iter().max().map_or(0, |last| last / 32) + 1;
    let mut mask = vec![0_u32; words];
    cpus.iter().for_each(|cpu| mask[cpu / 32] |= 1 << (cpu % 32));
    let words: Vec<String> = mask.iter().rev().map(|word| format!("{word:x}")).collect();
    let padded = words.iter().skip(1).map(|word| format!("{word:0>8}"));
    words.iter().take(1).cloned().chain(padded).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// Purpose: sets of CPUs are written as the kernel documents them (Documentation/core-api/cpu_bitmaps).
    #[test]
    fn masks() {
        for (cpus, expected) in [
            (&[0][..], "1"),
            (&[1], "2"),
            (&[0, 3], "9"),
            (&[32], "1,00000000"),
            (&[0, 63], "80000000,00000001"),
        ] {
            assert_eq!(mask(cpus), expected);
        }
    }

    /// Purpose: the two sides reach each other and nothing else, and receive work for a side runs on its CPUs.
    #[test]
    fn two_sides_and_a_cable() {
        let cpus = Cpus { server: vec![0], client: vec![1] };
        let network = match Network::isolated(&cpus) {
            Ok(network) => network,
            Err(problem) => return highwater_skip::skip("root", &problem),
        };
        let on_server = |act: &dyn Fn() -> String| network.on(Side::Server, act).expect("entered");
        let listener = network
            .on(Side::Server, || TcpListener::bind((network.host(), 0)))
            .expect("it can be entered")
            .expect("the address is there");
        let address = listener.local_addr().expect("it is bound");
        let limit = Duration::from_secs(30);
        let mut asking = network.connect(Side::Client, address, limit).expect("there is a cable");
        let (mut asked, from) = listener.accept().expect("it has come");
        assert!(from.ip().to_string().starts_with("192.0.2."), "{from}");
        asking.write_all(b"x").expect("it is open");
        let mut byte = [0];
        asked.read_exact(&mut byte).expect("it is open");
        assert!(TcpStream::connect_timeout(&address, Duration::from_millis(100)).is_err());
        let backlog = on_server(&|| fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap());
        assert_eq!(backlog.trim(), "65535");
    }
}
