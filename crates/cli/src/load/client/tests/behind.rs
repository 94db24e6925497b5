//! A client that is behind must neither stand nor blame the server.

use super::fake::{Machine, OK, START, Server, What, case, ms, run, uniform};
use super::*;

/// A server with as many threads as it needs, each of which takes `service`.
fn in_parallel(service: Duration) -> Server {
    Box::new(move |now, what| match what {
        What::Connect => vec![(now, Does::Say(b""))],
        What::Request => vec![(now + service, Does::Say(OK))],
    })
}

/// A storm of connections at 4000 a second, each given up after 200 ms.
fn storm(measured: Duration, client: Machine) -> fake::Case {
    let mut storm = case(2000, uniform(4000.0));
    storm.plan.requests_per_connection = 1;
    (storm.plan.give_up, storm.deadline) = (ms(200), Some(ms(200)));
    (storm.measured, storm.client) = (measured, client);
    storm
}

/// Purpose: a client that can open fewer connections than it is asked to sends what it can, in time for its answers, and
/// says how much that is. Its line once stood: it began each request just before it gave it up, 256 in a turn, and
/// reported a server that answers everything within 2 ms as dead.
#[test]
fn too_slow_for_the_rate() {
    // Opening one and closing it take 400 us: 2500 a second.
    let client = Machine { cost: Duration::from_micros(200), ..Machine::default() };
    let (tally, connections) = run(storm(Duration::from_secs(4), client), in_parallel(ms(2)));
    let Counts { sent, good, timeouts, .. } = tally.counts;
    assert_eq!((tally.asked, sent + tally.not_sent), (16_000, 16_000));
    assert!((8_000..=10_500).contains(&sent), "{sent}");
    assert!(good * 10 >= sent * 9, "{good} of {sent} answered in time");
    assert_eq!(timeouts, 0, "the server answers all of them");
    assert!(connections <= 2000, "{connections}");
}

/// Purpose: after a stall of the client everything goes on at once: what could have been answered in time is sent,
/// what could not is not, and nothing is counted as a time-out of the server.
#[test]
fn a_stall_is_over_when_it_ends() {
    let stall = Some((START + ms(500), ms(1000)));
    let client = Machine { cost: Duration::from_micros(100), stall, counts_closing: true };
    let (tally, connections) = run(storm(Duration::from_secs(3), client), in_parallel(ms(5)));
    let Counts { sent, ok, good, timeouts, .. } = tally.counts;
    assert_eq!((tally.asked, sent + tally.not_sent), (12_000, 12_000));
    // Those of the stall that were older than half their time when it ended: 3600 of 4000.
    assert!((3_500..=3_700).contains(&tally.not_sent), "{}", tally.not_sent);
    assert_eq!((ok, timeouts), (sent, 0));
    // Answers that came in the stall are dated when they came, give or take the kernel's ticks.
    assert_eq!(good, sent);
    assert!(connections <= 2000, "{connections}");
    assert!((ms(990)..ms(1010)).contains(&tally.stood), "{:?}", tally.stood);
}

/// Purpose: connections that are being given up count against the bound until they are closed.
#[test]
fn the_bound_holds_while_giving_up() {
    let silent: Server = Box::new(|now, what| match what {
        What::Connect => vec![(now, Does::Say(b""))],
        What::Request => Vec::new(),
    });
    let client = Machine { counts_closing: true, ..Machine::default() };
    let mut narrow = storm(Duration::from_secs(1), client);
    narrow.plan.connections = 300;
    let (tally, connections) = run(narrow, silent);
    assert_eq!(connections, 300);
    assert_eq!(tally.counts.timeouts, tally.counts.sent);
    assert!(tally.crowded > 0 && tally.crowded == tally.not_sent, "{}", tally.crowded);
}

/// Purpose: a stall of the *server* is still charged to it: what it does not answer in time has timed out.
#[test]
fn a_stall_of_the_server_is_its_own() {
    let stalls: Server = Box::new(|now, what| match what {
        What::Connect => vec![(now, Does::Say(b""))],
        What::Request => vec![((now + ms(5)).max(START + ms(1500)), Does::Say(OK))],
    });
    let (tally, _) = run(storm(Duration::from_secs(3), Machine::default()), stalls);
    let Counts { sent, timeouts, .. } = tally.counts;
    assert_eq!((sent, tally.not_sent), (12_000, 0));
    // All that were due more than 200 ms, and a tick of the timing wheel, before it went on.
    assert!((5_150..=5_250).contains(&timeouts), "{timeouts}");
}
