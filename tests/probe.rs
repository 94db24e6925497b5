//! The probe application, and the plainest worker that can serve it: the model for every other.
//!
//! [`Answer::to`] is the definition. `highwater-arena --probe` on any transport must answer with the
//! same bytes, but for the value of `date`. The order of fields is always: `date`, `content-type`,
//! `allow`, `content-length` or `transfer-encoding`, `connection`.
//!
//! | route | answer |
//! |---|---|
//! | any, method not among the nine of `Method::NAMED`, or `CONNECT` | 501 `the method M is not known here` |
//! | `OPTIONS *` | 204, `allow` |
//! | `/` `GET`, `HEAD` | 200 `OK` |
//! | `/` `POST` | 200, the body |
//! | `/` `OPTIONS` | 204, `allow` |
//! | `/` any other | 405 `this path does not allow M; it allows …`, `allow` |
//! | `/echo` | 200, the request's fields, `Name: Value` a line |
//! | `/cookie` | 200, the request's cookies, `name=value` a line |
//! | `/stream` | 200, how many bytes of body its handler was handed piece by piece, in decimal |
//! | `/ignore` | 200 `ignored`, at once: its body is streamed and never read |
//! | elsewhere | 404 `there is nothing at this path` |
//! | refused by the engine | its status and [`Reject::reason`] |
//!
//! Content is followed by a line feed only where lines are listed; every answer with content has
//! `content-type: text/plain`, and so has an empty echo.

use highwater_core::driver::Then;
use highwater_core::http::{BodyPlan, FieldWriter, Head, Limits, Method, Payload, Reject};
use highwater_core::http1::{Connection, Next, Scratch};
use highwater_core::link::Link;
use highwater_core::time::Instant;

/// The `date` that stands for every date.
pub const DATE: &[u8; 29] = b"Thu, 01 Jan 1970 00:00:00 GMT";

/// The methods of `/`, and those of all routes together.
const ALLOW: &str = "GET, HEAD, POST, OPTIONS";
const ALLOW_ANYWHERE: &str = "GET, HEAD, POST, OPTIONS, PUT, DELETE, TRACE, PATCH";

/// What the probe application answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The value of the `allow` field, if there is one.
    pub allow: Option<&'static str>,
    /// The content; none at all for a 204.
    pub content: Vec<u8>,
}

impl Answer {
    fn new(status: u16, content: impl Into<Vec<u8>>) -> Self {
        Answer { status, allow: None, content: content.into() }
    }

    /// The answer to a request whose body is `body`; for `/stream` that of the bytes handed over.
    pub fn to(head: &Head<'_>, body: &[u8]) -> Answer {
        if matches!(head.method(), Method::Other | Method::Connect) {
            let method = head.method_token();
            return Answer::new(501, format!("the method {method} is not known here"));
        }
        match (head.path(), head.method()) {
            ("/", Method::Options) => Answer { allow: Some(ALLOW), ..Answer::new(204, "") },
            ("*", Method::Options) => {
                Answer { allow: Some(ALLOW_ANYWHERE), ..Answer::new(204, "") }
            }
            ("/", Method::Get | Method::Head) => Answer::new(200, "OK"),
            ("/", Method::Post) => Answer::new(200, body),
            ("/", _) => {
                let method = head.method_token();
                let message = format!("this path does not allow {method}; it allows {ALLOW}");
                Answer { allow: Some(ALLOW), ..Answer::new(405, message) }
            }
            ("/echo", _) => Answer::new(200, echo(head)),
            ("/cookie", _) => Answer::new(200, cookies(head)),
            ("/stream", _) => Answer::new(200, body.len().to_string()),
            ("/ignore", _) => Answer::new(200, "ignored"),
            _ => Answer::new(404, "there is nothing at this path"),
        }
    }

    fn reject(reject: Reject) -> Answer {
        // The defaults of the limits, as the documentation has them.
        let most = match reject {
            Reject::BodyTooLarge => "; at most 1048576 bytes",
            Reject::UriTooLong => "; at most 8192 bytes",
            Reject::HeaderTooLarge => "; at most 16384 bytes and 100 fields",
            _ => "",
        };
        Answer::new(reject.status(), format!("{}{most}", reject.reason()))
    }
}

fn echo(head: &Head<'_>) -> Vec<u8> {
    let lines = head.headers().iter();
    lines.flat_map(|(name, value)| [name.as_bytes(), b": ", value, b"\n"].concat()).collect()
}

fn cookies(head: &Head<'_>) -> Vec<u8> {
    let values = head.headers().get_all("cookie").flat_map(|value| value.split(|&b| b == b';'));
    let pairs = values.map(<[u8]>::trim_ascii).filter(|pair| pair.contains(&b'='));
    pairs.flat_map(|pair| [pair, b"\n"].concat()).collect()
}

/// What a client of a [`Worker`] has heard, and whether the server has closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transcript {
    /// Every byte, in order.
    pub bytes: Vec<u8>,
    /// The server has finished sending.
    pub closed: bool,
}

/// One connection to the probe application, served with nothing between it and the state machine.
#[derive(Debug)]
pub struct Worker {
    link: Link,
    connection: Connection,
    scratch: Scratch,
    limits: Limits,
    received: Transcript,
    /// Input not yet delivered, because the connection wanted none.
    waiting: Vec<u8>,
    /// The streamed request at hand: its answer so far unless its body is never read.
    streamed: Option<(Vec<u8>, Answer)>,
}

impl Worker {
    /// A new connection.
    pub fn new(limits: Limits) -> Self {
        Worker {
            link: Link::new(),
            connection: Connection::new(Instant::ZERO),
            scratch: Scratch::default(),
            limits,
            received: Transcript::default(),
            waiting: Vec::new(),
            streamed: None,
        }
    }

    /// The client sends `bytes`.
    pub fn receive(&mut self, bytes: &[u8]) {
        if self.connection.wants_input(&self.link, &self.limits) && self.waiting.is_empty() {
            self.deliver(bytes);
        } else {
            self.waiting.extend_from_slice(bytes);
        }
        while !self.waiting.is_empty() && self.connection.wants_input(&self.link, &self.limits) {
            let waiting = std::mem::take(&mut self.waiting);
            self.deliver(&waiting);
        }
    }

    /// The client finishes sending.
    pub fn eof(&mut self) {
        self.link.on_eof();
        self.deliver(&[]);
        self.received.closed |= self.link.is_lingering();
    }

    /// What the client has heard so far.
    pub fn received(&self) -> &Transcript {
        &self.received
    }

    /// The bytes of heap memory the connection holds.
    pub fn allocated(&self) -> usize {
        self.connection.allocated() + self.link.allocated()
    }

    fn deliver(&mut self, bytes: &[u8]) {
        let mut carry = self.link.take_carry();
        if carry.is_empty() {
            let mut input = bytes;
            self.serve(&mut input);
            self.link.stash(input);
        } else {
            carry.extend_from_slice(bytes);
            let mut input = carry.as_slice();
            self.serve(&mut input);
            let rest_len = input.len();
            self.link.stash_owned(carry, rest_len);
        }
        // Where the bound on output stopped it, there is more to find once that is taken.
        while self.flush() && self.link.has_carry() {
            let carry = self.link.take_carry();
            let mut input = carry.as_slice();
            self.serve(&mut input);
            let rest_len = input.len();
            self.link.stash_owned(carry, rest_len);
        }
    }

    fn serve(&mut self, input: &mut &[u8]) {
        loop {
            let Worker { link, connection, scratch, limits, streamed, .. } = self;
            let now = Instant::ZERO;
            let max = limits.body_max;
            let plan = |head: &Head<'_>| match (head.path(), head.method()) {
                ("/", Method::Post) => BodyPlan::Whole(max),
                ("/stream" | "/ignore", _) => BodyPlan::Streamed(max),
                // The body is not read: it is dropped as it comes, however long it is.
                _ => BodyPlan::Unwanted,
            };
            let answer = match connection.next(link, input, scratch, limits, now, plan) {
                Next::Wait => return,
                Next::Request(request) => match request.body.whole() {
                    Some(body) => Answer::to(&request.head, body),
                    None if request.head.path() != "/stream" => Answer::to(&request.head, b""),
                    None => {
                        *streamed = Some((Vec::new(), Answer::to(&request.head, b"")));
                        connection.send_continue(link, now);
                        continue;
                    }
                },
                Next::Body(piece) => {
                    let (body, _) = streamed.as_mut().expect("a streamed request is at hand");
                    body.extend_from_slice(piece);
                    continue;
                }
                Next::Trailers(_) => continue,
                Next::BodyEnd => {
                    let (body, answer) = streamed.take().expect("a streamed request is at hand");
                    let content = match answer.status {
                        200 => body.len().to_string().into(),
                        _ => answer.content,
                    };
                    Answer { content, ..answer }
                }
                // The second is reported by the handler that read the content as it came.
                Next::Reject(reject) | Next::BodyFailed(reject) => Answer::reject(reject),
                Next::Raw(_) | Next::RawEnd => unreachable!("the probe never upgrades"),
            };
            self.answer(&answer);
        }
    }

    fn answer(&mut self, answer: &Answer) {
        let Worker { link, connection, limits, .. } = self;
        let fields = |fields: &mut highwater_core::http1::FieldEncoder<'_>| {
            if answer.status != 204 {
                fields.push("content-type", b"text/plain");
            }
            if let Some(methods) = answer.allow {
                fields.push("allow", methods.as_bytes());
            }
        };
        let payload = Payload::Bytes(&answer.content);
        connection.respond(link, answer.status, DATE, limits, Instant::ZERO, fields, payload);
    }

    /// Sends all there is; returns whether there was something.
    fn flush(&mut self) -> bool {
        let mut any = false;
        while !self.received.closed
            && let Some((output, then)) = self.link.take_output(Instant::ZERO)
        {
            any = true;
            self.received.bytes.extend_from_slice(&output.bytes);
            self.received.bytes.extend_from_slice(&output.tail);
            self.link.on_sent(Instant::ZERO);
            self.received.closed = then != Then::Keep;
        }
        any
    }
}
