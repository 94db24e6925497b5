//! A dialer over another: its connections are tunnels on the streams of HTTP/2 (RFC 8441), for WebSockets.
//!
//! ```text
//!  connect ─▶ a connection with room, or a new one ─SETTINGS─▶ CONNECT ─2xx─▶ Connected
//!                                                                └─anything else─▶ Eof
//!  DATA ─▶ Received        END_STREAM ─▶ Eof        RST_STREAM, GOAWAY ─▶ Failed
//! ```
//!
//! It keeps the contract of [`Dial`] upwards and downwards. Beyond it: `Eof` before `Connected` is a tunnel that the server did not
//! open, and [`Closes`] has the reason. A tunnel that is closed ends its direction; its stream ends with that of the server.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use highwater_core::driver::{ConnId, Wait};
use highwater_core::http2::ErrorCode;
use highwater_core::http2::client::{
    Config, Connection, Event as StreamEvent, Failure as StreamFailure,
};
use highwater_core::http2::hpack::Indexing;
use highwater_sys::dial::{Arrival, Dial, Event, Failure};

use super::frames::Closes;
use super::upgrade::{self, Message};

/// How a response of HTTP/1.1 begins.
const HTTP_1: &[u8] = b"HTTP/1.";
const WRONG_VERSION: &str = "the server answers in HTTP/1.1; leave out --http2, or name a port that speaks HTTP/2 without TLS";
const NOT_OFFERED: &str = "the server takes no WebSockets over HTTP/2 (SETTINGS_ENABLE_CONNECT_PROTOCOL); leave out --http2";
const ENDED: &str = "the server ended the connection before it opened a tunnel";

/// A connection below.
struct Carrier {
    h2: Connection,
    is_connected: bool,
    /// Bytes have come.
    has_received: bool,
    /// The server's settings have come.
    is_settled: bool,
    /// It is in `unsent`.
    is_queued: bool,
    /// It has ended or broken a rule.
    is_over: bool,
    /// Its tunnels were closed; it gets no others.
    is_retired: bool,
    /// Its tunnels, by stream.
    streams: Vec<(u32, u32)>,
    /// Tunnels that wait for a stream.
    waiting: VecDeque<u32>,
}

impl Carrier {
    fn tunnels(&self) -> usize {
        self.streams.len() + self.waiting.len()
    }
}

struct Tunnel {
    carrier: u32,
    stream: Option<u32>,
    /// The layer above knows that it is open.
    is_open: bool,
    /// The layer above knows that the server has ended it.
    is_over: bool,
}

/// All tunnels of a thread.
struct Table {
    list: Vec<Option<Tunnel>>,
    free: Vec<u32>,
    closes: Rc<RefCell<Closes>>,
}

/// Everything but the dialer, so that a poll's callback can reach it.
struct Shared {
    carriers: Vec<Option<Carrier>>,
    table: Table,
    /// Carriers with output.
    unsent: Vec<u32>,
    /// Carriers that may be of no use any more.
    unused: Vec<u32>,
    fields: Vec<(String, Vec<u8>)>,
}

/// Tunnels over connections of `D`.
pub(crate) struct Tunnels<D> {
    inner: D,
    /// Tunnels on a connection, at most.
    streams: usize,
    shared: Shared,
    scratch: Vec<u8>,
}

impl<D: Dial> Tunnels<D> {
    /// Tunnels are asked for as `message` says; `closes` gets the reasons of those that are not opened.
    pub(crate) fn new(
        inner: D,
        streams: u32,
        message: &Message,
        closes: Rc<RefCell<Closes>>,
    ) -> Tunnels<D> {
        let table = Table { list: Vec::new(), free: Vec::new(), closes };
        let (carriers, unsent, unused) = (Vec::new(), Vec::new(), Vec::new());
        let shared = Shared { carriers, table, unsent, unused, fields: message.connect() };
        Tunnels { inner, streams: streams as usize, shared, scratch: Vec::new() }
    }

    fn carrier(&mut self) -> io::Result<u32> {
        let has_room = |carrier: &Carrier| {
            let is_of_use = !carrier.is_over && !carrier.is_retired && !carrier.h2.is_leaving();
            carrier.tunnels() < self.streams && is_of_use
        };
        // The last one is the one that is being filled; those before it may have lost some.
        let carriers = self.shared.carriers.iter();
        if let Some(index) = carriers.rev().position(|at| at.as_ref().is_some_and(has_room)) {
            return Ok((self.shared.carriers.len() - 1 - index) as u32);
        }
        let id = self.inner.connect()?;
        let list = &mut self.shared.carriers;
        if list.len() <= id.index() {
            list.resize_with(id.index() + 1, || None);
        }
        list[id.index()] = Some(Carrier {
            h2: Connection::new(Config::default()),
            is_connected: false,
            has_received: false,
            is_settled: false,
            is_queued: false,
            is_over: false,
            is_retired: false,
            streams: Vec::new(),
            waiting: VecDeque::new(),
        });
        Ok(id.0)
    }

    /// Sends the output of the connections on which nothing is in transit.
    fn flush(&mut self) {
        let Tunnels { inner, shared, .. } = self;
        let mut unsent = std::mem::take(&mut shared.unsent);
        unsent.retain(|index| {
            let Some(carrier) = shared.carrier(*index) else { return false };
            if inner.is_writing(ConnId(*index)) {
                return true;
            }
            carrier.is_queued = false;
            if !carrier.h2.output().is_empty() {
                inner.write(ConnId(*index), |buffer| buffer.extend_from_slice(carrier.h2.output()));
                carrier.h2.sent();
            }
            false
        });
        shared.unsent.append(&mut unsent);
    }

    /// Closes connections that carry nothing, and will not.
    fn close_unused(&mut self) {
        for index in std::mem::take(&mut self.shared.unused) {
            let Some(carrier) = self.shared.carrier(index) else { continue };
            let is_idle = carrier.tunnels() == 0 && carrier.h2.open_streams() == 0;
            if carrier.is_over || (is_idle && carrier.h2.output().is_empty()) {
                self.shared.carriers[index as usize] = None;
                self.inner.close(ConnId(index));
            } else if is_idle {
                self.shared.unused.push(index); // What it has to say goes first.
            }
        }
    }
}

impl Table {
    fn at(&mut self, id: u32) -> Option<&mut Tunnel> {
        self.list.get_mut(id as usize)?.as_mut()
    }

    fn problem(&self, what: &str) {
        self.closes.borrow_mut().problem.get_or_insert_with(|| what.to_owned());
    }

    /// The tunnel is of no use any more: it could not be opened, or the server has ended it.
    fn end(&mut self, id: u32, on_event: &mut impl FnMut(Event<'_>)) {
        let Some(tunnel) = self.at(id) else { return };
        if !std::mem::replace(&mut tunnel.is_over, true) {
            on_event(Event::Eof(ConnId(id)));
        }
    }

    /// The tunnel is gone.
    fn fail(&mut self, id: u32, failure: Failure, on_event: &mut impl FnMut(Event<'_>)) {
        if self.list.get_mut(id as usize).and_then(Option::take).is_some() {
            self.free.push(id);
            on_event(Event::Failed(ConnId(id), failure));
        }
    }

    /// An event of one of `streams`.
    fn on_stream_event(
        &mut self,
        streams: &mut Vec<(u32, u32)>,
        event: StreamEvent<'_>,
        arrival: Arrival,
        on_event: &mut impl FnMut(Event<'_>),
    ) {
        let (StreamEvent::Status(stream, _)
        | StreamEvent::Content(stream, _)
        | StreamEvent::End(stream, _)
        | StreamEvent::Failed(stream, _)) = event
        else {
            if let StreamEvent::GoAway(code, _) = event
                && code != ErrorCode::NO_ERROR
            {
                self.problem(&format!("GOAWAY {code}"));
            }
            return;
        };
        let Ok(at) = streams.binary_search_by_key(&stream, |(stream, _)| *stream) else { return };
        let id = streams[at].1;
        match event {
            StreamEvent::Status(_, 200..300) => {
                if let Some(tunnel) = self.at(id) {
                    tunnel.is_open = true;
                    on_event(Event::Connected(ConnId(id)));
                }
            }
            StreamEvent::Status(_, status) => {
                streams.remove(at);
                self.problem(&upgrade::refused(status));
                self.end(id, on_event);
            }
            StreamEvent::Content(_, piece) => on_event(Event::Received(ConnId(id), piece, arrival)),
            StreamEvent::Failed(_, failure) => {
                streams.remove(at);
                self.problem(&match failure {
                    StreamFailure::Malformed(reason) => reason.to_owned(),
                    StreamFailure::Reset(code) => format!("RST_STREAM {code}"),
                    StreamFailure::Unprocessed(code) => format!("GOAWAY {code}"),
                    StreamFailure::Refused => format!("RST_STREAM {}", ErrorCode::REFUSED_STREAM),
                });
                self.fail(id, Failure::Reset, on_event);
            }
            _ => {
                streams.remove(at);
                self.end(id, on_event);
            }
        }
    }
}

impl Shared {
    fn carrier(&mut self, index: u32) -> Option<&mut Carrier> {
        self.carriers.get_mut(index as usize)?.as_mut()
    }

    fn queue(&mut self, index: u32) {
        let Some(carrier) = self.carrier(index) else { return };
        let has_output = carrier.is_connected && !carrier.h2.output().is_empty();
        if has_output && !std::mem::replace(&mut carrier.is_queued, true) {
            self.unsent.push(index);
        }
    }

    /// All tunnels of a connection, which carries them no more.
    fn take_tunnels(&mut self, index: u32) -> Vec<u32> {
        let Some(carrier) = self.carrier(index) else { return Vec::new() };
        carrier.is_over = true;
        let on_streams = carrier.streams.drain(..).map(|(_, id)| id);
        let all = on_streams.chain(carrier.waiting.drain(..)).collect();
        self.unused.push(index);
        all
    }

    /// A connection is of no use any more.
    fn lose(&mut self, index: u32, what: &str, on_event: &mut impl FnMut(Event<'_>)) {
        for id in self.take_tunnels(index) {
            if self.table.at(id).is_some_and(|tunnel| !tunnel.is_open) {
                self.table.problem(what);
            }
            self.table.end(id, on_event);
        }
    }

    /// Asks for the tunnels that wait, as far as the server allows.
    fn ask(&mut self, index: u32, on_event: &mut impl FnMut(Event<'_>)) {
        let Shared { carriers, table, fields, .. } = self;
        let Some(Some(carrier)) = carriers.get_mut(index as usize) else { return };
        if !carrier.is_settled || carrier.is_over {
            return;
        }
        if !carrier.h2.allows_connect() {
            return self.lose(index, NOT_OFFERED, on_event);
        }
        if carrier.h2.is_leaving() {
            for id in carrier.waiting.drain(..) {
                table.problem(ENDED);
                table.end(id, on_event);
            }
        }
        while carrier.h2.room() > 0
            && let Some(id) = carrier.waiting.pop_front()
        {
            let stream = carrier.h2.connect(|add| {
                for (name, value) in fields.iter() {
                    let indexing = match Indexing::usual(name.as_bytes()) {
                        Indexing::Never => Indexing::Never,
                        _ => Indexing::Incremental, // They are the same each time.
                    };
                    add(name.as_bytes(), value, indexing);
                }
            });
            carrier.streams.push((stream, id));
            if let Some(tunnel) = table.at(id) {
                tunnel.stream = Some(stream);
            }
        }
        self.queue(index);
    }

    fn received(
        &mut self,
        index: u32,
        bytes: &[u8],
        arrival: Arrival,
        on_event: &mut impl FnMut(Event<'_>),
    ) {
        let Shared { carriers, table, .. } = self;
        let Some(Some(carrier)) = carriers.get_mut(index as usize) else { return };
        if !std::mem::replace(&mut carrier.has_received, true) && bytes.starts_with(HTTP_1) {
            return self.lose(index, WRONG_VERSION, on_event);
        }
        let Carrier { h2, streams, is_settled, .. } = carrier;
        let result = h2.receive(bytes, &mut |event| match event {
            StreamEvent::Settings => *is_settled = true,
            event => table.on_stream_event(streams, event, arrival, on_event),
        });
        match result {
            Ok(()) => self.ask(index, on_event),
            Err(error) => {
                self.table.problem(error.reason);
                self.lose(index, error.reason, on_event);
            }
        }
        let Some(carrier) = self.carrier(index) else { return };
        if carrier.tunnels() == 0 && (carrier.h2.is_leaving() || carrier.h2.open_streams() == 0) {
            self.unused.push(index);
        }
        self.queue(index);
    }
}

impl<D: Dial> Dial for Tunnels<D> {
    fn connect(&mut self) -> io::Result<ConnId> {
        let index = self.carrier()?;
        let Table { list: tunnels, free, .. } = &mut self.shared.table;
        let id = free.pop().unwrap_or_else(|| {
            tunnels.push(None);
            u32::try_from(tunnels.len() - 1).expect("fewer tunnels than 4 billion")
        });
        tunnels[id as usize] =
            Some(Tunnel { carrier: index, stream: None, is_open: false, is_over: false });
        if let Some(carrier) = self.shared.carrier(index) {
            carrier.waiting.push_back(id);
        }
        // If the server does not take tunnels, that was found with the first one, and the connection is not used again.
        self.shared.ask(index, &mut |_| {});
        Ok(ConnId(id))
    }

    fn send(&mut self, _: ConnId, _: usize, _: usize) {
        unreachable!("WebSockets encode every message again");
    }

    fn write(&mut self, id: ConnId, fill: impl FnOnce(&mut Vec<u8>)) {
        self.scratch.clear();
        fill(&mut self.scratch);
        // Of one that is over, the carrier may be another connection by now.
        let Some(&mut Tunnel { carrier: index, stream: Some(stream), is_over: false, .. }) =
            self.shared.table.at(id.0)
        else {
            return;
        };
        if let Some(carrier) = self.shared.carrier(index) {
            carrier.h2.send(stream, &self.scratch);
        }
        self.shared.queue(index);
    }

    fn is_writing(&mut self, _: ConnId) -> bool {
        // It keeps what waits: another write may always follow.
        false
    }

    fn close(&mut self, id: ConnId) {
        let Table { list, free, .. } = &mut self.shared.table;
        let Some(tunnel) = list.get_mut(id.index()).and_then(Option::take) else { return };
        free.push(id.0);
        if tunnel.is_over {
            return; // Its carrier may be another connection by now.
        }
        let index = tunnel.carrier;
        let Some(carrier) = self.shared.carrier(index) else { return };
        carrier.waiting.retain(|waiting| *waiting != id.0);
        carrier.streams.retain(|(_, other)| *other != id.0);
        match tunnel.stream {
            Some(stream) if tunnel.is_open => drop(carrier.h2.finish(stream, &[])),
            Some(stream) => carrier.h2.cancel(stream),
            None => {}
        }
        if carrier.tunnels() == 0 {
            carrier.is_retired = true;
            self.shared.unused.push(index);
        }
        self.shared.queue(index);
    }

    fn closing(&self) -> usize {
        self.inner.closing()
    }

    fn poll(&mut self, wait: Wait, on_event: &mut impl FnMut(Event<'_>)) -> io::Result<()> {
        self.flush();
        let Tunnels { inner, shared, .. } = self;
        inner.poll(wait, &mut |event| match event {
            Event::Connected(id) => {
                if let Some(carrier) = shared.carrier(id.0) {
                    carrier.is_connected = true;
                }
                shared.queue(id.0);
            }
            Event::Received(id, bytes, arrival) => shared.received(id.0, bytes, arrival, on_event),
            Event::Eof(id) => shared.lose(id.0, ENDED, on_event),
            Event::Failed(id, failure) => {
                for tunnel in shared.take_tunnels(id.0) {
                    shared.table.fail(tunnel, failure, on_event);
                }
                shared.unused.retain(|index| *index != id.0); // It is closed already.
                shared.carriers[id.index()] = None;
            }
        })?;
        self.flush();
        self.close_unused();
        Ok(())
    }
}
