//! A client of WebSockets over HTTP/2: the HTTP/2 is another implementation's (`h2`).

use std::future::poll_fn;
use std::net::SocketAddr;

use h2::client::SendRequest;
use h2::ext::Protocol;
use h2::{Reason, RecvStream, SendStream};
use highwater::Bytes;
use highwater_core::websocket::{CloseCode, Decoder, Event, Kind, Limits, Role, encode};
use http::{HeaderMap, Method, Request, StatusCode, Version};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::served::HANG;

/// A client masks what it sends.
const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// The windows of the client: that of a stream is small, so that one that is not read is soon closed, and the connection's
/// is no limit for the others.
const STREAM_WINDOW: u32 = 65_535;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// One connection.
#[derive(Clone)]
pub(crate) struct Client(SendRequest<Bytes>);

/// An answer that opens no tunnel, with its content.
#[derive(Debug)]
pub(crate) struct Refused {
    /// 0 if the stream was reset instead.
    pub(crate) status: u16,
    pub(crate) reset: Option<Reason>,
    pub(crate) fields: HeaderMap,
    pub(crate) content: Vec<u8>,
}

/// A WebSocket.
pub(crate) struct Socket {
    pub(crate) fields: HeaderMap,
    pub(crate) sender: SendStream<Bytes>,
    pub(crate) receiver: RecvStream,
    decoder: Decoder,
    input: Vec<u8>,
}

/// What the server says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Text(String),
    Binary(Vec<u8>),
    Close(Option<u16>),
    /// The stream's end.
    End,
    Reset(Reason),
}

/// Runs `work` with a client that is connected by TCP.
pub(crate) fn with_client<T>(address: SocketAddr, work: impl AsyncFnOnce(Client) -> T) -> T {
    in_runtime(async {
        let stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
        stream.set_nodelay(true).expect("it is open");
        over(stream, work).await
    })
}

/// Runs `work`, which must not hang.
pub(crate) fn in_runtime<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let work = async { tokio::time::timeout(HANG, work).await.expect("nothing hangs") };
    runtime.expect("it is built").block_on(work)
}

/// Runs `work` with a client that is connected by `stream`, and knows the server's settings.
pub(crate) async fn over<S, T>(stream: S, work: impl AsyncFnOnce(Client) -> T) -> T
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
    let (client, connection) = builder.handshake(stream).await.expect("it speaks HTTP/2");
    let driving = tokio::spawn(connection);
    let client = Client(client);
    // The answer stands behind the settings.
    client.ask(Method::GET, "/nowhere").await;
    let done = work(client).await;
    driving.abort();
    done
}

impl Client {
    /// Whether the server has said that it takes extended CONNECT.
    pub(crate) fn may_connect(&self) -> bool {
        self.0.is_extended_connect_protocol_enabled()
    }

    /// A request without content.
    pub(crate) async fn ask(&self, method: Method, path: &str) -> Refused {
        let mut client = self.0.clone().ready().await.expect("it is open");
        let (answer, _) =
            client.send_request(request(method, path, &[]), true).expect("it is open");
        let (head, body) = answer.await.expect("it answers").into_parts();
        refused(head, body).await
    }

    /// Asks for a WebSocket, with these fields and the version.
    pub(crate) async fn connect(
        &self,
        path: &str,
        fields: &[(&str, &str)],
    ) -> Result<Socket, Refused> {
        let version = [("sec-websocket-version", "13")];
        self.tunnel("websocket", path, &[&version[..], fields].concat()).await
    }

    /// Asks for a tunnel.
    pub(crate) async fn tunnel(
        &self,
        protocol: &str,
        path: &str,
        fields: &[(&str, &str)],
    ) -> Result<Socket, Refused> {
        let mut request = request(Method::CONNECT, path, fields);
        request.extensions_mut().insert(Protocol::from(protocol));
        let mut client = self.0.clone().ready().await.expect("it is open");
        let (answer, sender) = client.send_request(request, false).expect("it is open");
        let (head, receiver) = match answer.await {
            Ok(answer) => answer.into_parts(),
            Err(error) => {
                let reset = Some(error.reason().expect("a reset"));
                let (fields, content) = Default::default();
                return Err(Refused { status: 0, reset, fields, content });
            }
        };
        if head.status != StatusCode::OK {
            return Err(refused(head, receiver).await);
        }
        let limits = Limits { message_max: usize::MAX, frame_max: usize::MAX };
        let decoder = Decoder::new(Role::Client, limits);
        Ok(Socket { fields: head.headers, sender, receiver, decoder, input: Vec::new() })
    }

    /// The same for a WebSocket that is not refused.
    pub(crate) async fn open(&self, path: &str) -> Socket {
        self.connect(path, &[]).await.expect("it opens a WebSocket")
    }
}

fn request(method: Method, path: &str, fields: &[(&str, &str)]) -> Request<()> {
    let uri = format!("http://example.com{path}");
    let mut request = Request::builder().method(method).uri(uri).version(Version::HTTP_2);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).expect("valid")
}

async fn refused(head: http::response::Parts, mut body: RecvStream) -> Refused {
    let mut content = Vec::new();
    while let Some(Ok(piece)) = body.data().await {
        body.flow_control().release_capacity(piece.len()).expect("it came");
        content.extend_from_slice(&piece);
    }
    Refused { status: head.status.as_u16(), reset: None, fields: head.headers, content }
}

impl Socket {
    pub(crate) async fn text(&mut self, text: &str) {
        self.message(Kind::Text, text.as_bytes()).await;
    }

    pub(crate) async fn message(&mut self, kind: Kind, content: &[u8]) {
        let mut bytes = Vec::new();
        encode::message(kind, content, Some(KEY), &mut bytes);
        self.send(bytes).await;
    }

    pub(crate) async fn close(&mut self, code: u16) {
        let mut bytes = Vec::new();
        encode::close(Some(CloseCode(code)), "", Some(KEY), &mut bytes);
        self.send(bytes).await;
    }

    /// Ends the client's side of the stream.
    pub(crate) fn end(&mut self) {
        self.sender.send_data(Bytes::new(), true).expect("it is open");
    }

    /// Sends bytes, as the server's window allows.
    pub(crate) async fn send(&mut self, bytes: Vec<u8>) {
        let mut bytes = Bytes::from(bytes);
        while !bytes.is_empty() {
            self.sender.reserve_capacity(bytes.len());
            let room = poll_fn(|context| self.sender.poll_capacity(context)).await;
            let room = room.expect("it is open").expect("it is open");
            let piece = bytes.split_to(room.min(bytes.len()));
            self.sender.send_data(piece, false).expect("it is open");
        }
    }

    /// What the server says next.
    pub(crate) async fn receive(&mut self) -> Received {
        loop {
            let mut input = &self.input[..];
            let received = match self.decoder.next(&mut input).expect("it keeps to RFC 6455") {
                Some(Event::Message(Kind::Text, bytes)) => {
                    Some(Received::Text(String::from_utf8(bytes.to_vec()).expect("it is text")))
                }
                Some(Event::Message(_, bytes)) => Some(Received::Binary(bytes.to_vec())),
                Some(Event::Close(close)) => Some(Received::Close(close.map(|close| close.code.0))),
                Some(Event::Ping(_) | Event::Pong(_)) => {
                    panic!("nothing is pinged in so short a time")
                }
                None => None,
            };
            let rest = input.len();
            self.input.drain(..self.input.len() - rest);
            if let Some(received) = received {
                return received;
            }
            match self.receiver.data().await {
                Some(Ok(piece)) => {
                    let flow = self.receiver.flow_control();
                    flow.release_capacity(piece.len()).expect("it came");
                    self.input.extend_from_slice(&piece);
                }
                Some(Err(error)) => return Received::Reset(error.reason().expect("a reset")),
                None => return Received::End,
            }
        }
    }
}
