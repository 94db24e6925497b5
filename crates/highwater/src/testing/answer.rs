//! Has the answer come? A request on its way, in either version of HTTP.

use super::http2::Stream;
use super::request::Asked;
use super::server::Waited;
use super::{Client, Connection, Response};
use crate::sim::Reader;

/// The answer to a request that was sent by [`RequestBuilder::begin`](super::RequestBuilder::begin). Dropping it gives the request up:
/// its connection or stream is reset.
#[must_use = "dropping it gives the request up"]
#[derive(Debug)]
pub struct Answer<'c> {
    client: &'c Client,
    /// Method and target, for messages.
    what: String,
    source: Source<'c>,
}

enum Source<'c> {
    Connection { connection: Connection<'c>, reader: Box<Reader>, fed: usize },
    Stream(Stream<'c>),
}

impl std::fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Connection { connection, .. } => connection.fmt(f),
            Source::Stream(stream) => stream.fmt(f),
        }
    }
}

impl<'c> Answer<'c> {
    #[track_caller]
    pub(super) fn new(asked: Asked<'c>, is_head: bool, what: String) -> Self {
        match asked {
            Asked::Bytes(client, bytes) => {
                let mut connection = client.connect();
                connection.send(bytes);
                let reader = Box::new(Reader::new(vec![is_head]));
                Answer { client, what, source: Source::Connection { connection, reader, fed: 0 } }
            }
            Asked::Stream(stream) => {
                Answer { client: stream.client(), what, source: Source::Stream(stream) }
            }
        }
    }

    /// Whether the whole answer has arrived.
    ///
    /// # Panics
    /// If the server breaks a rule of HTTP.
    #[track_caller]
    pub fn has_come(&mut self) -> bool {
        self.look().is_some()
    }

    /// Why there will be no answer, if the connection was closed or the stream was reset.
    ///
    /// # Panics
    /// If the server breaks a rule of HTTP.
    #[track_caller]
    pub fn failure(&mut self) -> Option<String> {
        if self.look().is_some() {
            return None;
        }
        match &self.source {
            Source::Connection { connection, .. } => {
                connection.is_over().then(|| "closed without an answer".to_owned())
            }
            Source::Stream(stream) => stream.failure(),
        }
    }

    /// The whole answer; time passes until it has arrived.
    ///
    /// # Panics
    /// If it does not come: the connection is closed or the stream is reset instead, or the handler waits for something that
    /// never happens.
    #[track_caller]
    pub fn response(mut self) -> Response {
        let mut waited = Waited::default();
        loop {
            if let Some(response) = self.look() {
                if let Some(kept) = &mut *self.client.cookies.borrow_mut() {
                    kept.store(&response.headers);
                }
                return response;
            }
            if let Some(why) = self.failure() {
                panic!("{}: {why}", self.what);
            }
            let passed = self.client.server.borrow_mut().wait(&mut waited);
            if let Err(why) = passed {
                panic!("{}: no answer: {why}", self.what);
            }
        }
    }

    /// The answer, if all of it has come.
    #[track_caller]
    fn look(&mut self) -> Option<Response> {
        let (connection, reader, fed) = match &mut self.source {
            Source::Connection { connection, reader, fed } => (connection, reader, fed),
            Source::Stream(stream) => return stream.response(),
        };
        let received = connection.received();
        let mut read = reader.feed(&received[*fed..]);
        *fed = received.len();
        if read.is_ok() && connection.is_closed() {
            read = reader.end();
        }
        if let Err(what) = read {
            panic!("the answer is not HTTP: {what}");
        }
        reader.answers().first().map(Response::of)
    }
}
