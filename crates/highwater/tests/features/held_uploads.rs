//! Content of HTTP/2 that waits in the server, for handlers that do not read or in the queue: it is counted as memory of
//! bodies, and bounded with it.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use h2::client::{ResponseFuture, SendRequest};
use highwater::metrics::Metrics;
use highwater::server::TransportChoice;
use highwater::{BodyStream, Bytes, Error, Router, Running, Server, ServerConfig, State};
use highwater_testkit::read_some;
use http::{Method, Request, Version};
use tokio::sync::Semaphore;

use crate::served::{HANG, config, spin};
use crate::transports::on_each_transport;

/// Reads nothing before it may.
async fn gated(State(gate): State<Arc<Semaphore>>, mut body: BodyStream) -> Result<String, Error> {
    let _permit = gate.acquire().await.map_err(Error::internal)?;
    let mut length = 0;
    while let Some(piece) = body.next().await {
        length += piece?.len();
    }
    Ok(length.to_string())
}

struct Served {
    running: Running,
    metrics: Metrics,
    gate: Arc<Semaphore>,
}

impl Served {
    fn start(config: ServerConfig) -> Served {
        let (metrics, gate) = (Metrics::new(), Arc::new(Semaphore::new(0)));
        let slow = || {
            spin(Duration::from_millis(2));
            "slow"
        };
        let router =
            Router::new().state(Arc::clone(&gate)).post("/gated", gated).get("/slow", slow);
        let server = Server::new(router).config(config).metrics(&metrics);
        Served { running: server.start().expect("it starts"), metrics, gate }
    }

    fn metric(&self, name: &str) -> u64 {
        let page = self.metrics.page();
        let found = page.lines().find_map(|line| line.strip_prefix(name));
        found.expect("it is listed").trim().parse().expect("a number")
    }

    fn held(&self) -> u64 {
        self.metric("http_body_memory_bytes ")
    }

    fn refused(&self) -> u64 {
        self.metric(r#"http_rejections_total{layer="request",reason="memory"} "#)
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(
                begun.elapsed() < HANG,
                "{what}: {} held, {} refused",
                self.held(),
                self.refused()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A connection of its own.
async fn connect(server: &Running) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(server.address()).await.expect("it listens");
    let (client, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
    tokio::spawn(connection);
    client.ready().await.expect("it is open")
}

/// Sends `length` bytes, and the end.
fn upload(client: &mut SendRequest<Bytes>, length: usize) -> ResponseFuture {
    let uri = "http://example.com/gated";
    let request = Request::builder().method(Method::POST).uri(uri).version(Version::HTTP_2);
    let request = request.body(()).expect("valid");
    let (answer, mut body) = client.send_request(request, false).expect("it is open");
    body.send_data(Bytes::from(vec![b'x'; length]), true).expect("it is open");
    answer
}

async fn answered(answer: ResponseFuture) -> (u16, String) {
    let (head, mut body) = answer.await.expect("it answers").into_parts();
    let mut content = Vec::new();
    while let Some(piece) = body.data().await {
        content.extend_from_slice(&piece.expect("it is complete"));
    }
    (head.status.as_u16(), String::from_utf8(content).expect("text"))
}

on_each_transport! {
    /// Purpose: content that a handler does not read is counted; beyond the memory for bodies, its body fails with a 503,
    /// others are not affected, and nothing stays counted. Once, each connection held half a megabyte that nobody saw.
    fn content_that_no_handler_reads(transport) {
        let served = Served::start(ServerConfig { body_memory_max: Some(500_000), ..config(transport) });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("it is built").block_on(async {
            let mut first = connect(&served.running).await;
            let answer = upload(&mut first, 250_000);
            served.until("the first is held", |it| it.held() >= 250_000).await;
            assert!(served.held() < 400_000, "{}", served.held());
            let mut second = connect(&served.running).await;
            let refused = upload(&mut second, 250_000);
            served.until("the second is refused", |it| it.refused() == 1).await;
            assert!(served.held() <= 500_000, "{}", served.held());
            served.gate.add_permits(8);
            assert_eq!(answered(answer).await, (200, "250000".into()));
            let (status, _) = answered(refused).await;
            assert_eq!(status, 503);
            assert_eq!(answered(upload(&mut second, 100_000)).await, (200, "100000".into()));
            served.until("nothing is held", |it| it.held() == 0).await;
        });
    }

    /// Purpose: the same while the request waits in the queue: it is refused when its turn comes.
    fn content_of_a_request_in_the_queue(transport) {
        let served = Served::start(ServerConfig { body_memory_max: Some(1_000), ..config(transport) });
        served.gate.add_permits(8);
        let literal = |name: u8, value: &[u8]| [&[name, value.len() as u8], value].concat();
        let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
            let length = (payload.len() as u32).to_be_bytes();
            [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
        };
        let head = |method: u8, path: &[u8]| [&[method, 0x86][..], &literal(4, path), &literal(1, b"h")].concat();
        // So many requests that the turn's time is known to be used up.
        let slow = (0..32).flat_map(|n| frame(1, 5, 2 * n + 1, &head(0x82, b"/slow")));
        let bytes = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            frame(4, 0, 0, &[]),
            slow.collect(),
            frame(1, 4, 65, &head(0x83, b"/gated")),
            frame(0, 1, 65, &[b'x'; 2_000]),
        ];
        let mut stream = TcpStream::connect(served.running.address()).expect("it listens");
        stream.set_read_timeout(Some(HANG)).expect("it is open");
        stream.write_all(&bytes.concat()).expect("it is open");
        let begun = Instant::now();
        while served.refused() == 0 {
            assert!(begun.elapsed() < HANG, "{} held", served.held());
            thread::sleep(Duration::from_millis(5));
        }
        let mut received = vec![0; 4096];
        let length = read_some(&mut stream, &mut received).expect("it is open");
        assert!(length > 0);
        while served.held() != 0 {
            assert!(begun.elapsed() < HANG, "{} held", served.held());
            thread::sleep(Duration::from_millis(5));
        }
    }
}
