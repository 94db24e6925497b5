//! Overload, turn by turn, with a clock that moves only on command: which request is begun when,
//! which answers the others get, and what is counted. The worker has time for one request a turn.

mod cork;
mod fresh;
mod leavers;
mod shares;

use std::sync::Mutex;

use highwater_core::time::Clock;

use crate::admission::gate::Bound;
use crate::admission::{Fair, Shed};
use crate::app::{Handler, Path, Priority, Request, Router};

use super::*;

const TARGET: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_millis(500);

struct Stage {
    worker: Worker<SimDriver>,
    metrics: Arc<WorkerMetrics>,
    /// What was begun, in order.
    begun: Arc<Mutex<Vec<String>>>,
}

impl Stage {
    fn new() -> Self {
        Stage::with(Shed::Kernel, 100)
    }

    fn with(shed: Shed, limit: u32) -> Self {
        Stage::built(shed, limit, false)
    }

    fn built(shed: Shed, limit: u32, refuse_close: bool) -> Self {
        Stage::staged(shed, limit, refuse_close, Fair::Off, |router| router)
    }

    /// Each address has its share of a standing queue.
    fn fair() -> Self {
        Stage::staged(Shed::Kernel, 100, false, Fair::Address, |router| router)
    }

    /// Whoever the application says: the client of `/do/busy-7` is `busy`, and for `panic` it panics.
    fn fair_by_name() -> Self {
        let client = |request: &Request<'_>| {
            let name = request.param("name").ok()??;
            let (client, _) = name.split_once('-')?;
            if client == "panic" {
                // Unlike `panic!`, this does not run the hook that prints.
                std::panic::resume_unwind(Box::new("simulated"));
            }
            Some(client.to_owned())
        };
        let name = |router: Router| router.fair_by(client);
        Stage::staged(Shed::Kernel, 100, false, Fair::Address, name)
    }

    fn staged(
        shed: Shed,
        limit: u32,
        refuse_close: bool,
        fair: Fair,
        name: impl FnOnce(Router) -> Router,
    ) -> Self {
        let begun: Arc<Mutex<Vec<String>>> = Arc::default();
        let note = |begun: &Arc<Mutex<Vec<String>>>| {
            let begun = Arc::clone(begun);
            move |Path(name): Path<String>| begun.lock().expect("no holder panics").push(name)
        };
        let router = Router::new()
            .get("/do/{name}", note(&begun))
            .get("/low/{name}", note(&begun).priority(Priority::Low))
            .get("/never-shed/{name}", note(&begun).never_shed());
        let app = name(router).build().expect("the routes do not conflict");
        let server = ServerConfig {
            patience: PATIENCE,
            queue_target: TARGET,
            connections_max: Some(10_000),
            refuse_close,
            fair,
            ..ServerConfig::default()
        };
        let config = WorkerConfig::new(app, &server);
        let metrics = Arc::clone(&config.metrics);
        let gate = WorkerGate::new(shed, &Bound::new(limit), (0, 1), Arc::clone(&metrics), None);
        let mut config = WorkerConfig { gate, ..config };
        config.terms.turn_max = Duration::ZERO;
        let network = Network::new(None, Faults::default(), Trace::default());
        let inbox = Inbox::new(Box::new(|| {}));
        let worker = Worker::new(SimDriver { network }, config, inbox, Pool::deferred(0));
        Stage { worker, metrics, begun }
    }

    fn network(&mut self) -> &mut Network {
        &mut self.worker.driver_mut().network
    }

    /// A new client sends a request.
    fn ask(&mut self, path: &str) -> usize {
        self.ask_with(path, "")
    }

    fn ask_with(&mut self, path: &str, fields: &str) -> usize {
        let link = connect(&mut self.worker);
        let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        self.network().send(link, request.as_bytes());
        link
    }

    /// A new client at address `number` sends a request.
    fn ask_from(&mut self, number: u8, path: &str) -> usize {
        let link = self.ask(path);
        self.network().settle(link, number);
        link
    }

    /// Time passes, then the worker has a turn.
    fn turn_after(&mut self, millis: u64) {
        let clock = self.worker.driver().clock();
        self.worker.waits_outside();
        clock.advance(Duration::from_millis(millis));
        turn(&mut self.worker);
    }

    /// Runs turns until no request waits.
    fn settle(&mut self) {
        turn(&mut self.worker);
        while self.worker.has_backlog() {
            turn(&mut self.worker);
        }
        turn(&mut self.worker);
    }

    /// The status that a client has received, if any.
    fn status(&mut self, link: usize) -> Option<u16> {
        let received = String::from_utf8(self.network().read(link, usize::MAX)).expect("ASCII");
        received.get(9..12).map(|status| status.parse().expect("a status"))
    }

    fn begun(&self) -> Vec<String> {
        std::mem::take(&mut *self.begun.lock().expect("no holder panics"))
    }

    /// More arrives than can be done, until the worker notices; each request takes 1 ms. In the end
    /// no request is left.
    fn overload(&mut self) {
        let mut crowd = Vec::new();
        while !self.worker.queue_stands() {
            assert!(crowd.len() < 5000, "it never stands");
            let first = crowd.len();
            crowd.extend((0..6).map(|n| self.ask(&format!("/do/{}", first + n))));
            self.turn_after(1);
        }
        assert!(self.begun().is_sorted_by_key(|name| name.parse::<u32>().ok()), "oldest first");
        // They wait for longer than the target, and are refused.
        self.turn_after(15);
        self.settle();
        let statuses: Vec<u16> = crowd.iter().filter_map(|&link| self.status(link)).collect();
        assert_eq!(statuses.len(), crowd.len(), "every client is answered");
        assert!(statuses.contains(&503));
        self.begun();
    }
}

/// Purpose: during an overload, waiting requests are begun in order as long as none is late; when
/// too many are late, the oldest are refused, and the newest is begun.
#[test]
fn newest_first() {
    let mut stage = Stage::new();
    stage.overload();
    let links: Vec<usize> = (0..20).map(|n| stage.ask(&format!("/do/{n}"))).collect();
    stage.turn_after(0);
    stage.turn_after(1);
    assert_eq!(stage.begun(), ["0", "1"]);
    stage.turn_after(15);
    stage.settle();
    assert_eq!(stage.begun(), ["19"]);
    assert_eq!((stage.status(links[2]), stage.status(links[19])), (Some(503), Some(200)));
}

/// Purpose: the target is exact: a request that has waited for exactly the target is begun, a
/// longer wait is refused.
#[test]
fn refused_beyond_the_target() {
    for (millis, status) in [(10, 200), (11, 503)] {
        let mut stage = Stage::new();
        stage.overload();
        let first = stage.ask("/do/first");
        let old = stage.ask("/do/old");
        stage.turn_after(0);
        stage.turn_after(millis);
        stage.settle();
        assert_eq!((stage.status(first), stage.status(old)), (Some(200), Some(status)));
    }
}

/// Purpose: when far more comes than can even be refused one after the other, as from a proxy with thousands of
/// clients, the rest is refused at once. Waiting for that would take longer than clients do, and each would come back
/// with a new connection. Health checks still find a place.
#[test]
fn a_full_queue_refuses_at_once() {
    let mut stage = Stage::new();
    stage.overload();
    let links: Vec<usize> = (0..2000).map(|n| stage.ask(&format!("/do/{n}"))).collect();
    let never_shed = stage.ask("/never-shed/v");
    // In no time at all, so none has waited for too long.
    (0..100).for_each(|_| stage.turn_after(0));
    let statuses: Vec<_> = links.iter().map(|link| stage.status(*link)).collect();
    let refused = statuses.iter().filter(|status| **status == Some(503)).count();
    assert!((1000..2000).contains(&refused), "{refused} at once");
    assert_eq!(stage.metrics.rejections("queue", "full") as usize, refused);
    assert_eq!(stage.status(never_shed), Some(200));
}

/// Purpose: a refused request with content that is still coming leaves its connection usable: the content is
/// dropped, and the next request is answered. So a proxy's connections survive an overload.
#[test]
fn a_refused_upload_leaves_its_connection() {
    let mut stage = Stage::new();
    stage.overload();
    stage.ask("/do/first");
    let link = connect(&mut stage.worker);
    let head = b"POST /do/up HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabc";
    stage.network().send(link, head);
    stage.turn_after(0);
    stage.turn_after(11);
    stage.settle();
    assert_eq!(stage.status(link), Some(503));
    stage.network().send(link, b"defGET /do/after HTTP/1.1\r\nHost: h\r\n\r\n");
    stage.settle();
    assert_eq!((stage.status(link), stage.network().link(link).is_live()), (Some(200), true));
}

/// Purpose: requests that a proxy passed on are recognized while the queue stands, also those of a proxy that adds no field
/// and opens a connection for each request (nginx without any setting): its connections must never be dropped silently.
#[test]
fn proxies_are_recognized() {
    for (version, field, passed_on) in [
        ("1.1", "", 0),
        ("1.1", "X-Forwarded-For: 192.0.2.1\r\n", 1),
        ("1.1", "Via: 1.1 cache\r\n", 1),
        ("1.0", "Connection: close\r\n", 1),
    ] {
        let mut stage = Stage::new();
        stage.overload();
        stage.ask("/do/first");
        stage.turn_after(0);
        let before = (stage.metrics.queue.judged.get(), stage.metrics.queue.passed_on.get());
        let link = connect(&mut stage.worker);
        let head = format!("GET /do/next HTTP/{version}\r\nHost: h\r\n{field}\r\n");
        stage.network().send(link, head.as_bytes());
        stage.turn_after(0);
        let judged = stage.metrics.queue.judged.get() - before.0;
        let counted = stage.metrics.queue.passed_on.get() - before.1;
        assert_eq!((judged, counted), (1, passed_on), "HTTP/{version} {field:?}");
    }
}

/// Purpose: for load balancers that distribute connections, a refused request can end its connection.
#[test]
fn a_refusal_can_end_its_connection() {
    for (closes, is_live) in [(false, true), (true, false)] {
        let mut stage = Stage::built(Shed::Kernel, 100, closes);
        stage.overload();
        stage.ask("/do/first");
        let old = stage.ask("/do/old");
        stage.turn_after(0);
        stage.turn_after(15);
        stage.settle();
        assert_eq!(stage.status(old), Some(503));
        let link = stage.network().link(old);
        assert_eq!(!link.has_ended(), is_live, "with {closes}");
    }
}

/// Purpose: nothing is begun for a client that has hung up while it waited, and it gets no answer.
/// Without overload, a client that has only finished sending is served.
#[test]
fn hung_up() {
    let mut stage = Stage::new();
    let finished = stage.ask("/do/finished");
    stage.network().finish(finished);
    stage.settle();
    assert_eq!((stage.status(finished), stage.begun().len()), (Some(200), 1));
    stage.overload();
    let first = stage.ask("/do/first");
    let gone = stage.ask("/do/gone");
    let there = stage.ask("/do/there");
    stage.turn_after(0);
    stage.network().finish(gone);
    stage.turn_after(20);
    stage.settle();
    assert_eq!(stage.begun(), ["first"]);
    assert_eq!(stage.status(first), Some(200));
    assert_eq!((stage.status(gone), stage.status(there)), (None, Some(503)));
    assert!(stage.network().link(gone).was_reset);
}

/// Purpose: clients that give up long before the patience that is set are answered in time again at once when the queue
/// has become too long for them, at little more than the capacity.
#[test]
fn clients_that_give_up() {
    for (how, leave) in
        [("finish", Network::finish as fn(&mut Network, usize)), ("leave", Network::leave)]
    {
        const GIVE_UP: usize = 100;
        let mut stage = Stage::new();
        let mut asked: Vec<(usize, usize)> = Vec::new();
        let (mut begun, mut in_time, mut left) = (0, 0, 0);
        for turn in 0..2500 {
            for _ in 0..=usize::from(turn % 5 == 0) {
                let link = stage.ask(&format!("/do/{}", asked.len()));
                asked.push((turn, link));
            }
            while asked[left].0 + GIVE_UP <= turn {
                leave(stage.network(), asked[left].1);
                left += 1;
            }
            stage.turn_after(1);
            let mut names = stage.begun();
            // To drop or to refuse takes no time.
            while names.is_empty() && stage.worker.has_backlog() {
                stage.turn_after(0);
                names = stage.begun();
            }
            begun += names.len();
            // An answer takes a while until it is there.
            let waited = |name: &String| turn - asked[name.parse::<usize>().expect("a number")].0;
            in_time += names.iter().map(waited).filter(|waited| *waited < GIVE_UP / 2).count();
        }
        assert!(begun > 2300 && in_time * 100 > begun * 80, "{how}: {in_time} of {begun}");
    }
}

/// Purpose: clients that finish sending as soon as they have asked are all answered, however many wait.
#[test]
fn half_closed_in_a_crowd() {
    let mut stage = Stage::new();
    let links: Vec<usize> = (0..400).map(|n| stage.ask(&format!("/do/{n}"))).collect();
    for link in &links {
        stage.network().finish(*link);
    }
    (0..400).for_each(|_| stage.turn_after(1));
    stage.settle();
    assert!(links.iter().all(|link| stage.status(*link) == Some(200)));
}

/// Purpose: the same for clients that ask several times at once and then finish sending: an answer to one request
/// does not make the next look given up.
#[test]
fn half_closed_with_more_to_answer() {
    let mut stage = Stage::new();
    for _ in 0..24 {
        let link = connect(&mut stage.worker);
        let requests = "GET /do/n HTTP/1.1\r\nHost: h\r\n\r\n".repeat(20);
        stage.network().send(link, requests.as_bytes());
        stage.network().finish(link);
    }
    (0..480).for_each(|_| stage.turn_after(1));
    stage.settle();
    assert_eq!(stage.begun().len(), 480);
}

/// Purpose: a client that hung up in the listen queue, where its wait is not measured, is not
/// served once the gate opens. A server that serves such clients answers no client in time.
#[test]
fn hung_up_before_it_was_accepted() {
    let mut stage = Stage::with(Shed::Accept, 1);
    let first = connect(&mut stage.worker); // No other is admitted until it is answered.
    stage.turn_after(0);
    let gone = stage.ask("/do/gone");
    let there = stage.ask("/do/there");
    stage.network().finish(gone);
    stage.turn_after(300);
    stage.network().send(first, b"GET /do/first HTTP/1.1\r\nHost: h\r\n\r\n");
    (0..20).for_each(|_| stage.turn_after(1));
    stage.settle();
    assert_eq!(stage.begun(), ["first", "there"]);
    assert_eq!([first, gone, there].map(|link| stage.status(link)), [Some(200), None, Some(200)]);
}

/// Purpose: a route that is never shed is begun at once, whatever waits, and however long it has
/// waited.
#[test]
fn never_shed() {
    let mut stage = Stage::new();
    stage.overload();
    (0..20).for_each(|n| {
        stage.ask(&format!("/do/{n}"));
    });
    stage.turn_after(0);
    let never_shed = stage.ask("/never-shed/v");
    stage.turn_after(1000);
    assert_eq!(stage.begun(), ["0", "v"]);
    stage.settle();
    assert_eq!(
        (stage.begun().len(), stage.status(never_shed)),
        (1, Some(200)),
        "and then the newest"
    );
}

/// Purpose: a request whose deadline passes before its turn is refused, with overload or without;
/// one with an invalid deadline is served.
#[test]
fn deadlines() {
    let mut stage = Stage::with(Shed::None, 100);
    let first = stage.ask("/do/first");
    let late = stage.ask_with("/do/late", "Request-Timeout: 0.005\r\n");
    let odd = stage.ask_with("/do/odd", "Request-Timeout: soon\r\n");
    let past = stage.ask_with("/do/past", "X-Request-Deadline: 1\r\n");
    stage.turn_after(0);
    stage.turn_after(5);
    stage.settle();
    assert_eq!(stage.begun(), ["first", "odd"]);
    let statuses = [first, late, odd, past].map(|link| stage.status(link));
    assert_eq!(statuses, [Some(200), Some(503), Some(200), Some(503)]);
}

/// Purpose: a client's deadline is the same if its request waits behind another one of its connection, and is read when that
/// has had its turn: the time that it had waited was once taken off a deadline by the wall clock twice.
#[test]
fn deadlines_behind_a_request_that_waits() {
    for (field, millis, is_served) in [
        ("X-Request-Deadline", 7, true),
        ("X-Request-Deadline", 6, false),
        ("Request-Timeout", 7, true),
        ("Request-Timeout", 6, false),
    ] {
        let mut stage = Stage::with(Shed::None, 100);
        stage.ask("/do/first");
        let link = connect(&mut stage.worker);
        let value = match field {
            "Request-Timeout" => format!("0.{millis:03}"),
            _ => (stage.worker.driver().clock().unix_millis() + millis).to_string(),
        };
        let ahead = "GET /do/ahead HTTP/1.1\r\nHost: h\r\n\r\n";
        let behind = format!("GET /do/behind HTTP/1.1\r\nHost: h\r\n{field}: {value}\r\n\r\n");
        stage.network().send(link, (ahead.to_owned() + &behind).as_bytes());
        stage.turn_after(0);
        stage.turn_after(6);
        stage.settle();
        let expected =
            if is_served { &["first", "ahead", "behind"][..] } else { &["first", "ahead"] };
        assert_eq!(stage.begun(), expected, "{field}: {value}");
    }
}

/// Purpose: every request is counted once, as served or as refused, by layer and reason, with its
/// wait; and refusals are not counted as good.
#[test]
fn counted() {
    let mut stage = Stage::new();
    stage.overload();
    let (metrics, network) = (Arc::clone(&stage.metrics), stage.network());
    let asked = network.accepted;
    let good = metrics.good.get();
    assert_eq!(metrics.requests(), asked);
    assert_eq!((metrics.completed(), metrics.shed()), (good, asked - good));
    assert_eq!(metrics.queue_delay.count(), good);
    assert_eq!(metrics.durations_counted(), asked);
    assert_eq!(metrics.refused_for_load(), asked - good);
    // Only waiting takes time, because the clock stands still while a request is handled.
    assert_eq!(metrics.latency_nanos.get(), metrics.queue_delay.nanos.get());
    assert_eq!((metrics.in_flight.get(), metrics.load.get()), (0, 0));
    assert!(metrics.take_load_max() > 50, "the waiting requests");
}

/// Purpose: the accept gate admits as many as the limit says, and the next one with every answer;
/// clients that send nothing lose their place after a while, though they stay connected.
#[test]
fn accept_gate() {
    let mut stage = Stage::with(Shed::Accept, 2);
    let links: Vec<usize> = (0..6).map(|n| stage.ask(&format!("/do/{n}"))).collect();
    for answered in 0..6 {
        stage.turn_after(0);
        let connections = stage.worker.connections() as usize;
        assert!(connections <= answered + 2, "{connections} connections, {answered} answered");
    }
    stage.settle();
    assert!(links.iter().all(|&link| stage.status(link) == Some(200)));
    let silent: Vec<usize> = (0..2).map(|_| connect(&mut stage.worker)).collect();
    stage.turn_after(0);
    let next = stage.ask("/do/next");
    stage.turn_after(99);
    stage.turn_after(0);
    assert_eq!(stage.status(next), None);
    stage.turn_after(10);
    stage.settle();
    assert_eq!(stage.status(next), Some(200));
    assert!(silent.iter().all(|&link| stage.network().link(link).is_live()));
}
