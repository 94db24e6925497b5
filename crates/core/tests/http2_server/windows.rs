//! Our windows: how long handlers keep them shut, and what opening them costs.

use std::time::Duration;

use highwater_core::http::Limits;
use highwater_core::protocol::{Expired, Protocol as _, Stream as _, StreamId};

use crate::scene::Scene;

const WINDOW: usize = 65_535;

/// A connection with a window of 64 KiB, and two uploads: one whose handler pauses, and one that is collected.
fn paused_and_collected() -> Scene {
    let mut limits = Limits::default();
    limits.http2.connection_window = WINDOW as u32;
    limits.body_rate_min = 0;
    let mut scene = Scene::with(limits);
    scene.greet(&[]);
    for (id, path) in [(1, "/stream"), (3, "/")] {
        let bytes = scene.request(id, "POST", path, false);
        scene.receive(&bytes);
    }
    allow(&mut scene, 0);
    scene
}

/// The first handler has room for this many bytes, and reads.
fn allow(scene: &mut Scene, room: usize) {
    let Scene { server, link, now, .. } = scene;
    server.stream(link, StreamId(1)).allow_body(room, *now);
    scene.read_on();
}

fn data(scene: &mut Scene, id: u32, len: usize) {
    let frames = vec![b'd'; len];
    let frames: Vec<u8> =
        frames.chunks(16_384).flat_map(|piece| Scene::frame(0, 0, id, piece)).collect();
    scene.receive(&frames);
}

fn is_late(expired: Expired) -> bool {
    matches!(expired, Expired::Reject(_) | Expired::BodyFailed(_))
}

/// Purpose: content is excused for as long as handlers kept the window shut, and no longer. Once, a client that had it shut
/// for a moment in each timeout, by filling it for a handler that pauses, held all of its slow uploads for ever.
#[test]
fn content_is_excused_for_as_long_as_the_window_was_shut() {
    let tick = Duration::from_nanos(1);
    for shut_for in [Duration::ZERO, Duration::from_millis(100), Duration::from_secs(1000)] {
        let mut scene = paused_and_collected();
        let timeout = scene.limits.body_timeout;
        let before = timeout / 2;
        scene.pass(before);
        data(&mut scene, 1, WINDOW);
        assert_eq!(scene.pass(shut_for), Expired::Early, "{shut_for:?}: it cannot send");
        allow(&mut scene, 100_000);
        assert_eq!(scene.pass(timeout - before - tick), Expired::Early, "{shut_for:?}");
        assert!(is_late(scene.pass(tick)), "{shut_for:?}");
    }
}

/// Purpose: the same where the window is shut again and again, and for the slowest rate.
#[test]
fn moments_add_up_to_no_more_than_they_last() {
    let mut scene = paused_and_collected();
    scene.limits.body_rate_min = 1;
    let moment = Duration::from_millis(10);
    let (grace, times) = (scene.limits.body_grace, 4);
    for _ in 0..times {
        scene.pass(grace / (times + 1));
        data(&mut scene, 1, WINDOW);
        scene.pass(moment);
        allow(&mut scene, 100_000);
        allow(&mut scene, 0);
    }
    assert_eq!(scene.pass(grace / (times + 1) - Duration::from_nanos(1)), Expired::Early);
    assert!(is_late(scene.pass(Duration::from_nanos(1))));
}

/// Purpose: where places are scarce, the time in which an upload could not send is known, and the rest of it counts: it is no
/// excuse that the window is shut just when an upload is judged.
#[test]
fn uploads_are_judged_by_the_time_in_which_they_could_send() {
    let mut scene = paused_and_collected();
    let bytes = scene.request(5, "POST", "/stream", false);
    scene.receive(&bytes);
    let shut_for = |scene: &mut Scene| {
        let Scene { server, link, now, .. } = scene;
        server.stream(link, StreamId(5)).upload(*now).map(|upload| upload.shut_for)
    };
    assert_eq!(shut_for(&mut scene), Some(Duration::ZERO));
    data(&mut scene, 1, WINDOW);
    scene.pass(Duration::from_secs(2));
    assert_eq!(shut_for(&mut scene), Some(Duration::from_secs(2)), "so far");
    allow(&mut scene, 100_000);
    scene.pass(Duration::from_secs(3));
    assert_eq!(shut_for(&mut scene), Some(Duration::from_secs(2)));
}

/// Purpose: a turn opens a window once, however small the frames are that used it: 1-byte frames beside a window that is
/// nearly shut do not cost a WINDOW_UPDATE each. What was handed on is given back at the end of the turn in any case.
#[test]
fn a_window_is_opened_once_in_a_turn() {
    const FRAMES: u32 = 1_000;
    for left in [1_000, 2_000] {
        let mut scene = paused_and_collected();
        data(&mut scene, 1, WINDOW - left);
        scene.windows.clear();
        scene.receive(&Scene::frame(0, 0, 3, b"d").repeat(FRAMES as usize));
        let opened: Vec<_> = scene.windows.drain(..).collect();
        assert_eq!(opened, [(0, FRAMES)], "{left}");
        assert!(!scene.link.is_ending());
    }
    // One byte more than the window allows is an error, although the bytes before were handed on.
    let mut scene = paused_and_collected();
    data(&mut scene, 1, WINDOW - 10);
    scene.receive(&Scene::frame(0, 0, 3, b"d").repeat(11));
    assert_eq!(scene.seen, ["GOAWAY 3 FLOW_CONTROL_ERROR", "closed"]);
}

/// Purpose: small frames of content pay for no frames without content, as small frames of answers do not; large ones do.
#[test]
fn small_content_pays_for_nothing() {
    for (len, pays) in [(1, false), (1_023, false), (1_024, true)] {
        let mut scene = Scene::open();
        scene.limits.http2.control_per_second = 10;
        let bytes = scene.request(1, "POST", "/later", false);
        scene.receive(&bytes);
        let bytes =
            [Scene::frame(0, 0, 1, &vec![b'd'; len]), Scene::frame(6, 0, 0, &[0; 8]).repeat(3)];
        let bytes = bytes.concat();
        for _ in 0..50 {
            scene.receive(&bytes);
            let Scene { server, link, now, .. } = &mut scene;
            server.stream(link, StreamId(1)).allow_body(100_000, *now);
        }
        assert_eq!(scene.link.is_ending(), !pays, "{len}: {:?}", scene.seen.last());
    }
}
