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
use highwater_core::http1::client::{Asked, Eof, FieldLines, Next, Reader};
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
pub(crate) const HIGHWATER: [Under; 3] = [
    Under::Highwater(TransportChoice::Auto),
    Under::Highwater(TransportChoice::Epoll),
    Under::Highwater(TransportChoice::Portable),
];

/// A server that stops when it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// Two workers on this transport, without metrics.
pub(crate) fn config(transport: TransportChoice) -> ServerConfig {
    ServerConfig {
        transport,
        metrics: None,
        workers: NonZeroUsize::new(2),
        drain_timeout: Duration::from_secs(1),
        ..ServerConfig::default()
    }
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
        let config = config(transport);
        Server::run(move |listener, stopped| {
            Box::pin(async move {
                highwater::serve(listener, app)
                    .config(config)
                    .with_graceful_shutdown(async { drop(stopped.await) })
                    .await
            })
        })
    }

    /// Serves as `serve` does, until that is told to stop.
    pub(crate) fn run<F>(serve: F) -> Self
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
        Answer::parse(&self.ask(request.as_bytes()), Asked::Plain)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket has timeouts");
        stream
    }
}

pub(crate) type Serving = std::pin::Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

/// A response, as far as it can be compared.
#[derive(Debug, Default, PartialEq, Eq)]
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
    /// The one answer in `bytes`, which are all that came; interim ones may precede it.
    ///
    /// # Panics
    /// If they are something else.
    pub(crate) fn parse(bytes: &[u8], asked: Asked) -> Self {
        let (mut reader, mut answer, mut rest) = (Reader::default(), Answer::default(), bytes);
        let shown = || String::from_utf8_lossy(bytes).into_owned();
        loop {
            match reader.next(&mut rest, asked).unwrap_or_else(|why| panic!("{why}: {}", shown())) {
                Next::Interim(_) => {}
                Next::Head(head) => {
                    answer.status = head.status();
                    answer.fields = lines(head.fields());
                    answer.fields.retain(|field| !field.starts_with("date:"));
                    answer.fields.sort();
                }
                Next::Content(piece) | Next::Raw(piece) => answer.content.extend_from_slice(piece),
                Next::End(_, trailers) => answer.trailers = lines(trailers),
                Next::Wait => break,
            }
        }
        assert!(answer.status >= 100 && reader.on_eof() != Eof::Truncated, "{:?}", shown());
        answer
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.content).expect("the content is text")
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find_map(|field| field.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Fields as lines, with names in lower case.
fn lines(fields: FieldLines<'_>) -> Vec<String> {
    let line = |(name, value): (&str, &[u8])| {
        let value = str::from_utf8(value).expect("fields are text");
        format!("{}: {value}", name.to_lowercase())
    };
    fields.iter().map(line).collect()
}
