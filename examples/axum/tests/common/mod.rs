//! A server under test, and what it says to raw bytes.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use highwater::ServerConfig;
use highwater::server::TransportChoice;
use highwater::tower::IntoApp;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// How long an answer may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(10);

/// What serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Under {
    Axum,
    Highwater(TransportChoice),
}

/// The drivers of Highwater. Where io_uring does not work, `auto` is epoll as well.
pub(crate) const HIGHWATER: [Under; 2] =
    [Under::Highwater(TransportChoice::Auto), Under::Highwater(TransportChoice::Epoll)];

/// A server that stops when it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Server {
    /// Serves the example.
    pub(crate) fn start(under: Under) -> Self {
        let app: Router = highwater_example_axum::app();
        let app = app.into_make_service_with_connect_info::<SocketAddr>();
        match under {
            Under::Axum => Server::run(move |listener, stopped| {
                Box::pin(async move {
                    axum::serve(listener, app)
                        .with_graceful_shutdown(async { drop(stopped.await) })
                        .await
                })
            }),
            Under::Highwater(transport) => Server::highwater(transport, app),
        }
    }

    /// Serves any application on Highwater.
    pub(crate) fn highwater<M>(
        transport: TransportChoice,
        app: impl IntoApp<M> + Send + 'static,
    ) -> Self {
        let config = ServerConfig {
            transport,
            metrics: None,
            workers: NonZeroUsize::new(2),
            drain_timeout: Duration::from_secs(1),
            ..ServerConfig::default()
        };
        Server::run(move |listener, stopped| {
            Box::pin(async move {
                highwater::serve(listener, app)
                    .config(config)
                    .with_graceful_shutdown(async { drop(stopped.await) })
                    .await
            })
        })
    }

    fn run<F>(serve: F) -> Self
    where
        F: FnOnce(TcpListener, oneshot::Receiver<()>) -> Serving + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        let (bound, address) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                bound.send(listener.local_addr()?).expect("the test waits for it");
                serve(listener, stopped).await
            })
        });
        let address = address.recv_timeout(PATIENCE).expect("it is bound");
        Server { address, stop: Some(stop), thread: Some(thread) }
    }

    /// Tells it to drain, and waits for the end.
    pub(crate) fn stop(mut self) -> io::Result<()> {
        drop(self.stop.take());
        self.thread.take().expect("it is stopped once").join().expect("it does not panic")
    }

    /// Sends `request` on a connection of its own and returns all that comes until its end.
    pub(crate) fn ask(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        stream.write_all(request).expect("the server reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap_or_else(|error| {
            panic!("{error} after {:?}", String::from_utf8_lossy(&answer));
        });
        answer
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        Answer::parse(&self.ask(request.as_bytes()))
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket has timeouts");
        stream
    }
}

pub(crate) type Serving = std::pin::Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

/// A response, as far as it can be compared.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Its number; reasons differ, for hyper has those of older specifications.
    pub(crate) status: u16,
    /// In the order of their names; without `date`.
    pub(crate) fields: Vec<String>,
    /// Without the chunks' frames.
    pub(crate) content: Vec<u8>,
    pub(crate) trailers: Vec<String>,
}

impl Answer {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let shown = String::from_utf8_lossy(bytes);
        let (head, rest) = split(bytes, b"\r\n\r\n").unwrap_or_else(|| panic!("a head: {shown:?}"));
        let head = String::from_utf8(head.to_vec()).expect("a head is text");
        let mut lines = head.split("\r\n");
        let status = lines.next().expect("the first line").split(' ').nth(1);
        let status = status.and_then(|status| status.parse().ok()).expect("a status");
        let mut fields: Vec<String> =
            lines.map(lower_name).filter(|field| !field.starts_with("date:")).collect();
        fields.sort();
        let is_chunked = fields.iter().any(|field| field == "transfer-encoding: chunked");
        let (content, trailers) = if is_chunked && !rest.is_empty() {
            unchunk(rest)
        } else {
            (rest.to_vec(), Vec::new())
        };
        Answer { status, fields, content, trailers }
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.content).expect("the content is text")
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find_map(|field| field.strip_prefix(name)?.strip_prefix(": "))
    }
}

fn lower_name(field: &str) -> String {
    let (name, value) = field.split_once(':').expect("a field has a colon");
    format!("{}: {}", name.to_lowercase(), value.trim())
}

fn split<'a>(bytes: &'a [u8], at: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let found = bytes.windows(at.len()).position(|window| window == at)?;
    Some((&bytes[..found], &bytes[found + at.len()..]))
}

fn unchunk(mut bytes: &[u8]) -> (Vec<u8>, Vec<String>) {
    let mut content = Vec::new();
    loop {
        let (size, rest) = split(bytes, b"\r\n").expect("a chunk's size");
        let size = std::str::from_utf8(size).expect("a size is text");
        let size = usize::from_str_radix(size, 16).expect("a size is a number");
        if size == 0 {
            let text = String::from_utf8(rest.to_vec()).expect("trailers are text");
            let fields = text.split("\r\n").filter(|field| !field.is_empty());
            return (content, fields.map(lower_name).collect());
        }
        content.extend_from_slice(&rest[..size]);
        bytes = rest[size..].strip_prefix(b"\r\n").expect("the end of a chunk");
    }
}
