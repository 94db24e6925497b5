//! The client with simulated time: its tally is compared with a model of the server, to the nanosecond.

mod behind;
mod fake;

use std::cell::Cell;
use std::rc::Rc;

use highwater_core::prng::Prng;
use highwater_sys::dial::Failure;
use proptest::prelude::*;

use self::fake::{BUSY, CLOSING, Does, OK, START, Server, What, case, ms, requests, run, uniform};
use super::super::counts::Counts;
use super::super::expect::{Body, Expect};
use super::*;

/// A server with one thread: requests in the order they come, the `n`-th takes `service(n)`.
fn one_at_a_time(service: impl Fn(u64) -> Duration + 'static) -> Server {
    let (mut free_at, mut count) = (START, 0);
    Box::new(move |now, what| match what {
        What::Connect => vec![(now, Does::Say(b""))],
        What::Request => {
            free_at = free_at.max(now) + service(count);
            count += 1;
            vec![(free_at, Does::Say(OK))]
        }
    })
}

/// Purpose: in an open loop a stall is charged to every request it delays, also to those that could
/// not even be sent: latencies are those of a queue fed by the schedule (Lindley's recursion).
#[test]
fn open_loop_has_no_coordinated_omission() {
    let service = |n: u64| ms(if n == 50 { 400 } else { 1 });
    let (tally, connections) = run(case(1, uniform(200.0)), one_at_a_time(service));
    assert_eq!(connections, 1);
    let mut free_at = Duration::ZERO;
    let latencies = (0..200).map(|n| {
        let due = ms(5 * n);
        free_at = free_at.max(due) + service(n);
        free_at - due
    });
    let expected: Vec<u128> = latencies.map(|latency| latency.as_nanos()).collect();
    assert_eq!((tally.counts.sent, tally.counts.ok, tally.asked), (200, 200, 200));
    assert_eq!(tally.latency.sum(), expected.iter().sum::<u128>());
    assert_eq!(u128::from(tally.latency.max().unwrap()), *expected.iter().max().unwrap());
    // Ninety-nine requests were due while it stalled or caught up; a closed loop would show one.
    let waited = expected.iter().filter(|latency| **latency > ms(1).as_nanos()).count() as u64;
    assert!(waited >= 80);
    assert_eq!(tally.waited, waited - 1, "all but the one that stalled waited for the connection");
}

/// Purpose: a closed loop has as many requests in flight as users, no more and no fewer: Little's law says
/// the rate and the latency.
#[test]
fn closed_loop_obeys_little() {
    let (tally, connections) = run(case(10, Demand::closed(10, ms(50))), one_at_a_time(|_| ms(1)));
    assert_eq!(connections, 10);
    // Ten at once, then one each time one is answered; those sent after the second are not measured.
    assert_eq!(tally.counts.ok, 10 + 999);
    assert_eq!(tally.latency.max(), Some(ms(10).as_nanos() as u64));
    assert_eq!(tally.latency.sum(), (1..10).chain([10; 1000]).map(|n| ms(n).as_nanos()).sum());
}

/// Purpose: a request that gets no answer is given up at its deadline, does not count as goodput, and leaves
/// no connection behind; one that is answered later is late.
#[test]
fn deadline() {
    let silent: Server = Box::new(|now, what| match what {
        What::Connect => vec![(now, Does::Say(b""))],
        What::Request => Vec::new(),
    });
    let mut storm = case(1000, uniform(100.0));
    (storm.plan.give_up, storm.deadline) = (ms(200), Some(ms(200)));
    let (tally, connections) = run(storm, silent);
    let Counts { sent, timeouts, good, .. } = tally.counts;
    assert_eq!((sent, timeouts, good), (100, 100, 0));
    // Two tenths of a second at a hundred a second, and what a tick of the timing wheel adds.
    assert!((20..=22).contains(&connections), "{connections}");

    let mut late = case(1000, uniform(100.0));
    late.deadline = Some(ms(5));
    let slow = |n: u64| ms(if n.is_multiple_of(2) { 3 } else { 6 });
    let (tally, _) = run(late, one_at_a_time(slow));
    assert_eq!((tally.counts.ok, tally.counts.good), (100, 50));
}

/// Purpose: requests that expire in line are not sent, which is not a time-out, and lower the sent rate.
#[test]
fn not_sent() {
    let silent: Server = Box::new(|now, what| match what {
        What::Connect => vec![(now, Does::Say(b""))],
        What::Request => Vec::new(),
    });
    let mut narrow = case(1, uniform(1000.0));
    narrow.plan.give_up = ms(500);
    let (tally, connections) = run(narrow, silent);
    assert_eq!((connections, tally.asked), (1, 1000));
    assert_eq!(tally.counts.sent + tally.not_sent, 1000);
    assert_eq!(tally.counts.timeouts, tally.counts.sent);
    // While one is given up, a tick of the timing wheel late, those behind it expire.
    assert!(tally.not_sent >= 500, "{}", tally.not_sent);
}

/// Purpose: a user that is refused pauses, by a refused connection as by a 503.
#[test]
fn backoff() {
    let refused: Server = Box::new(|now, _| vec![(now, Does::Fail(Failure::Refused))]);
    let (tally, _) = run(case(4, Demand::closed(4, ms(50))), refused);
    assert_eq!((tally.counts.sent, tally.counts.refused), (80, 80));
    let busy: Server = Box::new(|now, _| vec![(now, Does::Say(BUSY))]);
    let (tally, connections) = run(case(4, Demand::closed(4, ms(50))), busy);
    assert_eq!((tally.counts.non_2xx, tally.statuses[503 - 100]), (80, 80));
    assert_eq!(connections, 4);
}

/// Purpose: batches are as deep as asked for, and a connection carries as many requests as asked for.
#[test]
fn pipelined_with_a_last_request() {
    let mut case = case(1, Demand::closed(1, ms(50)));
    (case.plan.pipeline, case.plan.requests_per_connection) = (4, 10);
    let connects = Rc::new(Cell::new(0));
    let counter = connects.clone();
    let mut batches = Vec::new();
    let server: Server = Box::new(move |now, what| {
        match what {
            What::Connect => {
                assert!(batches.is_empty() || batches == [4, 4, 2], "{batches:?}");
                batches.clear();
                counter.set(counter.get() + 1);
            }
            // Requests of one batch come at one instant.
            What::Request => match batches.last_mut() {
                Some(count) if *count < 4 => *count += 1,
                _ => batches.push(1),
            },
        }
        vec![(now + ms(1), Does::Say(OK))]
    });
    let (tally, connections) = run(case, server);
    assert_eq!(connections, 1);
    assert_eq!(tally.counts.ok, tally.counts.sent);
    assert!(tally.counts.ok.abs_diff(connects.get() * 10) <= 10);
}

/// Purpose: if the server closes after each answer, the client lets it close first, and closing connections
/// do not count against the limit.
#[test]
fn server_closes() {
    let server: Server = Box::new(|now, what| match what {
        What::Connect => vec![(now, Does::Say(b""))],
        What::Request => vec![(now + ms(1), Does::Say(CLOSING)), (now + ms(20), Does::End)],
    });
    let (tally, connections) = run(case(1, uniform(500.0)), server);
    assert_eq!((tally.counts.ok, tally.counts.errors()), (500, 0));
    assert_eq!(tally.waited, 0);
    assert!((9..=11).contains(&connections), "{connections}");
}

/// Purpose: answers that are not what was expected are counted beside their status, are no goodput, and the first
/// reasons are kept; the answer before and the one after are judged by themselves.
#[test]
fn unexpected_answers() {
    let mut case = case(1, Demand::closed(1, ms(50)));
    let expect =
        Expect { status: Some(200), body: Some(Body::Whole(b"ok".into())), ..Expect::default() };
    case.plan.requests = Arc::new(requests(&["/"], &expect));
    let mut count = 0;
    let server: Server = Box::new(move |now, what| {
        if what == What::Connect {
            return vec![(now, Does::Say(b""))];
        }
        count += 1;
        let bytes: &[u8] = match count % 4 {
            0 | 2 => OK,
            1 => b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno",
            _ => b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nok",
        };
        vec![(now + ms(1), Does::Say(bytes))]
    });
    let (tally, _) = run(case, server);
    let Counts { sent, ok, good, non_2xx, bad, .. } = tally.counts;
    assert_eq!((sent, ok, good, non_2xx, bad), (1000, 750, 500, 250, 500));
    assert_eq!(tally.reasons.len(), 2, "each once");
    assert_eq!(tally.reasons[0], "/: body differs from byte 0 on");
    assert_eq!(tally.reasons[1], "/: status 404, expected 200");
}

/// A server that does anything: what, and after how long, is decided by `random`.
fn anything(mut random: Prng) -> Server {
    Box::new(move |now, what| {
        let mut reactions = Vec::new();
        let at = now + Duration::from_micros(random.below(30_000));
        let does = match (random.below(20), what) {
            (0, _) => Does::Fail(Failure::Refused),
            (1, _) => Does::Fail(Failure::Reset),
            (2, _) => Does::Nothing,
            (3, What::Request) => Does::End,
            (4, What::Request) => Does::Say(b"garbage\r\n\r\n"),
            (5, What::Request) => Does::Say(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nextra"),
            (6, What::Request) => Does::Say(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"),
            (7, What::Request) => Does::Say(b"HTTP/1.1 200 OK\r\n\r\nto the end"),
            (8, What::Request) => Does::Say(BUSY),
            (9, What::Request) => Does::Say(CLOSING),
            (10, What::Request) => Does::Say(b"HTTP/1.1 200"),
            _ => Does::Say(OK),
        };
        reactions.push((at, does));
        if random.chance(1, 8) && what == What::Request {
            reactions.push((at + Duration::from_micros(random.below(5_000)), Does::End));
        }
        reactions
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Purpose: whatever a server does, every request that was sent ends once, in one way; the dialer's
    /// contract is kept (the fake asserts it); and connections stay within their bound.
    #[test]
    fn every_request_ends_once(
        seed in any::<u64>(),
        open in any::<bool>(),
        connections in 1..20_usize,
        pipeline in 1..5_usize,
        per_connection in prop_oneof![Just(u64::MAX), 1..8_u64],
        mix in any::<bool>(),
    ) {
        let demand =
            if open { uniform(2000.0) } else { Demand::closed(connections, Duration::from_micros(700)) };
        let mut case = case(connections, demand);
        case.measured = ms(300);
        case.deadline = Some(ms(15));
        case.plan.give_up = ms(60);
        case.plan.pipeline = if open { 1 } else { pipeline };
        case.plan.requests_per_connection = per_connection;
        if mix {
            let expect = Expect { body: Some(Body::part("k")), ..Expect::default() };
            case.plan.requests = Arc::new(requests(&["/${seq}", "/"], &expect));
            case.plan.choice = Choice::new(&case.plan.requests, seed);
            case.plan.logs = true;
        }
        let (tally, most_open) = run(case, anything(Prng::from_seed(seed)));
        let counts = tally.counts;
        let ends = counts.ok + counts.non_2xx + counts.refused + counts.timeouts + counts.errors();
        prop_assert_eq!(ends, counts.sent);
        prop_assert_eq!(tally.asked, counts.sent + tally.not_sent);
        prop_assert_eq!(tally.latency.count(), counts.ok);
        prop_assert_eq!(tally.statuses.iter().sum::<u64>(), counts.ok + counts.non_2xx);
        prop_assert!(counts.good <= counts.ok);
        prop_assert!(counts.bad <= counts.ok + counts.non_2xx);
        let of_rows = |field: fn(&Counts) -> u64| {
            tally.rows.iter().map(|row| field(&row.counts)).sum::<u64>()
        };
        prop_assert_eq!(tally.rows.len(), if mix { 2 } else { 0 });
        prop_assert!(!mix || of_rows(|counts| counts.sent) == counts.sent);
        prop_assert!(!mix || of_rows(|counts| counts.bad) == counts.bad);
        prop_assert!(!mix || of_rows(|counts| counts.ok + counts.non_2xx + counts.refused
            + counts.timeouts + counts.errors()) == counts.sent);
        prop_assert!(most_open <= connections + LINGERING_MAX);
        prop_assert!(!open || tally.asked == 600, "{}", tally.asked);
    }
}
