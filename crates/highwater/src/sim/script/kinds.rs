//! What clients send to applications of the kinds that are switched on, and when they disconnect.

use std::time::Duration;

use super::super::kinds::Kind;
use super::{Closes, Draft, Hold, Step, Wanted, Writer, app, get, ok, pieces, post, status};

/// The answers that a server may give to a request of which it has seen only a part, if no more
/// will come.
const CUT_SHORT: &[u16] = &[400, 408, 413, 414, 431, 500, 503];

/// A client that is refused so often is not served at all: each turn that refuses starts a request, and only some
/// hundred requests are sent in a run.
pub(in super::super) const TRIES_MAX: usize = 300;

impl Writer<'_> {
    /// A client's own part: all of one kind or mixed, pipelined or not; and how the client leaves.
    pub(super) fn write_kinds(&mut self) {
        let (polite, count) = (self.chance(3), self.prng.below(7));
        let patient = self.chance(4);
        for _ in 0..count {
            let draft = match self.chance(4) {
                true => self.any(),
                false => self.odd(),
            };
            self.request(draft, false);
            if polite {
                self.steps.push(Step::Await(self.requests.len()));
            }
            if patient {
                self.rest(3000);
            }
        }
        self.odd_ending();
        let goes = self.kinds.has(Kind::Leaving) && self.chance(3);
        let finishes = self.kinds.has(Kind::Finishing) && self.chance(3);
        if goes || finishes {
            self.go(goes);
        }
    }

    /// A proxy's connection: one request after the other, each with effects that must not be repeated.
    pub(super) fn write_proxy(&mut self) {
        for _ in 0..10 + self.prng.below(40) {
            let key = self.key();
            let path = format!("/once/{key}");
            let draft = match self.chance(3) {
                true => {
                    let body = self.body(self.limits.discard_max.min(300));
                    post(&path, body, ok(format!("once {key}")))
                }
                false => get(path, ok(format!("once {key}"))),
            };
            self.say_request(Draft { once: Some(key), ..draft }, "1.1", "", false);
            self.steps.push(Step::Await(self.requests.len()));
            if self.chance(8) {
                self.rest(20);
            }
        }
        self.steps.push(Step::Finish);
    }

    /// A client that wants one answer, and asks again at once when it is refused.
    pub(super) fn write_crowd(&mut self) {
        let n = self.prng.below(2000);
        for _ in 0..TRIES_MAX {
            let draft = get(format!("/square/{n}"), ok((n * n).to_string()));
            self.say_request(draft, "1.1", "", false);
            self.steps.push(Step::Await(self.requests.len()));
            self.steps.push(Step::FinishIfServed);
            self.rest(2);
        }
        self.steps.push(Step::Finish);
    }

    fn rest(&mut self, millis: u64) {
        let rest = self.prng.below(millis * 1000 + 1);
        self.steps.push(Step::Rest(Duration::from_micros(rest)));
    }

    /// A request of one of the kinds, after which the connection continues.
    fn odd(&mut self) -> Draft {
        let (n, bomb) = (self.prng.below(20), self.prng.below(20));
        match self.prng.below(5) {
            0 if self.kinds.has(Kind::Wakes) => self.waiting(),
            1 if self.kinds.has(Kind::Prompt) => get(format!("/prompt/{n}"), ok(pieces(n))),
            2 if self.kinds.has(Kind::Panics) => self.panicking(bomb, n),
            3 if self.kinds.has(Kind::PanickingDrops) => self.dropping(bomb, n),
            4 if self.kinds.has(Kind::Invalid) => self.invalid(n),
            _ => self.any(),
        }
    }

    fn key(&mut self) -> u32 {
        self.prng.below(1 << 32) as u32
    }

    fn millis(&mut self) -> u64 {
        let most = [3, 50, 50, 1500][self.prng.below(4) as usize];
        self.prng.below(most)
    }

    fn waiting(&mut self) -> Draft {
        let (key, millis, n) = (self.key(), self.millis(), self.prng.below(12));
        let hold = Hold::OtherThread(key);
        let mut draft = match self.prng.below(7) {
            0 | 1 => get(format!("/wait/{key}/{millis}"), ok(format!("waited {millis}"))),
            2 => {
                // Some of them take nearly as long as they may.
                let millis = if self.chance(2) { millis } else { 1990 + self.prng.below(20) };
                let wanted = Wanted { or: &[503], ..ok(format!("waited {millis}")) };
                let hold = Hold::OtherThreadOrTimeout(key);
                return Draft { hold, ..get(format!("/wait-bounded/{key}/{millis}"), wanted) };
            }
            3 => get(format!("/wait-detached/{key}/{millis}"), ok("detached")),
            4 => get(format!("/ticks/{key}/{n}"), ok(pieces(n))),
            _ => {
                let body = self.body(self.limits.body_max.min(20_000));
                self.streamed(&format!("/digest/{key}/{}", millis % 10), body)
            }
        };
        draft.hold = hold;
        draft
    }

    fn panicking(&mut self, bomb: u64, polls: u64) -> Draft {
        let path = match bomb {
            0 => "/bomb/inline".into(),
            1 | 2 => format!("/bomb/async/{polls}"),
            3 => "/bomb/before".into(),
            4 => "/bomb/before-async".into(),
            5 => "/bomb/after".into(),
            6 => "/bomb/after-async".into(),
            7 => "/bomb/layer/before".into(),
            8 => "/bomb/layer/after".into(),
            // The error keeps its status, in the plainest shape.
            9 => return get("/bomb/render", status(400)),
            10 => return get("/bomb/render-async", status(400)),
            11 => "/bomb/render-panic".into(),
            12 => "/bomb/extract".into(),
            13 => "/bomb/extract-async".into(),
            14 => "/bomb/into".into(),
            15 => "/bomb/into-async".into(),
            16 => format!("/bomb/detached/{polls}"),
            17 => {
                let body = self.body(self.limits.body_max.min(3000));
                let wanted = Wanted { closes: Closes::Either, ..status(500) };
                let draft = post("/bomb/body", body, wanted);
                return Draft { needs_body: true, streams_body: true, ..draft };
            }
            other => {
                let path = ["/bomb/pool", "/bomb/into-pool", "/bomb/after-pool"];
                let path = path[(other + polls) as usize % 3];
                let wanted = Wanted { or: &[503], ..status(500) };
                return Draft { hold: Hold::Pool, ..get(path, wanted) };
            }
        };
        get(path, status(500))
    }

    fn dropping(&mut self, bomb: u64, polls: u64) -> Draft {
        match bomb {
            0..=3 => get("/drop/payload", status(500)),
            4..=6 => get("/drop/payload-async", status(500)),
            7 | 8 => {
                let wanted = Wanted { or: &[503], ..status(500) };
                Draft { hold: Hold::Pool, ..get("/drop/payload-pool", wanted) }
            }
            9..=12 => get(format!("/drop/locals/{polls}"), status(500)),
            13 | 14 => get(format!("/drop/locals-detached/{polls}"), status(500)),
            15 | 16 => {
                let wanted = Wanted { or: &[500], ..ok("dropped") };
                get(format!("/drop/future/{polls}"), wanted)
            }
            _ => get(format!("/drop/stream/{polls}"), ok(pieces(polls))),
        }
    }

    fn invalid(&mut self, n: u64) -> Draft {
        match self.prng.below(4) {
            0 => {
                let code = [100, 101, 102, 103, 150, 199][self.prng.below(6) as usize];
                get(format!("/odd/{code}/{}", n % 3), status(500))
            }
            1 => {
                let code = [204, 205, 304][self.prng.below(3) as usize];
                let wanted = if n == 0 { status(code) } else { status(500) };
                get(format!("/odd/{code}/{n}"), wanted)
            }
            2 => {
                let code = [103, 204, 205, 304][self.prng.below(4) as usize];
                get(format!("/odd/{code}/stream/{n}"), status(500))
            }
            _ => {
                let code = [200, 201, 299, 404, 500, 599][self.prng.below(6) as usize];
                let wanted = Wanted { body: Some(app::big(n as usize)), ..status(code) };
                get(format!("/odd/{code}/{n}"), wanted)
            }
        }
    }

    /// A request of one of the kinds that ends the connection, or one of the other endings.
    fn odd_ending(&mut self) {
        if self.kinds.has(Kind::WebSockets) && self.chance(3) {
            return self.web_socket();
        }
        let polls = self.prng.below(20);
        match self.prng.below(8) {
            0 if self.kinds.has(Kind::Streams) => self.endless("/events", false),
            1 if self.kinds.has(Kind::Streams) => self.endless("/talk", false),
            2 if self.kinds.has(Kind::HalfClosed) => self.endless("/events", true),
            3 if self.kinds.has(Kind::HalfClosed) => self.half_closed(),
            4 if self.kinds.has(Kind::Panics) => match self.chance(2) {
                true => self.breaks_off(format!("/bomb/stream/{polls}"), 200),
                false => self.breaks_off(format!("/bomb/upgraded/{polls}"), 101),
            },
            5 | 6 if self.kinds.has(Kind::PanickingDrops) => match self.prng.below(4) {
                0 => self.breaks_off("/drop/payload-stream".into(), 200),
                1 => self.breaks_off("/drop/closure".into(), 101),
                2 => self.breaks_off(format!("/drop/upgraded/{polls}"), 101),
                _ => self.abandons(polls),
            },
            7 if self.kinds.has(Kind::Prompt) => self.steps.push(Step::Finish),
            _ => self.ending(),
        }
    }

    /// Receives an endless answer, and disconnects.
    fn endless(&mut self, path: &str, finishes: bool) {
        let key = self.key();
        let millis = [5, 300, 3000, 60_000][self.prng.below(4) as usize];
        let upgrades = path == "/talk";
        let mut wanted = Wanted { endless: true, closes: Closes::Either, ..status(200) };
        let mut field = "";
        if upgrades {
            wanted = Wanted { status: 101, raw: Some(Vec::new()), ..wanted };
            field = "Connection: upgrade\r\nUpgrade: talk\r\n";
        }
        let draft = get(format!("{path}/{key}/{millis}"), wanted);
        let draft = Draft { hold: Hold::OtherThread(key), ..draft };
        self.say_request(draft, "1.1", field, false);
        if upgrades {
            self.steps.push(Step::Await(self.requests.len()));
            let size = self.prng.below(5000);
            self.steps.push(Step::Send(app::big(size as usize)));
        }
        self.rest([2, 100, 5000][(millis % 3) as usize]);
        self.steps.push(if finishes { Step::Finish } else { Step::Leave });
    }

    /// Finishes, and waits for an answer that does not come for long.
    fn half_closed(&mut self) {
        let key = self.key();
        let draft = match self.chance(2) {
            true => Draft { hold: Hold::Never, ..get("/never", status(599)) },
            false => {
                let millis = 1000 * (1 + self.prng.below(60));
                let wanted = ok(format!("waited {millis}"));
                let path = format!("/wait/{key}/{millis}");
                Draft { hold: Hold::OtherThread(key), ..get(path, wanted) }
            }
        };
        self.say_request(draft, "1.1", "", false);
        self.rest(200);
        self.steps.push(Step::Finish);
    }

    /// An answer that breaks off, or whose connection does after a 101.
    fn breaks_off(&mut self, path: String, code: u16) {
        let raw = (code == 101).then(Vec::new);
        let or: &[u16] = if code == 101 { &[500] } else { &[] };
        let wanted = Wanted { broken: true, closes: Closes::Either, raw, or, ..status(code) };
        let field = if code == 101 { "Connection: upgrade\r\nUpgrade: bad\r\n" } else { "" };
        self.say_request(get(path, wanted), "1.1", field, false);
    }

    /// Leaves a value behind that panics when it is dropped.
    fn abandons(&mut self, polls: u64) {
        let path = ["locals", "locals-detached", "future", "stream"][self.prng.below(4) as usize];
        let polls = polls * 5;
        let wanted = Wanted { closes: Closes::Either, or: &[200], ..status(500) };
        let draft = get(format!("/drop/{path}/{polls}"), wanted);
        self.say_request(Draft { hold: Hold::Slow, ..draft }, "1.1", "", false);
        self.rest(3);
        self.steps.push(Step::Leave);
    }

    /// Disconnects at any byte, and any moment after it; by a reset or by a FIN.
    fn go(&mut self, resets: bool) {
        let total: usize = self.steps.iter().map(Step::len).sum();
        let cut = self.prng.below(total as u64 + 1);
        self.cut_at(cut, total as u64);
        self.steps.retain(|step| !matches!(step, Step::Finish | Step::Leave));
        match self.prng.below(3) {
            0 => {}
            1 => self.rest([1, 40, 4000][(cut % 3) as usize]),
            _ => {
                let bytes = self.prng.below(2000) as usize;
                self.steps.push(Step::AwaitBytes(bytes, Duration::from_millis(500)));
            }
        }
        // Requesting an endless answer and finishing is a kind of its own.
        let never = |request: &super::Request| {
            request.hold == Hold::Never || request.wanted.endless || request.wanted.raw.is_some()
        };
        let resets = resets || self.requests.iter().any(never);
        self.steps.push(if resets { Step::Leave } else { Step::Finish });
    }

    /// Removes everything after byte `cut` of `total`.
    fn cut_at(&mut self, cut: u64, total: u64) {
        let mut excess = total - cut;
        while excess > 0 {
            if let Step::Send(mut bytes) = self.steps.pop().expect("all that is said is in steps") {
                let keep = bytes.len().saturating_sub(excess as usize);
                excess -= (bytes.len() - keep) as u64;
                bytes.truncate(keep);
                if keep > 0 {
                    self.steps.push(Step::Send(bytes));
                }
            }
        }
        self.requests.retain(|request| request.start < cut);
        if let Some(request) = self.requests.last_mut()
            && request.end > cut
        {
            request.wanted.or = CUT_SHORT;
            request.wanted.closes = Closes::Either;
        }
    }
}
