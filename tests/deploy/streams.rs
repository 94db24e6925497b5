//! WebSockets and server-sent events through nginx and HAProxy, as they are deployed, in front of two servers.

use std::time::{Duration, SystemTime};

use highwater_core::websocket::{CloseCode, Kind, encode};
use highwater_testkit::{Answer, Client, PATIENCE, Process, eventually, get, request};

use crate::proxies::{Proxy, before_two};

/// A client's frames have a mask; with this one they can be read.
const MASK: Option<[u8; 4]> = Some([0; 4]);

/// Makes a check with each proxy that is installed.
fn through_each(check: impl Fn(&Proxy, [Process; 2])) {
    for name in ["nginx", "haproxy"] {
        let Some((proxy, servers)) = before_two(name) else { continue };
        // A health check may have to find them first.
        eventually("both servers answer", || {
            let ask = || proxy.connect().try_ask(get("/")).is_ok_and(|answer| answer.status == 200);
            ask() && servers.iter().all(|server| server.metric("http_requests_total") > 0.0)
        });
        check(&proxy, servers);
    }
}

/// Reads on until `wanted` has come.
fn hears(client: &mut Client, wanted: &[u8]) -> bool {
    let has = |client: &Client| client.received().windows(wanted.len()).any(|part| part == wanted);
    while !has(client) {
        if !client.read_more().is_ok_and(|more| more) {
            return false;
        }
    }
    true
}

/// Asks for a WebSocket, from a page of `origin`.
fn handshake(client: &mut Client, host: &str, origin: &str) -> Answer {
    let fields = format!(
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nOrigin: {origin}\r\n"
    );
    let request = request("GET", "/socket", &fields, "");
    let request = String::from_utf8(request).expect("it is ASCII");
    client.ask(request.replace("Host: test", &format!("Host: {host}")))
}

/// A WebSocket of a page that came through the same proxy.
fn socket(proxy: &Proxy) -> Client {
    let mut client = proxy.connect();
    let host = format!("127.0.0.1:{}", proxy.port);
    let answer = handshake(&mut client, &host, &format!("http://{host}"));
    assert_eq!(answer.status, 101, "{answer:?}");
    client
}

/// Whether the message comes back.
fn echoes(client: &mut Client, message: &str) -> bool {
    let (mut question, mut answer) = (Vec::new(), Vec::new());
    encode::message(Kind::Text, message.as_bytes(), MASK, &mut question);
    encode::message(Kind::Text, message.as_bytes(), None, &mut answer);
    client.send(question).is_ok() && hears(client, &answer)
}

/// Whether the server has closed with 1001. The closing handshake is completed.
fn is_gone(client: &mut Client) -> bool {
    let mut going = Vec::new();
    encode::close(Some(CloseCode::GOING_AWAY), "", None, &mut going);
    // Without its length, which counts the reason.
    if !hears(client, &going[2..]) {
        return false;
    }
    let mut close = Vec::new();
    encode::close(Some(CloseCode::GOING_AWAY), "", MASK, &mut close);
    client.send(close).is_ok() && client.rest().is_ok()
}

/// Purpose: chats and feeds are deployed behind these files. A WebSocket opens from a page of the proxy's own origin, whose
/// port is in it, messages go both ways, and a server that drains says so to each client of its own, and to no other.
#[test]
fn websockets_pass_and_learn_of_a_drain() {
    through_each(|proxy, [mut leaving, staying]| {
        let open = |server: &Process| server.metric("http_websockets_open") as usize;
        let mut sockets: Vec<Client> = Vec::new();
        while open(&leaving) == 0 || open(&staying) == 0 {
            assert!(sockets.len() < 50, "{}: one server gets all", proxy.name);
            sockets.push(socket(proxy));
        }
        for (place, socket) in sockets.iter_mut().enumerate() {
            assert!(echoes(socket, &format!("message {place}")), "{}", proxy.name);
            assert!(echoes(socket, &"long ".repeat(20_000)), "{}", proxy.name);
        }
        let (going, remaining) = (open(&leaving), open(&staying));
        assert_eq!(going + remaining, sockets.len());
        leaving.signal("TERM");
        // A socket whose server stays answers; one whose server leaves has a close frame instead.
        let gone = sockets.iter_mut().filter_map(|socket| {
            socket.set_patience(Duration::from_secs(2));
            is_gone(socket).then_some(())
        });
        assert_eq!(gone.count(), going, "{}", proxy.name);
        assert!(leaving.ends_within(PATIENCE).is_some_and(|status| status.success()));
        assert_eq!(open(&staying), remaining);
        assert!(echoes(&mut socket(proxy), "again"), "{}", proxy.name);
    });
}

/// Purpose: a proxy that changes `Host` would refuse a site's own pages, and one that leaves `Origin` out would let in those
/// of others.
#[test]
fn pages_of_other_origins_are_refused() {
    through_each(|proxy, _servers| {
        let mut client = proxy.connect();
        let answer = handshake(&mut client, "test", "http://evil.example");
        assert_eq!(answer.status, 403, "{}: {answer:?}", proxy.name);
    });
}

/// Opens the stream behind the event of this number.
fn ticks(proxy: &Proxy, last: Option<u64>) -> Client {
    let mut client = proxy.connect();
    let last = last.map_or(String::new(), |last| format!("Last-Event-ID: {last}\r\n"));
    client.send(request("GET", "/ticks", &last, "")).expect("it is open");
    client
}

/// The present time as `/ticks` says it.
fn now() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().expect("it is later than 1970")
}

/// The events that have come: their numbers, and when they were sent.
fn events(client: &Client) -> Vec<(u64, Duration)> {
    let received = String::from_utf8_lossy(client.received());
    let events = received.split("id: ").skip(1).filter_map(|event| {
        let (number, rest) = event.split_once("\ndata: ")?;
        let (sent, _) = rest.split_once("\n\n")?;
        Some((number.parse().ok()?, Duration::from_millis(sent.parse().ok()?)))
    });
    events.collect()
}

/// Waits for the event of this number; returns how long it took to come here.
fn delay(client: &mut Client, number: u64) -> Option<Duration> {
    loop {
        if let Some((_, sent)) = events(client).iter().find(|(known, _)| *known == number) {
            return Some(now().saturating_sub(*sent));
        }
        if !client.read_more().is_ok_and(|more| more) {
            return None;
        }
    }
}

/// Purpose: a proxy that waits for more before it passes an event on makes each one late (HAProxy without `http-no-delay`:
/// by 200 ms), or holds them all back. A client that was disconnected goes on where it was.
#[test]
fn events_come_at_once_and_go_on() {
    through_each(|proxy, _servers| {
        let mut events = ticks(proxy, None);
        let delays = (0..4).map(|number| delay(&mut events, number));
        let delays: Vec<Duration> = delays.collect::<Option<_>>().expect("each event comes");
        // One may be late where the machine is busy; waiting for more makes all of them late.
        let least = delays.iter().min().expect("there are four");
        assert!(*least < Duration::from_millis(150), "{}: {delays:?}", proxy.name);
        assert!(delay(&mut ticks(proxy, Some(41)), 42).is_some(), "{}", proxy.name);
    });
}

/// Whether an event comes that was sent later than `time`; if not, the stream ends as a complete answer does.
fn goes_on(client: &mut Client, time: Duration) -> bool {
    loop {
        if events(client).iter().any(|(_, sent)| *sent > time) {
            return true;
        }
        if client.received().ends_with(b"\r\n0\r\n\r\n") {
            return false;
        }
        assert!(client.read_more().is_ok_and(|more| more), "it is cut off");
    }
}

/// Purpose: a server that drains ends its streams of events as complete answers, so that browsers come back, to the other
/// server; the streams of that one go on.
#[test]
fn events_end_with_their_server() {
    through_each(|proxy, [mut leaving, _staying]| {
        // Each proxy gives the next one to the server that has fewer.
        let mut streams: Vec<Client> = (0..8).map(|_| ticks(proxy, None)).collect();
        assert!(streams.iter_mut().all(|stream| delay(stream, 0).is_some()), "{}", proxy.name);
        leaving.signal("TERM");
        assert!(leaving.ends_within(PATIENCE).is_some_and(|status| status.success()));
        let end = now();
        let remaining = streams.iter_mut().filter_map(|stream| goes_on(stream, end).then_some(()));
        assert!((1..8).contains(&remaining.count()), "{}", proxy.name);
        assert!(delay(&mut ticks(proxy, Some(6)), 7).is_some(), "{}", proxy.name);
    });
}
