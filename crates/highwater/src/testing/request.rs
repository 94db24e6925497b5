//! What is asked? A request in the making, in either version of HTTP.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::cookies::Kept;
use super::http2::{Shared, Stream};
use super::websocket::{HANDSHAKE, VERSION};
use super::{Answer, Client, Events, Response, WebSocket, field};

/// A request to be sent.
#[derive(Debug)]
#[must_use = "nothing is asked before `send`"]
pub struct RequestBuilder<'c> {
    client: &'c Client,
    method: Method,
    target: String,
    headers: HeaderMap,
    body: Option<Bytes>,
    trailers: HeaderMap,
    /// The connection of HTTP/2 that it is sent on; without one it gets a connection of HTTP/1.1.
    over: Option<Shared<'c>>,
}

/// A request that is ready to be sent.
pub(super) enum Asked<'c> {
    /// On a connection of its own, as these bytes.
    Bytes(&'c Client, Vec<u8>),
    /// On a stream, as which it has been sent.
    Stream(Stream<'c>),
}

impl<'c> RequestBuilder<'c> {
    pub(super) fn new(
        client: &'c Client,
        over: Option<Shared<'c>>,
        method: Method,
        target: &str,
    ) -> Self {
        let target = target.to_string();
        let (headers, trailers) = (HeaderMap::new(), HeaderMap::new());
        RequestBuilder { client, method, target, headers, body: None, trailers, over }
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

    /// Sends `value` as JSON, of the type `application/json` unless `Content-Type` was set.
    ///
    /// # Panics
    /// If it cannot be serialized.
    #[cfg(feature = "json")]
    #[track_caller]
    pub fn json(mut self, value: &impl serde_core::Serialize) -> Self {
        let json = HeaderValue::from_static("application/json");
        self.headers.entry(http::header::CONTENT_TYPE).or_insert(json);
        match serde_json::to_vec(value) {
            Ok(body) => self.body(body),
            Err(error) => panic!("the value has no JSON: {error}"),
        }
    }

    /// Sends pairs of a name and a value as a form, of the type `application/x-www-form-urlencoded` unless `Content-Type` was
    /// set.
    pub fn form<'p>(mut self, pairs: impl IntoIterator<Item = (&'p str, &'p str)>) -> Self {
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        self.headers.entry(http::header::CONTENT_TYPE).or_insert(form);
        let mut body = String::new();
        for (name, value) in pairs {
            if !body.is_empty() {
                body.push('&');
            }
            encode(name, &mut body);
            body.push('=');
            encode(value, &mut body);
        }
        self.body(body)
    }

    /// Adds a field after the body. Over HTTP/1.1 the body is then sent in chunks.
    ///
    /// # Panics
    /// If `name` or `value` is not valid in a header.
    #[track_caller]
    pub fn trailer(mut self, name: &str, value: &str) -> Self {
        let (name, value) = field(name, value);
        self.trailers.append(name, value);
        self
    }

    /// Sends the request, and waits for the answer: on a connection of its own, or on a stream of its connection
    /// ([`Http2::request`](super::Http2::request)).
    ///
    /// # Panics
    /// If no answer comes: the connection is closed or the stream is reset instead, or the handler waits for something that
    /// never happens.
    #[track_caller]
    pub fn send(self) -> Response {
        self.begin().response()
    }

    /// Sends the request without waiting, so that other requests can run beside it, or time can pass first.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use highwater::testing::Client;
    /// use highwater::{Method, Router};
    ///
    /// async fn slow() -> &'static str {
    ///     tokio::time::sleep(Duration::from_secs(5)).await;
    ///     "done"
    /// }
    /// let client = Client::new(Router::new().get("/slow", slow));
    /// let mut answer = client.request(Method::GET, "/slow").begin();
    /// client.advance(Duration::from_secs(4));
    /// assert!(!answer.has_come());
    /// assert_eq!(answer.response().text(), "done");
    /// ```
    ///
    /// # Panics
    /// Over HTTP/2, if the connection takes no further stream now.
    #[track_caller]
    pub fn begin(self) -> Answer<'c> {
        let what = format!("{} {}", self.method, self.target);
        let is_head = self.method == Method::HEAD;
        Answer::new(self.ask(), is_head, what)
    }

    /// Opens a WebSocket: the fields of the handshake are added, unless they were set. Over HTTP/2 it is an extended CONNECT
    /// (RFC 8441). If the request has a field `Sec-WebSocket-Extensions` that offers `permessage-deflate`, and the server
    /// accepts it, messages are compressed both ways (feature `websocket-deflate`).
    ///
    /// # Panics
    /// If the answer is not a valid 101, or 200 over HTTP/2; or if the server does not take WebSockets over HTTP/2.
    #[track_caller]
    pub fn websocket(mut self) -> WebSocket<'c> {
        let Some(shared) = self.over.clone() else {
            for (name, value) in HANDSHAKE {
                let (name, value) = field(name, value);
                self.headers.entry(name).or_insert(value);
            }
            return WebSocket::open(self.client, &self.encode());
        };
        let (name, value) = field(VERSION.0, VERSION.1);
        self.headers.entry(name).or_insert(value);
        self.method = Method::CONNECT;
        WebSocket::over(shared.connect(&self.fields(Some("websocket"))))
    }

    /// Asks for server-sent events.
    ///
    /// # Panics
    /// If the answer is not 200 with `text/event-stream`.
    #[track_caller]
    pub fn events(self) -> Events<'c> {
        Events::open(self.ask())
    }

    #[track_caller]
    fn ask(self) -> Asked<'c> {
        let Some(shared) = &self.over else {
            return Asked::Bytes(self.client, self.encode());
        };
        let is_head = self.method == Method::HEAD;
        let body = self.body.as_deref().unwrap_or_default();
        Asked::Stream(shared.begin(is_head, &self.fields(None), body, &self.trailers))
    }

    /// The fields that were set, those of the client, and the cookies that it keeps.
    fn headers(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        for (name, value) in &*self.client.headers.borrow() {
            if !self.headers.contains_key(name) {
                headers.append(name, value.clone());
            }
        }
        if let Some(cookies) = self.client.cookies.borrow().as_ref().and_then(Kept::field) {
            let (name, value) = field("cookie", &cookies);
            headers.entry(name).or_insert(value);
        }
        headers
    }

    /// The length of the body, if a field is to announce it.
    fn length(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let is_framed =
            ["content-length", "transfer-encoding"].iter().any(|name| headers.contains_key(*name));
        self.body.as_ref().filter(|_| !is_framed).map(|body| body.len().into())
    }

    /// The request as HTTP/2 sends it, where `Host` is `:authority`.
    fn fields(&self, protocol: Option<&str>) -> Vec<(String, Vec<u8>)> {
        let mut headers = self.headers();
        if let Some(length) = self.length(&headers) {
            headers.insert("content-length", length);
        }
        let host = headers.remove("host").unwrap_or(HOST);
        let protocol = protocol.map(|protocol| (":protocol", protocol.as_bytes()));
        let pseudo = [
            (":method", self.method.as_str().as_bytes()),
            (":scheme", b"http"),
            (":authority", host.as_bytes()),
            (":path", self.target.as_bytes()),
        ];
        let others = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let all = pseudo.into_iter().chain(protocol).chain(others);
        all.map(|(name, value)| (name.to_owned(), value.to_vec())).collect()
    }

    fn encode(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        let mut headers = self.headers();
        let body = self.body.as_deref().unwrap_or_default();
        let is_chunked = !self.trailers.is_empty();
        match self.length(&headers) {
            _ if is_chunked => {
                headers.insert("transfer-encoding", HeaderValue::from_static("chunked"));
            }
            Some(length) => {
                headers.insert("content-length", length);
            }
            None => {}
        }
        if !headers.contains_key("host") {
            line(&HeaderName::from_static("host"), &HOST, &mut head);
        }
        headers.iter().for_each(|(name, value)| line(name, value, &mut head));
        head.extend_from_slice(b"\r\n");
        if !is_chunked {
            head.extend_from_slice(body);
            return head;
        }
        if !body.is_empty() {
            head.extend_from_slice(format!("{:x}\r\n", body.len()).as_bytes());
            head.extend_from_slice(body);
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"0\r\n");
        self.trailers.iter().for_each(|(name, value)| line(name, value, &mut head));
        head.extend_from_slice(b"\r\n");
        head
    }
}

/// The host that is asked, unless a request names another one.
const HOST: HeaderValue = HeaderValue::from_static("localhost");

fn line(name: &HeaderName, value: &HeaderValue, out: &mut Vec<u8>) {
    for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Writes a name or a value of a form.
fn encode(text: &str, form: &mut String) {
    for byte in text.bytes() {
        match byte {
            b' ' => form.push('+'),
            b'*' | b'-' | b'.' | b'_' => form.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => form.push(byte.into()),
            _ => form.push_str(&format!("%{byte:02X}")),
        }
    }
}
