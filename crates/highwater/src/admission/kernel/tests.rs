//! The gates, in network namespaces that the tests make, with the privileges they leave.
//!
//! Each test runs itself again, as a process in its own namespaces, with only the named capabilities. It is
//! the first process of its namespace, so its children end with it, and it ends with this process. Where that
//! is not allowed, the test reports that it is skipped.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as Name, UnixDatagram};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant as Clock};

use highwater_skip::skip;

use super::*;

/// Set in the process that runs the test.
const INSIDE: &str = "HIGHWATER_TEST_IN_NAMESPACE";
/// No step of a test takes this long unless something hangs.
const HANG: Duration = Duration::from_secs(20);
/// All capabilities, for [`isolated`].
const ALL: &str = "all";

/// Whether this process runs the test: it is in its own network namespace, with only `capabilities` left. If
/// not, starts that process, for the test of this name, and waits for it.
fn isolated(test: &str, capabilities: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let keep = if capabilities == ALL { "+all".to_owned() } else { format!("-all{capabilities}") };
    let name = format!("admission::kernel::tests::{test}");
    let inner = format!(
        "ip link set lo up && exec setpriv --inh-caps=-all --bounding-set={keep} \"$0\" \"$@\""
    );
    let output = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "unshare", "--net", "--pid", "--fork", "--kill-child"])
        .args(["--mount-proc", "--", "sh", "-c", &inner])
        .arg(std::env::current_exe().expect("/proc is mounted"))
        .args(["--exact", &name, "--nocapture"])
        .env(INSIDE, "1")
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            skip("setpriv", error);
            return false;
        }
    };
    let output_text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    if output_text.contains("unshare failed") {
        skip("root", output_text);
        return false;
    }
    assert!(output.status.success(), "{output_text}");
    assert!(output_text.contains("1 passed"), "the test of that name ran: {output_text}");
    // What it has skipped; past libtest, which holds back what a test prints that passes.
    for line in output_text.lines().filter(|line| line.starts_with("SKIPPED ")) {
        writeln!(io::stderr(), "{line}").expect("standard error is open");
    }
    false
}

/// Whether a tool and the kernel's part of it are here. If not, says so.
fn is_here(mechanism: Mechanism) -> bool {
    let address = "127.0.0.1:1".parse().unwrap();
    let tried = match mechanism {
        Mechanism::Nft => nft::Nft::open(address, 1).map(drop),
        Mechanism::Iptables => iptables::Iptables::open(address, 1).map(drop),
        Mechanism::Ebpf | Mechanism::Accept => Ok(()),
    };
    if let Err(error) = &tried {
        skip(mechanism.name(), error);
    }
    tried.is_ok()
}

fn listen(address: &str) -> (Vec<Listener>, SocketAddr) {
    let listener = Listener::bind(address.parse().unwrap(), 64).unwrap();
    let address = listener.local_addr().unwrap();
    (vec![listener], address)
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&address, Duration::from_millis(400))
}

/// The only address of a server.
fn entry(address: SocketAddr, listeners: &[Listener]) -> [Entry<'_>; 1] {
    [Entry { address, listeners, is_ours: true }]
}

#[track_caller]
fn assert_refused(address: SocketAddr) {
    let error = connect(address).expect_err("the gate is closed");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Clock::now();
    while !holds() {
        assert!(start.elapsed() < HANG, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn check_ceiling(choice: GateChoice, mechanism: Mechanism) {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (listeners, address) = listen(address);
        let Opened { gate, mechanism: opened, .. } =
            open(choice, &entry(address, &listeners), 2).expect("it is there");
        assert_eq!(opened, mechanism);
        let mut gate = gate.expect("it was asked for by name");
        let clients = [connect(address).unwrap(), connect(address).unwrap()];
        assert_refused(address);
        eventually("the refusal is counted", || gate.counts().unwrap().reset == 1);
        assert_eq!(gate.is_adjustable(), mechanism == Mechanism::Ebpf);
        if let Some(gate) = gate.adjustable() {
            gate.set_limit(1).unwrap();
        }
        assert_eq!(gate.is_adjustable(), gate.occupancy().is_some());
        assert_eq!(gate.is_adjustable(), gate.refuse_by(Refusal::Drop).unwrap());
        assert!(gate.refuse_by(Refusal::Reset).unwrap());
        // Gone with its owner.
        drop(gate);
        connect(address).unwrap();
        drop(clients);
    }
}

/// Purpose: the BPF gate admits the limit, refuses the next, and keeps the trait's promises.
#[test]
fn ebpf_is_a_gate() {
    if isolated("ebpf_is_a_gate", ALL) {
        check_ceiling(GateChoice::Ebpf, Mechanism::Ebpf);
    }
}

/// Purpose: the same of nftables, whose limit is fixed.
#[test]
fn nft_is_a_ceiling() {
    if isolated("nft_is_a_ceiling", ALL) && is_here(Mechanism::Nft) {
        check_ceiling(GateChoice::Nft, Mechanism::Nft);
    }
}

/// Purpose: the same of iptables; and it leaves no rule behind.
#[test]
fn iptables_is_a_ceiling() {
    if isolated("iptables_is_a_ceiling", ALL) && is_here(Mechanism::Iptables) {
        check_ceiling(GateChoice::Iptables, Mechanism::Iptables);
        assert!(!has_rules("iptables") && !has_rules("ip6tables"));
    }
}

/// Whether a gate's rules are in the tables of this tool.
fn has_rules(tool: &str) -> bool {
    firewall::run(tool, &["-w", "5", "-S", "INPUT"]).unwrap().contains("highwater")
}

/// Purpose: iptables at IPv6's wildcard covers both families; each has the whole limit, and what they refuse is counted together.
#[test]
fn iptables_covers_both_families() {
    if !isolated("iptables_covers_both_families", ALL) || !is_here(Mechanism::Iptables) {
        return;
    }
    let (listeners, address) = listen("[::]:0");
    let opened = open(GateChoice::Iptables, &entry(address, &listeners), 2).expect("it is there");
    let mut gate = opened.gate.expect("it was asked for by name");
    let families = ["127.0.0.1", "::1"];
    let families = families.map(|ip| SocketAddr::new(ip.parse().unwrap(), address.port()));
    let mut clients = Vec::new();
    for family in families {
        clients.extend([connect(family).unwrap(), connect(family).unwrap()]);
        assert_refused(family);
    }
    eventually("both refusals are counted", || gate.counts().unwrap().reset == 2);
    drop(gate);
    for family in families {
        connect(family).unwrap();
    }
    assert!(!has_rules("iptables") && !has_rules("ip6tables"));
}

/// Purpose: each of a server's addresses has its own count by iptables, however their ports begin.
#[test]
fn iptables_counts_each_address() {
    if !isolated("iptables_counts_each_address", ALL) || !is_here(Mechanism::Iptables) {
        return;
    }
    let (first, second) = (listen("127.0.0.1:4080"), listen("127.0.0.1:408"));
    let [entry_of_first] = entry(first.1, &first.0);
    let [entry_of_second] = entry(second.1, &second.0);
    let opened = open(GateChoice::Iptables, &[entry_of_second, entry_of_first], 0).unwrap();
    let mut gate = opened.gate.expect("it was asked for by name");
    assert_refused(first.1);
    eventually("it is counted once", || gate.counts().unwrap().reset == 1);
}

/// Purpose: with CAP_BPF alone the best gate works.
#[test]
fn cap_bpf_is_enough_for_ebpf() {
    if isolated("cap_bpf_is_enough_for_ebpf", ",+bpf") {
        check_ceiling(GateChoice::Auto, Mechanism::Ebpf);
    }
}

/// Purpose: with CAP_NET_ADMIN alone it is nftables, and the reason says what a better one needs.
#[test]
fn cap_net_admin_is_enough_for_nft() {
    if !isolated("cap_net_admin_is_enough_for_nft", ",+net_admin") || !is_here(Mechanism::Nft) {
        return;
    }
    let (listeners, address) = listen("127.0.0.1:0");
    let opened = open(GateChoice::Auto, &entry(address, &listeners), 2).expect("auto never fails");
    assert_eq!(opened.mechanism, Mechanism::Nft, "{}", opened.reason);
    assert!(opened.reason.contains("CAP_BPF is missing: setcap cap_bpf+ep"), "{}", opened.reason);
}

/// Purpose: without capabilities there is no gate in the kernel, the reason names each remedy, and a gate
/// asked for by name is an error with the same text.
#[test]
fn without_privilege_it_is_accept() {
    if !isolated("without_privilege_it_is_accept", "") {
        return;
    }
    let (listeners, address) = listen("127.0.0.1:0");
    let opened = open(GateChoice::Auto, &entry(address, &listeners), 2).expect("auto never fails");
    assert!(opened.gate.is_none() && opened.mechanism == Mechanism::Accept);
    assert!(opened.reason.contains("setcap cap_bpf+ep"), "{}", opened.reason);
    if !opened.reason.contains("nft is not installed") {
        assert!(opened.reason.contains("setcap cap_net_admin+ep"), "{}", opened.reason);
    }
    for (choice, remedy) in [
        (GateChoice::Ebpf, "setcap cap_bpf+ep"),
        (GateChoice::Nft, "n"),
        (GateChoice::Iptables, "n"),
    ] {
        let error =
            open(choice, &entry(address, &listeners), 2).err().expect("it does not work here");
        assert!(error.contains("does not work here") && error.contains(remedy), "{error}");
    }
    connect(address).expect("nothing is in the way");
}

/// Purpose: a tool that is not installed is named, with what to install.
#[test]
fn a_missing_tool_is_named() {
    let missing = io::Error::from(ErrorKind::NotFound);
    let text = firewall::missing("nft", &missing).to_string();
    assert_eq!(text, "nft is not installed: apt-get install nftables");
}

/// Set in the process that [`die_with`] kills: which gate it is to hold.
const VICTIM: &str = "HIGHWATER_TEST_VICTIM_GATE";

/// Not a test of its own: holds a gate of limit 0 on port 7777 until it is killed.
#[test]
fn victim() {
    let Ok(which) = std::env::var(VICTIM) else { return };
    let choice = if which == "nft" { GateChoice::Nft } else { GateChoice::Iptables };
    let address = "[::]:7777".parse().unwrap();
    let opened = open(choice, &entry(address, &[]), 0).expect("it is here");
    std::thread::sleep(HANG);
    drop(opened);
}

/// A process that holds a gate is killed; the lists of `tools` have its rules, and then no more.
fn die_with(which: &str, tools: &[&str], list: &[&str]) {
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "admission::kernel::tests::victim", "--nocapture"])
        .env(VICTIM, which)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let listed = |tool: &&str| firewall::run(tool, list).unwrap().contains("highwater");
    eventually("there are rules", || tools.iter().all(listed));
    victim.kill().unwrap();
    victim.wait().unwrap();
    eventually("the rules are gone", || !tools.iter().any(listed));
}

/// Purpose: `kill -9` leaves no table behind.
#[test]
fn nft_dies_with_its_owner() {
    if isolated("nft_dies_with_its_owner", ALL) && is_here(Mechanism::Nft) {
        die_with("nft", &["nft"], &["list", "tables"]);
    }
}

/// Purpose: `kill -9` leaves no rule behind; and if the watcher died too, the next one cleans up.
#[test]
fn iptables_dies_with_its_owner() {
    if !isolated("iptables_dies_with_its_owner", ALL) || !is_here(Mechanism::Iptables) {
        return;
    }
    let tools = ["iptables", "ip6tables"];
    die_with("iptables", &tools, &["-w", "5", "-S", "INPUT"]);
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let namespace: String =
        namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let stale = format!("highwater-gate/{namespace}/1/1");
    let other = "highwater-gate/1/1/1";
    let held = "highwater-gate/1/1/2";
    for (tool, tag) in
        tools.iter().flat_map(|tool| [stale.as_str(), other, held].map(|tag| (tool, tag)))
    {
        let mut rule = vec!["-A", "INPUT", "-p", "tcp", "--dport", "1", "--syn"];
        rule.extend(["-m", "connlimit", "--connlimit-above", "5", "--connlimit-mask", "0"]);
        rule.extend(["-m", "comment", "--comment", tag, "-j", "REJECT"]);
        rule.extend(["--reject-with", "tcp-reset"]);
        firewall::run(tool, &rule).unwrap();
    }
    let owners = tools.map(|tool| {
        let name = Name::from_abstract_name(format!("{tool}/{held}")).unwrap();
        UnixDatagram::bind_addr(&name).unwrap()
    });
    let opened = open(GateChoice::Iptables, &entry("[::]:2".parse().unwrap(), &[]), 1).unwrap();
    for tool in tools {
        let rules = firewall::run(tool, &["-S", "INPUT"]).unwrap();
        // To its end: our own tag may begin like it.
        assert!(!rules.contains(&format!("{stale}\"")), "{rules}");
        assert!(!rules.contains(other), "its owner was in another namespace, and is dead: {rules}");
        assert!(rules.contains(held), "its owner lives: {rules}");
    }
    drop((opened, owners));
}
