//! WebSocket beneath the messages of `load`: each request is a message, and its answer the next one that comes.
//!
//! ```text
//!  Connected ─▶ handshake ─101─▶ Connected      what the dialer reports, and what this reports
//!  Received  ─▶ messages  ─▶ Status, Content, End for each
//!  begin     ─▶ masked frames, sent by the next poll
//! ```
//!
//! Over HTTP/2 the connections are tunnels (`tunnels.rs`), and there is no further handshake. Pings are answered. Connections
//! of `--idle` are opened beside those of the client, which never sees them: they answer pings and close frames, and send
//! nothing else. The mask's key is new for each frame, as RFC 6455 requires; it comes from a seed.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use highwater_core::driver::{ConnId, Wait};
use highwater_core::http1::client::{Asked, Next, Reader};
use highwater_core::prng::Prng;
use highwater_core::websocket::{CloseCode, Decoder, Event as Frame, Limits, Role, encode};
use highwater_sys::dial::{Arrival, Dial, Event};

use super::counts::Outcome;
use super::frames::Closes;
use super::upgrade::{self, Handshake, Message};
use super::wire::{Batch, Happened, MESSAGE, Wire};

/// Connections of `--idle` that are opened in one turn, so that a server's listen queue holds them. A guess.
const OPENED_AT_ONCE: u32 = 64;
/// Bytes of a message that is received, at most.
const MESSAGE_MAX: usize = 64 * 1024 * 1024;
enum State {
    /// The dialer is connecting.
    Dialing,
    /// The answer to the handshake is being read.
    Shaking(Reader, Handshake),
    Open(Decoder),
    /// It is of no use any more.
    Over,
}

struct Connection {
    state: State,
    out: Vec<u8>,
    is_queued: bool,
    /// It is held open, and is none of the client's.
    is_idle: bool,
}

impl Connection {
    fn new(is_idle: bool) -> Connection {
        Connection { state: State::Dialing, out: Vec::new(), is_queued: false, is_idle }
    }
}

/// WebSocket over connections of `D`.
pub(crate) struct WebSockets<D> {
    inner: D,
    /// What is sent to open a connection; nothing over tunnels.
    message: Option<Message>,
    /// Connections of `--idle` that are not opened yet.
    idle_left: u32,
    shared: Shared,
}

/// Everything but the dialer, so that a poll's callback can reach it.
struct Shared {
    list: Vec<Option<Connection>>,
    /// Those with output.
    unsent: Vec<u32>,
    /// Those of `--idle` that the server has ended.
    lost: Vec<u32>,
    random: Prng,
    frames: Rc<RefCell<Closes>>,
}

impl<D: Dial> WebSockets<D> {
    /// Connections are opened as `message` says, or are tunnels without one, and `idle` more are held; `seed` decides masks and
    /// keys. What goes wrong is counted in `frames`.
    pub(crate) fn new(
        inner: D,
        message: Option<Message>,
        seed: u64,
        idle: u32,
        frames: Rc<RefCell<Closes>>,
    ) -> WebSockets<D> {
        let (list, unsent, lost) = (Vec::new(), Vec::new(), Vec::new());
        let random = Prng::from_seed(seed);
        let shared = Shared { list, unsent, lost, random, frames };
        WebSockets { inner, message, idle_left: idle, shared }
    }

    fn open(&mut self, is_idle: bool) -> io::Result<ConnId> {
        let id = self.inner.connect()?;
        let list = &mut self.shared.list;
        if list.len() <= id.index() {
            list.resize_with(id.index() + 1, || None);
        }
        list[id.index()] = Some(Connection::new(is_idle));
        Ok(id)
    }

    /// Opens some of the connections that are to be held, and closes those that were lost.
    fn hold(&mut self) -> io::Result<()> {
        for index in std::mem::take(&mut self.shared.lost) {
            self.shared.list[index as usize] = None;
            self.inner.close(ConnId(index));
        }
        for _ in 0..self.idle_left.min(OPENED_AT_ONCE) {
            self.open(true)?;
            self.idle_left -= 1;
        }
        Ok(())
    }

    /// Sends the output of the connections on which nothing is in transit.
    fn flush(&mut self) {
        let WebSockets { inner, shared, .. } = self;
        let mut unsent = std::mem::take(&mut shared.unsent);
        unsent.retain(|index| {
            let Some(connection) = shared.at(*index) else { return false };
            if inner.is_writing(ConnId(*index)) {
                return true;
            }
            connection.is_queued = false;
            if !connection.out.is_empty() {
                inner.write(ConnId(*index), |buffer| buffer.append(&mut connection.out));
            }
            false
        });
        shared.unsent.append(&mut unsent);
    }
}

impl Shared {
    fn at(&mut self, index: u32) -> Option<&mut Connection> {
        self.list.get_mut(index as usize)?.as_mut()
    }

    fn key(&mut self) -> [u8; 4] {
        (self.random.next_u64() as u32).to_le_bytes()
    }

    fn queue(&mut self, index: u32) {
        let Some(connection) = self.at(index) else { return };
        if !connection.out.is_empty() && !std::mem::replace(&mut connection.is_queued, true) {
            self.unsent.push(index);
        }
    }

    /// The connection below is established: the handshake begins, or is over if it was the tunnel's.
    fn connected(
        &mut self,
        id: ConnId,
        message: Option<&Message>,
        on_event: &mut impl FnMut(Happened<'_>),
    ) {
        let index = id.0;
        let Some(message) = message else { return self.open(id, on_event) };
        let handshake = Handshake::new(&mut self.random);
        let Some(connection) = self.at(index) else { return };
        message.write(&handshake, &mut connection.out);
        connection.state = State::Shaking(Reader::default(), handshake);
        self.queue(index);
    }

    /// Frames may be sent.
    fn open(&mut self, id: ConnId, on_event: &mut impl FnMut(Happened<'_>)) {
        let Some(connection) = self.at(id.0) else { return };
        let limits = Limits { message_max: MESSAGE_MAX, frame_max: MESSAGE_MAX };
        connection.state = State::Open(Decoder::new(Role::Client, limits));
        match connection.is_idle {
            true => self.frames.borrow_mut().idle_open += 1,
            false => on_event(Happened::Io(Event::Connected(id))),
        }
    }

    fn received(
        &mut self,
        id: ConnId,
        mut bytes: &[u8],
        arrival: Arrival,
        on_event: &mut impl FnMut(Happened<'_>),
    ) {
        let frames = self.frames.clone();
        let Some(connection) = self.at(id.0) else { return };
        let is_idle = connection.is_idle;
        if let State::Shaking(reader, handshake) = &mut connection.state {
            match shake(reader, handshake, &mut bytes) {
                Ok(false) => return,
                Ok(true) => self.open(id, on_event),
                Err(problem) => {
                    connection.state = State::Over;
                    frames.borrow_mut().problem.get_or_insert(problem);
                    if is_idle {
                        return self.lose(id.0);
                    }
                    return on_event(Happened::Broken(id, Outcome::Unupgraded));
                }
            }
        }
        self.read(id, bytes, arrival, on_event);
    }

    /// Reads the frames of an open connection.
    fn read(
        &mut self,
        id: ConnId,
        mut bytes: &[u8],
        arrival: Arrival,
        on_event: &mut impl FnMut(Happened<'_>),
    ) {
        let key = self.key();
        let frames = self.frames.clone();
        let Some(connection) = self.at(id.0) else { return };
        let is_idle = connection.is_idle;
        let State::Open(decoder) = &mut connection.state else { return };
        let broken = loop {
            match decoder.next(&mut bytes) {
                Ok(None) => break None,
                Ok(Some(Frame::Message(..))) if is_idle => {}
                Ok(Some(Frame::Message(_, content))) => {
                    on_event(Happened::Status(id, MESSAGE));
                    on_event(Happened::Content(id, content));
                    on_event(Happened::End(id, MESSAGE, arrival));
                }
                Ok(Some(Frame::Ping(payload))) => {
                    encode::pong(payload, Some(key), &mut connection.out)
                }
                Ok(Some(Frame::Pong(_))) => {}
                Ok(Some(Frame::Close(close))) => {
                    let parts = close.map(|close| (close.code.0, close.reason));
                    frames.borrow_mut().closed(parts);
                    let code = close.map(|close| close.code);
                    encode::close(code, "", Some(key), &mut connection.out);
                    break Some(Outcome::Closed);
                }
                Err(error) => {
                    encode::close(Some(error.code), error.reason, Some(key), &mut connection.out);
                    break Some(Outcome::Malformed(error.reason));
                }
            }
        };
        if let Some(outcome) = broken {
            if is_idle {
                frames.borrow_mut().idle_open -= 1;
                connection.state = State::Over;
                return self.lose(id.0);
            }
            connection.state = State::Over;
            on_event(Happened::Broken(id, outcome));
        }
        self.queue(id.0);
    }

    /// The server has ended a connection that was to be held. It is closed before the next turn.
    fn lose(&mut self, index: u32) {
        self.frames.borrow_mut().idle_lost += 1;
        self.lost.push(index);
    }

    /// What the end of a connection means. Only a tunnel ends before it is open.
    fn ended(&mut self, index: u32) -> Outcome {
        match self.at(index).map(|connection| &connection.state) {
            Some(State::Dialing) => Outcome::Unupgraded,
            _ => Outcome::Truncated,
        }
    }

    /// The server has ended a connection. Returns whether it was one that was to be held.
    fn has_lost(&mut self, id: ConnId) -> bool {
        let Some(connection) = self.at(id.0).filter(|connection| connection.is_idle) else {
            return false;
        };
        match std::mem::replace(&mut connection.state, State::Over) {
            State::Over => return true, // It is counted.
            State::Open(_) => self.frames.borrow_mut().idle_open -= 1,
            State::Dialing | State::Shaking(..) => {}
        }
        self.lose(id.0);
        true
    }
}

/// Reads the answer to the handshake. True: the connection is open, and what is left of `bytes` are frames.
fn shake(reader: &mut Reader, handshake: &Handshake, bytes: &mut &[u8]) -> Result<bool, String> {
    loop {
        match reader.next(bytes, Asked::Upgrade).map_err(|error| error.reason().to_owned())? {
            Next::Wait => return Ok(false),
            // What follows the head are frames.
            Next::Head(head) if head.status() == 101 => {
                return handshake.check(&head).map(|()| true);
            }
            Next::Head(head) => return Err(upgrade::refused(head.status())),
            Next::Interim(_) | Next::Content(_) | Next::End(..) | Next::Raw(_) => {}
        }
    }
}

impl<D: Dial> Wire for WebSockets<D> {
    fn connect(&mut self) -> io::Result<ConnId> {
        self.open(false)
    }

    fn begin(&mut self, id: ConnId, batch: Batch<'_>) {
        let Some(message) = &batch.request.ws else { return };
        for _ in 0..batch.count {
            batch.values.next_request();
            batch.scratch.clear();
            message.body.render(batch.values, batch.scratch);
            let key = self.shared.key();
            if let Some(connection) = self.shared.at(id.0) {
                encode::message(message.kind, batch.scratch, Some(key), &mut connection.out);
            }
        }
        self.shared.queue(id.0);
    }

    fn close(&mut self, id: ConnId) {
        let key = self.shared.key();
        if let Some(Some(mut connection)) = self.shared.list.get_mut(id.index()).map(Option::take) {
            if matches!(connection.state, State::Open(_)) {
                encode::close(Some(CloseCode::NORMAL), "", Some(key), &mut connection.out);
            }
            if !connection.out.is_empty() && !self.inner.is_writing(id) {
                self.inner.write(id, |buffer| buffer.append(&mut connection.out));
            }
        }
        self.inner.close(id);
    }

    fn closing(&self) -> usize {
        self.inner.closing()
    }

    fn poll(&mut self, wait: Wait, on_event: &mut impl FnMut(Happened<'_>)) -> io::Result<()> {
        self.hold()?;
        self.flush();
        let WebSockets { inner, shared, message, .. } = self;
        inner.poll(wait, &mut |event| match event {
            Event::Connected(id) => shared.connected(id, message.as_ref(), on_event),
            Event::Received(id, bytes, arrival) => {
                on_event(Happened::Bytes(bytes.len()));
                shared.received(id, bytes, arrival, on_event);
            }
            Event::Eof(id) if shared.has_lost(id) => {}
            Event::Eof(id) => on_event(Happened::Broken(id, shared.ended(id.0))),
            Event::Failed(id, failure) => {
                let was_idle = shared.has_lost(id);
                shared.lost.retain(|index| *index != id.0); // It is closed already.
                shared.list[id.index()] = None;
                if was_idle {
                    return;
                }
                on_event(Happened::Io(Event::Failed(id, failure)));
            }
        })
    }
}
