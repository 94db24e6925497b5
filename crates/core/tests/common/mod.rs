//! A connection and its peer, one event at a time, at instants the test chooses.
#![allow(dead_code, unreachable_pub, reason = "shared by several test crates, each using a part")]

use core::time::Duration;

use bytes::Bytes;
use highwater_core::driver::Then;
use highwater_core::http::{BodyPlan, Limits, Payload, Reject};
use highwater_core::http1::{Connection, Expired, Next, Scratch};
use highwater_core::link::Link;
use highwater_core::time::Instant;

pub const DATE: &[u8; 29] = b"Thu, 01 Jan 1970 00:00:00 GMT";

/// The instant `millis` milliseconds after the connection was accepted.
pub fn ms(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// The last instant before `instant`.
pub fn just_before(instant: Instant) -> Instant {
    Instant::from_nanos(instant.as_nanos() - 1)
}

/// An owned [`Next`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Wait,
    /// The target, and the body if it is whole.
    Request(String, Option<Vec<u8>>),
    Body(Vec<u8>),
    /// Names and values, one field per line.
    Trailers(String),
    BodyEnd,
    BodyFailed(Reject),
    Reject(Reject),
    Raw(Vec<u8>),
    RawEnd,
}

pub fn whole(target: &str, body: &str) -> Seen {
    Seen::Request(target.into(), Some(body.into()))
}

pub fn streamed(target: &str) -> Seen {
    Seen::Request(target.into(), None)
}

pub struct Peer {
    pub connection: Connection,
    pub link: Link,
    pub limits: Limits,
    scratch: Scratch,
}

impl Peer {
    pub fn new() -> Peer {
        Peer::with(Limits::default())
    }

    pub fn with(limits: Limits) -> Peer {
        let connection = Connection::new(Instant::ZERO);
        Peer { connection, link: Link::new(), limits, scratch: Scratch::default() }
    }

    /// `bytes` arrive; returns the one next thing. Targets that begin with `/s` take their body as
    /// it comes.
    pub fn next(&mut self, now: Instant, bytes: &str) -> Seen {
        self.next_bytes(now, bytes.as_bytes())
    }

    pub fn next_bytes(&mut self, now: Instant, bytes: &[u8]) -> Seen {
        let mut carry = self.link.take_carry();
        carry.extend_from_slice(bytes);
        let mut input = carry.as_slice();
        let max = self.limits.body_max;
        let next = self.connection.next(
            &mut self.link,
            &mut input,
            &mut self.scratch,
            &self.limits,
            now,
            |head| {
                if head.path().starts_with("/s") {
                    BodyPlan::Streamed(max)
                } else {
                    BodyPlan::Whole(max)
                }
            },
        );
        let seen = match next {
            Next::Wait => Seen::Wait,
            Next::Request(request) => Seen::Request(
                request.head.target().into(),
                request.body.whole().map(<[u8]>::to_vec),
            ),
            Next::Body(piece) => Seen::Body(piece.to_vec()),
            Next::Trailers(fields) => Seen::Trailers(
                fields
                    .iter()
                    .map(|(name, value)| format!("{name}: {}\n", value.escape_ascii()))
                    .collect(),
            ),
            Next::BodyEnd => Seen::BodyEnd,
            Next::BodyFailed(reject) => Seen::BodyFailed(reject),
            Next::Reject(reject) => Seen::Reject(reject),
            Next::Raw(bytes) => Seen::Raw(bytes.to_vec()),
            Next::RawEnd => Seen::RawEnd,
        };
        let rest_len = input.len();
        self.link.stash_owned(carry, rest_len);
        seen
    }

    pub fn eof(&mut self, now: Instant) -> Seen {
        self.link.on_eof();
        self.next(now, "")
    }

    /// Answers with a whole body.
    pub fn respond(&mut self, now: Instant, status: u16, body: &str) {
        self.payload(now, status, Payload::Bytes(body.as_bytes()));
    }

    /// Begins a streamed answer; returns whether content is to follow.
    pub fn stream(&mut self, now: Instant, length: Option<u64>) -> bool {
        self.payload(now, 200, Payload::Stream(length))
    }

    pub fn shared(&mut self, now: Instant, body: Vec<u8>) {
        self.payload(now, 200, Payload::Shared(Bytes::from(body)));
    }

    pub fn payload(&mut self, now: Instant, status: u16, payload: Payload<'_>) -> bool {
        self.connection.respond(&mut self.link, status, DATE, &self.limits, now, |_| {}, payload)
    }

    /// The output to be sent now, without `date`. It stays in flight until [`Peer::sent`].
    pub fn take(&mut self, now: Instant) -> Option<(String, Then)> {
        let (output, then) = self.link.take_output(now)?;
        let bytes = [output.bytes, output.tail.to_vec()].concat();
        let text = bytes.escape_ascii().to_string();
        let date = format!("date: {}\\r\\n", std::str::from_utf8(DATE).expect("ASCII"));
        Some((text.replace(&date, "").replace("\\r\\n", "|"), then))
    }

    pub fn sent(&mut self, now: Instant) {
        self.link.on_sent(now);
    }

    /// Takes the output and has it sent at once.
    pub fn output(&mut self, now: Instant) -> (String, Then) {
        let output = self.take(now).expect("there is something to send");
        self.sent(now);
        output
    }

    /// Bytes of memory that the connection and its link have allocated.
    pub fn allocated(&self) -> usize {
        self.connection.allocated() + self.link.allocated()
    }

    pub fn deadline(&self) -> Instant {
        self.connection.deadline(&self.link, &self.limits)
    }

    /// Asserts that nothing happens before `due`; returns what happens then.
    pub fn expire(&mut self, due: Instant) -> Expired {
        assert_eq!(self.deadline(), due);
        let early = self.connection.on_deadline(&mut self.link, just_before(due), &self.limits);
        assert_eq!(early, Expired::Early, "just before {due:?}");
        self.connection.on_deadline(&mut self.link, due, &self.limits)
    }
}
