//! The frames of HTTP/2 as values (RFC 9113 §4, §6).

use super::error::ErrorCode;
use super::settings::Settings;

/// Bytes of a frame's header.
pub const HEADER_LEN: usize = 9;

/// What a frame is; the numbers are those of RFC 9113 §6 and RFC 9218 §7.1.
pub mod kind {
    #![expect(missing_docs, reason = "the RFC's names")]
    pub const DATA: u8 = 0x0;
    pub const HEADERS: u8 = 0x1;
    pub const PRIORITY: u8 = 0x2;
    pub const RST_STREAM: u8 = 0x3;
    pub const SETTINGS: u8 = 0x4;
    pub const PUSH_PROMISE: u8 = 0x5;
    pub const PING: u8 = 0x6;
    pub const GOAWAY: u8 = 0x7;
    pub const WINDOW_UPDATE: u8 = 0x8;
    pub const CONTINUATION: u8 = 0x9;
    pub const PRIORITY_UPDATE: u8 = 0x10;
}

/// Flags of frames; ACK and END_STREAM are one bit.
pub mod flag {
    #![expect(missing_docs, reason = "the RFC's names")]
    pub const ACK: u8 = 0x1;
    pub const END_STREAM: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
}

/// The nine bytes before each payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the payload: 24 bits.
    pub len: u32,
    /// One of [`kind`], or an unknown one.
    pub kind: u8,
    /// Bits of [`flag`]; what they mean depends on the kind.
    pub flags: u8,
    /// 31 bits; 0: the connection.
    pub stream: u32,
}

impl Header {
    /// The header of these bytes; the reserved bit is ignored.
    #[inline]
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Header {
        let [a, b, c, kind, flags, d, e, f, g] = *bytes;
        Header {
            len: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            stream: u32::from_be_bytes([d & 0x7f, e, f, g]),
        }
    }

    /// Its bytes.
    #[inline]
    pub fn encode(self) -> [u8; HEADER_LEN] {
        let ([_, a, b, c], [d, e, f, g]) = (self.len.to_be_bytes(), self.stream.to_be_bytes());
        [a, b, c, self.kind, self.flags, d & 0x7f, e, f, g]
    }

    #[inline]
    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A decoded frame. Padding is gone; what has no content left is not reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Content, or a piece of it: DATA is reported as it arrives.
    Data {
        /// Its stream.
        stream: u32,
        /// The content.
        piece: &'a [u8],
        /// What it takes from the windows: the content, and padding that was dropped.
        flow: u32,
        /// The last of its stream.
        is_last: bool,
    },
    /// The beginning of a message, or its trailers; their fields are in `fragment` and the CONTINUATION frames that
    /// follow.
    Headers {
        /// Its stream.
        stream: u32,
        /// The first part of the field block, or all of it.
        fragment: &'a [u8],
        /// No CONTINUATION follows.
        is_whole: bool,
        /// Nothing but CONTINUATION follows on its stream.
        is_last: bool,
        /// The stream that it depends on, by the priorities of RFC 7540, where a stream that depends on itself is an
        /// error. RFC 9113 has no such priorities.
        depends_on: Option<u32>,
    },
    /// A priority, which RFC 9113 deprecates.
    Priority {
        /// Its stream.
        stream: u32,
    },
    /// Another priority for a stream, which may not be open yet (RFC 9218 §7.1).
    PriorityUpdate {
        /// The stream.
        stream: u32,
        /// As in the field `priority`.
        value: &'a [u8],
    },
    /// The end of a stream, at once.
    Reset {
        /// Its stream.
        stream: u32,
        /// Why.
        code: ErrorCode,
    },
    /// Parameters of the peer, to be acknowledged.
    Settings(Settings<'a>),
    /// The peer has applied our parameters.
    SettingsAck,
    /// A request that the server has made up.
    PushPromise {
        /// The stream of the request that led to it.
        stream: u32,
        /// Its own stream.
        promised: u32,
        /// The first part of the field block, or all of it.
        fragment: &'a [u8],
        /// No CONTINUATION follows.
        is_whole: bool,
    },
    /// To be sent back.
    Ping([u8; 8]),
    /// Our own, sent back.
    PingAck([u8; 8]),
    /// The peer takes no further streams.
    GoAway {
        /// The last one that it may have processed.
        last: u32,
        /// Why.
        code: ErrorCode,
        /// For a log.
        debug: &'a [u8],
    },
    /// More may be sent.
    WindowUpdate {
        /// Its stream; 0: the connection.
        stream: u32,
        /// How many bytes more; never 0.
        increment: u32,
    },
    /// More of a field block.
    Continuation {
        /// Its stream.
        stream: u32,
        /// The next part of the field block.
        fragment: &'a [u8],
        /// No other follows.
        is_whole: bool,
    },
    /// A kind that is not known, to be ignored (RFC 9113 §4.1).
    Unknown(Header),
}
