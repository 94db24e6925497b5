//! The poller against providers that misbehave in every way a socket allows.
//!
//! Nothing here waits for time to pass: where a test needs a timeout it sets a short one and accepts
//! any longer wait, and where it needs an event it blocks on that event.

mod stub;

use std::io::Write as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use highwater_search::catalog::{Applied, Catalog, EVENTS_MAX};
use highwater_search::event::Event;
use highwater_search::feed::{Feed, Limits, Skip};
use highwater_search::poller::{Outcome, Poller, Report, Settings, Source};
use highwater_search::provider::generate;
use highwater_search::query::Range;
use highwater_search::store::{Embedded, Record, Store, StoreError};
use stub::{Act, catalog, gzip, ok, response, send, stub};

/// The default timeouts, and a limit that is quickly reached.
fn settings(url: &str) -> Settings {
    Settings { body_bytes_max: 1 << 20, ..Settings::new(url) }
}

fn source(url: &str) -> Source {
    Source::new(&settings(url)).expect("a valid URL")
}

/// Polls a fresh stub that does this once.
fn poll(act: Act) -> (Outcome, Catalog) {
    poll_with(act, |settings| settings)
}

fn poll_with(act: Act, adjust: impl FnOnce(Settings) -> Settings) -> (Outcome, Catalog) {
    let (url, _heads) = stub(vec![act]);
    let (settings, catalog) = (adjust(settings(&url)), catalog());
    let outcome = Source::new(&settings).expect("valid settings").poll(&catalog, 1);
    (outcome, catalog)
}

/// A timeout for tests that want to see it expire.
const SHORT: Duration = Duration::from_millis(300);

fn reason(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Failed { reason, .. } => reason,
        _ => panic!("{outcome:?} should have failed"),
    }
}

/// Purpose: a whole feed is applied, and the outcome says what it contained and changed.
#[test]
fn whole_feed() {
    let feed = generate(20, 1);
    let (outcome, catalog) = poll(ok(&feed));
    assert_eq!(catalog.snapshot().len(), 20);
    let Outcome::Fetched { bytes, feed: stats, applied } = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!((bytes, stats.online, stats.skipped_total()), (feed.len() as u64, 20, 0));
    assert_eq!(applied, Applied { new: 20, changed: 0, refused: 0 });
}

/// Purpose: chunked and close-delimited bodies are read as well as those with a length.
#[test]
fn other_framings() {
    let feed = generate(5, 1);
    let chunked = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{feed}\r\n0\r\n\r\n",
        feed.len()
    );
    let until_close = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{feed}");
    for answer in [chunked, until_close] {
        let (outcome, catalog) = poll(send(answer));
        assert!(matches!(outcome, Outcome::Fetched { .. }), "{outcome:?}");
        assert_eq!(catalog.snapshot().len(), 5);
    }
}

/// Purpose: gzip is read whether it is announced or not, and announced gzip that is none is too.
#[test]
fn compressed() {
    let feed = generate(50, 1);
    let zipped = gzip(feed.as_bytes());
    let announced = "Content-Encoding: gzip\r\n";
    for answer in
        [response(announced, &zipped), response("", &zipped), response(announced, feed.as_bytes())]
    {
        let (outcome, catalog) = poll(send(answer));
        assert!(
            matches!(outcome, Outcome::Fetched { bytes, .. } if bytes == feed.len() as u64),
            "{outcome:?}"
        );
        assert_eq!(catalog.snapshot().len(), 50);
    }
    for coding in ["", " ", "identity", "X-Gzip", "gzip, identity"] {
        let announced = format!("Content-Encoding: {coding}\r\n");
        let (outcome, _) = poll(send(response(&announced, &zipped)));
        assert!(matches!(outcome, Outcome::Fetched { .. }), "{coding:?}: {outcome:?}");
    }
    let (outcome, _) = poll(send(response("Content-Encoding: br\r\n", b"??")));
    assert_eq!(reason(&outcome), "encoding");
}

/// Purpose: what cannot be a feed changes nothing and says why.
#[test]
fn failures_change_nothing() {
    let cases: Vec<(Act, &str)> = vec![
        (send("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"), "status"),
        (send("HTTP/1.1 204 No Content\r\n\r\n"), "status"),
        (send("HTTP/1.1 304 Not Modified\r\n\r\n"), "status"),
        (ok("<!DOCTYPE html><html><body>Maintenance<br></body></html>"), "not_a_feed"),
        (ok(r#"{"error":"moved"}"#), "malformed"),
        (ok(""), "truncated"),
        (ok([&[0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3][..], &[0xFF; 64]].concat()), "gzip"),
        (send("SSH-2.0-OpenSSH_9.2\r\n"), "protocol"),
        (send(""), "truncated"),
        (
            send(format!("HTTP/1.1 200 OK\r\n{}", "X-Filler: ".to_owned() + &"x".repeat(200_000))),
            "too_large",
        ),
    ];
    for (act, expected) in cases {
        let (outcome, catalog) = poll(act);
        assert_eq!(reason(&outcome), expected, "{outcome:?}");
        assert!(
            matches!(outcome, Outcome::Failed { applied: Applied { new: 0, .. }, .. }),
            "{outcome:?}"
        );
        assert_eq!(catalog.snapshot().version(), 0);
    }
}

/// Purpose: a refused connection is a failure like any other.
#[test]
fn connection_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/", listener.local_addr().expect("bound"));
    drop(listener);
    let outcome = source(&url).poll(&catalog(), 1);
    assert_eq!(reason(&outcome), "connection", "{outcome:?}");
}

/// Purpose: a feed that breaks off adds what was complete, keeps the rest as it was, and is a failure.
#[test]
fn truncated_feed_adds_what_was_complete() {
    let feed = generate(40, 1);
    let half = &feed.as_bytes()[..feed.len() / 2];
    let by_length = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", feed.len());
    let short_length = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", half.len());
    let zipped = gzip(feed.as_bytes());
    let cases: Vec<(Vec<u8>, &str)> = vec![
        ([by_length.as_bytes(), half].concat(), "truncated"),
        ([b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", half].concat(), "truncated"),
        ([short_length.as_bytes(), feed.as_bytes()].concat(), "truncated"),
        (
            [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", &zipped[..zipped.len() / 2]].concat(),
            "truncated",
        ),
    ];
    for (answer, expected) in cases {
        let (outcome, catalog) = poll(send(answer));
        assert_eq!(reason(&outcome), expected, "{outcome:?}");
        let served = catalog.snapshot().len();
        assert!((1..40).contains(&served), "{outcome:?}: {served}");
    }
}

/// Purpose: neither a body without end, nor a small one that unpacks to a huge one, nor one that
/// unpacks to nothing for ever, gets past the limit, with or without a declared length.
#[test]
fn bodies_are_bounded() {
    let zone = "<zone price='1'/>".repeat(4000);
    let plan = format!("<planList><base_plan base_plan_id='1'><plan plan_id='1'>{zone}");
    let bomb = gzip(format!("{plan}{}", zone.repeat(40)).as_bytes());
    assert!(bomb.len() < 1 << 16, "it is small as sent");
    let empty_member = gzip(b"");
    let endless = |piece: Vec<u8>| -> Act {
        Box::new(move |stream: &mut TcpStream| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            while stream.write_all(&piece).is_ok() {}
        })
    };
    let (outcome, _) = poll(ok(bomb));
    assert_eq!(reason(&outcome), "too_large", "{outcome:?}");
    let (outcome, _) = poll(endless(empty_member.repeat(1000)));
    assert_eq!(reason(&outcome), "too_large", "{outcome:?}");
    let start: Act = Box::new(move |stream: &mut TcpStream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        let _ = stream.write_all(plan.as_bytes());
        while stream.write_all(zone.as_bytes()).is_ok() {}
    });
    let (outcome, _) = poll(start);
    assert_eq!(reason(&outcome), "too_large", "{outcome:?}");
}

/// Purpose: a body of exactly the limit is read, one more byte is not.
#[test]
fn body_limit_is_exact() {
    let feed = generate(10, 1);
    for (limit, fits) in [(feed.len() + 1, true), (feed.len(), true), (feed.len() - 1, false)] {
        let limited = |settings| Settings { body_bytes_max: limit as u64, ..settings };
        let (outcome, _) = poll_with(ok(&feed), limited);
        assert_eq!(matches!(outcome, Outcome::Fetched { .. }), fits, "{limit}: {outcome:?}");
    }
}

/// Purpose: a provider that falls silent, at whichever point, is given up on.
#[test]
fn silence_times_out() {
    let feed = generate(40, 1);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", feed.len());
    for sent in [
        "".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-".to_owned(),
        head.clone(),
        head + &feed[..feed.len() / 2],
    ] {
        let (done, wait) = mpsc::channel::<()>();
        let silent: Act = Box::new(move |stream| {
            let _ = stream.write_all(sent.as_bytes());
            let _ = wait.recv();
        });
        let (outcome, _) =
            poll_with(silent, |settings| Settings { read_timeout: SHORT, ..settings });
        drop(done);
        assert_eq!(reason(&outcome), "timeout", "{outcome:?}");
    }
}

/// Purpose: a provider that keeps saying a little is given up on as well.
#[test]
fn trickle_times_out() {
    let trickle: Act = Box::new(|stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n<planList>");
        while stream.write_all(b" ").is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let (outcome, _) = poll_with(trickle, |settings| Settings { total_timeout: SHORT, ..settings });
    assert_eq!(reason(&outcome), "timeout", "{outcome:?}");
}

/// Purpose: a reset in mid-body is a failure that keeps what was complete.
#[test]
fn reset_in_mid_body() {
    let feed = generate(40, 1);
    let (outcome, catalog) = poll(Box::new(move |stream| {
        let half = &feed.as_bytes()[..feed.len() / 2];
        let _ =
            stream.write_all(&[b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", half].concat());
        // Both directions end before the body does; on loopback that is what a reset looks like too.
        let _ = stream.shutdown(Shutdown::Both);
    }));
    assert!(["truncated", "reset"].contains(&reason(&outcome)), "{outcome:?}");
    assert!(!catalog.snapshot().is_empty());
}

/// Purpose: validators are sent back after a whole feed, and only then; a 304 keeps everything.
#[test]
fn conditional_requests() {
    let (first, second) = (generate(10, 1), generate(12, 2));
    let tagged = |body: &[u8]| {
        send(response("ETag: \"v1\"\r\nLast-Modified: Sat, 01 Jun 2024 00:00:00 GMT\r\n", body))
    };
    let not_modified = || send("HTTP/1.1 304 Not Modified\r\nETag: \"v1\"\r\n\r\n");
    let (url, heads) = stub(vec![
        tagged(&first.as_bytes()[..first.len() / 2]),
        tagged(first.as_bytes()),
        not_modified(),
        ok(&second),
        ok(&second),
    ]);
    let (mut source, catalog) = (source(&url), catalog());
    let outcomes: Vec<Outcome> = (1..=5).map(|at| source.poll(&catalog, at)).collect();
    let conditional: Vec<bool> = heads
        .iter()
        .take(5)
        .map(|head| {
            let head = head.to_lowercase();
            assert!(head.contains("accept-encoding: gzip"), "{head}");
            let etag = head.contains("if-none-match: \"v1\"");
            assert_eq!(etag, head.contains("if-modified-since: sat, 01 jun 2024 00:00:00 gmt"));
            etag
        })
        .collect();
    // After the broken feed: not remembered. After the whole one: yes. After the 304: still. After
    // one without validators: no more.
    assert_eq!(conditional, [false, false, true, true, false]);
    assert!(matches!(outcomes[2], Outcome::NotModified));
    assert!(matches!(
        outcomes[4],
        Outcome::Fetched { applied: Applied { new: 0, changed: 0, .. }, .. }
    ));
}

/// A store in which another instance has an older version of the first event, from some call on.
struct Shared {
    older: Event,
    calls_before: u32,
}

impl Store for Shared {
    fn load(&mut self) -> Result<Vec<Record>, StoreError> {
        Ok(Vec::new())
    }

    fn apply(&mut self, _: &[Event], _: i64) -> Result<(), StoreError> {
        Ok(())
    }

    fn seen_since(&mut self, _: i64) -> Result<Vec<Record>, StoreError> {
        let is_there = self.calls_before == 0;
        self.calls_before = self.calls_before.saturating_sub(1);
        let record = Record { event: self.older.clone(), first_seen: 0, last_seen: 0 };
        Ok(is_there.then_some(record).into_iter().collect())
    }
}

/// Purpose: after a poll that failed, what another instance has seen is served; then a 304 does not let it stay, since it may be older
/// than what the validators stand for: the next poll reads the whole feed.
#[test]
fn a_304_does_not_keep_what_others_have_seen() {
    let feed = generate(10, 1);
    let tagged = || send(response("ETag: \"v1\"\r\n", feed.as_bytes()));
    let failed = send("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n");
    let not_modified = send("HTTP/1.1 304 Not Modified\r\n\r\n");
    let (url, heads) = stub(vec![tagged(), failed, not_modified, tagged()]);
    let mut older = Feed::read(feed.as_bytes(), &Limits::default()).events.swap_remove(0);
    older.title = "older".into();
    let store = Shared { older, calls_before: 2 };
    let catalog = Arc::new(Catalog::open(Box::new(store), EVENTS_MAX).expect("nothing to load"));
    let short = Duration::from_millis(1);
    let settings = Settings { interval: short, retry_base: short, ..settings(&url) };
    let (sender, receiver) = mpsc::channel();
    let listener = Box::new(move |report: &Report<'_>| {
        let _ = sender.send(report.outcome.name()); // The test may have heard enough.
    });
    let poller = Poller::start(settings, Arc::clone(&catalog), listener).expect("it starts");
    let outcomes: Vec<&str> = receiver.iter().take(4).collect();
    assert_eq!(outcomes, ["ok", "failed", "not_modified", "ok"]);
    let conditional: Vec<bool> =
        heads.iter().take(4).map(|head| head.to_lowercase().contains("if-none-match")).collect();
    assert_eq!(conditional, [false, true, true, false]);
    poller.stop();
}

/// Purpose: a redirect is followed, and a circle of them is left.
#[test]
fn redirects() {
    let moved = || {
        send(
            "HTTP/1.1 301 Moved Permanently\r\nLocation: /new\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        )
    };
    let (url, heads) = stub(vec![moved(), ok(generate(3, 1))]);
    let outcome = source(&url).poll(&catalog(), 1);
    assert!(matches!(outcome, Outcome::Fetched { .. }), "{outcome:?}");
    assert!(heads.iter().nth(1).is_some_and(|head| head.starts_with("GET /new ")));
    let nowhere = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let (outcome, _) = poll(send(nowhere));
    assert!(
        matches!(&outcome, Outcome::Failed { detail, .. } if detail.contains("without a Location")),
        "{outcome:?}"
    );
    let (url, _heads) = stub((0..10).map(|_| moved()).collect());
    assert_eq!(reason(&source(&url).poll(&catalog(), 1)), "redirects");
}

/// Purpose: an attacker in the provider's place cannot make the service ask another server.
#[test]
fn redirects_to_other_servers() {
    let (elsewhere, heads) = stub(vec![ok(generate(3, 1))]);
    for location in [elsewhere.clone(), elsewhere.replace("http:", ""), "http://".to_owned()] {
        let moved = format!(
            "HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let (outcome, _) = poll(send(moved));
        assert_eq!(reason(&outcome), "redirects", "{location}: {outcome:?}");
    }
    assert!(heads.try_iter().next().is_none(), "no server was asked");
}

/// Purpose: `Retry-After` reaches the schedule, and nonsense in it does not.
#[test]
fn retry_after() {
    for (value, expected) in [("120", Some(Duration::from_secs(120))), ("soon", None), ("-1", None)]
    {
        let answer = format!(
            "HTTP/1.1 503 Service Unavailable\r\nRetry-After: {value}\r\nContent-Length: 0\r\n\r\n"
        );
        let (outcome, _) = poll(send(answer));
        assert!(
            matches!(outcome, Outcome::Failed { retry_after, .. } if retry_after == expected),
            "{outcome:?}"
        );
    }
}

/// Purpose: only URLs that can be polled are accepted, and the refusal says which those are.
#[test]
fn urls() {
    for url in ["http://localhost/x", "https://provider.example:8443/events?x=1"] {
        assert!(Source::new(&Settings::new(url)).is_ok(), "{url}");
    }
    for url in ["", "feed.xml", "ftp://host/x", "http://", "http:///x", "://"] {
        let refusal = Source::new(&Settings::new(url)).err().expect(url).to_string();
        assert!(refusal.contains("http://host"), "{refusal}");
    }
}

/// Purpose: the thread polls at once, again after a failure, reports every poll, counts what it
/// did, and stores before it serves.
#[test]
fn thread_polls_and_reports() {
    let feed = generate(10, 1).replacen("sell_from=\"2024-01-01", "sell_from=\"2024-02-30", 1);
    let (url, _heads) =
        stub(vec![send("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"), ok(feed)]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = Embedded::open(directory.path()).expect("a new store");
    let catalog = Arc::new(Catalog::open(Box::new(store), EVENTS_MAX).expect("nothing to load"));
    let (sender, reports) = mpsc::channel();
    let listener = Box::new(move |report: &Report<'_>| {
        let named = report.outcome.feed().map(|feed| feed.named.clone()).unwrap_or_default();
        let _ = sender.send((report.outcome.name(), report.version, report.events, named));
    });
    let settings = Settings { retry_base: Duration::from_millis(1), ..settings(&url) };
    let poller = Poller::start(settings, Arc::clone(&catalog), listener).expect("a thread");
    let [first, second] = [0, 1].map(|_| reports.recv().expect("a report"));
    assert_eq!(first, ("failed", 0, 0, Vec::new()));
    assert_eq!((second.0, second.1, second.2), ("ok", 1, 9));
    assert_eq!(second.3.iter().map(|skipped| skipped.reason).collect::<Vec<_>>(), [Skip::Date]);
    let stats = poller.stats();
    poller.stop();
    assert_eq!((stats.ok(), stats.failed(), stats.skipped(Skip::Date)), (1, 1, 1));
    assert!(stats.last_success().is_some());
    let served = catalog.snapshot().answer(Range::ALL);
    drop(catalog);
    let store = Embedded::open(directory.path()).expect("the same store");
    let reopened = Catalog::open(Box::new(store), EVENTS_MAX).expect("loads");
    assert_eq!(reopened.snapshot().answer(Range::ALL), served);
}

/// Purpose: stopping does not wait for a provider that is in the middle of an endless silence.
#[test]
fn stop_interrupts_a_download() {
    let (accepted, begun) = mpsc::channel();
    let (done, wait) = mpsc::channel::<()>();
    let (url, _heads) = stub(vec![Box::new(move |stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n<planList>");
        let _ = accepted.send(());
        let _ = wait.recv();
    })]);
    let never = Duration::from_secs(24 * 3600);
    let settings = Settings { read_timeout: never, total_timeout: never, ..settings(&url) };
    let poller = Poller::start(settings, Arc::new(catalog()), Box::new(|_| {})).expect("a thread");
    begun.recv().expect("the download has begun");
    // Would wait for a day if it did not interrupt.
    poller.stop();
    drop(done);
}
