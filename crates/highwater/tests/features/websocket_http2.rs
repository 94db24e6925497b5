//! WebSockets over HTTP/2 (RFC 8441), over real sockets: whatever holds over HTTP/1.1 holds on a stream, beside other
//! streams of its connection.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use h2::Reason;
use highwater::cookies::Key;
use highwater::layer::around;
use highwater::layers::{csrf, csrf_tokens, request_id, security_headers};
use highwater::metrics::Metrics;
use highwater::server::TransportChoice;
use highwater::{
    Closed, Error, FromRequest, Limits, Next, OwnedRequest, Request, Response, Router, Running,
    Server, ServerConfig, State, StatusCode, WebSocket, WebSocketUpgrade, websocket,
};
use highwater_core::websocket::Kind;
use http::Method;
use tungstenite::protocol::Role;
use tungstenite::{Message, WebSocket as Peer};

use crate::secured::{self, Authority};
use crate::served::{HANG, config};
use crate::transports::on_each_transport;
use crate::tunnel::{self, Client, Received, in_runtime, over, with_client};

async fn echo(mut socket: WebSocket) -> Result<(), Closed> {
    while let Some(message) = socket.recv().await {
        socket.send(message).await?;
    }
    Ok(())
}

/// Sends without an end, and counts what it was able to send.
async fn flood(mut socket: WebSocket, State(sent): State<Arc<AtomicUsize>>) -> Result<(), Closed> {
    loop {
        socket.send(vec![7_u8; 8 * 1024]).await?;
        sent.fetch_add(8 * 1024, SeqCst);
    }
}

/// Reads nothing.
async fn deaf(_socket: WebSocket) {
    std::future::pending::<()>().await;
}

async fn says_one_thing(mut socket: WebSocket) -> Result<(), Closed> {
    socket.send("hello").await
}

/// A page for those who ask for a page, and a WebSocket for those who ask for one.
fn either(upgrade: Option<WebSocketUpgrade>) -> Response {
    match upgrade {
        Some(upgrade) => upgrade.on_upgrade(echo),
        None => Response::new(StatusCode::OK).with_body("a page"),
    }
}

/// Decides after a while whether there is to be a WebSocket.
async fn late(upgrade: WebSocketUpgrade) -> Result<Response, Error> {
    tokio::time::sleep(Duration::from_millis(20)).await;
    Ok(upgrade.on_upgrade(echo))
}

static CONNECTS_SEEN: AtomicUsize = AtomicUsize::new(0);

/// Notes a CONNECT that comes to a handler without a WebSocket.
struct NotesConnect;

impl FromRequest for NotesConnect {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        CONNECTS_SEEN.fetch_add(usize::from(request.method() == Method::CONNECT), SeqCst);
        Ok(NotesConnect)
    }
}

fn router() -> Router {
    Router::new()
        .state(Arc::<AtomicUsize>::default())
        .get("/ws", websocket(echo))
        .get("/chosen", websocket(echo).protocols(["b", "a"]))
        .get("/large", websocket(echo).message_max(8 << 20).frame_max(8 << 20))
        .get("/flood", websocket(flood))
        .get("/deaf", websocket(deaf))
        .get("/one", websocket(says_one_thing))
        .get("/either", either)
        .get("/late", late)
        .get("/page", |_: NotesConnect| "a page")
        .any("/any", |_: NotesConnect| "anything")
}

fn start(router: Router, config: ServerConfig) -> (Running, Metrics) {
    let metrics = Metrics::new();
    let server = Server::new(router).config(config).metrics(&metrics);
    (server.start().expect("it starts"), metrics)
}

const UPGRADES: &str = "http_responses_total{status=\"101\"}";

/// The lines about WebSockets on the metrics page.
fn counted(metrics: &Metrics) -> Vec<String> {
    let page = metrics.page();
    let is_ours = |line: &&str| line.starts_with("http_websocket") || line.starts_with(UPGRADES);
    page.lines().filter(is_ours).map(String::from).collect()
}

fn value(metrics: &Metrics, sample: &str) -> u64 {
    let lines = counted(metrics);
    let line = lines.iter().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {sample} in {lines:?}")).parse().expect("a whole number")
}

async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < HANG, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn is_alive(client: &Client) {
    let page = client.ask(Method::GET, "/page").await;
    assert_eq!((page.status, &page.content[..]), (200, &b"a page"[..]));
}

/// The other end of a stream, for clients that want a socket: bytes go through `tunnel` both ways until one side ends.
async fn pump(mut tunnel: tunnel::Socket, socket: UnixStream) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    socket.set_nonblocking(true).expect("it is open");
    let socket = tokio::net::UnixStream::from_std(socket).expect("there is a runtime");
    let (mut reader, mut writer) = socket.into_split();
    let mut bytes = vec![0; 16 * 1024];
    loop {
        tokio::select! {
            read = reader.read(&mut bytes) => match read {
                Ok(0) | Err(_) => return tunnel.end(),
                Ok(len) => tunnel.send(bytes[..len].to_vec()).await,
            },
            piece = tunnel.receiver.data() => match piece {
                Some(Ok(piece)) => {
                    let flow = tunnel.receiver.flow_control();
                    flow.release_capacity(piece.len()).expect("it came");
                    writer.write_all(&piece).await.expect("it is open");
                }
                _ => return tunnel.end(),
            },
        }
    }
}

/// What a peer of another implementation sends and receives, on any kind of socket.
fn converse(mut peer: Peer<impl Read + Write>) {
    for text in ["", "a", "Grüße"] {
        peer.send(Message::from(text)).expect("it is open");
        assert_eq!(peer.read().expect("it is open"), Message::from(text));
    }
    for len in [125, 126, 65_535, 65_536, 300_000] {
        let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
        peer.send(Message::from(bytes.clone())).expect("it is open");
        assert_eq!(peer.read().expect("it is open"), Message::from(bytes));
    }
    peer.close(None).expect("it is open");
    assert!(matches!(peer.read(), Ok(Message::Close(_))));
    assert!(matches!(peer.read(), Err(tungstenite::Error::ConnectionClosed)));
}

/// [`converse`] through a tunnel.
async fn converse_through(client: &Client, path: &str) {
    let (ours, theirs) = UnixStream::pair().expect("there are sockets");
    ours.set_read_timeout(Some(HANG)).expect("it is open");
    let speaking = std::thread::spawn(move || {
        converse(Peer::from_raw_socket(ours, Role::Client, None));
    });
    pump(client.open(path).await, theirs).await;
    speaking.join().expect("all is as it should be");
}

/// [`converse`] over HTTP/1.1.
fn converse_over_http1(address: SocketAddr) {
    let stream = TcpStream::connect_timeout(&address, HANG).expect("it listens");
    stream.set_read_timeout(Some(HANG)).expect("it is open");
    let (peer, _) = tungstenite::client(format!("ws://{address}/ws"), stream).expect("accepted");
    converse(peer);
}

/// A socket that speaks TLS with the server behind its other end.
fn secured(address: SocketAddr, authority: &Authority) -> UnixStream {
    let client = secured::Client { alpn: &["h2"], ..authority.client() };
    let mut secured = client.connect(address, "localhost").expect("it speaks TLS");
    let alpn = secured.tls.alpn_protocol().map(<[u8]>::to_vec);
    assert_eq!(alpn.as_deref(), Some(&b"h2"[..]));
    let (ours, mut theirs) = UnixStream::pair().expect("there are sockets");
    let short = Some(Duration::from_millis(1));
    theirs.set_read_timeout(short).expect("it is open");
    secured.stream.set_read_timeout(short).expect("it is open");
    std::thread::spawn(move || {
        let waits = |error: &std::io::Error| {
            // Interrupted by a signal of another test in this process.
            let kinds = [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::Interrupted];
            kinds.contains(&error.kind())
        };
        let mut piece = [0; 16 * 1024];
        loop {
            match theirs.read(&mut piece) {
                Ok(0) => return,
                Ok(len) => secured.send(&piece[..len]).expect("it is open"),
                Err(error) => assert!(waits(&error), "{error}"),
            }
            let mut stream = rustls::Stream::new(&mut secured.tls, &mut secured.stream);
            match stream.read(&mut piece) {
                Ok(0) => return,
                Ok(len) => theirs.write_all(&piece[..len]).expect("it is open"),
                Err(error) => assert!(waits(&error), "{error}"),
            }
        }
    });
    ours.set_nonblocking(true).expect("it is open");
    ours
}

on_each_transport! {
    /// Purpose: messages of every kind and length come back on a stream, the closing handshake is kept, and what is counted is
    /// what is counted over HTTP/1.1.
    fn echoes_as_over_http1(transport) {
        let ((mut by_streams, streams), (mut by_http1, http1)) =
            (start(router(), config(transport)), start(router(), config(transport)));
        with_client(by_streams.address(), async |client| {
            assert!(client.may_connect());
            converse_through(&client, "/ws").await;
            is_alive(&client).await;
        });
        converse_over_http1(by_http1.address());
        by_streams.stop().expect("it served");
        by_http1.stop().expect("it served");
        assert_eq!(counted(&streams), counted(&http1));
        assert_eq!(value(&streams, UPGRADES), 1);
        assert_eq!(value(&streams, "http_websocket_messages_total{direction=\"received\"}"), 8);
        assert_eq!(value(&streams, "http_websocket_closes_total{reason=\"normal\"}"), 1);
    }

    /// Purpose: what a client sends before it has its answer is received; the protocol is chosen among those offered, ours first;
    /// nothing answers a key, which is not sent.
    fn handshakes(transport) {
        let (mut server, _) = start(router(), config(transport));
        with_client(server.address(), async |client| {
            let offered = [("sec-websocket-protocol", "c, a"), ("sec-websocket-protocol", "b")];
            let mut socket = client.connect("/chosen", &offered).await.expect("it opens");
            let fields = &socket.fields;
            assert_eq!(fields.get("sec-websocket-protocol").map(|it| it.as_bytes()), Some(&b"b"[..]));
            for absent in ["sec-websocket-accept", "upgrade", "connection", "content-length"] {
                assert!(!fields.contains_key(absent), "{fields:?}");
            }
            assert!(fields.contains_key("date"), "{fields:?}");
            socket.text("x").await;
            assert_eq!(socket.receive().await, Received::Text("x".into()));
            for path in ["/late", "/either"] {
                let mut socket = client.open(path).await;
                socket.text("y").await;
                assert_eq!(socket.receive().await, Received::Text("y".into()), "{path}");
            }
            let page = client.ask(Method::GET, "/either").await;
            assert_eq!((page.status, &page.content[..]), (200, &b"a page"[..]));
        });
        server.stop().expect("it served");
    }

    /// Purpose: whatever is no handshake for a WebSocket has the answer that says why, no handler without a WebSocket is called
    /// for a CONNECT, and the connection goes on.
    fn refusals(transport) {
        let fallback = |_: NotesConnect| (StatusCode::NOT_FOUND, "lost");
        for router in [router(), router().fallback(fallback)] {
            let (mut server, _) = start(router, config(transport));
            let before = CONNECTS_SEEN.load(SeqCst);
            with_client(server.address(), async |client| {
                let status = async |path: &str, fields: &[(&str, &str)]| {
                    client.connect(path, fields).await.err().map(|refused| refused.status)
                };
                let foreign = [("origin", "https://elsewhere.example")];
                assert_eq!(status("/ws", &foreign).await, Some(403));
                assert_eq!(status("/ws", &[("origin", "https://example.com")]).await, None);
                assert_eq!(status("/nowhere", &[]).await, Some(404));
                assert_eq!(status("/any", &[]).await, Some(405));
                let page = client.connect("/page", &[]).await.err().expect("it is no WebSocket");
                assert_eq!((page.status, page.fields["allow"].as_bytes()), (405, &b"GET, HEAD, OPTIONS"[..]));
                let other = client.tunnel("connect-udp", "/ws", &[]).await.err().map(|it| it.status);
                assert_eq!(other, Some(501));
                for version in [&[][..], &[("sec-websocket-version", "8")]] {
                    let refused = client.tunnel("websocket", "/ws", version).await;
                    let refused = refused.err().expect("it is another version");
                    let spoken = refused.fields["sec-websocket-version"].as_bytes();
                    assert_eq!((refused.status, spoken), (400, &b"13"[..]));
                }
                assert_eq!(client.ask(Method::GET, "/ws").await.status, 426);
                is_alive(&client).await;
            });
            assert_eq!(CONNECTS_SEEN.load(SeqCst), before);
            server.stop().expect("it served");
        }
    }

    /// Purpose: layers against forged requests let a WebSocket pass, as they do over HTTP/1.1, and its handler refuses pages of
    /// other sites. Layers that wait and layers that change answers stand around it as around any handler.
    fn behind_layers(transport) {
        async fn waits(request: OwnedRequest, next: Next) -> Response {
            tokio::time::sleep(Duration::from_millis(1)).await;
            next.run(request).await
        }
        let router = Router::new()
            .layer(around(waits))
            .layer(csrf())
            .layer(csrf_tokens(Key::from(&[7; 64])))
            .layer(request_id())
            .layer(security_headers())
            .get("/ws", websocket(echo));
        let (mut server, _) = start(router, config(transport));
        with_client(server.address(), async |client| {
            let mut socket = client.open("/ws").await;
            assert!(socket.fields.contains_key("x-request-id"), "{:?}", socket.fields);
            socket.text("x").await;
            assert_eq!(socket.receive().await, Received::Text("x".into()));
            let foreign = [("origin", "https://elsewhere.example"), ("sec-fetch-site", "cross-site")];
            let refused = client.connect("/ws", &foreign).await.err().expect("it is refused");
            assert_eq!(refused.status, 403);
            let text = String::from_utf8_lossy(&refused.content).into_owned();
            assert!(text.contains("origin_not_allowed"), "the handler says so: {text}");
        });
        server.stop().expect("it served");
    }

    /// Purpose: a server without a WebSocket does not say that it takes a CONNECT, and to one that comes nevertheless it is
    /// what RFC 9113 makes of it.
    fn a_server_without_websockets(transport) {
        let (mut server, _) = start(Router::new().get("/page", || "a page"), config(transport));
        with_client(server.address(), async |client| {
            assert!(!client.may_connect());
            let refused = client.connect("/page", &[]).await.err().expect("it is refused");
            assert_eq!((refused.status, refused.reset), (0, Some(Reason::PROTOCOL_ERROR)));
            is_alive(&client).await;
        });
        server.stop().expect("it served");
    }

    /// Purpose: each side may close. The server ends its side of the stream behind its close frame, and when the client has
    /// ended its own nothing is left; a client that ends without a word is lost, and so is one that resets.
    fn closes(transport) {
        let (mut server, metrics) = start(router(), config(transport));
        with_client(server.address(), async |client| {
            let mut socket = client.open("/one").await;
            assert_eq!(socket.receive().await, Received::Text("hello".into()));
            assert_eq!(socket.receive().await, Received::Close(Some(1000)));
            socket.close(1000).await;
            assert_eq!(socket.receive().await, Received::End);
            socket.end();
            let mut socket = client.open("/ws").await;
            socket.close(4321).await;
            assert_eq!(socket.receive().await, Received::Close(Some(4321)));
            socket.end();
            assert_eq!(socket.receive().await, Received::End);
            let mut socket = client.open("/ws").await;
            socket.end();
            assert_eq!(socket.receive().await, Received::End);
            let mut socket = client.open("/ws").await;
            socket.text("x").await;
            assert_eq!(socket.receive().await, Received::Text("x".into()));
            socket.sender.send_reset(Reason::CANCEL);
            let ended = |reason, count| {
                let sample = format!("http_websocket_closes_total{{reason=\"{reason}\"}}");
                value(&metrics, &sample) == count
            };
            eventually("all have ended", || {
                ended("normal", 1) && ended("application", 1) && ended("lost", 2)
            }).await;
            assert_eq!(value(&metrics, "http_websockets_open"), 0);
            is_alive(&client).await;
        });
        server.stop().expect("it served");
    }

    /// Purpose: a server that drains says 1001 on every stream, waits for the answers, and then ends the connection.
    fn drains(transport) {
        let (mut server, metrics) = start(router(), config(transport));
        let address = server.address();
        with_client(address, async |client| {
            let mut sockets = Vec::new();
            for _ in 0..5 {
                let mut socket = client.open("/ws").await;
                socket.text("x").await;
                assert_eq!(socket.receive().await, Received::Text("x".into()));
                sockets.push(socket);
            }
            let stopping = std::thread::spawn(move || server.stop().expect("it served"));
            for mut socket in sockets {
                assert_eq!(socket.receive().await, Received::Close(Some(1001)));
                socket.close(1001).await;
                assert_eq!(socket.receive().await, Received::End);
                socket.end();
            }
            eventually("it stops", || stopping.is_finished()).await;
            stopping.join().expect("it does not panic");
        });
        assert_eq!(value(&metrics, "http_websocket_closes_total{reason=\"going_away\"}"), 5);
    }

    /// Purpose: as many WebSockets as streams are allowed are open on one connection, and each has its own messages.
    fn as_many_as_streams(transport) {
        let (mut server, metrics) = start(router(), config(transport));
        with_client(server.address(), async |client| {
            let mut sockets = Vec::new();
            for _ in 0..128 {
                sockets.push(client.open("/ws").await);
            }
            assert_eq!(value(&metrics, "http_websockets_open"), 128);
            for round in 0..3 {
                for (at, socket) in sockets.iter_mut().enumerate() {
                    socket.text(&format!("{round} on {at}")).await;
                }
                for (at, socket) in sockets.iter_mut().enumerate() {
                    assert_eq!(socket.receive().await, Received::Text(format!("{round} on {at}")));
                }
            }
        });
        server.stop().expect("it served");
    }

    /// Purpose: a client that does not read one stream is sent its window and no more, the handler waits with a bounded amount
    /// made, and other streams go on; when it reads, all of it comes.
    fn a_slow_reader(transport) {
        let sent = Arc::<AtomicUsize>::default();
        let router = Router::new()
            .state(Arc::clone(&sent))
            .get("/flood", websocket(flood))
            .get("/ws", websocket(echo))
            .get("/page", || "a page");
        let (mut server, _) = start(router, config(transport));
        with_client(server.address(), async |client| {
            let mut slow = client.open("/flood").await;
            let mut other = client.open("/ws").await;
            let mut before = usize::MAX;
            while std::mem::replace(&mut before, sent.load(SeqCst)) != before || before == 0 {
                for n in 0..50 {
                    other.text(&n.to_string()).await;
                    assert_eq!(other.receive().await, Received::Text(n.to_string()));
                    is_alive(&client).await;
                }
            }
            // The window, the bytes that wait for it, and what the handler's channel holds.
            assert!((65_535..65_535 + 3 * 65_536).contains(&before), "{before}");
            for _ in 0..200 {
                assert_eq!(slow.receive().await, Received::Binary(vec![7; 8 * 1024]));
            }
        });
        server.stop().expect("it served");
    }

    /// Purpose: a client that reads nothing for the time of a write loses that stream, and no other.
    fn a_reader_that_has_stopped(transport) {
        let limits = Limits { write_timeout: Duration::from_millis(300), ..Limits::default() };
        let (mut server, metrics) = start(router(), ServerConfig { limits, ..config(transport) });
        with_client(server.address(), async |client| {
            let mut stopped = client.open("/flood").await;
            let mut other = client.open("/ws").await;
            let lost = || value(&metrics, "http_websocket_closes_total{reason=\"lost\"}") == 1;
            eventually("it is given up", lost).await;
            loop {
                match stopped.receive().await {
                    Received::Binary(_) => {}
                    received => break assert_eq!(received, Received::Reset(Reason::CANCEL)),
                }
            }
            other.text("still here").await;
            assert_eq!(other.receive().await, Received::Text("still here".into()));
        });
        server.stop().expect("it served");
    }

    /// Purpose: a handler that does not read holds its client back, on its stream only.
    fn a_slow_handler(transport) {
        let (mut server, _) = start(router(), config(transport));
        with_client(server.address(), async |client| {
            let mut deaf = client.open("/deaf").await;
            let mut other = client.open("/ws").await;
            let sending = async {
                for sent in 0.. {
                    let sending = deaf.message(Kind::Binary, &[7; 8 * 1024]);
                    if tokio::time::timeout(Duration::from_millis(200), sending).await.is_err() {
                        return sent * 8 * 1024;
                    }
                }
                unreachable!("it is held back")
            };
            let sent = sending.await;
            let window = usize::try_from(Limits::default().http2.window).expect("it is small");
            assert!((window..window + 4 * 65_536).contains(&sent), "{sent}");
            for n in 0..50 {
                other.message(Kind::Binary, &[n; 20_000]).await;
                assert_eq!(other.receive().await, Received::Binary(vec![n; 20_000]));
            }
            is_alive(&client).await;
        });
        server.stop().expect("it served");
    }

    /// Purpose: a message of many windows comes back whole.
    fn a_message_of_many_windows(transport) {
        let (mut server, _) = start(router(), config(transport));
        with_client(server.address(), async |client| {
            let mut socket = client.open("/large").await;
            let message: Vec<u8> = (0..5 << 20).map(|at| (at % 251) as u8).collect();
            socket.message(Kind::Binary, &message).await;
            assert!(socket.receive().await == Received::Binary(message));
        });
        server.stop().expect("it served");
    }
}

/// Purpose: what a browser does: HTTP/2 over TLS, chosen by ALPN, and a WebSocket on a stream of it.
#[test]
fn over_tls() {
    let authority = Authority::new("our authority");
    let tls = authority.issue(&["localhost"]).tls();
    let listen = vec!["127.0.0.1:0,tls".parse().expect("it is right")];
    let config = ServerConfig { listen, ..config(TransportChoice::Auto) };
    let mut server = Server::new(router()).tls(tls).config(config).start().expect("it starts");
    let socket = secured(server.address(), &authority);
    in_runtime(async {
        let socket = tokio::net::UnixStream::from_std(socket).expect("there is a runtime");
        over(socket, async |client| converse_through(&client, "/ws").await).await;
    });
    server.stop().expect("it served");
}
