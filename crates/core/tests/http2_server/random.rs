//! Any frames, however they are split: the fuzz target's little sister, which runs everywhere.

use highwater_core::http2::kind;
use highwater_core::prng::Prng;
use highwater_core::protocol::{Protocol as _, Stream as _, StreamId};

use crate::scene::Scene;
use crate::tunnels::{accept_now as accept, connect_bytes as connect};

/// Purpose: whatever frames come, nothing panics, what is sent can be read, memory stays bounded, and every request that
/// is begun can be answered.
#[test]
fn any_frames() {
    let (mut answered, mut ended, mut tunnelled) = (0, 0, 0);
    for seed in 0..3_000 {
        let mut prng = Prng::from_seed(seed);
        let mut scene = Scene::open();
        scene.limits.http2.streams_max = 20;
        scene.limits.http2.extended_connect = true;
        let (mut next, mut tunnels) = (1, Vec::new());
        for _ in 0..1 + prng.below(60) {
            let bytes = frame(&mut scene, &mut prng, &mut next, &mut tunnels);
            let part = if prng.chance(1, 2) { usize::MAX } else { 1 + prng.below(30) as usize };
            bytes.chunks(part.min(bytes.len())).for_each(|piece| scene.receive(piece));
            for id in 1..40 {
                let Scene { server, link, now, limits, .. } = &mut scene;
                let mut stream = server.stream(link, StreamId(id));
                let is_open = stream.has_left_http();
                tunnelled += usize::from(is_open);
                match prng.below(30) {
                    0..10 if stream.is_reply_owed() && tunnels.contains(&id) => {
                        accept(&mut scene, id)
                    }
                    2 if is_open && prng.chance(1, 4) => {
                        stream.finish_body(limits, *now, |_| {}).expect("it has no length");
                    }
                    3 if is_open => stream.push_body(&[b't'; 4_000]).expect("it has no length"),
                    0 if stream.is_reply_owed() => scene.respond(id, 200, b"an answer"),
                    1 => stream.allow_body(prng.below(3) as usize * 5_000, *now),
                    2 if prng.chance(1, 4) => stream.reset(),
                    4 if prng.chance(1, 2) => stream.drop_body(limits, *now),
                    _ => {}
                }
            }
            scene.read_on();
            assert!(scene.server.allocated() < 2_000_000, "{}", scene.server.allocated());
        }
        scene.link.on_eof();
        scene.read_on();
        for id in 1..1_000 {
            let Scene { server, link, now, limits, .. } = &mut scene;
            let mut stream = server.stream(link, StreamId(id));
            stream.drop_body(limits, *now);
            if stream.has_left_http() {
                stream.finish_body(limits, *now, |_| {}).expect("it has no length");
            } else if stream.is_reply_owed() {
                scene.respond(id, 200, b"late");
            }
        }
        scene.flush();
        answered += scene.seen.iter().filter(|line| line.starts_with("HEADERS")).count();
        ended += usize::from(scene.seen.last().is_some_and(|line| line == "closed"));
    }
    assert!(
        answered > 8_000 && ended > 1_500 && tunnelled > 1_000,
        "{answered} {ended} {tunnelled}"
    );
}

/// One frame, mostly one that is allowed. `next` is the next stream; those that ask for a tunnel are added to `tunnels`.
fn frame(scene: &mut Scene, prng: &mut Prng, next: &mut u32, tunnels: &mut Vec<u32>) -> Vec<u8> {
    let is_last = prng.chance(1, 2);
    let choice = if *next == 1 { 0 } else { prng.below(40) };
    let known = 1 + 2 * prng.below(1 + u64::from(*next / 2)) as u32;
    let id = if prng.chance(1, 200) {
        prng.below(50) as u32
    } else {
        known.min(next.saturating_sub(2).max(1))
    };
    match choice {
        0..10 => {
            let method = ["GET", "POST", "HEAD"][prng.below(3) as usize];
            let path = ["/", "/later", "/stream", "/large", "/204"][prng.below(5) as usize];
            let new = if prng.chance(1, 100) { id | 1 } else { *next };
            *next = (*next).max(new + 2);
            if prng.chance(1, 5) {
                tunnels.push(new);
                return connect(scene, new);
            }
            scene.request(new, method, path, is_last)
        }
        10..12 => Scene::frame(8, 0, 0, &(1 + prng.below(100_000) as u32).to_be_bytes()),
        12 if prng.chance(1, 3) => scene.headers(id, true, &[(b"x-end", b"1")]),
        12 | 22..34 => {
            Scene::frame(0, u8::from(is_last), id, &vec![b'd'; prng.below(9_000) as usize])
        }
        13..16 => Scene::frame(8, 0, id, &(1 + prng.below(100_000) as u32).to_be_bytes()),
        16 => Scene::frame(3, 0, id, &[0, 0, 0, 8]),
        17 => Scene::frame(
            4,
            0,
            0,
            &[&[0, 4][..], &(prng.below(70_000) as u32).to_be_bytes()].concat(),
        ),
        18 => Scene::frame(
            4,
            0,
            0,
            &[&[0, 1][..], &(prng.below(5_000) as u32).to_be_bytes()].concat(),
        ),
        19 => Scene::frame(6, 0, 0, &[0; 8]),
        20 => Scene::frame(16, 0, 0, &[&id.to_be_bytes()[..], b"u=1,i"].concat()),
        21 => Scene::frame(30 + prng.below(9) as u8, 0, id, b"unknown"),
        _ if prng.chance(3, 4) => Scene::frame(6, 1, 0, &[0; 8]),
        _ => {
            let len = prng.below(20) as usize;
            let payload: Vec<u8> = (0..len).map(|_| prng.next_u64() as u8).collect();
            Scene::frame(prng.below(11) as u8, prng.next_u64() as u8, id, &payload)
        }
    }
}

const _: () = assert!(kind::PRIORITY_UPDATE == 16);
