//! Tunnels: an extended CONNECT, and what its stream carries (RFC 8441).

use std::time::Duration;

use highwater_core::http::Payload;
use highwater_core::http2::Setting;
use highwater_core::protocol::{Expired, Protocol as _, Stream as _, StreamId};

use crate::scene::Scene;

/// Longer than any deadline for content.
const LONG: Duration = Duration::from_secs(3600);

fn scene() -> Scene {
    scene_with(&[])
}

/// A server that allows tunnels, and a client with these settings.
fn scene_with(settings: &[Setting]) -> Scene {
    let mut scene = Scene::silent();
    scene.limits.http2.extended_connect = true;
    scene.greet(settings);
    scene
}

fn connect(scene: &mut Scene, id: u32) {
    let bytes = connect_bytes(scene, id);
    scene.receive(&bytes);
}

/// The bytes of an extended CONNECT.
pub(crate) fn connect_bytes(scene: &mut Scene, id: u32) -> Vec<u8> {
    let fields: [(&[u8], &[u8]); 5] = [
        (b":method", b"CONNECT"),
        (b":protocol", b"websocket"),
        (b":scheme", b"https"),
        (b":authority", b"h"),
        (b":path", b"/tunnel"),
    ];
    scene.headers(id, false, &fields)
}

/// The application answers with a tunnel, and reads what has come.
fn accept(scene: &mut Scene, id: u32) {
    accept_now(scene, id);
    scene.read_on();
}

/// The application answers with a tunnel. There is none on a connection that ends.
pub(crate) fn accept_now(scene: &mut Scene, id: u32) {
    let Scene { server, link, limits, now, .. } = scene;
    let mut stream = server.stream(link, StreamId(id));
    assert!(stream.is_reply_owed() && stream.is_request_complete() && !stream.has_left_http());
    let date = b"Thu, 01 Jan 1970 00:00:00 GMT";
    let follows = stream.respond(101, date, limits, *now, |_| {}, Payload::Upgrade);
    let is_open = !stream.link().is_ending();
    assert_eq!((follows, stream.has_left_http()), (is_open, is_open));
}

fn open() -> Scene {
    let mut scene = scene();
    connect(&mut scene, 1);
    accept(&mut scene, 1);
    assert_eq!(scene.take(), ["HEADERS 1 200"]);
    scene
}

fn data(scene: &mut Scene, id: u32, is_last: bool, len: usize) {
    scene.receive(&Scene::frame(0, u8::from(is_last), id, &vec![b'd'; len]));
}

/// The application has room for this many bytes more, and reads.
fn allow(scene: &mut Scene, id: u32, room: usize) {
    let Scene { server, link, now, .. } = scene;
    server.stream(link, StreamId(id)).allow_body(room, *now);
    scene.read_on();
}

fn push(scene: &mut Scene, id: u32, bytes: &[u8]) {
    let Scene { server, link, .. } = scene;
    server.stream(link, StreamId(id)).push_body(bytes).expect("it has no length");
    scene.flush();
}

/// The application ends its side.
fn shut(scene: &mut Scene, id: u32) {
    let Scene { server, link, limits, now, .. } = scene;
    let mut stream = server.stream(link, StreamId(id));
    stream.finish_body(limits, *now, |_| {}).expect("it has no length");
    assert!(!stream.has_left_http());
    scene.flush();
}

/// The application reads no more.
fn stop_reading(scene: &mut Scene, id: u32) {
    let Scene { server, link, limits, now, .. } = scene;
    server.stream(link, StreamId(id)).drop_body(limits, *now);
    scene.flush();
}

/// The application has done both.
fn finish(scene: &mut Scene, id: u32) {
    stop_reading(scene, id);
    shut(scene, id);
    assert!(is_over(scene, id));
}

fn is_over(scene: &mut Scene, id: u32) -> bool {
    scene.server.stream(&mut scene.link, StreamId(id)).is_over()
}

/// Purpose: the setting is announced where it is on, and nowhere else (RFC 8441 §3).
#[test]
fn announced_where_it_is_on() {
    let setting = Setting::EnableConnectProtocol(true);
    assert!(scene().settings.contains(&setting));
    let is_any = |setting: &Setting| matches!(setting, Setting::EnableConnectProtocol(_));
    let without = Scene::open().settings;
    assert!(!without.is_empty() && !without.iter().any(is_any), "{without:?}");
}

/// Purpose: bytes go both ways until each side has ended its own, and then nothing is left of the stream.
#[test]
fn bytes_both_ways() {
    let mut scene = open();
    push(&mut scene, 1, b"hello");
    data(&mut scene, 1, false, 7);
    push(&mut scene, 1, b"");
    data(&mut scene, 1, true, 3);
    assert_eq!(scene.handled, ["raw 1 7", "raw 1 3", "raw end 1"]);
    push(&mut scene, 1, b"bye");
    finish(&mut scene, 1);
    assert_eq!(scene.seen, ["DATA 1 5", "DATA 1 3", "DATA 1 0 end"]);
    assert!(scene.server.idle_since(&scene.link).is_some(), "no stream is left");
}

/// Purpose: what comes before the answer is held up to the stream's window, and handed on behind the answer, with its end;
/// a byte more is an error.
#[test]
fn what_comes_before_the_answer_waits() {
    for (len, is_beyond) in [(0, false), (10, false), (65_535, false), (65_536, true)] {
        let mut scene = scene();
        connect(&mut scene, 1);
        let mut left = len;
        while left > 0 {
            let piece = left.min(16_384);
            left -= piece;
            data(&mut scene, 1, false, piece);
        }
        if is_beyond {
            assert_eq!(scene.seen, ["RST_STREAM 1 FLOW_CONTROL_ERROR"]);
            assert_eq!(scene.handled, ["reset 1"]);
            continue;
        }
        data(&mut scene, 1, true, 0);
        assert_eq!(scene.handled, [""; 0], "{len}: not before the answer");
        assert!(scene.windows.is_empty(), "{len}: it is held");
        accept(&mut scene, 1);
        while scene.handled.last().is_none_or(|line| line != "raw end 1") {
            allow(&mut scene, 1, 20_000);
        }
        let sizes = scene.handled.iter().filter_map(|line| line.strip_prefix("raw 1 "));
        let sum: usize = sizes.map(|size| size.parse::<usize>().expect("a number")).sum();
        assert_eq!(sum, len);
        assert_eq!(scene.seen, ["HEADERS 1 200"]);
    }
}

/// Purpose: a tunnel carries more than the largest content, as fast as its reader takes it and no faster, and may rest for
/// as long as it likes.
#[test]
fn no_bound_but_the_window() {
    let mut scene = open();
    let (mut window, mut sent) = (65_535, 0_u64);
    while sent <= 3 * scene.limits.body_max {
        let len = window.min(16_384);
        assert!(len > 0, "stuck after {sent}");
        data(&mut scene, 1, false, len);
        (window, sent) = (window - len, sent + len as u64);
        allow(&mut scene, 1, 100_000);
        let opened = scene.windows.drain(..).filter(|(id, _)| *id == 1);
        window += opened.map(|(_, more)| more as usize).sum::<usize>();
    }
    assert_eq!(scene.pass(LONG), Expired::Early);
    allow(&mut scene, 1, 0);
    scene.handled.clear();
    while window > 0 {
        let len = window.min(16_384);
        data(&mut scene, 1, false, len);
        window -= len;
    }
    assert!(scene.handled.is_empty(), "no room");
    assert!(scene.server.allocated() < 3 * 65_536, "{}", scene.server.allocated());
    assert!(scene.windows.iter().all(|(id, _)| *id != 1), "no more may come: {:?}", scene.windows);
    assert_eq!(scene.pass(LONG), Expired::Early);
    data(&mut scene, 1, false, 1);
    assert_eq!(scene.seen, ["RST_STREAM 1 FLOW_CONTROL_ERROR"]);
}

/// Purpose: behind our end, what the peer sends is handed on as before, and its window opens; the stream is over when the
/// peer has ended its side and the application reads no more, in either order.
#[test]
fn our_side_ends_first() {
    for waits in [false, true] {
        let mut scene = scene_with(&[Setting::InitialWindowSize(if waits { 4 } else { 65_535 })]);
        connect(&mut scene, 1);
        accept(&mut scene, 1);
        push(&mut scene, 1, b"hello");
        shut(&mut scene, 1);
        if waits {
            assert_eq!(scene.take(), ["HEADERS 1 200", "DATA 1 4"]);
            scene.receive(&Scene::frame(8, 0, 1, &[0, 0, 0, 9]));
            assert_eq!(scene.take(), ["DATA 1 1 end"]);
        } else {
            assert_eq!(scene.take(), ["HEADERS 1 200", "DATA 1 5", "DATA 1 0 end"]);
        }
        let mut sent = 0;
        while sent < 1_000_000 {
            data(&mut scene, 1, false, 16_000);
            allow(&mut scene, 1, 100_000);
            sent += 16_000;
        }
        data(&mut scene, 1, true, 1);
        assert_eq!(scene.handled.last().map(String::as_str), Some("raw end 1"));
        let sizes = scene.handled.iter().filter_map(|line| line.strip_prefix("raw 1 "));
        assert_eq!(
            sizes.map(|size| size.parse::<usize>().expect("a number")).sum::<usize>(),
            sent + 1
        );
        assert!(!is_over(&mut scene, 1), "the application may not have read all of it");
        stop_reading(&mut scene, 1);
        assert!(is_over(&mut scene, 1) && scene.server.idle_since(&scene.link).is_some());
        assert!(scene.seen.is_empty(), "{:?}", scene.seen);
    }
    let mut scene = open();
    shut(&mut scene, 1);
    assert_eq!(scene.take(), ["DATA 1 0 end"]);
    stop_reading(&mut scene, 1);
    assert!(is_over(&mut scene, 1) && scene.server.idle_since(&scene.link).is_none());
    scene.pass(scene.limits.linger_timeout);
    assert_eq!(scene.seen, ["RST_STREAM 1 NO_ERROR"]);
}

/// Purpose: once one side has ended, something has to move within the bound of a half-closed connection, in either
/// direction; else the tunnel is reset, and the connection goes on. It rests while the application has no room for what
/// the peer sends.
#[test]
fn half_closed_is_bounded() {
    let tick = Duration::from_nanos(1);
    let mut scene = open();
    let bound = scene.limits.half_closed_timeout;
    shut(&mut scene, 1);
    assert_eq!(scene.take(), ["DATA 1 0 end"]);
    assert_eq!(scene.pass(bound - tick), Expired::Early);
    data(&mut scene, 1, false, 1);
    assert_eq!(scene.pass(bound - tick), Expired::Early);
    allow(&mut scene, 1, 0);
    assert_eq!(scene.pass(LONG), Expired::Early);
    allow(&mut scene, 1, 9);
    assert_eq!(scene.pass(bound - tick), Expired::Early);
    assert_eq!(scene.pass(tick), Expired::HalfClosedStream);
    assert_eq!(scene.take(), ["RST_STREAM 1 CANCEL"]);
    assert!(is_over(&mut scene, 1) && scene.server.idle_since(&scene.link).is_some());

    for stops_reading in [false, true] {
        let mut scene = open();
        data(&mut scene, 1, true, 0);
        if stops_reading {
            stop_reading(&mut scene, 1);
        }
        assert_eq!(scene.pass(bound - tick), Expired::Early);
        push(&mut scene, 1, b"a");
        // When it was sent is not known: the bound is counted from when that is noticed.
        assert_eq!(scene.pass(tick), Expired::Early);
        assert_eq!(scene.pass(bound - tick), Expired::Early);
        assert_eq!(scene.take(), ["DATA 1 1"]);
        assert_eq!(scene.pass(tick), Expired::HalfClosedStream);
        assert_eq!(scene.take(), ["RST_STREAM 1 CANCEL"]);
    }

    let mut scene = open();
    data(&mut scene, 1, true, 0);
    shut(&mut scene, 1);
    assert_eq!(scene.take(), ["DATA 1 0 end"]);
    assert_eq!(scene.pass(bound), Expired::HalfClosedStream);
    assert!(scene.seen.is_empty(), "the stream is closed for the peer");
}

/// Purpose: when the peer's connection ends, a tunnel that only the peer had to end fails for its reader.
#[test]
fn the_end_of_the_connection_breaks_a_half_closed_one() {
    let mut scene = open();
    shut(&mut scene, 1);
    data(&mut scene, 1, false, 1);
    scene.link.on_eof();
    scene.read_on();
    assert_eq!(scene.handled, ["raw 1 1", "reset 1"]);
    assert_eq!(scene.seen, ["DATA 1 0 end", "closed"]);
}

/// Purpose: after our end the peer may end its side, and what it still sends is dropped if nobody reads. If it does not end, the stream is
/// reset after a moment, and the connection that drains waits no longer than that.
#[test]
fn the_peer_ends_its_side_too() {
    let mut scene = open();
    finish(&mut scene, 1);
    data(&mut scene, 1, false, 100);
    assert_eq!(scene.take(), ["DATA 1 0 end"]);
    let linger = scene.limits.linger_timeout;
    scene.pass(linger - Duration::from_nanos(1));
    assert!(scene.seen.is_empty() && scene.server.idle_since(&scene.link).is_none());
    data(&mut scene, 1, true, 0);
    assert!(scene.seen.is_empty() && scene.server.idle_since(&scene.link).is_some());

    let mut scene = open();
    scene.server.drain(&mut scene.link, scene.now);
    scene.pass(Duration::from_secs(1));
    assert_eq!(scene.take()[0], "GOAWAY 2147483647 NO_ERROR");
    push(&mut scene, 1, b"1001");
    finish(&mut scene, 1);
    assert_eq!(scene.take(), ["DATA 1 4", "DATA 1 0 end"]);
    scene.pass(linger);
    assert_eq!(scene.seen, ["RST_STREAM 1 NO_ERROR", "closed"]);
    assert!(scene.handled.is_empty());
}

/// Purpose: content that waits for the peer's window is sent before the end of the tunnel, which counts as our end only
/// then.
#[test]
fn the_end_waits_for_what_is_before_it() {
    let mut scene = scene_with(&[Setting::InitialWindowSize(4)]);
    connect(&mut scene, 1);
    accept(&mut scene, 1);
    push(&mut scene, 1, b"hello");
    finish(&mut scene, 1);
    assert_eq!(scene.take(), ["HEADERS 1 200", "DATA 1 4"]);
    scene.pass(scene.limits.linger_timeout * 2);
    scene.receive(&Scene::frame(8, 0, 1, &[0, 0, 0, 9]));
    assert_eq!(scene.take(), ["DATA 1 1 end"]);
    data(&mut scene, 1, true, 0);
    assert!(scene.seen.is_empty() && scene.server.idle_since(&scene.link).is_some());
}

/// Purpose: what TCP says by a reset is said by CANCEL, and so is the reset of the peer a reset (RFC 8441 §5).
#[test]
fn resets() {
    for has_ended in [false, true] {
        let mut scene = open();
        if has_ended {
            data(&mut scene, 1, true, 0);
        }
        let Scene { server, link, .. } = &mut scene;
        server.stream(link, StreamId(1)).reset();
        scene.flush();
        assert_eq!(scene.seen, ["RST_STREAM 1 CANCEL"]);
    }
    let mut scene = open();
    scene.receive(&Scene::frame(3, 0, 1, &[0, 0, 0, 8]));
    assert_eq!(scene.handled, ["reset 1"]);
    assert!(scene.seen.is_empty() && scene.server.idle_since(&scene.link).is_some());
}

/// Purpose: a tunnel that is refused is answered like any request, and what the peer has sent on it costs no window.
#[test]
fn a_refused_tunnel_is_an_answer() {
    let mut scene = scene();
    let first = scene.limits.http2.connection_window;
    let mut window = first;
    for n in 0..200 {
        let id = 2 * n + 1;
        connect(&mut scene, id);
        data(&mut scene, id, false, 16_384);
        window -= 16_384;
        scene.respond(id, 403, b"no");
        scene.flush();
        let end = format!("RST_STREAM {id} NO_ERROR");
        assert_eq!(scene.take(), [format!("HEADERS {id} 403"), format!("DATA {id} 2 end"), end]);
        window +=
            scene.windows.drain(..).map(|(id, more)| if id == 0 { more } else { 0 }).sum::<u32>();
    }
    assert!(window > first / 2 && scene.handled.is_empty());
}

/// Purpose: when the peer's connection ends, a tunnel whose side it has not ended is broken, and not ended.
#[test]
fn the_end_of_the_connection_breaks_it() {
    let mut scene = open();
    data(&mut scene, 1, false, 1);
    scene.link.on_eof();
    scene.read_on();
    assert_eq!(scene.handled, ["raw 1 1", "failed 1 Truncated"]);
    finish(&mut scene, 1);
    assert_eq!(scene.seen, ["DATA 1 0 end", "RST_STREAM 1 NO_ERROR", "closed"]);
}

/// Purpose: a peer may open both windows again after each message, however many and small they are; as many frames without a
/// message are too many.
#[test]
fn windows_opened_after_each_message() {
    for has_messages in [true, false] {
        let mut scene = open();
        let rate = scene.limits.http2.control_per_second;
        for _ in 0..10 * rate {
            if has_messages {
                push(&mut scene, 1, b"tick");
            }
            for id in [0, 1] {
                scene.receive(&Scene::frame(8, 0, id, &[0, 0, 0, 4]));
            }
        }
        let is_over = scene.seen.iter().any(|line| line.contains("ENHANCE_YOUR_CALM"));
        assert_eq!(is_over, !has_messages);
    }
}

/// Purpose: a peer that takes nothing loses the stream when the time for writing is over, as an answer is lost.
#[test]
fn a_peer_that_does_not_read() {
    for has_ended in [false, true] {
        let mut scene = scene_with(&[Setting::InitialWindowSize(0)]);
        connect(&mut scene, 1);
        accept(&mut scene, 1);
        if has_ended {
            data(&mut scene, 1, true, 0);
        }
        push(&mut scene, 1, b"hello");
        assert_eq!(scene.take(), ["HEADERS 1 200"]);
        let timeout = scene.limits.write_timeout;
        assert_eq!(scene.pass(timeout - Duration::from_nanos(1)), Expired::Early);
        assert_eq!(scene.pass(Duration::from_nanos(1)), Expired::Stalled);
        assert_eq!(scene.seen, ["RST_STREAM 1 CANCEL"]);
    }
}
