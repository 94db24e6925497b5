//! Which server-sent events arrive?

use std::collections::VecDeque;
use std::time::Duration;

use highwater_core::http1::client::{Asked as Asking, Next, Reader};

use super::Connection;
use super::http2::Stream;
use super::request::Asked;
use super::server::Waited;

/// An event, as a page would get it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Its type; `message` if the server named none.
    pub event: String,
    /// Its data, lines separated by line feeds.
    pub data: String,
    /// The id that a client would send when it reconnects: that of this event, or the last one before it.
    pub id: String,
}

/// The events of a response, as they arrive. Dropping this resets the connection, or the stream over HTTP/2.
#[derive(Debug)]
pub struct Events<'c> {
    source: Source<'c>,
    /// How many of the received bytes are read.
    read: usize,
    /// The line that is coming.
    line: Vec<u8>,
    /// The last byte was a carriage return.
    is_after_return: bool,
    /// The event that is coming.
    next: Event,
    has_data: bool,
    come: VecDeque<Event>,
    comments: usize,
    retry: Option<Duration>,
    has_ended: bool,
}

/// Where they come from.
#[derive(Debug)]
enum Source<'c> {
    Connection(Connection<'c>, Reader),
    Stream(Stream<'c>),
}

impl Source<'_> {
    /// Whether nothing more will come.
    #[track_caller]
    fn is_over(&self) -> bool {
        match self {
            Source::Connection(connection, _) => connection.is_over(),
            Source::Stream(stream) => stream.is_over(),
        }
    }

    #[track_caller]
    fn wait(&mut self, waited: &mut Waited, what: &str) {
        match self {
            Source::Connection(connection, _) => connection.wait(waited, what),
            Source::Stream(stream) => stream.wait(waited, what),
        }
    }
}

impl<'c> Events<'c> {
    #[track_caller]
    pub(super) fn open(asked: Asked<'c>) -> Self {
        let source = match asked {
            Asked::Bytes(client, request) => {
                let mut connection = client.connect();
                connection.send(request);
                Source::Connection(connection, Reader::default())
            }
            Asked::Stream(stream) => Source::Stream(stream),
        };
        let mut events = Events {
            source,
            read: 0,
            line: Vec::new(),
            is_after_return: false,
            next: Event::default(),
            has_data: false,
            come: VecDeque::new(),
            comments: 0,
            retry: None,
            has_ended: false,
        };
        let mut waited = Waited::default();
        while !events.read_on() {
            assert!(!events.source.is_over(), "closed without an answer");
            events.source.wait(&mut waited, "answer with events");
        }
        events
    }

    /// Time passes until the server has sent something more. False: it will not.
    ///
    /// # Panics
    /// If nothing is to be expected.
    #[track_caller]
    fn wait(&mut self, waited: &mut Waited) -> bool {
        self.read_on();
        if self.come.is_empty() && !self.has_ended && !self.source.is_over() {
            self.source.wait(waited, "event");
            return true;
        }
        !self.come.is_empty()
    }

    /// The number of comments so far. Comments keep a silent connection alive.
    pub fn comments(&mut self) -> usize {
        self.read_on();
        self.comments
    }

    /// The time after which the server wants its client to reconnect, if it has set one.
    pub fn retry(&mut self) -> Option<Duration> {
        self.read_on();
        self.retry
    }

    /// Whether the server has ended the response regularly.
    pub fn has_ended(&mut self) -> bool {
        self.read_on();
        self.has_ended
    }

    /// Reads what has come. Returns whether the head was there.
    #[track_caller]
    fn read_on(&mut self) -> bool {
        let (reader, received) = match &mut self.source {
            Source::Connection(connection, reader) => (reader, connection.received().to_vec()),
            Source::Stream(_) => return self.read_stream(),
        };
        let mut has_head = self.read > 0;
        let mut content = Vec::new();
        let mut input = &received[self.read..];
        loop {
            match reader.next(&mut input, Asking::Plain) {
                Ok(Next::Wait) => break,
                Ok(Next::Head(head)) => {
                    check(head.status(), head.fields().get("content-type").unwrap_or_default());
                    has_head = true;
                }
                Ok(Next::Content(piece)) => content.extend_from_slice(piece),
                Ok(Next::End(..)) => {
                    self.has_ended = true;
                    break;
                }
                Ok(_) => {}
                Err(error) => panic!("the answer is not HTTP: {}", error.reason()),
            }
        }
        self.read = received.len() - input.len();
        content.into_iter().for_each(|byte| self.take(byte));
        has_head
    }

    /// The same over HTTP/2.
    #[track_caller]
    fn read_stream(&mut self) -> bool {
        let Source::Stream(stream) = &mut self.source else { return false };
        let status = stream.status();
        if status == 0 {
            return false;
        }
        check(status, stream.field("content-type").unwrap_or_default().as_bytes());
        self.has_ended = stream.has_ended();
        let content = stream.received()[self.read..].to_vec();
        self.read += content.len();
        content.into_iter().for_each(|byte| self.take(byte));
        true
    }

    /// A line ends with a line feed, a carriage return, or both.
    fn take(&mut self, byte: u8) {
        let was_return = std::mem::replace(&mut self.is_after_return, byte == b'\r');
        match byte {
            b'\n' if was_return => {}
            b'\n' | b'\r' => self.end_line(),
            _ => self.line.push(byte),
        }
    }

    fn end_line(&mut self) {
        let line = String::from_utf8(std::mem::take(&mut self.line)).expect("events are UTF-8");
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "" if line.is_empty() => self.dispatch(),
            "" => self.comments += 1,
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.next.data.push('\n');
                }
                self.next.data.push_str(value);
            }
            "event" => self.next.event = value.to_owned(),
            "id" if !value.contains('\0') => self.next.id = value.to_owned(),
            "retry" if value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry = value.parse().ok().map(Duration::from_millis);
            }
            _ => {}
        }
    }

    /// An empty line: the event is whole, unless it has no data.
    fn dispatch(&mut self) {
        let next = Event { id: self.next.id.clone(), ..Event::default() };
        let mut event = std::mem::replace(&mut self.next, next);
        if std::mem::take(&mut self.has_data) {
            if event.event.is_empty() {
                event.event.push_str("message");
            }
            self.come.push_back(event);
        }
    }
}

/// The next event; time passes until it comes. `None` at the end.
impl Iterator for Events<'_> {
    type Item = Event;

    #[track_caller]
    fn next(&mut self) -> Option<Event> {
        let mut waited = Waited::default();
        while self.come.is_empty() {
            if !self.wait(&mut waited) {
                return None;
            }
        }
        self.come.pop_front()
    }
}

/// Whether the answer is a stream of events.
#[track_caller]
fn check(status: u16, content_type: &[u8]) {
    assert_eq!(status, 200, "the answer to a request for events");
    assert!(content_type.starts_with(b"text/event-stream"), "the answer is not an event stream");
}
