//! Which server-sent events come?

use std::collections::VecDeque;
use std::time::Duration;

use highwater_core::http1::client::{Asked, Next, Reader};

use super::server::Waited;
use super::{Client, Connection};

/// An event, as a page would get it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Its type; `message` if the server named none.
    pub event: String,
    /// Its data, lines separated by line feeds.
    pub data: String,
    /// The id that a client that comes back would name: that of this event, or the last one before it.
    pub id: String,
}

/// The events of a response, as they come. Dropping it resets the connection.
#[derive(Debug)]
pub struct Events<'c> {
    connection: Connection<'c>,
    reader: Reader,
    /// How much of what was heard is read.
    read: usize,
    /// The line that is coming.
    line: Vec<u8>,
    /// The event that is coming.
    next: Event,
    has_data: bool,
    come: VecDeque<Event>,
    comments: usize,
    retry: Option<Duration>,
    has_ended: bool,
}

impl<'c> Events<'c> {
    #[track_caller]
    pub(super) fn open(client: &'c Client, request: &[u8]) -> Self {
        let mut connection = client.connect();
        connection.send(request);
        let mut events = Events {
            connection,
            reader: Reader::default(),
            read: 0,
            line: Vec::new(),
            next: Event::default(),
            has_data: false,
            come: VecDeque::new(),
            comments: 0,
            retry: None,
            has_ended: false,
        };
        let mut waited = Waited::default();
        while !events.read_on() {
            assert!(!events.connection.is_over(), "closed without an answer");
            events.connection.wait(&mut waited, "answer with events");
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
        if self.come.is_empty() && !self.has_ended && !self.connection.is_over() {
            self.connection.wait(waited, "event");
            return true;
        }
        !self.come.is_empty()
    }

    /// Comments so far: what keeps a silent connection alive.
    pub fn comments(&mut self) -> usize {
        self.read_on();
        self.comments
    }

    /// After which time the server wants its client to come back, if it has said so.
    pub fn retry(&mut self) -> Option<Duration> {
        self.read_on();
        self.retry
    }

    /// Whether the server has ended the response as it should.
    pub fn has_ended(&mut self) -> bool {
        self.read_on();
        self.has_ended
    }

    /// Reads what has come. Returns whether the head was there.
    #[track_caller]
    fn read_on(&mut self) -> bool {
        let mut has_head = self.read > 0;
        let heard = self.connection.heard().to_vec();
        let mut input = &heard[self.read..];
        loop {
            match self.reader.next(&mut input, Asked::Plain) {
                Ok(Next::Wait) => break,
                Ok(Next::Head(head)) => {
                    assert_eq!(head.status(), 200, "the answer to a request for events");
                    let content_type = head.fields().get("content-type").unwrap_or_default();
                    assert!(
                        content_type.starts_with(b"text/event-stream"),
                        "it is no event stream"
                    );
                    has_head = true;
                }
                Ok(Next::Content(piece)) => {
                    let piece = piece.to_vec();
                    piece.iter().for_each(|byte| self.take(*byte));
                }
                Ok(Next::End(..)) => {
                    self.has_ended = true;
                    break;
                }
                Ok(_) => {}
                Err(error) => panic!("the answer is not HTTP: {}", error.reason()),
            }
        }
        self.read = heard.len() - input.len();
        has_head
    }

    fn take(&mut self, byte: u8) {
        if byte != b'\n' {
            return self.line.push(byte);
        }
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
            "id" => self.next.id = value.to_owned(),
            "retry" => self.retry = value.parse().ok().map(Duration::from_millis),
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
