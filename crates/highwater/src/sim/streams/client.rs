//! A client of a protocol with streams, and what its streams must receive. It has its own reading of the
//! frames (`wire`), and knows the server's code in nothing.

use std::fmt;
use std::time::Duration;

use highwater_core::prng::Prng;
use highwater_core::time::Instant;

use super::super::link::Stage;
use super::super::network::Network;
use super::super::runner::Peer;
use super::app::content;
use super::sockets;
use super::wire::{NO_LAST, Received, WINDOW_IN, Wire};

/// How long a client pauses that has nothing to read and nothing to say.
const IDLE_PAUSE: Duration = Duration::from_millis(30);

/// What a stream asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Big,
    Wait,
    Slow,
    Pieces,
    Broken,
    Never,
    Gone,
    Echo,
    Count,
    /// A WebSocket that echoes.
    Socket,
    /// A head that is none.
    Bad,
}

/// One stream, from its client's side.
pub(super) struct Stream {
    pub(super) key: u32,
    id: u32,
    kind: Kind,
    n: u64,
    /// The content to send, and how much of it was sent; whether its end was.
    body: Vec<u8>,
    sent: usize,
    is_sent: bool,
    /// It stops sending before the end.
    stalls: bool,
    /// What a WebSocket must receive, and where frames end in it.
    echoes: sockets::Echoes,
    /// It is reset after so many acts, if at all.
    reset_in: Option<u64>,
    /// It was opened; and was reset by its client.
    is_open: bool,
    pub(super) is_reset: bool,
    window_out: i64,
    window_in: i64,
    status: Option<u16>,
    received: Vec<u8>,
    is_over: bool,
    was_reset: bool,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stream { key, id, kind, n, status, .. } = self;
        let (sent, body, received) = (self.sent, self.body.len(), self.received.len());
        let flags = (self.is_open, self.is_reset, self.is_over, self.was_reset, self.stalls);
        let windows = (self.window_out, self.window_in);
        write!(
            f,
            "stream {id}, key {key}, {kind:?} {n}: sent {sent} of {body}, status {status:?}, heard {received}, \
             (open, reset, over, was reset, stalls) {flags:?}, windows {windows:?}"
        )
    }
}

/// A client with one connection.
pub(super) struct Client {
    wire: Wire,
    pub(super) link: usize,
    pub(super) streams: Vec<Stream>,
    /// Bytes received and not read as a frame, and frames not taken yet by the kernel.
    input: Vec<u8>,
    output: Vec<u8>,
    window_out: i64,
    window_in: i64,
    /// The size of the latter from the start.
    window_size: i64,
    at_once: usize,
    pause_max: u64,
    read_max: u64,
    next_at: Instant,
    /// No stream above this one is served.
    away: Option<u32>,
    /// It breaks the protocol after so many acts.
    breaks_in: Option<u64>,
    pub(super) has_broken: bool,
    pub(super) has_finished: bool,
    pub(super) hash: u64,
}

impl Stream {
    fn draw(prng: &mut Prng, (key, id): (u32, u32), window_out: i64, has_tunnels: bool) -> Self {
        use Kind::{Bad, Big, Broken, Count, Echo, Gone, Never, Pieces, Slow, Socket, Wait};
        let kinds = [Big, Big, Wait, Wait, Slow, Pieces, Pieces, Broken, Never, Gone, Echo, Count];
        let kind = match kinds.get(prng.below(if has_tunnels { 15 } else { 12 }) as usize) {
            _ if prng.chance(1, 60) => Bad,
            Some(kind) => *kind,
            None => Socket,
        };
        let n = match kind {
            Big | Pieces | Broken => [0, 9, 500, 5000, 20_000][prng.below(5) as usize],
            Count => prng.below(4),
            _ => prng.below(60),
        };
        let len = match kind {
            Echo | Count => [0, 10, 3000, 12_000][prng.below(4) as usize],
            _ => 0,
        };
        let resets = kind == Gone || prng.chance(1, 6);
        let (sent_bytes, echoes) = match kind {
            Socket => sockets::draw(prng, key),
            _ => (content(key, len), sockets::Echoes::default()),
        };
        Stream {
            key,
            id,
            kind,
            n,
            body: sent_bytes,
            echoes,
            sent: 0,
            is_sent: false,
            stalls: len > 0 && prng.chance(1, 20),
            reset_in: resets.then(|| prng.below(30)),
            is_open: false,
            is_reset: false,
            window_out,
            window_in: WINDOW_IN,
            status: None,
            received: Vec::new(),
            is_over: false,
            was_reset: false,
        }
    }

    fn open(&mut self, wire: &mut Wire, prng: &mut Prng) -> Vec<u8> {
        self.is_open = true;
        let (method, path) = match self.kind {
            Kind::Big => ("GET", "big"),
            Kind::Wait => ("GET", "wait"),
            Kind::Slow => ("GET", "slow"),
            Kind::Pieces => ("GET", "pieces"),
            Kind::Broken => ("GET", "broken"),
            Kind::Never => ("GET", "never"),
            Kind::Gone => ("GET", "gone"),
            Kind::Echo => ("POST", "echo"),
            Kind::Count => ("POST", "count"),
            Kind::Socket => ("CONNECT", "socket"),
            Kind::Bad => ("", "bad"),
        };
        self.is_sent = !matches!(method, "POST" | "CONNECT");
        wire.open(self.id, method, &format!("/{path}/{}/{}", self.key, self.n), prng)
    }

    /// Whether nothing more is expected of it.
    fn is_done(&self) -> bool {
        self.is_over || self.is_reset || self.was_reset
    }

    /// The status and the content that it must receive.
    fn wanted(&self) -> (u16, Vec<u8>) {
        match self.kind {
            Kind::Echo if !self.stalls => (200, self.body.clone()),
            Kind::Count if !self.stalls => (200, self.body.len().to_string().into_bytes()),
            Kind::Echo | Kind::Count => (408, Vec::new()),
            Kind::Never => (503, Vec::new()),
            Kind::Bad => (400, Vec::new()),
            Kind::Gone => (200, b"gone".to_vec()),
            Kind::Socket => (200, self.echoes.bytes.clone()),
            Kind::Big | Kind::Wait | Kind::Slow | Kind::Pieces | Kind::Broken => {
                (200, content(self.key, self.n))
            }
        }
    }

    /// Checks what it has received so far.
    fn check(&self, may_refuse: bool) -> Result<(), String> {
        let Some(status) = self.status else { return Ok(()) };
        let (wanted, bytes) = self.wanted();
        if may_refuse && status == 503 {
            return Ok(());
        }
        if status != wanted {
            return Err(format!("{self:?} was answered {status}"));
        }
        let is_right = match status {
            200 if self.kind == Kind::Socket => self.echoes.allow(&self.received, self.is_over),
            200 if self.is_over => self.received == bytes,
            200 => bytes.starts_with(&self.received),
            _ => true, // The text of an error is the application's.
        };
        if is_right { Ok(()) } else { Err(format!("{self:?} has the content of another")) }
    }
}

impl Peer for Client {
    fn next_at(&self, network: &Network) -> Instant {
        if self.is_gone(network) { Instant::MAX } else { self.next_at }
    }

    fn is_gone(&self, network: &Network) -> bool {
        let link = network.link(self.link);
        matches!(link.stage, Stage::Over | Stage::Refused) && !link.has_unread()
    }

    fn act(&mut self, network: &mut Network, prng: &mut Prng) -> Result<(), String> {
        let now = network.now();
        if now < self.next_at || self.is_gone(network) {
            return Ok(());
        }
        self.next_at = now + Duration::from_micros(1 + prng.below(self.pause_max));
        if network.link(self.link).stage == Stage::Unborn {
            network.connect(self.link);
            return Ok(());
        }
        if network.breaks() {
            network.leave(self.link);
            return Ok(());
        }
        let received = network.read(self.link, 1 + prng.below(self.read_max) as usize);
        let link = network.link(self.link);
        if link.is_broken() {
            self.output.clear(); // Its connection takes nothing more.
        }
        let is_busy = !received.is_empty() || !self.output.is_empty() || link.has_unread();
        self.input.extend(received);
        while self.receive()? {}
        self.output.extend(self.wire.take_owed());
        if !self.has_finished && !self.has_broken {
            self.speak(prng);
        }
        if !is_busy && self.output.is_empty() {
            self.next_at = now + IDLE_PAUSE; // It waits for the server.
        }
        let taken = network.send(self.link, &self.output);
        self.output.drain(..taken);
        let is_idle =
            self.output.is_empty() && self.streams.iter().all(|stream| self.is_settled(stream));
        if is_idle && !self.has_finished && !self.has_broken {
            self.has_finished = true;
            network.finish(self.link);
        }
        Ok(())
    }
}

impl Client {
    /// A client that speaks by `wire`, and whose keys begin at `first_key`.
    pub(super) fn draw(prng: &mut Prng, network: &mut Network, first_key: u32, wire: Wire) -> Self {
        let (stream_out, window_out, window_size) = wire.windows();
        let has_tunnels = wire.has_tunnels();
        let most = [1, 5, 50, 80][prng.below(4) as usize];
        let count = 1 + prng.below(most) as u32;
        let mut id = 0;
        let streams = (0..count).map(|n| {
            id = wire.next_id(id, prng);
            Stream::draw(prng, (first_key + n, id), stream_out, has_tunnels)
        });
        let streams = streams.collect();
        Client {
            link: network.add([300, 16 * 1024][prng.below(2) as usize]),
            streams,
            input: Vec::new(),
            output: wire.hello(),
            wire,
            window_out,
            window_in: window_size,
            window_size,
            at_once: [1, 4, 50, 50][prng.below(4) as usize],
            // A client that reads slowly learns late that it may send more: it does not do so with much to read.
            pause_max: [100, 3000, 20_000][prng.below(if count > 5 { 2 } else { 3 }) as usize],
            read_max: [20_000, 2000, 60][prng.below(if count > 5 { 2 } else { 3 }) as usize],
            next_at: Instant::ZERO + Duration::from_micros(prng.below(5000)),
            away: None,
            breaks_in: prng.chance(1, 12).then(|| prng.below(60)),
            has_broken: false,
            has_finished: false,
            hash: 0,
        }
    }

    /// Whether its connection may end before its streams are answered.
    pub(super) fn is_excused(&self, network: &Network) -> bool {
        let link = network.link(self.link);
        // Before its handshake, nobody can be told which streams are not served.
        self.has_broken || link.has_left || link.is_broken() || !link.is_established()
    }

    /// Whether the handler of `key` may believe that its client has gone.
    pub(super) fn has_gone(&self, network: &Network, key: u32) -> Option<bool> {
        let stream = self.streams.iter().find(|stream| stream.key == key)?;
        let link = network.link(self.link);
        Some(stream.is_reset || self.has_finished || self.is_excused(network) || !link.is_live())
    }

    fn is_refused(&self, stream: &Stream) -> bool {
        self.away.is_some_and(|last| stream.id > last)
    }

    fn is_settled(&self, stream: &Stream) -> bool {
        stream.is_done() || self.is_refused(stream)
    }

    /// One more frame, on one of the streams.
    fn speak(&mut self, prng: &mut Prng) {
        if let Some(left) = &mut self.breaks_in {
            if *left == 0 {
                self.has_broken = true;
                self.output.extend(self.wire.breach());
                return;
            }
            *left -= 1;
        }
        if prng.chance(1, 20) {
            self.output.extend(self.wire.noise(prng));
        }
        let may_open = self.away.is_none_or(|last| last == NO_LAST);
        let Client { wire, output, streams, .. } = self;
        let is_live = |stream: &Stream| stream.is_open && !stream.is_done();
        let open = streams.iter().filter(|stream| is_live(stream)).count();
        let is_new = |stream: &&mut Stream| !stream.is_open;
        if open < self.at_once
            && may_open
            && prng.chance(1, 2)
            && let Some(stream) = streams.iter_mut().find(is_new)
        {
            output.extend(stream.open(wire, prng));
        }
        for stream in streams.iter_mut().filter(|stream| is_live(stream)) {
            let room = stream.window_out.min(self.window_out).max(0) as usize;
            let left = stream.body.len() - stream.sent;
            let len = left.min(room).min(1 + prng.below(900) as usize);
            let is_last = len == left;
            let stops = is_last && stream.stalls || len == 0 && !is_last;
            if !stream.is_sent && !stops && prng.chance(1, 2) {
                let bytes = &stream.body[stream.sent..stream.sent + len];
                output.extend(wire.content(stream.id, bytes, is_last));
                stream.sent += len;
                stream.is_sent = is_last;
                stream.window_out -= len as i64;
                self.window_out -= len as i64;
            }
            match &mut stream.reset_in {
                Some(0) => {
                    output.extend(wire.reset(stream.id));
                    stream.is_reset = true;
                }
                Some(left) => *left -= 1,
                None => {}
            }
            if stream.window_in < WINDOW_IN / 2 && prng.chance(1, 3) {
                let more = 1 + prng.below(WINDOW_IN as u64);
                stream.window_in += more as i64;
                output.extend(wire.window(stream.id, more as u32));
            }
        }
        if self.window_in < self.window_size / 2 && prng.chance(1, 2) {
            let more = 1 + prng.below(self.window_size as u64);
            self.window_in += more as i64;
            self.output.extend(self.wire.window(0, more as u32));
        }
    }

    /// Hears one event. Returns whether there was one.
    fn receive(&mut self) -> Result<bool, String> {
        let Some(received) = self.wire.receive(&mut self.input)? else { return Ok(false) };
        for byte in format!("{received:?}").bytes() {
            self.hash = self.hash.rotate_left(5) ^ u64::from(byte);
        }
        match received {
            Received::Window(0, more) => self.window_out += i64::from(more),
            Received::Windows(more) => {
                self.streams.iter_mut().for_each(|stream| stream.window_out += more);
            }
            Received::Away(last) => self.away = Some(last),
            Received::Error(code) if !self.has_broken => return Err(format!("a mistake: {code}")),
            Received::Error(_) => {}
            Received::Status(id, _) | Received::Content(id, ..) | Received::Reset(id) => {
                self.receive_on_stream(id, received)?;
            }
            Received::Window(id, _) => self.receive_on_stream(id, received)?,
        }
        Ok(true)
    }

    fn receive_on_stream(&mut self, id: u32, received: Received) -> Result<(), String> {
        let refused = self.away.is_some_and(|last| id > last);
        let streams = &mut self.streams;
        let Some(stream) = streams.iter_mut().find(|stream| stream.id == id && stream.is_open)
        else {
            return Err(format!("{received:?} for a stream that was not opened"));
        };
        let about = |what: &str, stream: &Stream| Err(format!("{what}: {stream:?}"));
        if refused {
            return about("a frame for a stream that is not served", stream);
        }
        let is_reset = matches!(received, Received::Reset(_));
        if stream.was_reset || stream.is_over && !is_reset {
            return about("a frame behind the end", stream);
        }
        match received {
            Received::Status(..) if stream.status.is_some() => {
                return about("a second answer", stream);
            }
            Received::Status(_, line) => {
                let status = std::str::from_utf8(&line).ok().and_then(|line| line.parse().ok());
                stream.status = Some(status.ok_or("a head without a status")?);
            }
            Received::Content(_, payload, is_last) => {
                if stream.status.is_none() {
                    return about("content before its head", stream);
                }
                stream.window_in -= payload.len() as i64;
                self.window_in -= payload.len() as i64;
                if stream.window_in < 0 || self.window_in < 0 {
                    return about("content beyond the window", stream);
                }
                stream.received.extend_from_slice(&payload);
                stream.is_over = is_last;
            }
            Received::Reset(_) => stream.was_reset = true,
            Received::Window(_, more) => stream.window_out += i64::from(more),
            Received::Windows(_) | Received::Away(_) | Received::Error(_) => {}
        }
        if stream.is_reset { Ok(()) } else { stream.check(false) }
    }

    /// Checks, once it is gone, that each stream got what it had to. `is_cut` says that the server has cut
    /// connections.
    pub(super) fn settle(
        &self,
        network: &Network,
        is_cut: bool,
        begun: impl Fn(u32) -> u32,
    ) -> Result<usize, String> {
        let is_excused = is_cut || self.is_excused(network);
        let mut answers = 0;
        for stream in &self.streams {
            let begun = begun(stream.key);
            if begun > 1 || begun > 0 && (!stream.is_open || self.is_refused(stream)) {
                return Err(format!("it was begun {begun} times: {stream:?}"));
            }
            stream.check(false)?;
            answers += usize::from(stream.is_over);
            let is_answered = match stream.kind {
                Kind::Broken => stream.was_reset && !stream.is_over,
                _ => stream.is_over,
            };
            let is_needed = stream.is_open && !stream.is_reset && !self.is_refused(stream);
            if is_needed && !is_answered && !is_excused {
                return Err(format!("it was not answered: {stream:?}"));
            }
        }
        Ok(answers)
    }
}
