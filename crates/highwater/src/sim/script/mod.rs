//! What clients send, and what they must receive: drawn together, so that no answer has to be
//! computed by the code under test.

mod kinds;
mod websocket;

pub(super) use kinds::TRIES_MAX;

use std::time::Duration;

use highwater_core::http::Limits;
use highwater_core::prng::Prng;

use super::app;
use super::kinds::{Kind, Kinds};

/// Most bytes of framing in a row: a line end, a size, a line end, and that of the last chunk.
const FRAMING_MAX: u64 = 2 + 3 + 2 + 5;

/// Routes whose content has an unknown length: for a client of HTTP/1.0, it ends with the
/// connection.
const STREAMS: [&str; 5] = ["/pieces", "/prompt", "/ticks", "/odd", "/drop/stream"];

/// One act of a client.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Send(Vec<u8>),
    /// Waits for permission to send the body of the nth request, but no longer than this.
    AwaitContinue(usize, Duration),
    /// Waits until this many answers were received.
    Await(usize),
    /// Waits until this many bytes were received, but no longer than this.
    AwaitBytes(usize, Duration),
    Rest(Duration),
    /// Finishes without the rest, if the last answer was no refusal.
    FinishIfServed,
    Finish,
    Leave,
}

/// How long a request may keep the server busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// A few turns.
    Quick,
    /// Two hundred turns, in which it reads now and then.
    Slow,
    /// Until the pool has run.
    Pool,
    /// Until the pool has run, or the route's timeout.
    PoolOrTimeout,
    /// Until the route's timeout.
    Timeout,
    /// For ever.
    Never,
    /// Until another thread wakes the future with this key.
    OtherThread(u32),
    /// The same, or until the route's timeout.
    OtherThreadOrTimeout(u32),
}

impl Hold {
    /// Whether the route's timeout ends it.
    pub(super) fn has_timeout(self) -> bool {
        matches!(self, Hold::Timeout | Hold::PoolOrTimeout | Hold::OtherThreadOrTimeout(_))
    }

    /// Whether nothing within the server has to end it for long.
    pub(super) fn is_long(self) -> bool {
        matches!(self, Hold::Never | Hold::OtherThread(_))
    }
}

/// A request as the server will see it: its position in all bytes that its client sends.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) start: u64,
    pub(super) head_end: u64,
    pub(super) end: u64,
    pub(super) hold: Hold,
    /// It will be refused as soon as enough of it has come.
    pub(super) malformed: bool,
    /// Of this many bytes of its body in a row, at least one is content.
    pub(super) density: u64,
    /// Its route answers only when it has the whole body.
    pub(super) needs_body: bool,
    /// Its route reads the body piece by piece.
    pub(super) streams_body: bool,
    /// Its key, if it must be begun only once, here or by another instance.
    pub(super) once: Option<u32>,
    pub(super) wanted: Wanted,
}

/// Whether an answer ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closes {
    No,
    Yes,
    Either,
}

/// The answer that a client must receive.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) status: u16,
    /// The content, if every byte of it is known; the text of errors is not checked.
    pub(super) body: Option<Vec<u8>>,
    pub(super) head_only: bool,
    /// Other statuses that are right as well.
    pub(super) or: &'static [u16],
    pub(super) closes: Closes,
    /// The client may be told to continue first.
    pub(super) continues: bool,
    /// The application breaks the answer off.
    pub(super) broken: bool,
    /// It is endless.
    pub(super) endless: bool,
    /// The bytes after a 101.
    pub(super) raw: Option<Vec<u8>>,
    /// In place of whole frames at the end of them, if the server is drained; empty if nothing may be missing.
    pub(super) drain_close: &'static [u8],
}

/// The script of a client.
pub(super) struct Script {
    pub(super) steps: Vec<Step>,
    pub(super) requests: Vec<Request>,
}

/// Draws a script.
pub(super) fn draw(prng: &mut Prng, limits: &Limits, kinds: Kinds) -> Script {
    let mut writer =
        Writer { prng, limits, kinds, sent: 0, steps: Vec::new(), requests: Vec::new() };
    writer.write();
    let Writer { steps, mut requests, .. } = writer;
    // The last request that a connection may carry is answered with a close.
    for request in requests.iter_mut().skip(limits.requests_max as usize - 1) {
        if request.wanted.closes == Closes::No && request.wanted.raw.is_none() {
            request.wanted.closes = Closes::Yes;
        }
    }
    Script { steps, requests }
}

struct Writer<'p> {
    prng: &'p mut Prng,
    limits: &'p Limits,
    kinds: Kinds,
    sent: u64,
    steps: Vec<Step>,
    requests: Vec<Request>,
}

/// A request that is being built.
struct Draft {
    method: &'static str,
    path: String,
    hold: Hold,
    body: Option<Vec<u8>>,
    needs_body: bool,
    streams_body: bool,
    once: Option<u32>,
    wanted: Wanted,
}

impl Writer<'_> {
    fn write(&mut self) {
        if self.kinds.has(Kind::Proxies) && self.chance(4) {
            return self.write_proxy();
        }
        if self.kinds.has(Kind::Crowd) && self.chance(2) {
            return self.write_crowd();
        }
        if !self.kinds.is_empty() && self.chance(2) {
            return self.write_kinds();
        }
        // Some wait for each answer, some pause in between, some send everything at once.
        let (polite, restful) = (self.prng.chance(1, 3), self.prng.chance(1, 4));
        let deep = self.prng.chance(1, 16);
        let count = if deep { 100 } else { self.prng.below(7) };
        for _ in 0..count {
            let draft = if deep { self.quick_get() } else { self.any() };
            self.request(draft, false);
            if polite {
                self.steps.push(Step::Await(self.requests.len()));
            }
            if restful {
                let rest = [5, 300, 2500, 20_000][self.prng.below(4) as usize];
                self.steps.push(Step::Rest(Duration::from_millis(self.prng.below(rest))));
            }
        }
        self.ending();
        if self.prng.chance(1, 24) {
            // Disconnects in the middle of something.
            let at = self.prng.below(self.steps.len() as u64 + 1) as usize;
            self.steps.truncate(at);
            self.steps.push(Step::Rest(Duration::from_millis(self.prng.below(3000))));
            self.steps.push(Step::Leave);
        }
    }

    /// Something that ends the connection.
    fn ending(&mut self) {
        match self.prng.below(16) {
            0 | 1 => self.steps.push(Step::Finish),
            2 => self.malformed(),
            3 => self.truncated(),
            4 => self.stalled(),
            5 => self.too_large(),
            6 => self.unwanted_upload(),
            7 => self.upgrade(),
            8 => self.abandoned(),
            9 => self.broken(),
            10 => self.old(),
            11 => self.long_head(),
            12 => {} // Falls silent; the server has to end it.
            _ => {
                let draft = self.any();
                self.request(draft, true);
            }
        }
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.prng.below(one_in) == 0
    }

    fn quick_get(&mut self) -> Draft {
        let n = self.prng.below(2000);
        match self.prng.below(3) {
            0 => get("/fixed", ok(b"ok")),
            1 => get(format!("/square/{n}"), ok((n * n).to_string())),
            _ => get("/missing", status(404)),
        }
    }

    /// Any request after which the connection continues.
    fn any(&mut self) -> Draft {
        let n = self.prng.below(2000);
        let bounded = &[503];
        match self.prng.below(22) {
            0..=2 => self.quick_get(),
            3 => get("/panic", status(500)),
            4 | 19 => {
                let wanted = Wanted { or: bounded, ..ok(format!("slow {n}")) };
                Draft { hold: Hold::Pool, ..get(format!("/slow/{n}"), wanted) }
            }
            5 | 20 => {
                let wanted = Wanted { or: bounded, ..ok(format!("late {n}")) };
                Draft { hold: Hold::PoolOrTimeout, ..get(format!("/late/{n}"), wanted) }
            }
            6 if self.chance(4) => Draft { hold: Hold::Timeout, ..get("/tardy", status(503)) },
            6 | 7 => get(format!("/pieces/{}", n % 40), ok(pieces(n % 40))),
            8 => get(format!("/exact/{}", n % 40), ok(pieces(n % 40))),
            9 => get(format!("/big/{}", n * 20), ok(app::big(n as usize * 20))),
            10 => {
                let wanted = Wanted { head_only: true, body: None, ..ok("") };
                Draft { method: "HEAD", ..get(format!("/square/{n}"), wanted) }
            }
            11 => get("/detached", ok("detached")),
            12 => {
                let body = self.body(self.limits.discard_max.min(20_000));
                post("/missing", body, status(404))
            }
            13 => {
                let body = self.body(app::SMALL_BODY_MAX);
                let wanted = ok(body.clone());
                Draft { needs_body: true, ..post("/small", body, wanted) }
            }
            14 | 15 => {
                let body = self.body(self.limits.body_max.min(20_000));
                let wanted = ok(body.clone());
                Draft { needs_body: true, ..post("/echo", body, wanted) }
            }
            16 | 17 => {
                let body = self.body(self.limits.body_max.min(20_000));
                self.streamed("/length", body)
            }
            // More than may wait for a handler before the client has to wait.
            18 if self.limits.body_max > 150_000 => {
                let len = 70_000 + self.prng.below(80_000);
                Draft { hold: Hold::Slow, ..self.streamed("/sip", app::big(len as usize)) }
            }
            _ => {
                let body = self.body(self.limits.discard_max.min(self.limits.body_max).min(20_000));
                post("/ignore", body, ok("ignored"))
            }
        }
    }

    fn streamed(&mut self, path: &str, body: Vec<u8>) -> Draft {
        let wanted = ok(body.len().to_string());
        Draft { needs_body: true, streams_body: true, ..post(path, body, wanted) }
    }

    fn body(&mut self, max: u64) -> Vec<u8> {
        let max = if self.chance(8) { max } else { max.min(300) };
        let len = self.prng.below(max + 1);
        (0..len).map(|_| self.prng.below(256) as u8).collect()
    }

    /// Sends a request, in one of the possible ways.
    fn request(&mut self, draft: Draft, close: bool) {
        let is_stream = STREAMS.iter().any(|path| draft.path.starts_with(path));
        let old = !is_stream && self.chance(8);
        let field = match (old, close) {
            (false, false) => "",
            (true, false) => "Connection: keep-alive\r\n",
            (_, true) => "Connection: close\r\n",
        };
        let mut draft = draft;
        if close {
            draft.wanted.closes = Closes::Yes;
        }
        // If the handler wants no body, a client that asks first gets a refusal that closes the
        // connection: that is an ending of its own.
        let expects = !old && draft.needs_body && self.chance(4);
        self.say_request(draft, if old { "1.0" } else { "1.1" }, field, expects);
    }

    fn say_request(&mut self, draft: Draft, version: &str, field: &str, expects: bool) {
        let Draft { method, path, hold, body, needs_body, streams_body, once, mut wanted } = draft;
        let mut head = format!("{method} {path} HTTP/{version}\r\nHost: h\r\n{field}");
        let (mut content, mut density) = (Vec::new(), 1);
        if let Some(body) = body {
            if version == "1.0" || self.chance(2) {
                head.push_str(&format!("Content-Length: {}\r\n", body.len()));
                content = body;
            } else {
                head.push_str("Transfer-Encoding: chunked\r\n");
                content = self.chunked(&body);
                density = FRAMING_MAX + 1;
            }
        }
        wanted.continues = expects && needs_body;
        if expects {
            head.push_str("Expect: 100-continue\r\n");
        }
        head.push_str("\r\n");
        let start = self.sent;
        let head_end = start + head.len() as u64;
        let end = head_end + content.len() as u64;
        self.sent = end;
        if expects {
            self.steps.push(Step::Send(head.into()));
            if self.chance(2) {
                let patience = Duration::from_secs(1 + self.prng.below(3));
                self.steps.push(Step::AwaitContinue(self.requests.len(), patience));
            }
            self.steps.push(Step::Send(content));
        } else {
            self.steps.push(Step::Send([head.as_bytes(), &content].concat()));
        }
        self.requests.push(Request {
            start,
            head_end,
            end,
            hold,
            malformed: false,
            density,
            needs_body,
            streams_body,
            once,
            wanted,
        });
    }

    fn chunked(&mut self, body: &[u8]) -> Vec<u8> {
        let mut content = Vec::new();
        let mut rest = body;
        while !rest.is_empty() {
            let size = (1 + self.prng.below(500) as usize).min(rest.len());
            let (chunk, after) = rest.split_at(size);
            content.extend(format!("{size:x}\r\n").bytes());
            content.extend(chunk);
            content.extend(b"\r\n");
            rest = after;
        }
        content.extend(b"0\r\n\r\n");
        content
    }

    /// Sends bytes that are not a valid request.
    fn say_malformed(&mut self, bytes: Vec<u8>, code: u16, or: &'static [u16]) {
        let (start, end) = (self.sent, self.sent + bytes.len() as u64);
        self.sent = end;
        self.steps.push(Step::Send(bytes));
        self.requests.push(Request {
            start,
            head_end: end,
            end,
            hold: Hold::Quick,
            malformed: true,
            density: 1,
            needs_body: true,
            streams_body: false,
            once: None,
            wanted: Wanted { closes: Closes::Yes, or, ..status(code) },
        });
    }

    fn malformed(&mut self) {
        let garbage: [&[u8]; 4] = [
            b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            b"GARBAGE\0\r\n\r\n",
            b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\
              Transfer-Encoding: chunked\r\n\r\nhello",
            b"GET / HTTP/1.1\r\nHost: h\r\nBroken : x\r\n\r\n",
        ];
        let mut bytes = garbage[self.prng.below(4) as usize].to_vec();
        // More of it, which the server must discard without losing its answer.
        bytes.extend(std::iter::repeat_n(b'x', self.prng.below(5000) as usize));
        self.say_malformed(bytes, 400, &[]);
    }

    fn long_head(&mut self) {
        let (bytes, code) = if self.chance(2) {
            let long = "a".repeat(self.limits.uri_max + 1);
            (format!("GET /{long} HTTP/1.1\r\nHost: h\r\n\r\n"), 414)
        } else {
            let long = "a".repeat(self.limits.header_max + 1);
            (format!("GET / HTTP/1.1\r\nHost: h\r\nx: {long}\r\n\r\n"), 431)
        };
        self.say_malformed(bytes.into(), code, &[]);
    }

    /// Finishes in the middle of a request.
    fn truncated(&mut self) {
        self.cut_short(&[400]);
        self.steps.push(Step::Finish);
    }

    /// Stops sending in the middle of a request.
    fn stalled(&mut self) {
        self.cut_short(&[]);
    }

    fn cut_short(&mut self, or: &'static [u16]) {
        let draft = self.any();
        self.request(draft, false);
        let request = self.requests.last_mut().expect("it was pushed above");
        let cut = request.start + self.prng.below(request.end - request.start);
        if cut == request.start {
            self.requests.pop();
        } else {
            // A handler that answers without the body does so; others learn that the body is
            // missing.
            request.wanted.or = if request.wanted.or.is_empty() { or } else { &[400, 503] };
            request.wanted.closes = Closes::Either;
        }
        let mut excess = self.sent - cut;
        while excess > 0 {
            match self.steps.pop() {
                Some(Step::Send(mut bytes)) => {
                    let keep = bytes.len().saturating_sub(excess as usize);
                    excess -= (bytes.len() - keep) as u64;
                    bytes.truncate(keep);
                    if keep > 0 {
                        self.steps.push(Step::Send(bytes));
                    }
                }
                Some(_) => {}
                None => unreachable!("all that is said is said in steps"),
            }
        }
        self.sent = cut;
    }

    /// A body beyond the route's limit.
    fn too_large(&mut self) {
        let (path, max) = match self.prng.below(3) {
            0 => ("/small", app::SMALL_BODY_MAX),
            1 => ("/length", self.limits.body_max.min(100_000)),
            _ => ("/echo", self.limits.body_max.min(100_000)),
        };
        let large = max < 100_000;
        let len = if large { max + 1 + self.prng.below(3000) } else { max };
        let body = app::big(len as usize);
        let mut wanted = match path {
            "/length" => ok(body.len().to_string()),
            _ => ok(body.clone()),
        };
        if large {
            wanted = status(413);
        }
        let streams_body = path == "/length";
        wanted.closes = Closes::Yes;
        let draft = Draft { needs_body: true, streams_body, ..post(path, body, wanted) };
        self.say_request(draft, "1.1", "Connection: close\r\n", false);
    }

    /// A body that no handler reads: more than the server discards to keep the connection; or one
    /// that the client must not send in the end.
    fn unwanted_upload(&mut self) {
        let expects = self.chance(2);
        let len = match expects {
            true => self.prng.below(3000),
            false => self.limits.discard_max.min(60_000) + 1 + self.prng.below(20_000),
        };
        let (path, answer) = match self.prng.below(2) {
            // Although no handler reads it, its route has a limit.
            0 if len > self.limits.body_max => ("/ignore", Wanted { or: &[413], ..ok("ignored") }),
            0 => ("/ignore", ok("ignored")),
            _ => ("/missing", status(404)),
        };
        let wanted = Wanted { closes: Closes::Either, ..answer };
        let draft = post(path, app::big(len as usize), wanted);
        self.say_request(draft, "1.1", "", expects);
        self.steps.push(Step::Finish);
    }

    fn upgrade(&mut self) {
        if self.kinds.has(Kind::WebSockets) && self.chance(2) {
            return self.web_socket();
        }
        let most = if self.chance(3) { 150_000 } else { 10_000 };
        let raw = app::big(self.prng.below(most) as usize);
        let wanted = Wanted { raw: Some(raw.clone()), body: None, ..status(101) };
        let draft = get("/upgrade", wanted);
        self.say_request(draft, "1.1", "Connection: upgrade\r\nUpgrade: echo\r\n", false);
        self.steps.push(Step::Await(self.requests.len()));
        self.steps.push(Step::Send(raw));
        self.steps.push(Step::Finish);
    }

    /// Waits for an answer that never comes, and leaves.
    fn abandoned(&mut self) {
        let draft = match self.prng.below(3) {
            0 => get("/detached", ok("detached")),
            1 => {
                let body = app::big(self.limits.body_max.min(2000) as usize);
                let wanted = ok(body.clone());
                Draft { needs_body: true, ..post("/echo", body, wanted) }
            }
            _ => Draft { hold: Hold::Never, ..get("/never", status(599)) },
        };
        self.say_request(draft, "1.1", "", false);
        self.steps.push(Step::Rest(Duration::from_micros(self.prng.below(20_000))));
        self.steps.push(Step::Leave);
    }

    /// An answer that the application breaks off.
    fn broken(&mut self) {
        let count = self.prng.below(30);
        let wanted = Wanted { broken: true, closes: Closes::Either, ..status(200) };
        self.say_request(get(format!("/broken/{count}"), wanted), "1.1", "", false);
    }

    /// HTTP/1.0, where the end of the connection may be that of the answer.
    fn old(&mut self) {
        let n = self.prng.below(60);
        let draft = match self.prng.below(2) {
            0 => get(format!("/pieces/{n}"), ok(pieces(n))),
            _ => get(format!("/square/{n}"), ok((n * n).to_string())),
        };
        let wanted = Wanted { closes: Closes::Yes, ..draft.wanted };
        let keep = draft.path.starts_with("/pieces") && self.chance(2);
        let field = if keep { "Connection: keep-alive\r\n" } else { "" };
        self.say_request(Draft { wanted, ..draft }, "1.0", field, false);
    }
}

fn pieces(count: u64) -> String {
    (0..count).map(app::piece).collect()
}

fn get(path: impl Into<String>, wanted: Wanted) -> Draft {
    Draft {
        method: "GET",
        path: path.into(),
        hold: Hold::Quick,
        body: None,
        needs_body: false,
        streams_body: false,
        once: None,
        wanted,
    }
}

fn post(path: &str, body: Vec<u8>, wanted: Wanted) -> Draft {
    Draft { method: "POST", body: Some(body), ..get(path, wanted) }
}

fn ok(body: impl Into<Vec<u8>>) -> Wanted {
    Wanted { body: Some(body.into()), ..status(200) }
}

fn status(status: u16) -> Wanted {
    Wanted {
        status,
        body: None,
        head_only: false,
        or: &[],
        closes: Closes::No,
        continues: false,
        broken: false,
        endless: false,
        drain_close: b"",
        raw: None,
    }
}
