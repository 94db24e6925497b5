//! The metrics port: starters, stoppers and balancers of servers are answered, whatever else is
//! connected.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use highwater_testkit::{Client, Process, get};

use crate::{Transport, on_each_transport};

on_each_transport!(among_slow_senders, among_halves_of_heads, among_those_who_do_not_read);

/// How many clients are in the way.
const HOSTILE: usize = 400;

/// How long a probe waits for its answer. An orchestrator's waits for one second by default; here other tests
/// take the cores, and without protection it took 8 to 29.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks for each page that probes and scrapers ask for, over connections of their own and a few times;
/// answers how long the slowest took.
fn probe(server: &Process) -> Duration {
    let mut slowest = Duration::ZERO;
    for _ in 0..5 {
        for path in ["/livez", "/readyz", "/metrics", "/scaling"] {
            let begun = Instant::now();
            let mut client = Client::connect(server.metrics());
            client.set_patience(PROBE_TIMEOUT);
            assert_eq!(client.get(path).status, 200, "{path}");
            slowest = slowest.max(begun.elapsed());
        }
        thread::sleep(Duration::from_millis(200));
    }
    slowest
}

/// Purpose: probes are answered while hundreds of clients send their heads byte by byte, and
/// reconnect when they are disconnected.
fn among_slow_senders(transport: Transport) {
    let server = transport.serve(&[]);
    let (stop, head) = (AtomicBool::new(false), get("/metrics"));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut clients: Vec<(Client, usize)> =
                (0..HOSTILE).map(|_| (Client::connect(server.metrics()), 0)).collect();
            while !stop.load(Relaxed) {
                for (client, sent) in &mut clients {
                    if client.send(&head[*sent..=*sent]).is_err() {
                        (*client, *sent) = (Client::connect(server.metrics()), 0);
                    } else {
                        *sent = (*sent + 1) % (head.len() - 1);
                    }
                }
                thread::sleep(Duration::from_millis(50));
            }
        });
        thread::sleep(Duration::from_millis(300));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| probe(&server)));
        stop.store(true, Relaxed);
        let slowest = outcome.expect("every probe is answered");
        println!("{transport:?}: among {HOSTILE} slow senders: slowest probe {slowest:?}");
    });
}

/// Purpose: probes are answered while hundreds of clients have sent half a head and keep silent.
fn among_halves_of_heads(transport: Transport) {
    let server = transport.serve(&[]);
    let _clients: Vec<TcpStream> = (0..HOSTILE)
        .map(|_| {
            let mut client = Client::connect(server.metrics());
            client.send(b"GET /metrics HTTP/1.1\r\nHo").expect("open");
            client.stream().try_clone().expect("a descriptor is left")
        })
        .collect();
    let slowest = probe(&server);
    println!("{transport:?}: among {HOSTILE} halves of heads: slowest probe {slowest:?}");
}

/// Purpose: probes are answered while hundreds of clients request more pages than they read, and
/// unread pages are not kept for them.
fn among_those_who_do_not_read(transport: Transport) {
    let server = transport.serve(&[]);
    probe(&server);
    let before = server.resident_kib();
    let clients: Vec<Client> = (0..HOSTILE)
        .map(|_| {
            let mut client = Client::connect_small(server.metrics(), 4096);
            let asked = client.send(get("/metrics").repeat(100));
            asked.expect("the kernel takes as much");
            client
        })
        .collect();
    let slowest = probe(&server);
    let grown = server.resident_kib().saturating_sub(before);
    drop(clients);
    println!(
        "{transport:?}: among {HOSTILE} who do not read: slowest probe {slowest:?}, {grown} KiB more"
    );
    assert!(grown <= 64 * 1024, "{grown} KiB more");
}
