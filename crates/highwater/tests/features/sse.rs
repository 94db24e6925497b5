//! Server-sent events, as applications use them: in process, with time under control.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use highwater::server::TransportChoice;
use highwater::sse::{Event, LastEventId, Sse};
use highwater::testing::Client;
use highwater::{Body, Bytes, Closed, Draining, Error, Response, Router, State};
use highwater_testkit::read_some;
use tokio::time::sleep;

use crate::served::{HANG, start};
use crate::transports::on_each_transport;

/// Events numbered from the one after the last that the client has, one every second.
async fn ticks(last: LastEventId) -> Sse {
    let next = last.number().map_or(0, |last| last + 1);
    Sse::run(move |mut events| async move {
        for number in next.. {
            events.send(Event::data(format!("tick {number}")).id(number).event("tick")).await?;
            sleep(Duration::from_secs(1)).await;
        }
        Ok::<(), Closed>(())
    })
}

/// Purpose: events come one by one, with their type and id; a client that comes back goes on where it was; nobody on the
/// way may keep them.
#[test]
fn events_come_and_go_on() {
    let client = Client::new(Router::new().get("/ticks", ticks));
    let mut events = client.events("/ticks");
    for number in 0..3 {
        let event = events.next().expect("it is endless");
        assert_eq!((event.event.as_str(), event.data), ("tick", format!("tick {number}")));
        assert_eq!(event.id, number.to_string());
    }
    drop(events);
    let mut events = client.events_after("/ticks", "2");
    assert_eq!(events.next().expect("it is endless").data, "tick 3");
    let response =
        Client::new(Router::new().get("/", || Sse::new(Once(Some(Event::data("x")))))).get("/");
    assert_eq!(response.header("content-type"), Some("text/event-stream"));
    assert_eq!(response.header("cache-control"), Some("no-store"));
    assert_eq!(response.header("x-accel-buffering"), Some("no"));
    assert_eq!(response.text(), "data: x\n\n");
}

struct Once<T>(Option<T>);

impl<T: Unpin> Stream for Once<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<T>> {
        Poll::Ready(self.0.take())
    }
}

/// Purpose: a silent stream sends comments at its interval and no event; one that is busy sends none.
#[test]
fn silence() {
    async fn silent() -> Sse {
        Sse::run(|mut events| async move {
            let _ = events.send(Event::data("first")).await;
            std::future::pending::<()>().await;
        })
    }
    let client = Client::new(Router::new().get("/silent", silent).get("/ticks", ticks));
    let mut events = client.events("/silent");
    client.advance(Duration::from_secs(14));
    assert_eq!(
        (events.comments(), events.next().map(|event| event.data)),
        (0, Some("first".into()))
    );
    client.advance(Duration::from_secs(2));
    assert_eq!(events.comments(), 1);
    client.advance(Duration::from_secs(45));
    assert_eq!(events.comments(), 4);
    let mut busy = client.events("/ticks");
    client.advance(Duration::from_secs(100));
    assert_eq!((busy.comments(), busy.by_ref().take(100).count()), (0, 100));
}

/// Purpose: a client that goes ends what makes its events, wherever that waits, and what is not `Send` may be in it.
#[test]
fn clients_that_go() {
    struct Counted(Arc<AtomicU32>, Rc<Cell<u32>>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(self.1.get(), SeqCst);
        }
    }
    async fn waits(State(ended): State<Arc<AtomicU32>>) -> Sse {
        let counted = Counted(ended, Rc::new(Cell::new(1)));
        Sse::run(move |_events| async move {
            std::future::pending::<()>().await;
            drop(counted);
        })
    }
    let ended = Arc::new(AtomicU32::new(0));
    let client = Client::new(Router::new().state(ended.clone()).get("/", waits));
    let events = client.events("/");
    client.advance(Duration::from_secs(1000));
    assert_eq!(ended.load(SeqCst), 0);
    drop(events);
    client.advance(Duration::from_secs(1));
    assert_eq!((ended.load(SeqCst), client.connections()), (1, 0));
}

/// Purpose: a slow client is bounded: its source waits, and goes on where it was.
#[test]
fn slow_clients() {
    async fn flood(State(sent): State<Arc<AtomicU32>>) -> Sse {
        Sse::run(move |mut events| async move {
            while events.send(Event::data("x".repeat(1000))).await.is_ok() {
                sent.fetch_add(1, SeqCst);
            }
        })
    }
    let sent = Arc::new(AtomicU32::new(0));
    let client = Client::new(Router::new().state(sent.clone()).get("/", flood));
    let mut slow = client.connect_slow(1000);
    slow.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n");
    client.advance(Duration::from_secs(5));
    let first = sent.load(SeqCst);
    assert!((50..250).contains(&first), "{first} KB are on their way");
    for _ in 0..300 {
        slow.read(1000);
    }
    assert!(sent.load(SeqCst) > first + 200);
}

/// Purpose: a source that fails cuts the response off, so that its client comes back; one that ends, ends it.
#[test]
fn ends() {
    async fn ends() -> Sse {
        Sse::run(|mut events| async move { events.send(Event::data("last")).await })
    }
    async fn fails() -> Sse {
        Sse::run(|mut events| async move {
            let _ = events.send(Event::data("last")).await;
            Err(Error::internal("intended"))
        })
    }
    async fn panics() -> Sse {
        Sse::run(|mut events| async move {
            let _ = events.send(Event::data("last")).await;
            fail();
        })
    }
    fn fail() {
        panic!("intended");
    }
    async fn stream() -> Sse {
        Sse::fallible(Once(Some(Err::<Event, _>("intended"))))
    }
    let router = Router::new().get("/ends", ends).get("/fails", fails);
    let client = Client::new(router.get("/panics", panics).get("/stream", stream));
    for (target, is_whole) in
        [("/ends", true), ("/fails", false), ("/panics", false), ("/stream", false)]
    {
        let mut connection = client.connect();
        connection.send(format!("GET {target} HTTP/1.1\r\nhost: h\r\n\r\n"));
        client.advance(Duration::from_secs(1));
        let received = String::from_utf8(connection.received().to_vec()).expect("it is text");
        assert!(!is_whole || received.contains("data: last\n\n"), "{target}: {received}");
        assert_eq!(received.ends_with("0\r\n\r\n"), is_whole, "{target}: {received}");
        assert_eq!(connection.is_reset(), !is_whole, "{target}");
    }
}

/// Purpose: a server that drains ends its event streams by itself, as they should end, and at once.
#[test]
fn drains() {
    let client = Client::new(Router::new().get("/ticks", ticks));
    let mut events = client.events("/ticks");
    assert!(events.next().is_some());
    client.drain();
    assert!(events.has_ended());
    client.advance(Duration::from_secs(1));
    assert_eq!(client.connections(), 0);
}

/// Purpose: it does so, too, where a layer has changed the content.
#[test]
fn drains_behind_a_layer() {
    let passes = |_: &highwater::Request<'_>, response: &mut highwater::Response| {
        response.map_body(|pieces| pieces);
    };
    let layer = highwater::layer::on_response(passes);
    let client = Client::new(Router::new().layer(layer).get("/ticks", ticks));
    let mut events = client.events("/ticks");
    assert!(events.next().is_some());
    client.drain();
    assert!(events.has_ended());
}

/// Purpose: the testing client reads what a page would (WHATWG HTML §9.2.6): every way to end a line, ids without zeros, and
/// times that are numbers.
#[test]
fn lines_end_in_three_ways() {
    let stream = "id: 1\r\ndata: a\r\ndata: b\r\n\r\nid: 2\0\rdata: c\r\rretry: +5\nretry: 7\nretry: x\ndata: d\n\n";
    let handler = move || Response::from(stream).with_content_type("text/event-stream");
    let client = Client::new(Router::new().get("/", handler));
    let mut events = client.events("/");
    let come: Vec<_> = events.by_ref().map(|event| (event.id, event.data)).collect();
    let expected = [("1", "a\nb"), ("1", "c"), ("1", "d")];
    assert_eq!(come, expected.map(|(id, data)| (id.to_owned(), data.to_owned())));
    assert_eq!(events.retry(), Some(Duration::from_millis(7)));
}

/// Always has another piece, until it is told to end.
struct Flood(Option<Draining>);

impl Flood {
    fn next<T>(&self, piece: T) -> Poll<Option<T>> {
        let ends = self.0.as_ref().is_some_and(Draining::has_begun);
        Poll::Ready((!ends).then_some(piece))
    }
}

struct Events(Flood);

impl Stream for Events {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Event>> {
        self.0.next(Event::data("x".repeat(1000)))
    }
}

struct Pieces(Flood);

impl Stream for Pieces {
    type Item = Result<Bytes, Closed>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.next(Ok(Bytes::from(vec![b'x'; 1000])))
    }
}

on_each_transport! {
    /// Purpose: a drain reaches a source that never waits: events end by themselves after a bounded rest, content when it looks.
    fn drains_without_a_pause(transport) {
        let body = |draining: Draining| Body::stream(Pieces(Flood(Some(draining))));
        let router = Router::new().get("/events", || Sse::new(Events(Flood(None)))).get("/body", body);
        let mut server = start(router, transport);
        let begun = ["/events", "/body"].map(|path| {
            let mut stream = TcpStream::connect(server.address()).expect("it listens");
            stream.set_read_timeout(Some(HANG)).expect("it is open");
            write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").expect("it is open");
            stream.read_exact(&mut [0; 10_000]).expect("it has begun");
            stream
        });
        let readers = begun.map(|mut stream| {
            std::thread::spawn(move || {
                let (mut piece, mut end) = (vec![0; 65_536], Vec::new());
                loop {
                    match read_some(&mut stream, &mut piece) {
                        Ok(0) => return end,
                        Ok(count) => end = piece[count.saturating_sub(5)..count].to_vec(),
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        });
        server.stop().expect("it has served");
        for reader in readers {
            assert!(reader.join().expect("it has read").ends_with(b"\r\n"), "it is whole");
        }
    }
}
