//! What is asked? A request in the making, and the wait for its answer.

use bytes::Bytes;
use http::{HeaderMap, Method};

use super::cookies::Kept;
use super::server::Waited;
use super::websocket;
use super::{Client, Events, Response, WebSocket, field};
use crate::sim::Reader;

/// A request to be sent.
#[derive(Debug)]
#[must_use = "nothing is asked before `send`"]
pub struct RequestBuilder<'c> {
    client: &'c Client,
    method: Method,
    target: String,
    headers: HeaderMap,
    body: Option<Bytes>,
}

impl<'c> RequestBuilder<'c> {
    pub(super) fn new(client: &'c Client, method: Method, target: &str) -> Self {
        let target = target.to_string();
        RequestBuilder { client, method, target, headers: HeaderMap::new(), body: None }
    }

    /// Adds a header field. `Host`, `Content-Length` for a body, and the client's own fields
    /// ([`Client::set_header`]) are added where they are missing.
    ///
    /// # Panics
    /// If `name` or `value` is not valid in a header.
    #[track_caller]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let (name, value) = field(name, value);
        self.headers.append(name, value);
        self
    }

    /// Sends `body`.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Sends `value` as JSON.
    ///
    /// # Panics
    /// If it cannot be serialized.
    #[cfg(feature = "json")]
    #[track_caller]
    pub fn json(self, value: &impl serde::Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => self.header("content-type", "application/json").body(body),
            Err(error) => panic!("the value has no JSON: {error}"),
        }
    }

    /// Sends the request on a connection of its own, and waits for the answer.
    ///
    /// # Panics
    /// If no answer comes: the connection is closed instead, or the handler waits for something that
    /// never happens.
    #[track_caller]
    pub fn send(self) -> Response {
        let mut connection = self.client.connect();
        connection.send(self.encode());
        let mut reader = Reader::new(vec![self.method == Method::HEAD]);
        let (mut fed, mut waited) = (0, Waited::default());
        loop {
            let heard = connection.heard();
            let mut read = reader.feed(&heard[fed..]);
            fed = heard.len();
            if read.is_ok() && connection.is_closed() {
                read = reader.end();
            }
            if let Err(what) = read {
                panic!("the answer is not HTTP: {what}");
            }
            if let Some(answer) = reader.answers().first() {
                let response = Response::of(answer);
                if let Some(kept) = &mut *self.client.cookies.borrow_mut() {
                    kept.hear(&response.headers);
                }
                return response;
            }
            let Self { method, target, .. } = &self;
            assert!(!connection.is_closed(), "{method} {target}: closed without an answer");
            if let Err(why) = self.client.server.borrow_mut().wait(&mut waited) {
                panic!("{method} {target}: no answer: {why}");
            }
        }
    }

    /// Opens a WebSocket: the fields of the handshake are added, unless they were set.
    ///
    /// # Panics
    /// If the answer is not a valid 101.
    #[track_caller]
    pub fn websocket(mut self) -> WebSocket<'c> {
        for (name, value) in websocket::HANDSHAKE {
            let (name, value) = field(name, value);
            self.headers.entry(name).or_insert(value);
        }
        WebSocket::open(self.client, &self.encode())
    }

    /// Asks for server-sent events.
    ///
    /// # Panics
    /// If the answer is not 200 with `text/event-stream`.
    #[track_caller]
    pub fn events(self) -> Events<'c> {
        Events::open(self.client, &self.encode())
    }

    fn encode(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        let mut field = |name: &str, value: &[u8]| {
            head.extend_from_slice(name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value);
            head.extend_from_slice(b"\r\n");
        };
        let mut headers = self.headers.clone();
        for (name, value) in &*self.client.headers.borrow() {
            if !self.headers.contains_key(name) {
                headers.append(name, value.clone());
            }
        }
        if !headers.contains_key("host") {
            field("host", b"localhost");
        }
        for (name, value) in &headers {
            field(name.as_str(), value.as_bytes());
        }
        let kept = self.client.cookies.borrow().as_ref().and_then(Kept::field);
        if let Some(cookies) = kept.filter(|_| !headers.contains_key("cookie")) {
            field("cookie", cookies.as_bytes());
        }
        let framed = ["content-length", "transfer-encoding"];
        let body = self.body.as_deref().unwrap_or_default();
        if self.body.is_some() && !framed.iter().any(|name| headers.contains_key(*name)) {
            field("content-length", body.len().to_string().as_bytes());
        }
        head.extend_from_slice(b"\r\n");
        head.extend_from_slice(body);
        head
    }
}
