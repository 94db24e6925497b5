//! A session beside a peer: what it receives, what it sends, and when it ends.

use alloc::vec;

use super::super::compressed::InflateError;
use super::*;

const KEY: [u8; 4] = [1, 2, 3, 4];

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn timing() -> Timing {
    Timing {
        ping_after: Duration::from_millis(30),
        pong_within: Duration::from_millis(20),
        idle_max: Duration::from_millis(100),
        message_within: Duration::from_millis(60),
        close_within: Duration::from_millis(5),
    }
}

struct Side {
    session: Session,
    out: Vec<u8>,
}

impl Side {
    fn new() -> Side {
        Side { session: Session::new(Limits::default(), timing(), at(0)), out: vec![] }
    }

    /// The messages in `bytes`.
    fn receive(&mut self, bytes: &[u8], now: Instant) -> Vec<Bytes> {
        let (mut input, mut messages) = (BytesMut::from(bytes), vec![]);
        while let Some(message) = self.session.next(&mut input, now, &mut self.out) {
            messages.push(message.bytes);
        }
        assert!(input.is_empty(), "all input is used, or dropped");
        messages
    }

    /// What it has sent since the last call, without the bytes of close frames' reasons.
    fn sent(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.out)
    }
}

fn framed(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![];
    encode(&mut out);
    out
}

/// Purpose: messages in one piece, in fragments with a ping between them, and split anywhere are the same; the ping is
/// answered with its payload.
#[test]
fn messages_and_pings() {
    let bytes = framed(|out| {
        encode::message(Kind::Text, b"whole", Some(KEY), out);
        encode::frame(Kind::Binary, b"frag", true, false, Some(KEY), out);
        encode::ping(b"are you there", Some(KEY), out);
        encode::frame(Kind::Binary, b"ments", false, true, Some(KEY), out);
        encode::message(Kind::Text, b"", Some(KEY), out);
    });
    let pong = framed(|out| encode::pong(b"are you there", None, out));
    for split in 0..=bytes.len() {
        let mut side = Side::new();
        let mut messages = side.receive(&bytes[..split], at(1));
        messages.extend(side.receive(&bytes[split..], at(1)));
        assert_eq!(messages, [&b"whole"[..], b"fragments", b""], "split at {split}");
        assert_eq!(side.sent(), pong);
    }
}

/// Purpose: a peer that is silent is pinged once; whatever it sends answers, and without an answer it is lost, neither
/// a moment too early.
#[test]
fn silence_is_pinged() {
    let mut side = Side::new();
    assert_eq!(side.session.deadline(), at(30));
    side.session.on_deadline(at(29), &mut side.out);
    assert!(side.sent().is_empty());
    side.session.on_deadline(at(30), &mut side.out);
    assert_eq!(side.sent(), [0x89, 0]);
    assert_eq!(side.session.deadline(), at(50));
    side.receive(&framed(|out| encode::pong(b"", Some(KEY), out)), at(49));
    side.session.on_deadline(at(50), &mut side.out);
    assert_eq!((side.session.end(), side.session.deadline()), (None, at(79)));
    side.session.on_deadline(at(79), &mut side.out);
    assert_eq!(side.sent(), [0x89, 0]);
    side.session.on_deadline(at(98), &mut side.out);
    assert_eq!(side.session.end(), None);
    side.session.on_deadline(at(99), &mut side.out);
    assert_eq!(side.session.end(), Some(End::Unanswered));
    assert!(side.sent().is_empty() && side.session.deadline() == Instant::MAX);
}

/// Purpose: pongs keep a connection alive, and not in use; messages of either side do.
#[test]
fn idleness() {
    let mut side = Side::new();
    let pong = framed(|out| encode::pong(b"", Some(KEY), out));
    for millis in [25, 50, 75, 99] {
        side.receive(&pong, at(millis));
    }
    side.session.sends();
    side.session.on_deadline(at(100), &mut side.out);
    assert!(side.session.is_open(), "it has sent something");
    for millis in [125, 150, 175, 199] {
        side.receive(&pong, at(millis));
    }
    side.session.on_deadline(at(200), &mut side.out);
    assert_eq!(side.sent()[2..4], 1001_u16.to_be_bytes());
    assert!(!side.session.is_open() && side.session.deadline() == at(205));
}

/// Purpose: a message that has begun must go on, and come at the slowest rate at least; pongs do not make up for that, and
/// messages of any length may come one after the other. Once, a peer kept as much memory as a message may take for ever.
#[test]
fn unfinished_messages() {
    let pong = framed(|out| encode::pong(b"", Some(KEY), out));
    let fragment = |len, is_first, is_last| {
        framed(|out| encode::frame(Kind::Binary, &vec![0; len], is_first, is_last, Some(KEY), out))
    };
    let mut side = Side::new();
    side.session.timing.idle_max = Duration::MAX;
    side.receive(&fragment(10, true, false), at(10));
    for millis in [30, 50, 69] {
        side.receive(&pong, at(millis));
        side.session.on_deadline(at(millis), &mut side.out);
        assert!(side.session.is_open(), "{millis}");
    }
    assert_eq!(side.session.deadline(), at(70));
    side.receive(&fragment(5, false, true), at(69));
    assert_eq!(side.session.deadline(), at(99), "there is none");

    // Bytes of it prolong it by what they earn.
    side.receive(&fragment(12, true, false), at(100));
    side.receive(&fragment(12, false, false), at(150));
    side.receive(&pong, at(190));
    assert_eq!(side.session.deadline(), at(210), "behind the last byte");
    side.receive(&fragment(1, false, false), at(209));
    side.receive(&pong, at(250));
    assert_eq!(side.session.deadline(), at(264), "25 bytes are worth 104 ms");
    side.session.rest(at(255));
    side.session.on_deadline(at(260), &mut side.out);
    assert!(side.session.is_open(), "it was not read");
    for millis in [280, 300, 314] {
        side.receive(&pong, at(millis));
    }
    side.sent();
    side.session.on_deadline(at(315), &mut side.out);
    assert_eq!(side.sent()[2..4], 1008_u16.to_be_bytes());
    assert_eq!(side.session.end(), Some(End::Failed(CloseCode::POLICY)));
}

/// Makes a kilobyte of each byte.
#[derive(Debug)]
struct Swells;

impl Inflate for Swells {
    fn inflate(
        &mut self,
        piece: &[u8],
        out: &mut Vec<u8>,
        _len_max: usize,
    ) -> Result<(), InflateError> {
        out.resize(out.len() + 1024 * piece.len(), b'x');
        Ok(())
    }

    fn end(&mut self, _out: &mut Vec<u8>, _len_max: usize) -> Result<(), InflateError> {
        Ok(())
    }
}

/// Purpose: a compressed message is one of the session's messages, and the time that it may take is earned by its bytes as
/// they came: else a few of them would let a peer keep a whole message's memory for an hour.
#[test]
fn compressed_messages() {
    let mut side = Side::new();
    side.session = side.session.with_inflate(Box::new(Swells));
    side.session.timing.idle_max = Duration::MAX;
    side.session.timing.ping_after = Duration::MAX;
    let compressed = |payload: &[u8], is_last| {
        let mut bytes =
            framed(|out| encode::frame(Kind::Text, payload, true, is_last, Some(KEY), out));
        bytes[0] |= encode::COMPRESSED;
        bytes
    };
    assert_eq!(side.receive(&compressed(b"aa", true), at(1)), [vec![b'x'; 2048]]);
    side.receive(&compressed(&[b'a'; 12], false), at(100));
    assert_eq!(side.session.deadline(), at(160));
    side.receive(
        &framed(|out| encode::frame(Kind::Text, b"a", false, false, Some(KEY), out)),
        at(159),
    );
    assert_eq!(side.session.deadline(), at(214), "13 bytes are worth 54 ms");
    let end = framed(|out| encode::frame(Kind::Text, b"", false, true, Some(KEY), out));
    assert_eq!(side.receive(&end, at(200))[0].len(), 13 * 1024);
    assert!(side.session.is_open() && side.sent().is_empty());
}

/// Purpose: the peer's close frame is answered with its code, once; what follows it is dropped.
#[test]
fn the_peer_closes() {
    let mut side = Side::new();
    let bytes = framed(|out| {
        encode::close(Some(CloseCode(4001)), "bye", Some(KEY), out);
        encode::message(Kind::Text, b"late", Some(KEY), out);
    });
    assert!(side.receive(&bytes, at(1)).is_empty());
    assert!(side.session.has_received_close() && side.session.sends() && side.sent().is_empty());
    side.session.answer_close(&mut side.out);
    side.session.answer_close(&mut side.out);
    assert_eq!(side.sent(), framed(|out| encode::close(Some(CloseCode(4001)), "", None, out)));
    assert_eq!(side.session.close_frame(), Some((CloseCode(4001), "bye")));
    assert_eq!(side.session.end(), Some(End::Closed(Some(CloseCode(4001)))));
    side.session.close(CloseCode::NORMAL, "", at(2), &mut side.out);
    assert!(side.sent().is_empty() && !side.session.sends());
}

/// Purpose: a peer that has closed gets an answer, however it goes on: ours to something else, one at the next deadline
/// if the application never looks, none if it is gone.
#[test]
fn the_peer_has_closed() {
    let bytes = framed(|out| encode::close(None, "", Some(KEY), out));
    for way in 0..3 {
        let mut side = Side::new();
        side.receive(&bytes, at(1));
        match way {
            0 => side.session.close(CloseCode::POLICY, "no", at(2), &mut side.out),
            1 => side.session.on_deadline(at(6), &mut side.out),
            _ => side.session.lost(),
        }
        assert_eq!(side.session.end(), Some(End::Closed(None)));
        assert_eq!(side.sent().first(), if way == 2 { None } else { Some(&0x88) });
    }
}

/// Purpose: after our close frame nothing is sent and no message is reported; it ends with the peer's frame, or when
/// its time is over.
#[test]
fn we_close() {
    for is_answered in [true, false] {
        let mut side = Side::new();
        side.session.close(CloseCode::GOING_AWAY, "drain", at(1), &mut side.out);
        side.sent();
        assert!(!side.session.sends() && side.session.end().is_none());
        let bytes = framed(|out| {
            encode::message(Kind::Text, b"crossing", Some(KEY), out);
            encode::ping(b"", Some(KEY), out);
            if is_answered {
                encode::close(Some(CloseCode::GOING_AWAY), "", Some(KEY), out);
            }
        });
        assert!(side.receive(&bytes, at(3)).is_empty());
        side.session.on_deadline(at(5), &mut side.out);
        side.session.on_deadline(at(6), &mut side.out);
        assert!(side.sent().is_empty());
        let end = match is_answered {
            true => End::Closed(Some(CloseCode::GOING_AWAY)),
            false => End::Unanswered,
        };
        assert_eq!(side.session.end(), Some(end));
    }
}

/// Purpose: a frame that is not allowed ends the session with its code, and so does the end of the connection without
/// one; the first end counts.
#[test]
fn broken_rules_and_lost_peers() {
    let mut side = Side::new();
    assert!(
        side.receive(&framed(|out| encode::message(Kind::Text, b"bare", None, out)), at(1))
            .is_empty()
    );
    assert_eq!(side.sent()[2..4], 1002_u16.to_be_bytes());
    assert_eq!(side.session.end(), Some(End::Failed(CloseCode::PROTOCOL)));
    side.session.lost();
    assert_eq!(side.session.end(), Some(End::Failed(CloseCode::PROTOCOL)));
    let mut side = Side::new();
    side.session.lost();
    assert_eq!(side.session.end(), Some(End::Lost));
    let limits = Limits { message_max: 8, frame_max: 4 };
    for (len, code) in [(4, None), (5, Some(CloseCode::TOO_BIG))] {
        let mut session = Session::new(limits, timing(), at(0));
        let bytes = framed(|out| encode::message(Kind::Binary, &[0; 8][..len], Some(KEY), out));
        let message = session.next(&mut BytesMut::from(&bytes[..]), at(1), &mut vec![]);
        assert_eq!((message.is_some(), session.end()), (code.is_none(), code.map(End::Failed)));
    }
}
