//! How may a request end, and how many did in each way? No clock, no I/O.

use highwater_sys::dial::Failure;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A whole answer, with this status.
    Answered(u16),
    /// A whole answer with this status that is not what was expected.
    Wrong(u16),
    /// The connection was refused.
    Refused,
    /// Given up by this client at the deadline or time-out, or by the kernel.
    TimedOut,
    /// The connection was reset.
    Reset,
    /// The connection ended before the answer did.
    Truncated,
    /// The received bytes were not an HTTP answer.
    Malformed(&'static str),
    /// TLS could not be set up, or failed later.
    Handshake,
    /// The server has reset the stream.
    StreamReset,
    /// The server has not processed the request (REFUSED_STREAM, or a GOAWAY that excludes it).
    StreamRefused,
    /// A whole message of WebSocket.
    Message,
    /// A message that is not what was expected.
    WrongMessage,
    /// The server closed the connection by a close frame.
    Closed,
    /// The server did not switch to WebSocket.
    Unupgraded,
    /// This machine had no local port left.
    NoPort,
    /// This machine failed to connect or send in another way, by the error's number.
    Failed(i32),
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Outcome {
        match failure {
            Failure::Refused => Outcome::Refused,
            Failure::Reset => Outcome::Reset,
            Failure::TimedOut => Outcome::TimedOut,
            Failure::Ports => Outcome::NoPort,
            Failure::Handshake => Outcome::Handshake,
            Failure::Other(errno) => Outcome::Failed(errno),
        }
    }
}

/// Requests by how they ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Requests that were sent, or whose connection was not made.
    pub(crate) sent: u64,
    /// 2xx.
    pub(crate) ok: u64,
    /// 2xx within the deadline, and beyond it.
    pub(crate) good: u64,
    pub(crate) late: u64,
    /// Other answers.
    pub(crate) non_2xx: u64,
    /// Answers, 2xx or not, that were not what was expected.
    pub(crate) bad: u64,
    pub(crate) refused: u64,
    pub(crate) timeouts: u64,
    pub(crate) resets: u64,
    pub(crate) truncated: u64,
    pub(crate) malformed: u64,
    /// Requests whose TLS failed.
    pub(crate) handshakes: u64,
    pub(crate) stream_resets: u64,
    pub(crate) streams_refused: u64,
    /// Messages whose connection the server closed.
    pub(crate) closed: u64,
    /// Messages for which no connection was upgraded.
    pub(crate) unupgraded: u64,
    pub(crate) no_port: u64,
    pub(crate) failed: u64,
}

impl Counts {
    /// All failures except refusals, time-outs and other statuses.
    pub(crate) fn errors(&self) -> u64 {
        let of_server = self.resets + self.truncated + self.malformed + self.handshakes;
        let of_streams = self.stream_resets + self.streams_refused + self.closed + self.unupgraded;
        of_server + of_streams + self.no_port + self.failed
    }

    /// One that has ended.
    #[inline]
    pub(crate) fn count(&mut self, outcome: Outcome, in_time: bool) {
        let field = match outcome {
            Outcome::Answered(200..=299) | Outcome::Message => {
                self.good += u64::from(in_time);
                self.late += u64::from(!in_time);
                &mut self.ok
            }
            Outcome::Answered(_) => &mut self.non_2xx,
            Outcome::Wrong(status) => {
                self.bad += 1;
                if (200..300).contains(&status) { &mut self.ok } else { &mut self.non_2xx }
            }
            Outcome::Refused => &mut self.refused,
            Outcome::TimedOut => &mut self.timeouts,
            Outcome::Reset => &mut self.resets,
            Outcome::Truncated => &mut self.truncated,
            Outcome::Malformed(_) => &mut self.malformed,
            Outcome::Handshake => &mut self.handshakes,
            Outcome::StreamReset => &mut self.stream_resets,
            Outcome::StreamRefused => &mut self.streams_refused,
            Outcome::WrongMessage => {
                self.bad += 1;
                &mut self.ok
            }
            Outcome::Closed => &mut self.closed,
            Outcome::Unupgraded => &mut self.unupgraded,
            Outcome::NoPort => &mut self.no_port,
            Outcome::Failed(_) => &mut self.failed,
        };
        *field += 1;
    }

    /// Those of another client, or of another time.
    pub(crate) fn add(&mut self, other: &Counts) {
        self.sent += other.sent;
        self.ok += other.ok;
        self.good += other.good;
        self.late += other.late;
        self.non_2xx += other.non_2xx;
        self.bad += other.bad;
        self.refused += other.refused;
        self.timeouts += other.timeouts;
        self.resets += other.resets;
        self.truncated += other.truncated;
        self.malformed += other.malformed;
        self.handshakes += other.handshakes;
        self.stream_resets += other.stream_resets;
        self.streams_refused += other.streams_refused;
        self.closed += other.closed;
        self.unupgraded += other.unupgraded;
        self.no_port += other.no_port;
        self.failed += other.failed;
    }
}
