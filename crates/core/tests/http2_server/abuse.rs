//! Clients that want to cost more than they pay: each ends with GOAWAY and its code, and memory stays bounded until then.

use std::time::Duration;

use highwater_core::http::Limits;
use highwater_core::http2::{PREFACE, Setting, encode};
use highwater_core::protocol::{CloseReason, Protocol as _};

use crate::scene::Scene;

const CALM: &str = "ENHANCE_YOUR_CALM";

/// Sends what `make` makes, one delivery each, until the connection ends. Returns how many were taken.
fn until_closed(
    scene: &mut Scene,
    most: u32,
    mut make: impl FnMut(&mut Scene, u32) -> Vec<u8>,
) -> u32 {
    for n in 0..most {
        let bytes = make(scene, n);
        scene.receive(&bytes);
        if scene.link.is_ending() {
            return n;
        }
    }
    most
}

fn ends_with(scene: &Scene, code: &str) -> bool {
    let sent: Vec<&str> = scene.seen.iter().rev().take(2).map(String::as_str).collect();
    sent[0] == "closed" && sent[1].starts_with("GOAWAY") && sent[1].ends_with(code)
}

/// Purpose: streams that are opened and reset at once end the connection (CVE-2023-44487), after as many as a
/// client may cancel that leaves a page.
#[test]
fn rapid_reset() {
    let mut scene = Scene::open();
    let taken = until_closed(&mut scene, 10_000, |scene, n| {
        let mut bytes = scene.request(2 * n + 1, "GET", "/later", true);
        encode::reset(2 * n + 1, highwater_core::http2::ErrorCode::CANCEL, &mut bytes);
        bytes
    });
    let burst = scene.limits.http2.streams_max + scene.limits.http2.resets_per_second;
    assert_eq!(taken, burst);
    assert!(ends_with(&scene, CALM), "{:?}", scene.seen);
    let report = scene.server.take_report().expect("there was something");
    assert_eq!(report.close_reason, Some(CloseReason::Error(CALM)));
    assert_eq!(report.resets_in, burst + 1);
    assert_eq!(scene.handled.iter().filter(|line| line.starts_with("reset")).count() as u32, burst);
}

/// Purpose: it makes no difference whether the answer was given at once, as long as the client has kept it from being sent.
#[test]
fn rapid_reset_of_answers_that_are_not_sent() {
    let mut scene = Scene::silent();
    scene.greet(&[Setting::InitialWindowSize(0)]);
    let taken = until_closed(&mut scene, 10_000, |scene, n| {
        let mut bytes = scene.request(2 * n + 1, "GET", "/large", true);
        encode::reset(2 * n + 1, highwater_core::http2::ErrorCode::CANCEL, &mut bytes);
        bytes
    });
    assert_eq!(taken, scene.limits.http2.streams_max + scene.limits.http2.resets_per_second);
    assert!(ends_with(&scene, CALM), "{:?}", scene.seen.last());
}

/// Purpose: making the server reset its streams counts the same (CVE-2025-8671).
#[test]
fn made_to_reset() {
    let mut scene = Scene::open();
    let taken = until_closed(&mut scene, 10_000, |scene, n| {
        let mut bytes = scene.request(2 * n + 1, "GET", "/later", true);
        encode::window_update(2 * n + 1, 0x7fff_ffff, &mut bytes);
        bytes
    });
    assert!(taken < 200 && ends_with(&scene, CALM), "{taken}");
}

/// Purpose: a client that never acknowledges our settings may open more streams than these allow for a while, since they may
/// not have come; then each of them counts.
#[test]
fn settings_that_are_never_acknowledged() {
    let mut scene = Scene::silent();
    let mut hello = PREFACE.to_vec();
    encode::settings(&[], &mut hello);
    scene.receive(&hello);
    let mut next = 1;
    let mut open = |scene: &mut Scene| {
        next += 2;
        scene.request(next, "GET", "/later", true)
    };
    assert_eq!(until_closed(&mut scene, 1_000, |scene, _| open(scene)), 1_000);
    scene.pass(Duration::from_secs(10));
    let taken = until_closed(&mut scene, 1_000, |scene, _| open(scene));
    assert_eq!(taken, scene.limits.http2.streams_max + scene.limits.http2.resets_per_second);
    assert!(ends_with(&scene, CALM), "{:?}", scene.seen.last());
}

/// Purpose: frames that carry nothing end the connection, whichever they are.
#[test]
fn floods() {
    type Make = fn() -> Vec<u8>;
    let kinds: [(&str, Make); 7] = [
        ("PING", || Scene::frame(6, 0, 0, &[0; 8])),
        ("SETTINGS", || Scene::frame(4, 0, 0, &[])),
        ("PRIORITY", || Scene::frame(2, 0, 9, &[0, 0, 0, 0, 9])),
        ("PRIORITY_UPDATE", || Scene::frame(16, 0, 0, b"\0\0\0\x01u=1")),
        ("WINDOW_UPDATE", || Scene::frame(8, 0, 0, &[0, 0, 0, 1])),
        ("unknown", || Scene::frame(99, 0, 0, &[])),
        ("DATA", || Scene::frame(0, 0, 1, &[])),
    ];
    for (name, make) in kinds {
        let mut scene = Scene::open();
        let open = scene.request(1, "POST", "/later", false);
        scene.receive(&open);
        let taken = until_closed(&mut scene, 20_000, |_, _| make());
        assert!((9_000..11_000).contains(&taken), "{name}: {taken}");
        assert!(ends_with(&scene, CALM), "{name}");
        assert!(scene.server.allocated() < 20_000, "{name}: {}", scene.server.allocated());
    }
}

/// Purpose: a client that opens its windows by a byte at a time makes many small frames of its answers, and these do not pay
/// for that (CVE-2019-9511).
#[test]
fn windows_that_are_opened_by_a_byte() {
    let open = |n: u32| Scene::frame(4, 0, 0, &[&[0, 4][..], &(n + 1).to_be_bytes()].concat());
    let mut scene = Scene::with(Limits::default());
    scene.greet(&[Setting::InitialWindowSize(0)]);
    for n in 0..scene.limits.http2.streams_max {
        scene.get(2 * n + 1, "/large");
    }
    let taken = until_closed(&mut scene, 20_000, |scene, n| {
        scene.seen.clear();
        open(n)
    });
    assert!((9_000..11_000).contains(&taken), "{taken}");
    assert!(ends_with(&scene, CALM), "{:?}", scene.seen.last());

    // The same where a handler gives as much as the window allows, before it opens or behind that.
    for is_sent_at_once in [false, true] {
        let mut scene = Scene::silent();
        scene.greet(&[Setting::InitialWindowSize(0)]);
        scene.get(1, "/later");
        scene.begin_stream(1);
        let taken = until_closed(&mut scene, 20_000, |scene, n| {
            if !is_sent_at_once || n > 0 {
                scene.push(1, b"x");
            }
            open(n)
        });
        assert!((9_000..11_000).contains(&taken), "{is_sent_at_once}: {taken}");
        assert!(ends_with(&scene, CALM), "{is_sent_at_once}: {:?}", scene.seen.last());
    }
}

/// Purpose: a client that pings and reads nothing is not read any further once the output is full.
#[test]
fn answers_that_nobody_reads() {
    let mut scene = Scene::open();
    scene.is_stuck = true;
    let pings = Scene::frame(6, 0, 0, &[0; 8]).repeat(8_000);
    scene.receive(&pings);
    assert!(!scene.server.wants_input(&scene.link, &scene.limits));
    assert!(scene.link.pending() < scene.limits.output_max + 32, "{}", scene.link.pending());
    scene.is_stuck = false;
    scene.flush();
    for _ in 0..10 {
        scene.read_on();
    }
    assert_eq!(scene.seen.iter().filter(|line| *line == "PING ack").count(), 8_000);
}

/// Purpose: a field block without an end is ended by its frames, and by its size (CVE-2024-27316).
#[test]
fn continuations() {
    let mut scene = Scene::open();
    scene.receive(&Scene::frame(1, 1, 1, &[0x82]));
    let empty = until_closed(&mut scene, 1_000, |_, _| Scene::frame(9, 0, 1, &[]));
    assert!(empty <= 33 && ends_with(&scene, CALM), "{empty}");

    let mut scene = Scene::open();
    scene.receive(&Scene::frame(1, 1, 1, &[0x82]));
    let large = until_closed(&mut scene, 1_000, |scene, _| {
        assert!(scene.server.allocated() < 200_000, "{}", scene.server.allocated());
        Scene::frame(9, 0, 1, &[0; 16_000])
    });
    assert!(large <= 4 && ends_with(&scene, CALM), "{large}");
}

/// Purpose: fields that a few bytes expand to are not kept beyond their limit (HPACK bomb), and the connection goes on.
#[test]
fn fields_that_expand() {
    let mut scene = Scene::open();
    // A large field for the table, then a thousand references to it.
    let value = "x".repeat(3_900);
    let mut block = vec![0x82, 0x86, 0x84, 0x40, 0x01, b'a', 0x7f];
    let mut rest = value.len() - 127;
    while rest >= 128 {
        block.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    block.push(rest as u8);
    block.extend_from_slice(value.as_bytes());
    block.extend(std::iter::repeat_n(0xbe, 10_000));
    scene.receive(&Scene::frame(1, 5, 1, &block));
    assert_eq!(scene.take(), ["HEADERS 1 431", "DATA 1 4 end"]);
    assert!(scene.server.allocated() < 20_000, "{}", scene.server.allocated());
    scene.get(3, "/");
    assert_eq!(scene.take(), ["HEADERS 3 200", "DATA 3 2 end"]);
}

/// Purpose: answers that a client asks for and does not read are bounded: further streams are refused.
#[test]
fn answers_behind_closed_windows() {
    let mut limits = Limits::default();
    limits.http2.unsent_max = 1_000_000;
    let mut scene = Scene::with(limits);
    scene.greet(&[Setting::InitialWindowSize(0)]);
    for n in 0..100 {
        scene.get(2 * n + 1, "/large");
    }
    let refused = scene.seen.iter().filter(|line| line.ends_with("REFUSED_STREAM")).count();
    assert_eq!(refused, 89, "eleven answers of 100 kB exceed the bound");
    assert!(scene.server.allocated() < 1_200_000, "{}", scene.server.allocated());
    assert!(!scene.link.is_ending());
}

/// Purpose: the same for answers that are given later, when their streams have been open for long: those beyond the bound
/// reset their streams. What waits for the network only may be more, since the client reads; it is bounded, too.
#[test]
fn answers_given_later_behind_closed_windows() {
    for (window, kept) in [(0, 4), (0x7fff_ffff, 49)] {
        let mut limits = Limits::default();
        limits.http2.unsent_max = 300_000;
        let mut scene = Scene::with(limits);
        scene.greet(&[Setting::InitialWindowSize(window)]);
        scene.receive(&Scene::frame(8, 0, 0, &(0x7fff_ffff_u32 - 65_535).to_be_bytes()));
        for n in 0..100 {
            scene.get(2 * n + 1, "/later");
        }
        for n in 0..100 {
            scene.respond(2 * n + 1, 200, &[b'x'; 100_000]);
        }
        let allocated = scene.server.allocated();
        assert!(allocated < kept * 100_000 + 100_000, "{window}: {allocated}");
        scene.flush();
        let reset = scene.seen.iter().filter(|line| line.starts_with("RST_STREAM"));
        let codes: Vec<&str> = reset.filter_map(|line| line.split(' ').nth(2)).collect();
        assert_eq!(codes, vec![CALM; 100 - kept], "{window}");
        assert!(!scene.link.is_ending());
        scene.get(201, "/204");
        let expected =
            if window == 0 { "RST_STREAM 201 REFUSED_STREAM" } else { "HEADERS 201 204 end" };
        assert_eq!(scene.seen.last().map(String::as_str), Some(expected));
    }
}

/// Purpose: a client that reads slowly, and asks for more meanwhile than the server keeps for it, has reset nothing: its
/// requests are refused, and the connection goes on. One that goes on for too long has sent too many frames for nothing.
#[test]
fn refusals_for_unsent_content() {
    let mut limits = Limits::default();
    limits.http2.unsent_max = 50_000;
    let mut scene = Scene::with(limits);
    scene.greet(&[Setting::InitialWindowSize(0)]);
    scene.get(1, "/large");
    let taken = until_closed(&mut scene, 20_000, |scene, n| {
        scene.request(2 * n + 3, "GET", "/large", true)
    });
    assert!((9_000..11_000).contains(&taken), "{taken}");
    assert!(ends_with(&scene, CALM), "{:?}", scene.seen.last());
}
