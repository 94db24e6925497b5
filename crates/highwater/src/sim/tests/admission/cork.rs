//! When are the answers to refused requests of one HTTP/2 connection sent, and which of them together? The clients of
//! HTTP/1 beside it keep the worker overloaded.

use highwater_core::http2::client::{Config, Connection, Event};
use highwater_core::http2::encode;
use highwater_core::http2::hpack::Indexing;

use super::*;

/// Answers wait for others for a fiftieth of the patience.
const WAIT_MS: u64 = 10;

/// A request that waits is refused so long after it came: longer than the target.
const REFUSED_MS: u64 = 11;

pub(super) struct Client {
    link: usize,
    protocol: Connection,
    /// How much was sent to it, and when.
    sent: usize,
    sends: Vec<u64>,
}

impl Client {
    /// A connection, after both sides have sent their settings.
    pub(super) fn connect(stage: &mut Stage) -> Self {
        let link = connect(&mut stage.worker);
        let protocol = Connection::new(Config::default());
        let mut client = Client { link, protocol, sent: 0, sends: Vec::new() };
        client.send(stage);
        stage.settle();
        assert!(client.receive(stage).is_empty());
        client.send(stage);
        stage.settle();
        client.sent = stage.network().link(link).facts.sent.len();
        client
    }

    fn send(&mut self, stage: &mut Stage) {
        let output = self.protocol.output();
        assert_eq!(stage.network().send(self.link, output), output.len());
        self.protocol.sent();
    }

    /// A request that is refused rather than those of HTTP/1.
    pub(super) fn ask(&mut self, stage: &mut Stage) {
        self.protocol.begin(false, b"", |add| {
            let fields = [
                (":method", "GET"),
                (":scheme", "http"),
                (":authority", "h"),
                (":path", "/low/stream"),
            ];
            for (name, value) in fields {
                add(name.as_bytes(), value.as_bytes(), Indexing::Incremental);
            }
        });
        self.send(stage);
    }

    /// The statuses of the answers that have come.
    pub(super) fn receive(&mut self, stage: &mut Stage) -> Vec<u16> {
        let bytes = stage.network().read(self.link, usize::MAX);
        let mut statuses = Vec::new();
        let mut note = |event: Event<'_>| match event {
            Event::End(_, status) => statuses.push(status),
            Event::Failed(stream, failure) => panic!("{stream}: {failure:?}"),
            _ => {}
        };
        self.protocol.receive(&bytes, &mut note).expect("the server keeps to the rules");
        statuses
    }

    /// Notes whether something was sent to it at `now`.
    fn note(&mut self, stage: &mut Stage, now: u64) {
        let sent = stage.network().link(self.link).facts.sent.len();
        if sent > std::mem::replace(&mut self.sent, sent) {
            self.sends.push(now);
        }
    }
}

/// One millisecond passes, in which two requests come and one is begun. To refuse takes no time.
fn pass(stage: &mut Stage, client: &mut Client, now: u64) {
    stage.begun();
    stage.ask("/do/crowd");
    stage.ask("/do/crowd");
    stage.turn_after(1);
    client.note(stage, now);
    while stage.begun().is_empty() && stage.worker.has_backlog() {
        stage.turn_after(0);
        client.note(stage, now);
    }
}

/// An overload, in which more wait than are begun in the time of a test, and a client of HTTP/2.
fn overloaded() -> (Stage, Client) {
    let mut stage = Stage::new();
    let mut client = Client::connect(&mut stage);
    stage.overload();
    (0..40).for_each(|_| _ = stage.ask("/do/crowd"));
    stage.turn_after(0);
    client.note(&mut stage, 0);
    client.sends.clear();
    (stage, client)
}

/// Purpose: requests of one connection that are refused one after the other are answered with one send, as long after the
/// first as answers wait. Where a connection has one request at a time, its answer comes at once.
#[test]
fn answers_leave_together() {
    let (mut stage, mut client) = overloaded();
    let mut other = None;
    let mut received = Vec::new();
    for now in 1..=40 {
        if [1, 4, 7, 13].contains(&now) {
            client.ask(&mut stage);
        }
        if now == 1 {
            other = Some(stage.ask("/low/alone"));
        }
        pass(&mut stage, &mut client, now);
        if now == 1 + REFUSED_MS {
            turn(&mut stage.worker); // The answer is on its way.
            assert_eq!(other.and_then(|link| stage.status(link)), Some(503));
            assert!(client.receive(&mut stage).is_empty());
        }
        received.extend(client.receive(&mut stage).into_iter().map(|status| (now, status)));
    }
    let first = 1 + REFUSED_MS + WAIT_MS;
    let second = 13 + REFUSED_MS + WAIT_MS;
    assert_eq!(client.sends, [first, second]);
    let together = received.iter().filter(|(now, status)| *now < second && *status == 503);
    assert_eq!((together.count(), received.len()), (3, 4), "{received:?}");
    assert!(stage.worker.queue_stands());
}

/// Purpose: whatever else is said to the client takes the answers along at once.
#[test]
fn other_output_does_not_wait() {
    let (mut stage, mut client) = overloaded();
    for now in 1..=14 {
        if now == 1 {
            client.ask(&mut stage);
        }
        if now == 14 {
            let mut ping = Vec::new();
            encode::ping(*b"question", &mut ping);
            stage.network().send(client.link, &ping);
        }
        pass(&mut stage, &mut client, now);
    }
    assert_eq!(client.sends, [14]);
    turn(&mut stage.worker);
    assert_eq!(client.receive(&mut stage), [503]);
}

/// Purpose: a worker that has nothing else to do any more wakes up in time for the answers that wait. Their client may have
/// finished sending: then they are sent at once.
#[test]
fn answers_wait_no_longer() {
    for finishes in [false, true] {
        let (mut stage, mut client) = overloaded();
        client.ask(&mut stage);
        (1..=1 + REFUSED_MS).for_each(|now| pass(&mut stage, &mut client, now));
        if finishes {
            stage.network().finish(client.link);
        }
        stage.settle();
        assert!(stage.worker.queue_stands());
        client.note(&mut stage, 0);
        assert_eq!(client.sends.len(), usize::from(finishes));
        let mut waited = Duration::ZERO;
        for _ in 0..100 {
            let spare = stage.worker.spare_time().expect("it waits for something");
            if client.sends.is_empty() {
                stage.worker.driver().clock().advance(spare);
                waited += spare;
            }
            turn(&mut stage.worker);
            client.note(&mut stage, 1);
        }
        assert_eq!(waited, Duration::from_millis(if finishes { 0 } else { WAIT_MS }));
        assert_eq!(client.receive(&mut stage), [503], "finishes: {finishes}");
    }
}

/// Purpose: where no queue stands, no answer waits.
#[test]
fn without_a_standing_queue() {
    let mut stage = Stage::with(Shed::App, 1);
    let mut client = Client::connect(&mut stage);
    (0..6).for_each(|_| client.ask(&mut stage));
    for now in 1..=7 {
        turn(&mut stage.worker);
        client.note(&mut stage, now);
    }
    assert!(!stage.worker.queue_stands());
    assert_eq!(client.sends, [1, 2, 3, 4, 5, 6]);
    // There is one place: the first request finds it free, and so does the last, which is alone by then.
    assert_eq!(client.receive(&mut stage), [200, 503, 503, 503, 503, 200]);
}
