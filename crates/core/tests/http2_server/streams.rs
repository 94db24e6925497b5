//! Streams beside each other: windows, priorities, deadlines, and the end of a connection.

use std::time::Duration;

use highwater_core::http::{FieldWriter as _, Limits, Payload};
use highwater_core::http2::Setting;
use highwater_core::http2::server::FieldBlock;
use highwater_core::protocol::{CloseReason, Expired, Protocol as _, Stream as _, StreamId};

use crate::scene::{BODY_MAX, Scene};

/// What a handler says about the content of its request.
fn allow(scene: &mut Scene, id: u32, room: usize) {
    let Scene { server, link, now, .. } = scene;
    server.stream(link, StreamId(id)).allow_body(room, *now);
}

fn data(scene: &mut Scene, id: u32, is_last: bool, len: usize) {
    scene.receive(&Scene::frame(0, u8::from(is_last), id, &vec![b'd'; len]));
}

fn post(scene: &mut Scene, id: u32, path: &str) {
    let bytes = scene.request(id, "POST", path, false);
    scene.receive(&bytes);
}

/// Purpose: content is handed on while its handler has room, held while it has none, and both windows are opened for what
/// was handed on, and for no more.
#[test]
fn content_waits_for_its_handler() {
    let mut scene = Scene::open();
    post(&mut scene, 1, "/stream");
    data(&mut scene, 1, false, 10_000);
    allow(&mut scene, 1, 0);
    data(&mut scene, 1, false, 16_000);
    data(&mut scene, 1, true, 16_000);
    assert_eq!(scene.handled, ["body 1 10000"], "no room");
    assert!(scene.server.allocated() > 32_000 && !scene.server.holds_input());
    allow(&mut scene, 1, 20_000);
    assert!(scene.server.holds_input());
    scene.read_on();
    assert_eq!(scene.handled[1..], ["body 1 20000"]);
    allow(&mut scene, 1, 50_000);
    scene.read_on();
    assert_eq!(scene.handled[2..], ["body 1 12000", "end 1"]);
    scene.respond(1, 200, b"done");
    scene.flush();
    assert_eq!(scene.seen, ["HEADERS 1 200", "DATA 1 4 end"]);
    assert!(scene.server.allocated() < 6_000, "{}", scene.server.allocated());
}

/// Purpose: a client can send any amount, as what it sent is handed on.
#[test]
fn windows_are_opened_again() {
    let mut scene = Scene::open();
    post(&mut scene, 1, "/stream");
    let (mut stream, mut connection) = (65_535_u64, 1 << 20_u64);
    let mut sent = 0;
    while sent < 1_000_000 {
        let len = stream.min(connection).min(16_384);
        assert!(len > 0, "stuck after {sent}");
        data(&mut scene, 1, false, len as usize);
        allow(&mut scene, 1, 100_000);
        (stream, connection, sent) = (stream - len, connection - len, sent + len);
        for (id, more) in std::mem::take(&mut scene.windows) {
            *(if id == 0 { &mut connection } else { &mut stream }) += u64::from(more);
        }
    }
    assert!(stream <= 65_535 && connection <= 1 << 20);
}

/// Purpose: what a slow handler was given makes room for what comes: a stream holds no more than its window, however much is
/// sent while something is held all the time. Once, it kept all of the content.
#[test]
fn a_slow_handler_holds_a_window() {
    let mut scene = Scene::open();
    post(&mut scene, 1, "/stream");
    allow(&mut scene, 1, 0);
    let (mut window, mut sent, mut read) = (65_535_u64, 0, 0);
    while sent < 1_000_000 {
        while window >= 10_000 {
            data(&mut scene, 1, false, 10_000);
            (window, sent) = (window - 10_000, sent + 10_000);
        }
        assert!(scene.server.allocated() < 250_000, "{}, behind {sent}", scene.server.allocated());
        allow(&mut scene, 1, 5_000);
        scene.read_on();
        read += 5_000;
        assert_eq!(scene.handled.pop().as_deref(), Some("body 1 5000"));
        allow(&mut scene, 1, 0);
        let opened = scene.windows.drain(..).filter(|(id, _)| *id == 1);
        window += opened.map(|(_, more)| u64::from(more)).sum::<u64>();
    }
    assert!(sent - read <= 65_535, "{sent} - {read}");
}

/// Purpose: streams whose handlers pause do not keep the connection's window from the others, as far as these use it; and when
/// it is shut, nobody's content is late. Once, a quarter of it was withheld, and uploads beside paused ones ended with 408.
#[test]
fn paused_streams_leave_the_window_to_others() {
    let mut limits = Limits::default();
    limits.http2.connection_window = 131_072;
    let mut scene = Scene::with(limits);
    scene.greet(&[]);
    for id in [1, 3] {
        post(&mut scene, id, "/stream");
        allow(&mut scene, id, 0);
        for _ in 0..4 {
            data(&mut scene, id, false, 15_000);
        }
    }
    // What the paused ones leave goes through as often as it is used.
    post(&mut scene, 5, "/");
    for _ in 0..3 {
        data(&mut scene, 5, false, 11_072);
        let opened = scene.windows.drain(..).filter(|(id, _)| *id == 0);
        assert_eq!(opened.map(|(_, more)| more).sum::<u32>(), 11_072);
    }
    post(&mut scene, 7, "/stream");
    allow(&mut scene, 7, 0);
    data(&mut scene, 7, false, 11_072);
    assert_eq!(scene.pass(scene.limits.body_timeout), Expired::Early, "it could not send");
    assert_eq!(scene.pass(scene.limits.body_timeout), Expired::Early, "it cannot send");
    allow(&mut scene, 7, 100_000);
    scene.read_on();
    assert_eq!(scene.windows, [(0, 11_072)]);
    let tick = Duration::from_nanos(1);
    assert_eq!(
        scene.pass(scene.limits.body_grace - tick),
        Expired::Early,
        "it could not send before"
    );
    let expired = scene.pass(tick);
    assert!(matches!(expired, Expired::Reject(_) | Expired::BodyFailed(_)), "{expired:?}");
}

/// Purpose: a client that shuts the connection's window itself, as it does not read the answer of a handler that would read
/// more, excuses no slow content by that. Once, such a client held as many places as it had streams, for ever.
#[test]
fn a_window_that_the_client_shuts_excuses_nothing() {
    for is_by_client in [true, false] {
        let mut limits = Limits::default();
        limits.http2.connection_window = 65_535;
        limits.write_timeout = limits.body_timeout * 10;
        let mut scene = Scene::with(limits);
        scene.greet(&[Setting::InitialWindowSize(0)]);
        for id in [1, 3] {
            post(&mut scene, id, "/stream");
        }
        scene.begin_stream(1);
        if is_by_client {
            scene.push(1, &[b'x'; 1000]);
        }
        allow(&mut scene, 1, 0);
        for len in [16_000, 16_000, 16_000, 16_000, 1_535] {
            data(&mut scene, 1, false, len);
        }
        let Scene { server, link, now, .. } = &mut scene;
        let later = *now + Duration::from_secs(1);
        let upload = server.stream(link, StreamId(3)).upload(later).expect("it is waited for");
        assert_eq!(upload.shut_for.is_zero(), is_by_client);
        let expired = scene.pass(scene.limits.body_timeout);
        assert_eq!(matches!(expired, Expired::BodyFailed(_)), is_by_client, "{expired:?}");
        // When a handler that has paused goes, what it kept from sending has its whole time again.
        scene.receive(&Scene::frame(3, 0, 1, &[0, 0, 0, 8]));
        let grace = scene.limits.body_grace.min(scene.limits.body_timeout);
        assert_eq!(scene.pass(grace - Duration::from_nanos(1)), Expired::Early);
    }
}

/// Purpose: content for requests that were answered by their heads is ignored, whatever number of them is under way: a client
/// that sends all heads before all content has done nothing wrong. Once, it lost its connection for that.
#[test]
fn content_behind_early_answers() {
    const STREAMS: u32 = 128;
    let mut scene = Scene::with(Limits::default());
    scene.greet(&[]);
    let mut next = 1;
    for round in 0..10 {
        let ids: Vec<u32> = (0..STREAMS).map(|n| next + 2 * n).collect();
        next += 2 * STREAMS;
        for &id in &ids {
            post(&mut scene, id, "/unread");
        }
        let seen = scene.take();
        let ended = |line: &&String| line.starts_with("RST_STREAM") && line.ends_with("NO_ERROR");
        assert_eq!(seen.iter().filter(ended).count(), STREAMS as usize, "{round}: {seen:?}");
        for &id in &ids {
            data(&mut scene, id, false, 100);
        }
        for &id in &ids {
            let trailers = scene.headers(id, true, &[(b"x-sum", b"7")]);
            scene.receive(&trailers);
        }
        assert_eq!(scene.take(), Vec::<String>::new(), "{round}");
        assert!(!scene.link.is_ending());
    }
}

/// Purpose: a table that the client has made smaller is agreed upon in the next field block, also where that is one of trailers
/// (RFC 7541 §4.2). The client's decoder would fail otherwise.
#[test]
fn a_smaller_table_before_trailers() {
    let mut scene = Scene::open();
    scene.get(1, "/later");
    let Scene { server, link, limits, now, .. } = &mut scene;
    let mut stream = server.stream(link, StreamId(1));
    let no_fields = |_: &mut FieldBlock<'_>| {};
    stream.respond(
        200,
        b"Thu, 01 Jan 1970 00:00:00 GMT",
        limits,
        *now,
        no_fields,
        Payload::Stream(None),
    );
    scene.flush();
    scene.resize_table(0);
    let Scene { server, link, limits, now, .. } = &mut scene;
    let mut stream = server.stream(link, StreamId(1));
    stream
        .finish_body(limits, *now, |fields| fields.push("x-sum", b"7"))
        .expect("no length was said");
    scene.flush();
    assert_eq!(scene.seen, ["HEADERS 1 200", "HEADERS 1 trailers end"]);
}

/// Purpose: content that nobody wants gives the connection's window back, whichever way it lost its reader.
#[test]
fn dropped_content_gives_the_window_back() {
    let mut limits = Limits::default();
    limits.http2.connection_window = 65_535;
    let mut scene = Scene::with(limits);
    scene.greet(&[]);
    for n in 0..20 {
        let id = 2 * n + 1;
        post(&mut scene, id, "/stream");
        allow(&mut scene, id, 0);
        data(&mut scene, id, false, 16_000);
        match n % 3 {
            0 => scene.receive(&Scene::frame(3, 0, id, &[0, 0, 0, 8])),
            1 => scene.respond(id, 200, b"enough"),
            _ => {
                let Scene { server, link, .. } = &mut scene;
                server.stream(link, StreamId(id)).reset();
            }
        }
        scene.flush();
        data(&mut scene, id, false, 1_000); // It was on its way.
    }
    assert!(!scene.link.is_ending(), "{:?}", scene.seen);
    assert!(scene.server.allocated() < 8_000, "{}", scene.server.allocated());
}

/// Purpose: trailers come behind the content, without those that trailers cannot be; then the end.
#[test]
fn trailers() {
    let mut scene = Scene::open();
    post(&mut scene, 1, "/stream");
    allow(&mut scene, 1, 0);
    data(&mut scene, 1, false, 10);
    let trailers = scene.headers(1, true, &[(b"x-sum", b"7"), (b"content-length", b"1")]);
    scene.receive(&trailers);
    assert!(scene.handled.is_empty());
    allow(&mut scene, 1, 100);
    scene.read_on();
    assert_eq!(scene.handled, ["body 1 10", "trailers 1 {\"x-sum\": \"7\"}", "end 1"]);
}

/// The streams of DATA frames, in the order they were sent.
fn order(scene: &Scene) -> Vec<u32> {
    let of = |line: &String| line.strip_prefix("DATA ")?.split(' ').next()?.parse().ok();
    let mut order: Vec<u32> = scene.seen.iter().filter_map(of).collect();
    order.dedup();
    order
}

fn ask(scene: &mut Scene, id: u32, priority: &[u8]) {
    let mut fields: Vec<(&[u8], &[u8])> = vec![
        (b":method", b"GET"),
        (b":scheme", b"http"),
        (b":authority", b"h"),
        (b":path", b"/large"),
    ];
    if !priority.is_empty() {
        fields.push((b"priority", priority));
    }
    let bytes = scene.headers(id, true, &fields);
    scene.receive(&bytes);
}

/// Purpose: the more urgent comes first; of the same urgency those that are not incremental one after the other, then the
/// others in turns; those without a word in turns, too (RFC 9218 §10).
#[test]
fn priorities() {
    let sent = |priorities: [&str; 4], update: Option<(u32, &[u8])>| {
        let mut scene = Scene::silent();
        scene.greet(&[Setting::InitialWindowSize(0)]);
        for (n, priority) in priorities.iter().enumerate() {
            ask(&mut scene, 2 * n as u32 + 1, priority.as_bytes());
        }
        if let Some((id, value)) = update {
            scene.receive(&Scene::frame(16, 0, 0, &[&id.to_be_bytes()[..], value].concat()));
        }
        let windows = [
            Scene::frame(8, 0, 0, &(1_u32 << 20).to_be_bytes()),
            Scene::frame(4, 0, 0, &[0, 4, 0, 1, 0x86, 0xa0]),
        ];
        scene.receive(&windows.concat());
        assert!(scene.content.values().all(|content| content.len() == 100_000));
        order(&scene)
    };
    assert_eq!(sent(["u=5", "u=1", "u=3", "u=0"], None), [7, 3, 5, 1]);
    assert_eq!(sent(["u=3", "u=3", "u=3", "u=3"], None), [1, 3, 5, 7]);
    assert_eq!(sent(["u=5", "u=5", "u=5", "u=5"], Some((5, b"u=0"))), [5, 1, 3, 7]);
    let turns = sent(["", "u=3", "", "u=3,i"], None);
    assert_eq!(turns, [3, 5, 7, 1, 5, 7, 1]);
}

/// Purpose: a connection without a request ends: soon if it never asked, later if it has; the client is told.
#[test]
fn idle() {
    let limits = Limits::default();
    let mut scene = Scene::open();
    assert_eq!(scene.pass(limits.header_timeout - Duration::from_nanos(1)), Expired::Early);
    assert_eq!(scene.pass(Duration::from_nanos(1)), Expired::Ended);
    assert_eq!(scene.seen, ["GOAWAY 0 NO_ERROR", "closed"]);
    let close_reason = scene.server.take_report().and_then(|report| report.close_reason);
    assert_eq!(close_reason, Some(CloseReason::Idle));

    let mut scene = Scene::open();
    scene.get(1, "/");
    scene.take();
    assert_eq!(scene.server.deadline(&scene.link, &limits), scene.now + limits.idle_timeout);
    assert_eq!(scene.pass(limits.idle_timeout), Expired::Ended);
    assert_eq!(scene.seen, ["GOAWAY 1 NO_ERROR", "closed"]);

    let mut scene = Scene::silent();
    scene.receive(b"PRI * HTTP");
    assert_eq!(scene.pass(limits.header_timeout), Expired::Ended);
    assert_eq!(scene.seen, ["closed"], "it has not said that it speaks HTTP/2");
}

/// Purpose: frames that no request belongs to do not keep an idle connection, although the server acknowledges some of them:
/// it has been idle since its last answer was sent. Clients that sent a PING now and then once kept theirs for ever, and at
/// the limit of connections kept all others out.
#[test]
fn acknowledgements_do_not_end_idleness() {
    let kinds = [
        ("nothing", Vec::new()),
        ("PING", Scene::frame(6, 0, 0, b"12345678")),
        ("SETTINGS", Scene::frame(4, 0, 0, &[])),
        ("RST_STREAM of a stream that is over", Scene::frame(3, 0, 1, &[0, 0, 0, 8])),
        ("half a frame", vec![0, 0]),
    ];
    for (name, bytes) in kinds {
        let mut scene = Scene::open();
        scene.get(1, "/");
        let (answered_at, timeout) = (scene.now, scene.limits.idle_timeout);
        for _ in 0..3 {
            assert_eq!(scene.pass(timeout / 4), Expired::Early, "{name}");
            scene.receive(&bytes);
            assert_eq!(scene.server.idle_since(&scene.link), Some(answered_at), "{name}");
        }
        assert_eq!(scene.pass(timeout / 4 - Duration::from_nanos(1)), Expired::Early, "{name}");
        scene.take();
        assert_eq!(scene.pass(Duration::from_nanos(1)), Expired::Ended, "{name}");
        assert_eq!(scene.seen, ["GOAWAY 1 NO_ERROR", "closed"], "{name}");
    }
}

/// Purpose: idleness counts from when the last byte of an answer is sent, also if an acknowledgement follows it; and one
/// that its client does not read does not hold it up.
#[test]
fn idle_from_the_last_byte_of_an_answer() {
    let ping = Scene::frame(6, 0, 0, b"12345678");
    let mut scene = Scene::open();
    let timeout = scene.limits.idle_timeout;
    scene.is_stuck = true;
    scene.get(1, "/");
    scene.link.take_output(scene.now).expect("the answer");
    scene.receive(&ping);
    scene.now += timeout * 2;
    scene.link.on_progress(scene.now);
    assert_eq!(scene.pass(Duration::ZERO), Expired::Early, "the answer is being read");
    assert!(scene.server.idle_since(&scene.link).is_none());
    scene.link.on_sent(scene.now);
    let sent_at = scene.now;

    scene.link.take_output(scene.now).expect("the acknowledgement");
    assert!(scene.server.idle_since(&scene.link).is_none(), "output is in flight");
    scene.limits.write_timeout = timeout * 2;
    assert_eq!(scene.server.deadline(&scene.link, &scene.limits), sent_at + timeout);
    scene.pass(timeout / 2);
    scene.link.on_sent(scene.now);
    assert_eq!(scene.server.idle_since(&scene.link), Some(sent_at));
    assert_eq!(scene.pass(timeout / 2), Expired::Ended);
}

/// Purpose: a stream that its client resets while the answer is on its way does not make the connection idle before its
/// bytes are sent, and an acknowledgement on an open stream's connection changes nothing.
#[test]
fn no_idleness_with_a_stream() {
    let mut scene = Scene::open();
    scene.get(1, "/later");
    scene.receive(&Scene::frame(6, 0, 0, b"12345678"));
    assert_eq!(scene.pass(scene.limits.idle_timeout * 10), Expired::Early);
    assert!(scene.server.idle_since(&scene.link).is_none());
    scene.is_stuck = true;
    scene.respond(1, 200, b"ok");
    scene.get(3, "/stream");
    scene.link.take_output(scene.now).expect("the answer");
    scene.receive(&Scene::frame(3, 0, 3, &[0, 0, 0, 8]));
    assert_eq!(scene.handled, ["reset 3"]);
    scene.now += scene.limits.write_timeout / 2;
    scene.link.on_sent(scene.now);
    assert_eq!(scene.server.idle_since(&scene.link), Some(scene.now));
}

/// Purpose: a field block that is not completed ends the connection, since nothing else can come.
#[test]
fn a_field_block_in_pieces() {
    let mut scene = Scene::open();
    scene.get(1, "/later");
    scene.receive(&Scene::frame(1, 1, 3, &[0x82]));
    assert_eq!(scene.pass(scene.limits.header_timeout), Expired::Ended);
    assert_eq!(scene.seen, ["GOAWAY 1 ENHANCE_YOUR_CALM", "closed"]);
}

/// Purpose: content that does not come ends its request, and only that; none that its handler does not read.
#[test]
fn slow_content() {
    let mut scene = Scene::open();
    scene.limits.body_rate_min = 0;
    post(&mut scene, 1, "/");
    post(&mut scene, 3, "/stream");
    post(&mut scene, 5, "/stream");
    allow(&mut scene, 5, 0);
    scene.get(7, "/later");
    assert!(matches!(scene.pass(scene.limits.body_timeout), Expired::Reject(_)));
    assert!(matches!(scene.pass(Duration::ZERO), Expired::BodyFailed(_)));
    assert_eq!(scene.pass(scene.limits.body_timeout), Expired::Early);
    assert_eq!(scene.handled, ["failed 3 BodyTimeout"]);
    assert_eq!(scene.seen, ["HEADERS 1 408", "DATA 1 4 end", "RST_STREAM 1 NO_ERROR"]);
}

/// Purpose: an answer that its client does not read is given up, and the connection goes on.
#[test]
fn a_closed_window_is_not_waited_for() {
    let mut scene = Scene::silent();
    scene.greet(&[Setting::InitialWindowSize(10)]);
    scene.get(1, "/large");
    scene.get(3, "/large");
    assert_eq!(scene.pass(scene.limits.write_timeout / 2), Expired::Early);
    scene.receive(&window_update(3, 8_000));
    assert_eq!(scene.pass(scene.limits.write_timeout / 2), Expired::Stalled);
    assert_eq!(scene.seen.last().map(String::as_str), Some("RST_STREAM 1 CANCEL"));
    assert_eq!(
        scene.pass(scene.limits.write_timeout / 2 - Duration::from_nanos(1)),
        Expired::Early
    );
    assert_eq!(scene.pass(Duration::from_nanos(1)), Expired::Stalled);
    assert_eq!(scene.server.allocated(), scene.server.allocated().min(6_000));
    scene.get(5, "/204");
    assert_eq!(scene.seen.last().map(String::as_str), Some("HEADERS 5 204 end"));
}

/// Purpose: a client cannot keep an answer, and what it holds, by opening the window by a byte now and then: it must open it
/// as fast as the slowest sender may be; without a minimum rate any byte will do.
#[test]
fn a_window_opened_by_a_byte() {
    for (rate_min, stream) in [(240, 1), (240, 0), (0, 1), (0, 0)] {
        let mut scene = Scene::silent();
        scene.limits.body_rate_min = rate_min;
        let window = if stream == 0 { 1 << 20 } else { 10 };
        scene.greet(&[Setting::InitialWindowSize(window)]);
        scene.get(1, "/large");
        for _ in 0..3 {
            assert_eq!(scene.pass(scene.limits.write_timeout / 4), Expired::Early);
            scene.receive(&window_update(stream, 1));
        }
        let expected = if rate_min > 0 { Expired::Stalled } else { Expired::Early };
        assert_eq!(scene.pass(scene.limits.write_timeout / 4), expected, "{rate_min} {stream}");
    }
}

/// Purpose: an answer that waits for its turn, because those before it take all that the client allows the connection, is not
/// given up while the client reads; nor is any of them the longer for it when it reads no more.
#[test]
fn a_turn_is_waited_for() {
    let mut scene = Scene::silent();
    scene.greet(&[Setting::InitialWindowSize(1 << 20)]);
    scene.get(1, "/large");
    scene.get(3, "/large");
    scene.get(5, "/large");
    for _ in 0..6 {
        assert_eq!(scene.pass(scene.limits.write_timeout / 2), Expired::Early);
        scene.receive(&window_update(0, 8_000));
    }
    assert!(!scene.content.contains_key(&5), "its turn has not come");
    assert_eq!(scene.pass(scene.limits.write_timeout - Duration::from_nanos(1)), Expired::Early);
    assert_eq!(scene.pass(Duration::from_nanos(1)), Expired::Stalled);
    assert_eq!(scene.pass(Duration::ZERO), Expired::Stalled);
}

/// Purpose: a drain is announced, what is on its way is still served, and the last stream is named once the client has
/// answered; then the connection ends with its last answer.
#[test]
fn drain_in_two_steps() {
    let mut scene = Scene::open();
    scene.get(1, "/later");
    let Scene { server, link, now, .. } = &mut scene;
    server.drain(link, *now);
    scene.flush();
    assert_eq!(scene.take(), ["GOAWAY 2147483647 NO_ERROR", "PING"]);
    scene.get(3, "/");
    assert_eq!(scene.take(), ["HEADERS 3 200", "DATA 3 2 end"]);
    scene.receive(&Scene::frame(6, 1, 0, b"draining"));
    assert_eq!(scene.take(), ["GOAWAY 3 NO_ERROR"]);
    scene.get(5, "/");
    data(&mut scene, 5, true, 0);
    assert!(scene.take().is_empty(), "it knows that this is not served");
    scene.respond(1, 200, b"late");
    scene.flush();
    assert_eq!(scene.take(), ["HEADERS 1 200", "DATA 1 4 end", "closed"]);

    // What ends the connection afterwards names no later stream (RFC 9113 §6.8).
    let mut scene = Scene::open();
    scene.get(1, "/later");
    let Scene { server, link, now, .. } = &mut scene;
    server.drain(link, *now);
    scene.receive(&Scene::frame(6, 1, 0, b"draining"));
    scene.take();
    scene.get(3, "/");
    scene.receive(&Scene::frame(6, 0, 1, b"12345678"));
    assert_eq!(scene.take(), ["GOAWAY 1 PROTOCOL_ERROR", "closed"]);

    // A client that does not answer is given a moment.
    let mut scene = Scene::open();
    let Scene { server, link, now, .. } = &mut scene;
    server.drain(link, *now);
    scene.flush();
    assert_eq!(scene.pass(Duration::from_millis(249)), Expired::Early);
    assert_eq!(scene.take(), ["GOAWAY 2147483647 NO_ERROR", "PING"]);
    scene.pass(Duration::from_millis(1));
    assert_eq!(scene.take(), ["GOAWAY 0 NO_ERROR", "closed"]);
}

/// Purpose: the last request that a connection may bring is said to be.
#[test]
fn requests_max() {
    let mut scene = Scene::open();
    scene.limits.requests_max = 2;
    scene.get(1, "/");
    scene.take();
    scene.get(3, "/");
    let seen = scene.take();
    assert!(seen.contains(&"GOAWAY 2147483647 NO_ERROR".to_owned()), "{seen:?}");
    assert!(seen.contains(&"DATA 3 2 end".to_owned()), "{seen:?}");
}

/// Purpose: when the client has finished sending, what is whole is answered, what is not is said to be cut off, and the
/// connection ends.
#[test]
fn eof() {
    let mut scene = Scene::open();
    scene.get(1, "/later");
    post(&mut scene, 3, "/stream");
    post(&mut scene, 5, "/");
    scene.link.on_eof();
    scene.read_on();
    assert_eq!(scene.handled, ["failed 3 Truncated"]);
    assert_eq!(scene.take(), ["HEADERS 5 400", "DATA 5 4 end", "RST_STREAM 5 NO_ERROR"]);
    scene.respond(1, 200, b"late");
    scene.respond(3, 200, b"cut");
    scene.flush();
    assert_eq!(scene.take().last().map(String::as_str), Some("closed"));
}

/// Purpose: requests that wait behind a full output are answered, also if the client has finished sending meanwhile.
#[test]
fn eof_behind_a_full_output() {
    const REQUESTS: u32 = 1_500;
    let mut scene = Scene::open();
    scene.limits.output_max = 4096;
    let requests: Vec<u8> =
        (0..REQUESTS).flat_map(|n| scene.request(2 * n + 1, "GET", "/", true)).collect();
    scene.link.on_eof();
    scene.receive(&requests);
    for _ in 0..100 {
        if scene.seen.last().is_some_and(|line| line == "closed") {
            break;
        }
        scene.read_on();
    }
    assert_eq!(scene.seen.pop().as_deref(), Some("closed"));
    assert_eq!(scene.content.len(), REQUESTS as usize);
}

/// Purpose: a body that is collected is bounded by its route, and what an idle connection keeps is little.
#[test]
fn memory() {
    let mut scene = Scene::open();
    for id in (1..400).step_by(2) {
        post(&mut scene, id, "/");
        data(&mut scene, id, false, BODY_MAX as usize / 4);
        data(&mut scene, id, true, BODY_MAX as usize / 4);
    }
    assert_eq!(scene.content.len(), 200);
    let (line, large) = ("x".repeat(9_000), b"x-large");
    let fields: [(&[u8], &[u8]); 5] = [
        (b":method", b"GET"),
        (b":scheme", b"http"),
        (b":authority", b"h"),
        (b":path", b"/"),
        (large, line.as_bytes()),
    ];
    let bytes = scene.headers(401, true, &fields);
    scene.receive(&bytes);
    assert_eq!(scene.content.len(), 201);
    let kept = size_of::<highwater_core::http2::Connection>() + scene.server.allocated();
    assert!(kept < 4_096, "{kept}");
}

fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    Scene::frame(8, 0, stream, &increment.to_be_bytes())
}
