//! What did the frames of HTTP/2 and of WebSocket report, beside the answers?

use highwater_core::http2::ErrorCode;

/// Words of a GOAWAY that are kept.
const DEBUG_MAX: usize = 80;

/// What the servers' frames came to, beside the answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frames {
    /// GOAWAY frames with an error.
    pub(crate) goaways: u64,
    /// Those without: the server ends connections now and then.
    pub(crate) farewells: u64,
    /// The first error that the server gave as a reason, in a GOAWAY or RST_STREAM.
    pub(crate) problem: Option<String>,
    /// The lowest number of streams that a server allowed at a time.
    pub(crate) streams_max: Option<u32>,
}

impl Frames {
    /// Adds those of another client.
    pub(crate) fn merge(&mut self, other: Frames) {
        self.goaways += other.goaways;
        self.farewells += other.farewells;
        self.problem = self.problem.take().or(other.problem);
        self.streams_max = self.streams_max.into_iter().chain(other.streams_max).min();
    }

    pub(crate) fn go_away(&mut self, code: ErrorCode, debug: &[u8]) {
        if code == ErrorCode::NO_ERROR {
            self.farewells += 1;
            return;
        }
        self.goaways += 1;
        let words = String::from_utf8_lossy(&debug[..debug.len().min(DEBUG_MAX)]).into_owned();
        let words = if words.is_empty() { words } else { format!(": {words:?}") };
        self.problem.get_or_insert_with(|| format!("GOAWAY {code}{words}"));
    }

    /// A server allows so many streams at a time.
    pub(crate) fn note_streams_max(&mut self, streams: u32) {
        self.streams_max = Some(self.streams_max.map_or(streams, |max| max.min(streams)));
    }

    pub(crate) fn reset(&mut self, code: ErrorCode) {
        self.problem.get_or_insert_with(|| format!("RST_STREAM {code}"));
    }
}

/// What went wrong on connections of WebSocket, beside the messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Closes {
    /// Connections that the server closed by a close frame.
    pub(crate) count: u64,
    /// The first reason that the server gave, in its close frame or by refusing the handshake.
    pub(crate) problem: Option<String>,
    /// Connections of `--idle` that are open, and those that were not opened or did not stay so.
    pub(crate) idle_open: u64,
    pub(crate) idle_lost: u64,
}

impl Closes {
    /// Adds those of another client.
    pub(crate) fn merge(&mut self, other: Closes) {
        self.count += other.count;
        self.problem = self.problem.take().or(other.problem);
        self.idle_open += other.idle_open;
        self.idle_lost += other.idle_lost;
    }

    /// The server closed a connection, with this code and reason.
    pub(crate) fn closed(&mut self, close: Option<(u16, &str)>) {
        self.count += 1;
        self.problem.get_or_insert_with(|| match close {
            None => "the server closed the connection without a reason".to_owned(),
            Some((code, reason)) => {
                format!("the server closed the connection with {code} {reason:?}")
            }
        });
    }
}
