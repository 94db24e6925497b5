//! The provider slow, failing, cut off, lying, gone: nothing changes for clients.
//!
//! The service, the provider and the clients are real processes and sockets. Each misbehaviour is
//! seen to have taken effect before clients are looked at.

mod service;

use std::net::SocketAddr;
use std::thread;

use highwater_testkit::{Client, Process, lasting_ports};
use service::{provider, search, wait_for_poll};

const CLIENTS: usize = 4;
const ROUNDS: usize = 25;
const TARGETS: [&str; 4] = [
    "/search",
    "/search?starts_at=2024-06-01&ends_at=2024-06-30",
    "/search?starts_at=2026-01-01T12:00:00Z",
    "/health",
];

/// Every client's every answer, while the provider does whatever it does.
fn observe(address: SocketAddr) -> Vec<Vec<u8>> {
    let observe = move || {
        let mut client = Client::connect(address);
        let mut answers = Vec::new();
        for _ in 0..ROUNDS {
            for target in TARGETS {
                let answer = client.get(target);
                assert_eq!(answer.status, 200, "{target}");
                answers.push(answer.body);
            }
        }
        answers
    };
    let clients: Vec<_> = (0..CLIENTS).map(|_| thread::spawn(observe)).collect();
    clients
        .into_iter()
        .flat_map(|client| client.join().expect("every request is answered"))
        .collect()
}

/// Purpose: for each way in which a provider can fail, clients get the answers they got before,
/// every one of them, and the failure is logged and counted.
#[test]
fn clients_notice_nothing() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let good: &[&str] = &["--events=1000", "--etag", "--gzip"];
    let port = lasting_ports(1);
    let honest = provider(port, good);
    let service = search(honest.address, directory.path());
    wait_for_poll(&service, "ok");
    let expected = observe(service.address);
    wait_for_poll(&service, "not_modified");
    drop(honest);

    // Behaviour, and what the poll fails with. What is sent is a new feed as far as tags go.
    let cases: [(&[&str], &[&str]); 5] = [
        (&["--fail-rate=1"], &["status"]),
        // The connection is reset where the promise breaks; how much was read by then is chance.
        (&["--truncate-rate=1"], &["truncated", "reset"]),
        (&["--lie=length"], &["truncated", "reset"]),
        (&["--lie=html"], &["not_a_feed"]),
        (&["--delay=30s"], &[]),
    ];
    for (behaviour, reasons) in cases {
        let bad = provider(port, &[behaviour, &["--events=1000"]].concat());
        service.skip_lines();
        await_effect(&service, &bad, reasons);
        assert!(observe(service.address) == expected, "{behaviour:?}");
        assert_eq!(service.metric("http_store_size"), 1000.0);
    }
    service.skip_lines();
    wait_for_poll(&service, "failed");
    assert!(observe(service.address) == expected, "gone");
    assert!(service.metric(r#"search_polls_total{outcome="failed"}"#) >= 5.0);

    let _back = provider(port, good);
    // The tag it remembers is still that of the last whole feed.
    wait_for_poll(&service, "not_modified");
    assert!(observe(service.address) == expected, "back again");
}

/// Waits until the provider has had its effect: a poll that failed for one of these reasons, or, if
/// there are none, a poll that is held up.
fn await_effect(service: &Process, provider: &Process, reasons: &[&str]) {
    if reasons.is_empty() {
        provider.wait_for(|line| line.contains("the feed was asked for"));
        return;
    }
    service.wait_for(|line| {
        let is_reason = |reason: &&str| line.contains(&format!(" reason={reason} "));
        line.contains(" poll outcome=failed ") && reasons.iter().any(is_reason)
    });
}

/// Purpose: a feed of days that do not exist is a success without events, and takes none away.
#[test]
fn impossible_days_take_nothing_away() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let port = lasting_ports(1);
    let honest = provider(port, &["--events=200"]);
    let service = search(honest.address, directory.path());
    wait_for_poll(&service, "ok");
    let expected = observe(service.address);
    drop(honest);
    let _lying = provider(port, &["--events=200", "--lie=dates"]);
    let line =
        service.wait_for(|line| line.contains(" outcome=ok ") && line.contains(" online=0 "));
    assert!(line.contains(" events=200"), "{line}");
    assert!(observe(service.address) == expected);
    assert!(service.metric(r#"search_plans_skipped_total{reason="date"}"#) >= 200.0);
}
