//! How do I test my application? In process, without a port, and with time in my hands.
//!
//! A [`Client`] serves a [`Router`] with the very worker that serves it in production, over a
//! simulated network: requests are parsed, routed and answered exactly as they would be, keep-alive,
//! limits, timeouts and all; only no kernel is asked. Everything happens during the client's calls,
//! on the calling thread, in the same order each time.
//!
//! ```
//! use highwater::testing::Client;
//! use highwater::{Path, Router};
//!
//! let client = Client::new(Router::new().get("/hello/{name}", |Path(name): Path<String>| {
//!     format!("Hello, {name}!")
//! }));
//! let response = client.get("/hello/world");
//! assert_eq!(response.status, 200);
//! assert_eq!(response.text(), "Hello, world!");
//! ```
//!
//! It needs the feature `testing`, which no release build should carry:
//!
//! ```toml
//! [dev-dependencies]
//! highwater = { version = "0.1", features = ["testing"] }
//! ```
//!
//! **Time** stands still until nothing else can happen, then jumps to the next deadline; a timeout of
//! an hour takes no time to test ([`Client::advance`]). An application with `async` handlers gets a
//! Tokio runtime, as it does when served; what it awaits there takes the time it takes. Such a client
//! cannot be used inside another runtime: write `#[test]`, not `#[tokio::test]`.
//!
//! **Bytes** can be said one by one ([`Client::connect`]), or cut at random places by
//! [`Setup::seed`], to see that it makes no difference.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant as RealInstant};

use bytes::Bytes;
use highwater_core::driver::{Driver, Wait};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::runtime::LocalRuntime;

use crate::app::{Router, WorkerInfo};
use crate::server::{self, Inbox, Pool, ServerConfig, Worker, WorkerConfig};
use crate::sim::{Faults, Heard, Network, Reader, SimDriver, Stage, Trace};

/// How long an answer may take: of the simulated time, and of the real time that a runtime takes.
const SIMULATED_WAIT_MAX: Duration = Duration::from_secs(24 * 3600);
const REAL_WAIT_MAX: Duration = Duration::from_secs(30);

/// A client's receive buffer, unless it wants another.
const WINDOW: usize = 64 * 1024;

/// What a client may be told before it starts.
#[must_use = "nothing happens before `start`"]
pub struct Setup {
    router: Router,
    config: ServerConfig,
    seed: Option<u64>,
}

impl Setup {
    /// For `router`, with a server's default settings.
    pub fn new(router: Router) -> Self {
        Setup { router, config: ServerConfig::default(), seed: None }
    }

    /// Replaces the settings. Only the limits and the most connections count here.
    pub fn config(mut self, config: impl Into<ServerConfig>) -> Self {
        self.config = config.into();
        self
    }

    /// Has everything that is sent cut in pieces, at places that `seed` decides.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Starts serving.
    ///
    /// # Panics
    /// If the router cannot be built, with everything that is wrong with it; or if it needs a
    /// runtime and there is none to be had.
    pub fn start(self) -> Client {
        let Setup { router, config, seed } = self;
        let app = router.build().unwrap_or_else(|error| panic!("{error}"));
        let runtime = app.needs_runtime().then(runtime);
        let pool = Pool::deferred(usize::MAX);
        let context = server::context(&app, WorkerInfo::new(0, 1), &pool, runtime.as_ref());
        let context = context.unwrap_or_else(|error| panic!("{error}"));
        let config = WorkerConfig::new(app, &config);
        let network = Network::new(seed, Faults::default(), Trace::default());
        let inbox = Inbox::new(Box::new(|| {}));
        let mut worker =
            Worker::new(SimDriver { network }, config, Arc::clone(&inbox), pool.clone())
                .with_context(context);
        worker.set_runtime(runtime.is_some());
        Client { server: RefCell::new(Server { worker, inbox, pool, pool_held: false, runtime }) }
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("router", &self.router).finish_non_exhaustive()
    }
}

/// A client of an application, and the application.
pub struct Client {
    server: RefCell<Server>,
}

macro_rules! requests {
    ($($name:ident $method:ident)*) => {$(
        #[doc = concat!("The answer to `", stringify!($method), "` of `target`.")]
        ///
        /// # Panics
        /// As [`RequestBuilder::send`].
        #[track_caller]
        pub fn $name(&self, target: &str) -> Response {
            self.request(Method::$method, target).send()
        }
    )*};
}

impl Client {
    /// A client of `router`, served with default settings.
    ///
    /// # Panics
    /// As [`Setup::start`].
    #[track_caller]
    pub fn new(router: Router) -> Self {
        Setup::new(router).start()
    }

    requests! { get GET head HEAD delete DELETE options OPTIONS }

    /// The answer to `POST` of `body` to `target`.
    ///
    /// # Panics
    /// As [`RequestBuilder::send`].
    #[track_caller]
    pub fn post(&self, target: &str, body: impl Into<Bytes>) -> Response {
        self.request(Method::POST, target).body(body).send()
    }

    /// The answer to `PUT` of `body` to `target`.
    ///
    /// # Panics
    /// As [`RequestBuilder::send`].
    #[track_caller]
    pub fn put(&self, target: &str, body: impl Into<Bytes>) -> Response {
        self.request(Method::PUT, target).body(body).send()
    }

    /// A request that needs more said.
    pub fn request(&self, method: Method, target: &str) -> RequestBuilder<'_> {
        let target = target.to_string();
        RequestBuilder { client: self, method, target, headers: HeaderMap::new(), body: None }
    }

    /// A connection, to say bytes on.
    pub fn connect(&self) -> Connection<'_> {
        let mut connection = self.connect_slow(WINDOW);
        connection.reads = true;
        connection
    }

    /// A connection whose client buffers `window` bytes, and reads only when told to
    /// ([`Connection::read`]).
    pub fn connect_slow(&self, window: usize) -> Connection<'_> {
        let mut server = self.server.borrow_mut();
        let network = server.network();
        let link = network.add(window);
        network.connect(link);
        server.settle();
        drop(server);
        Connection {
            client: self,
            link,
            reads: false,
            unsaid: Vec::new(),
            finishes: false,
            heard: Vec::new(),
        }
    }

    /// Lets time pass, and everything happen that is due meanwhile.
    pub fn advance(&self, by: Duration) {
        let mut server = self.server.borrow_mut();
        let until = server.network().now() + by;
        loop {
            server.settle();
            let left = until - server.network().now();
            if left.is_zero() {
                return;
            }
            let wait = server.worker.spare_time().map_or(left, |due| due.min(left));
            server.worker.driver().clock().advance(wait.max(Duration::from_nanos(1)));
        }
    }

    /// Stops accepting and lets every connection end with the answer it owes, as a server does that
    /// is told to stop.
    pub fn drain(&self) {
        let mut server = self.server.borrow_mut();
        server.worker.drain();
        server.settle();
    }

    /// Has the pool for `blocking` handlers do nothing for a while, as if it were busy.
    pub fn hold_pool(&self, held: bool) {
        let mut server = self.server.borrow_mut();
        server.pool_held = held;
        server.settle();
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.server.borrow().worker.connections() as usize
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

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

impl RequestBuilder<'_> {
    /// Adds a header field. `Host`, and `Content-Length` for a body, are added where they are missing.
    ///
    /// # Panics
    /// If `name` or `value` is none.
    #[track_caller]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::try_from(name)
            .unwrap_or_else(|_| panic!("{name:?} is not the name of a header field"));
        let value = HeaderValue::try_from(value)
            .unwrap_or_else(|_| panic!("{value:?} is not the value of a header field"));
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
        let body = serde_json::to_vec(value)
            .unwrap_or_else(|error| panic!("the value has no JSON: {error}"));
        self.header("content-type", "application/json").body(body)
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
            connection.exchange();
            let heard = reader.feed(&connection.heard[fed..]);
            heard.unwrap_or_else(|what| panic!("the answer is not HTTP: {what}"));
            fed = connection.heard.len();
            if connection.is_closed() {
                reader.end().unwrap_or_else(|what| panic!("the answer is not HTTP: {what}"));
            }
            if let Some(answer) = reader.answers().first() {
                return Response::of(answer);
            }
            let Self { method, target, .. } = &self;
            assert!(!connection.is_closed(), "{method} {target}: closed without an answer");
            if let Err(why) = self.client.server.borrow_mut().wait(&mut waited) {
                panic!("{method} {target}: no answer: {why}");
            }
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        let mut field = |name: &str, value: &[u8]| {
            head.extend_from_slice(name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value);
            head.extend_from_slice(b"\r\n");
        };
        if !self.headers.contains_key("host") {
            field("host", b"localhost");
        }
        for (name, value) in &self.headers {
            field(name.as_str(), value.as_bytes());
        }
        let framed = ["content-length", "transfer-encoding"];
        let body = self.body.as_deref().unwrap_or_default();
        if self.body.is_some() && !framed.iter().any(|name| self.headers.contains_key(*name)) {
            field("content-length", body.len().to_string().as_bytes());
        }
        head.extend_from_slice(b"\r\n");
        head.extend_from_slice(body);
        head
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    /// Its status.
    pub status: StatusCode,
    /// Its header fields.
    pub headers: HeaderMap,
    /// Its content, whatever its framing was.
    pub body: Bytes,
}

impl Response {
    #[track_caller]
    fn of(heard: &Heard) -> Self {
        let fields = heard.fields.iter().map(|(name, value)| {
            let name = HeaderName::try_from(name).expect("the server sends valid names");
            (name, HeaderValue::try_from(value).expect("the server sends valid values"))
        });
        Response {
            status: StatusCode::from_u16(heard.status).expect("the server sends valid statuses"),
            headers: fields.collect(),
            body: Bytes::copy_from_slice(&heard.body),
        }
    }

    /// The value of a header field; the first, if there are several.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The content as text.
    ///
    /// # Panics
    /// If it is not UTF-8.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or_else(|_| panic!("the content is not UTF-8"))
    }

    /// The content, read as JSON.
    ///
    /// # Panics
    /// If it is not what is wanted, with what it is.
    #[cfg(feature = "json")]
    #[track_caller]
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> T {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {}", self.body.escape_ascii()))
    }
}

/// A connection on which every byte is in your hands. Dropping it resets it.
#[derive(Debug)]
pub struct Connection<'c> {
    client: &'c Client,
    link: usize,
    reads: bool,
    unsaid: Vec<u8>,
    finishes: bool,
    heard: Vec<u8>,
}

impl Connection<'_> {
    /// Says `bytes`, as far as the server takes them now, and hears what it answers.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.unsaid.extend_from_slice(bytes.as_ref());
        self.exchange();
    }

    /// Says no more, but goes on listening.
    pub fn finish(&mut self) {
        self.finishes = true;
        self.exchange();
    }

    /// Everything heard so far, byte for byte.
    pub fn heard(&mut self) -> &[u8] {
        self.exchange();
        &self.heard
    }

    /// Hears at most `most` bytes more; for a connection that does not listen by itself.
    pub fn read(&mut self, most: usize) -> &[u8] {
        let mut server = self.client.server.borrow_mut();
        server.settle();
        let bytes = server.network().read(self.link, most);
        server.settle();
        self.heard.extend_from_slice(&bytes);
        &self.heard[self.heard.len() - bytes.len()..]
    }

    /// Whether the server has said all it will say, and that was heard; or has reset the connection.
    pub fn is_closed(&self) -> bool {
        let mut server = self.client.server.borrow_mut();
        let link = server.network().link(self.link);
        link.has_ended() || link.stage == Stage::Refused
    }

    /// Whether the server has reset the connection.
    pub fn is_reset(&self) -> bool {
        self.client.server.borrow_mut().network().link(self.link).was_reset
    }

    /// Says what can be said and hears what there is to hear, until nothing more happens.
    fn exchange(&mut self) {
        let mut server = self.client.server.borrow_mut();
        loop {
            server.settle();
            let network = server.network();
            let said = network.say(self.link, &self.unsaid);
            self.unsaid.drain(..said);
            let finishes = self.finishes && self.unsaid.is_empty();
            if finishes {
                self.finishes = false;
                network.finish(self.link);
            }
            let heard = if self.reads { network.read(self.link, usize::MAX) } else { Vec::new() };
            self.heard.extend_from_slice(&heard);
            if said == 0 && heard.is_empty() && !finishes {
                return;
            }
        }
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        // While a test fails, the server may be in the middle of something.
        if let Ok(mut server) = self.client.server.try_borrow_mut()
            && !std::thread::panicking()
        {
            server.network().leave(self.link);
            server.settle();
        }
    }
}

/// The worker, and all that moves it.
struct Server {
    worker: Worker<SimDriver>,
    inbox: Arc<Inbox>,
    pool: Pool,
    pool_held: bool,
    runtime: Option<LocalRuntime>,
}

fn runtime() -> LocalRuntime {
    server::runtime().unwrap_or_else(|error| panic!("the Tokio runtime cannot be built: {error}"))
}

/// How long an answer has been waited for.
#[derive(Default)]
struct Waited {
    simulated: Duration,
    real: Duration,
}

impl Server {
    fn network(&mut self) -> &mut Network {
        &mut self.worker.driver_mut().network
    }

    /// Turns until nothing more happens by itself.
    fn settle(&mut self) {
        // What a turn without events commands, because a deadline has passed, shows in the next one.
        let mut quiet_turns = 0;
        while quiet_turns < 2 {
            let has_mail = !self.inbox.park_in_driver();
            let events = self.turn();
            let has_jobs = self.pool.queued() > 0 && !self.pool_held;
            if has_jobs {
                self.pool.run_deferred();
            }
            let is_idle = events == 0 && !self.worker.has_backlog();
            let quiet = is_idle && !has_mail && !has_jobs && self.inbox.park_in_driver();
            quiet_turns = if quiet { quiet_turns + 1 } else { 0 };
        }
    }

    /// One turn, inside the runtime if there is one, whose tasks get theirs.
    fn turn(&mut self) -> u32 {
        let Server { worker, runtime, .. } = self;
        if worker.wants_runtime() {
            *runtime = Some(self::runtime());
            worker.set_runtime(true);
        }
        let mut turn = || {
            let Ok(events) = worker.turn(Wait::No);
            events
        };
        match runtime {
            None => turn(),
            Some(runtime) => runtime.block_on(async {
                let events = turn();
                tokio::task::yield_now().await;
                events
            }),
        }
    }

    /// Lets time pass: until a future is woken, or else to the next deadline.
    fn wait(&mut self, waited: &mut Waited) -> Result<(), &'static str> {
        let patience = self.worker.spare_time();
        let passed = match &self.runtime {
            Some(runtime) => {
                let began = RealInstant::now();
                let most = patience.unwrap_or(REAL_WAIT_MAX).min(REAL_WAIT_MAX);
                let inbox = &self.inbox;
                runtime.block_on(async {
                    let woken =
                        std::future::poll_fn(|cx| match inbox.park_in_runtime(cx.waker()) {
                            true => std::task::Poll::Pending,
                            false => std::task::Poll::Ready(()),
                        });
                    // Whether it was woken or the time is up, the next turn finds out.
                    let _ = tokio::time::timeout(most, woken).await;
                });
                let took = began.elapsed();
                waited.real += took;
                took
            }
            None => patience.ok_or("it waits for something that nothing will bring about")?,
        };
        waited.simulated += passed;
        if waited.real >= REAL_WAIT_MAX {
            return Err("it took more than 30 seconds");
        }
        if waited.simulated >= SIMULATED_WAIT_MAX {
            return Err("it took more than a day of simulated time");
        }
        self.worker.driver().clock().advance(passed);
        Ok(())
    }
}
