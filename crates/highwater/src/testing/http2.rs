//! What happens on a connection of HTTP/2? Its streams, beside each other, from the client's side.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use highwater_core::http2::client::{Config, Connection as Protocol, Event, Failure};
use highwater_core::http2::hpack::Indexing;
use http::{HeaderMap, Method};

use super::server::Waited;
use super::{Client, Connection, RequestBuilder, Response, WebSocket};
use crate::sim::ReceivedAnswer;

/// A connection of HTTP/2, with any number of concurrent requests.
///
/// ```
/// use std::time::Duration;
///
/// use highwater::testing::Client;
/// use highwater::{Method, Router};
///
/// async fn slow() -> &'static str {
///     tokio::time::sleep(Duration::from_secs(5)).await;
///     "slow"
/// }
/// let client = Client::new(Router::new().get("/slow", slow).get("/fast", || "fast"));
/// let connection = client.http2();
/// let mut slow = connection.request(Method::GET, "/slow").begin();
/// assert_eq!(connection.get("/fast").text(), "fast");
/// assert!(!slow.has_come(), "the other one did not wait for it");
/// assert_eq!(slow.response().text(), "slow");
/// assert_eq!(client.connections(), 1);
/// ```
///
/// Answers, event streams and WebSockets on it keep the connection open; it is reset when it and all of them are dropped.
#[derive(Debug)]
pub struct Http2<'c> {
    client: &'c Client,
    shared: Shared<'c>,
}

impl<'c> Http2<'c> {
    #[track_caller]
    pub(super) fn open(client: &'c Client) -> Self {
        let state = State {
            connection: client.connect(),
            protocol: Protocol::new(Config::default()),
            read: 0,
            streams: BTreeMap::new(),
            go_away: None,
        };
        let shared = Shared { client, state: Rc::new(RefCell::new(state)) };
        shared.exchange();
        Http2 { client, shared }
    }

    /// A request on a stream of this connection.
    pub fn request(&self, method: Method, target: &str) -> RequestBuilder<'c> {
        RequestBuilder::new(self.client, Some(self.shared.clone()), method, target)
    }

    /// The response to `GET` of `target`.
    ///
    /// # Panics
    /// As [`RequestBuilder::send`].
    #[track_caller]
    pub fn get(&self, target: &str) -> Response {
        self.request(Method::GET, target).send()
    }

    /// Opens a WebSocket at `target`, on a stream (RFC 8441).
    ///
    /// # Panics
    /// As [`RequestBuilder::websocket`].
    #[track_caller]
    pub fn websocket(&self, target: &str) -> WebSocket<'c> {
        self.request(Method::GET, target).websocket()
    }

    /// How many streams are open.
    #[track_caller]
    pub fn streams(&self) -> usize {
        self.shared.exchange();
        self.shared.state.borrow().protocol.open_streams()
    }

    /// The error code of the server's GOAWAY, after which the connection takes no further request; 0 is no error.
    #[track_caller]
    pub fn go_away(&self) -> Option<u32> {
        self.shared.exchange();
        self.shared.state.borrow().go_away
    }

    /// Whether the server has ended the connection.
    #[track_caller]
    pub fn is_closed(&self) -> bool {
        self.shared.exchange();
        self.shared.state.borrow().connection.is_over()
    }
}

/// A connection, for all who hold one of its streams.
#[derive(Clone)]
pub(super) struct Shared<'c> {
    client: &'c Client,
    state: Rc<RefCell<State<'c>>>,
}

struct State<'c> {
    connection: Connection<'c>,
    protocol: Protocol,
    /// How many of the received bytes are read.
    read: usize,
    /// What has come on the streams that somebody holds.
    streams: BTreeMap<u32, Incoming>,
    go_away: Option<u32>,
}

/// What has come on a stream.
#[derive(Debug, Default)]
struct Incoming {
    answer: ReceivedAnswer,
    is_whole: bool,
    failure: Option<Failure>,
}

impl fmt::Debug for Shared<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

impl<'c> Shared<'c> {
    /// Sends a request.
    #[track_caller]
    pub(super) fn begin(
        self: &Shared<'c>,
        is_head: bool,
        fields: &[(String, Vec<u8>)],
        body: &[u8],
        trailers: &HeaderMap,
    ) -> Stream<'c> {
        self.with_room(|protocol| {
            if trailers.is_empty() {
                return protocol.begin(is_head, body, |add| each(fields, add));
            }
            let id = protocol.open(|add| each(fields, add));
            let text =
                |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
            let trailers: Vec<_> =
                trailers.iter().map(|(name, value)| (name.as_str(), text(value))).collect();
            let trailers: Vec<_> =
                trailers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            protocol.send(id, body);
            protocol.finish(id, &trailers);
            id
        })
    }

    /// Asks for a tunnel.
    #[track_caller]
    pub(super) fn connect(&self, fields: &[(String, Vec<u8>)]) -> Stream<'c> {
        self.exchange();
        assert!(
            self.state.borrow().protocol.allows_connect(),
            "the server takes no WebSockets over HTTP/2: none of its routes is one"
        );
        self.with_room(|protocol| protocol.connect(|add| each(fields, add)))
    }

    #[track_caller]
    fn with_room(&self, begin: impl FnOnce(&mut Protocol) -> u32) -> Stream<'c> {
        self.exchange();
        let mut state = self.state.borrow_mut();
        assert!(!state.connection.is_over(), "the server has ended the connection");
        let protocol = &mut state.protocol;
        assert!(!protocol.is_leaving(), "the server takes no further requests: GOAWAY");
        let most = protocol.streams_max();
        assert!(
            protocol.room() > 0,
            "the server allows {most} streams at a time, and all are open"
        );
        let id = begin(protocol);
        state.streams.insert(id, Incoming::default());
        drop(state);
        self.exchange();
        Stream { shared: self.clone(), id, read: Vec::new() }
    }

    /// Sends what is to be sent and reads what has come, until nothing more happens.
    #[track_caller]
    fn exchange(&self) {
        let mut state = self.state.borrow_mut();
        let State { connection, protocol, read, streams, go_away } = &mut *state;
        loop {
            let output = protocol.output().to_vec();
            protocol.sent();
            connection.send(&output);
            let received = connection.received();
            let bytes = &received[*read..];
            if bytes.is_empty() && output.is_empty() {
                return;
            }
            *read = received.len();
            let result = protocol.receive(bytes, &mut |event| {
                if let Event::GoAway(code, _) = event {
                    *go_away = Some(code.0);
                }
                take(event, streams);
            });
            if let Err(error) = result {
                panic!("the server breaks a rule of HTTP/2: {error}");
            }
        }
    }
}

/// What takes the fields of a request, one by one.
type Add<'a> = dyn FnMut(&[u8], &[u8], Indexing) + 'a;

fn each(fields: &[(String, Vec<u8>)], add: &mut Add<'_>) {
    for (name, value) in fields {
        add(name.as_bytes(), value, Indexing::usual(name.as_bytes()));
    }
}

/// Adds what was reported to its stream, if somebody holds that.
fn take(event: Event<'_>, streams: &mut BTreeMap<u32, Incoming>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (Event::Status(id, _)
    | Event::Field(id, ..)
    | Event::Content(id, _)
    | Event::Trailer(id, ..)
    | Event::End(id, _)
    | Event::Failed(id, _)) = event
    else {
        return;
    };
    let Some(incoming) = streams.get_mut(&id) else { return };
    let answer = &mut incoming.answer;
    match event {
        Event::Status(_, status) => answer.status = status,
        Event::Field(_, name, value) => answer.fields.push((text(name), value.to_vec())),
        Event::Content(_, piece) => answer.body.extend_from_slice(piece),
        Event::Trailer(_, name, value) => answer.trailers.push((text(name), value.to_vec())),
        Event::End(..) => incoming.is_whole = true,
        Event::Failed(_, failure) => incoming.failure = Some(failure),
        Event::GoAway(..) | Event::Settings => {}
    }
}

/// One request with its answer, or a tunnel. Dropping it resets the stream.
#[derive(Debug)]
pub(super) struct Stream<'c> {
    shared: Shared<'c>,
    id: u32,
    /// Content that was taken from what has come.
    read: Vec<u8>,
}

impl<'c> Stream<'c> {
    pub(super) fn client(&self) -> &'c Client {
        self.shared.client
    }

    #[track_caller]
    fn look<T>(&self, at: impl FnOnce(&mut Incoming) -> T) -> T {
        self.shared.exchange();
        let mut state = self.shared.state.borrow_mut();
        at(state.streams.get_mut(&self.id).expect("it is there until this is dropped"))
    }

    /// The answer, if all of it has come.
    #[track_caller]
    pub(super) fn response(&self) -> Option<Response> {
        self.look(|incoming| incoming.is_whole.then(|| Response::of(&incoming.answer)))
    }

    /// The answer's status; 0 before it has begun.
    #[track_caller]
    pub(super) fn status(&self) -> u16 {
        self.look(|incoming| incoming.answer.status)
    }

    /// A field of the answer.
    #[track_caller]
    pub(super) fn field(&self, name: &str) -> Option<String> {
        self.look(|incoming| {
            let mut fields = incoming.answer.fields.iter();
            let found = fields.find(|(other, _)| other == name);
            found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
        })
    }

    /// All content so far.
    #[track_caller]
    pub(super) fn received(&mut self) -> &[u8] {
        let more = self.look(|incoming| std::mem::take(&mut incoming.answer.body));
        self.read.extend_from_slice(&more);
        &self.read
    }

    /// Adds content to the request.
    #[track_caller]
    pub(super) fn send(&self, content: &[u8]) {
        self.shared.state.borrow_mut().protocol.send(self.id, content);
        self.shared.exchange();
    }

    /// Ends the request.
    #[track_caller]
    pub(super) fn finish(&self) {
        self.shared.state.borrow_mut().protocol.finish(self.id, &[]);
        self.shared.exchange();
    }

    /// Whether the server has finished sending, or has reset the stream or ended the connection.
    #[track_caller]
    pub(super) fn is_over(&self) -> bool {
        self.has_ended() || self.failure().is_some()
    }

    /// Whether the server has finished sending.
    #[track_caller]
    pub(super) fn has_ended(&self) -> bool {
        self.look(|incoming| incoming.is_whole)
    }

    /// Whether the server has reset the stream, or the connection.
    #[track_caller]
    pub(super) fn is_reset(&self) -> bool {
        let failed = self.look(|incoming| incoming.failure.is_some());
        failed || self.shared.state.borrow().connection.is_reset()
    }

    /// Why nothing more will come, if the answer is not whole.
    #[track_caller]
    pub(super) fn failure(&self) -> Option<String> {
        let (is_whole, failure) = self.look(|incoming| (incoming.is_whole, incoming.failure));
        let is_over = self.shared.state.borrow().connection.is_over();
        match failure {
            _ if is_whole => None,
            Some(Failure::Reset(code)) => Some(format!("the stream was reset: {code}")),
            Some(Failure::Refused) => Some("the stream was refused: REFUSED_STREAM".to_owned()),
            Some(Failure::Unprocessed(code)) => Some(format!("not processed: GOAWAY {code}")),
            Some(Failure::Malformed(why)) => Some(format!("the answer is not HTTP: {why}")),
            None => is_over.then(|| "closed without an answer".to_owned()),
        }
    }

    /// Lets time pass until something may have happened.
    ///
    /// # Panics
    /// If nothing is to be expected; `what` is waited for.
    #[track_caller]
    pub(super) fn wait(&self, waited: &mut Waited, what: &str) {
        let passed = self.shared.client.server.borrow_mut().wait(waited);
        if let Err(why) = passed {
            panic!("no {what}: {why}");
        }
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        // While a test fails, the server may be in the middle of something.
        if std::thread::panicking() {
            return;
        }
        let mut state = self.shared.state.borrow_mut();
        state.streams.remove(&self.id);
        state.protocol.cancel(self.id);
        drop(state);
        self.shared.exchange();
    }
}
