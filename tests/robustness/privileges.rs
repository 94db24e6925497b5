//! Privileges: every thread gives up what setting up the kernel gate needed, and little is enough to serve.

use std::fs;
use std::path::Path;

use highwater_sys::capability::{self, Capability};
use highwater_testkit::{PATIENCE, Process, program, within};
use highwater_tests::server::serve;

/// What a thread of a process may do: its name, and its permitted and effective capabilities.
fn threads(process: &Process) -> Vec<(String, u64)> {
    let folder = format!("/proc/{}/task", process.id());
    let tasks = fs::read_dir(folder).expect("the process lives");
    let status = |task: fs::DirEntry| fs::read_to_string(task.path().join("status")).ok();
    let rights = |status: String| {
        let field = |name| status.lines().find_map(|line: &str| line.strip_prefix(name));
        let bits = |name| {
            let text = field(name).expect("the kernel tells").trim();
            u64::from_str_radix(text, 16).expect("a number in hexadecimal digits")
        };
        let name = field("Name:").expect("a thread has a name").trim().to_owned();
        (name, bits("CapPrm:") | bits("CapEff:") | bits("CapInh:") | bits("CapAmb:"))
    };
    // A thread may end meanwhile.
    tasks.filter_map(Result::ok).filter_map(status).map(rights).collect()
}

/// Purpose: with the gate attached, no thread of the server keeps the privileges that attaching it
/// needed: an attacker who takes over a thread that serves, counts or logs must not be able to
/// change the network.
#[test]
fn every_thread_gives_up_its_rights() {
    if !Capability::ALL.iter().all(|&right| capability::has(right)) {
        return highwater_skip::skip("root", "it takes the capabilities of a gate");
    }
    for gate in ["ebpf", "nft"] {
        if gate == "nft" && !Path::new("/usr/sbin/nft").exists() {
            highwater_skip::skip("nft", "it is not installed");
            continue;
        }
        let flags = ["--shed", "kernel", "--gate", gate];
        let server = serve(env!("CARGO_BIN_EXE_strained"), &flags, None);
        // The pool's threads, too.
        assert_eq!(server.get("/block?ms=1").status, 200);
        let rights = Capability::ALL.iter().fold(0, |bits, &right| bits | 1 << right as u8);
        let holders = || -> Vec<(String, u64)> {
            let all = threads(&server).into_iter();
            all.map(|(name, held)| (name, held & rights)).filter(|(_, held)| *held != 0).collect()
        };
        // The thread that looks after the rules of nft may go on doing so, and nothing else.
        let expected = match gate {
            "nft" => vec![("highwater-limit".to_owned(), 1 << Capability::NetAdmin as u8)],
            _ => Vec::new(),
        };
        // A thread gives up its rights as the first thing it does.
        let given_up = within(PATIENCE, || holders() == expected);
        assert!(given_up, "{gate}: {:?} keep theirs", holders());
        let names: Vec<String> = threads(&server).into_iter().map(|(name, _)| name).collect();
        println!("{gate}: of {names:?}, {expected:?} keep rights");
    }
}

/// Purpose: a server whose rings do not all fit into the memory that it may lock serves all the same, over epoll where
/// there is none left: 64 workers need more than the 8 MiB that most systems allow.
#[test]
fn little_memory_to_lock_is_enough() {
    if let Err(reason) = highwater_sys::probe().uring {
        return highwater_skip::skip("uring", &reason);
    }
    if !capability::has(Capability::Bpf) {
        return highwater_skip::skip("root", "only root can give up the capability");
    }
    // Root is not limited, unless it gives up the capability.
    let limited = |flags: &[&str]| {
        let mut command = program("setpriv");
        command.args(["--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock", "prlimit"]);
        command.args(["--memlock=65536", env!("CARGO_BIN_EXE_strained")]);
        command.args(["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--workers", "2"]);
        command.args(flags);
        command
    };
    let server = Process::start(&mut limited(&["--transport", "auto"]));
    for _ in 0..20 {
        assert_eq!(server.connect().get("/").status, 200);
    }
    // Kernels before 6.14 do not count rings: there, all of them fit.
    let log = server.log();
    let is_epoll = log.contains("transport=epoll") || log.contains("over epoll");
    println!("{}", if is_epoll { "a worker serves over epoll" } else { "all rings fit" });
    // The page agrees with the log.
    let workers = |transport| {
        let sample = format!("highwater_transport_workers{{transport=\"{transport}\"}}");
        server.find_metric(&sample).unwrap_or(0.0)
    };
    assert_eq!(workers("uring") + workers("epoll"), 2.0);
    assert_eq!(workers("epoll") > 0.0, is_epoll, "{log}");
}
