//! What abusive clients send, and what it costs the server: each case is one connection to a server in a process of its own.
//! The connection ends as the documentation says, everybody else is served meanwhile, and the memory and the computing that
//! it takes have bounds.
//!
//! The cases are lists: `http1.rs`, `http2.rs`, `websocket.rs`, `tls.rs`. How a connection is driven stands in `strike.rs`,
//! the bytes of the protocols in `wire.rs`.
#![expect(clippy::print_stdout, reason = "what was measured is worth reading")]

mod http1;
mod http2;
mod strike;
mod tls;
mod websocket;
mod wire;

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use highwater_testkit::{PATIENCE, Process, within};
use highwater_tests::server::warm_up;

use strike::{Case, Struck};

/// Memory that one connection may take beyond what an idle one does, unless its case says otherwise: content that waits for a
/// handler, or answers that wait for their client.
const KIB_MAX: u64 = 4 * 1024;

/// Computing that one connection may cause, with the assertions and without the optimizations of a debug build.
const CPU_MAX: Duration = Duration::from_secs(2);

fn cases() -> Vec<Case> {
    [http1::cases(), http2::cases(), websocket::cases(), tls::cases()].concat()
}

/// Purpose: the list stays as long as it is, and its names are what failures are found by.
#[test]
fn there_are_enough_cases() {
    let mut names: Vec<_> = cases().iter().map(|case| (case.protocol, case.name)).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "two have one name");
    assert!(count >= 170, "{count} cases");
}

#[test]
fn over_uring() {
    match highwater_sys::probe().uring {
        Ok(()) => each_is_survived("uring"),
        Err(reason) => highwater_skip::skip("io_uring", reason),
    }
}

#[test]
fn over_epoll() {
    each_is_survived("epoll");
}

#[test]
fn over_portable() {
    each_is_survived("portable");
}

/// Purpose: no case ends otherwise than it should, costs more than it may, or keeps anybody else from being served.
fn each_is_survived(transport: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    fs::write(&cert, pair.cert.pem()).expect("room on the disk");
    fs::write(&key, pair.signing_key.serialize_pem()).expect("room on the disk");
    let [cert, key] = [cert, key].map(|path| path.to_str().expect("plain").to_owned());
    let flags = [
        ["--transport", transport],
        // Others' work on this machine is no reason to refuse the witness.
        ["--shed", "none"],
        ["--listen", "127.0.0.1:0,tls"],
        ["--tls-cert", &cert],
        ["--tls-key", &key],
        ["--header-timeout", "1s"],
        ["--body-timeout", "1s"],
        ["--write-timeout", "2s"],
    ];
    let server =
        highwater_tests::server::serve(env!("CARGO_BIN_EXE_strained"), flags.as_flattened(), None);
    warm_up(&server);
    // Its content is made once.
    assert_eq!(server.get("/content?bytes=1").status, 200);
    let descriptors = server.descriptors();
    let (is_over, witnessed) = (AtomicBool::new(false), AtomicU64::new(0));
    let failures = thread::scope(|scope| {
        scope.spawn(|| witness(&server, &is_over, &witnessed));
        let failures: Vec<String> =
            cases().iter().filter_map(|case| survive(&server, case, transport)).collect();
        is_over.store(true, Relaxed);
        failures
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    println!(
        "{transport}: {} requests of a witness were answered meanwhile",
        witnessed.load(Relaxed)
    );
    // One is the witness's, which may not have been closed yet.
    assert!(within(PATIENCE, || server.descriptors() <= descriptors), "descriptors are left");
}

/// Somebody else's connection: each request is answered.
fn witness(server: &Process, is_over: &AtomicBool, witnessed: &AtomicU64) {
    let mut client = server.connect();
    while !is_over.load(Relaxed) {
        assert_eq!(client.get("/").status, 200, "the witness");
        witnessed.fetch_add(1, Relaxed);
        thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a case. Returns what is wrong with it.
fn survive(server: &Process, case: &Case, transport: &str) -> Option<String> {
    let Struck { ending, kib, cpu } = strike::strike(server, case);
    let name = format!("{:?}, {}", case.protocol, case.name);
    println!("{transport}: {name}: {ending}, {kib} KiB, {} ms of computing", cpu.as_millis());
    let kib_max = case.kib_max.unwrap_or(KIB_MAX);
    let is_right = case.ends.contains(&&*ending) && kib <= kib_max && cpu <= CPU_MAX;
    (!is_right).then(|| {
        format!(
            "{name}: {ending}, not {:?}; {kib} of {kib_max} KiB; {cpu:?} of {CPU_MAX:?}",
            case.ends
        )
    })
}
