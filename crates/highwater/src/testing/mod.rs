//! How do I test my application? In process, without a port, and with time under the test's control.
//!
//! A [`Client`] serves a [`Router`] with the very worker that serves it in production, over a
//! simulated network: requests are parsed, routed and answered exactly as they would be, keep-alive,
//! limits, timeouts and all; only the kernel is left out. Everything happens during the client's calls,
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
//! # Time
//!
//! Time stands still until nothing else can happen, then jumps to the next deadline of the server or the next timer of
//! Tokio. Both clocks move together, so `tokio::time::sleep`, `timeout` and `interval` in handlers and in the tasks they
//! spawn take no real time, and [`Client::advance`] moves all of them:
//!
//! ```
//! use std::time::Duration;
//! use highwater::Router;
//! use highwater::testing::Client;
//!
//! async fn slow() -> &'static str {
//!     tokio::time::sleep(Duration::from_secs(3600)).await;
//!     "done"
//! }
//! let client = Client::new(Router::new().get("/slow", slow));
//! assert_eq!(client.get("/slow").text(), "done"); // at once
//!
//! let mut connection = client.connect();
//! connection.send("GET /slow HTTP/1.1\r\nHost: h\r\n\r\n");
//! client.advance(Duration::from_secs(3599));
//! assert!(connection.received().is_empty());
//! client.advance(Duration::from_secs(1));
//! assert!(connection.received().ends_with(b"done"));
//! ```
//!
//! Timers of Tokio have a resolution of a millisecond, deadlines of the server one of 8.4 ms: they are
//! never early. `std::time::Instant` and `SystemTime` are the
//! machine's and do not follow. Work under `tokio::task::spawn_blocking` is waited for, and takes no
//! simulated time.
//!
//! The clock does not wait for anything **outside of the test**: a database, another server, a thread of your own. Time
//! would jump to the next timeout before the database has answered. Start such a client with [`Setup::real_time`].
//!
//! # Runtimes
//!
//! An application with `async` handlers gets a Tokio runtime from the client, as it does when served; so does one with a layer
//! that counts time (`rate_limit`, `response_cache`), whose clock is the test's that way.
//! Such a client cannot be used inside another runtime: write `#[test]`, not `#[tokio::test]`.
//!
//! # Addresses
//!
//! [`PeerAddr`](crate::PeerAddr) is `127.0.0.1:49152`, unless [`Setup::peer`] or [`Client::set_peer`] sets another one.
//!
//! # Connections that stay open
//!
//! [`Client::websocket`] opens a WebSocket, and [`Client::events`] reads server-sent events, one by one and with time under
//! control, as everything else here.
//!
//! # HTTP/2
//!
//! Requests have a connection of HTTP/1.1 each. [`Client::http2`] opens one of HTTP/2, on which requests, event streams and
//! WebSockets stand beside each other.
//!
//! # Bytes
//!
//! Bytes can be sent one by one ([`Client::connect`]), or cut at random places by [`Setup::seed`], to
//! see that it makes no difference.

mod answer;
mod connection;
mod cookies;
mod events;
mod http2;
mod request;
mod response;
mod server;
mod websocket;

use std::cell::RefCell;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::app::Router;
use crate::server::ServerConfig;

pub use answer::Answer;
pub use connection::Connection;
pub use events::{Event, Events};
pub use http2::Http2;
pub use request::RequestBuilder;
pub use response::Response;
pub use websocket::{Received, WebSocket};

use cookies::Kept;
use server::Server;

/// Where connections come from, unless a test says otherwise. The first port of those that clients get (RFC 6335
/// §6).
const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 49152);

/// A client's receive buffer, unless it asks for another size.
const WINDOW: usize = 64 * 1024;

/// The settings of a client, before it starts.
#[must_use = "nothing happens before `start`"]
pub struct Setup {
    router: Router,
    config: ServerConfig,
    headers: HeaderMap,
    peer: SocketAddr,
    seed: Option<u64>,
    real_time: bool,
}

impl Setup {
    /// For `router`, with a server's default settings.
    pub fn new(router: Router) -> Self {
        let (config, headers) = (ServerConfig::default(), HeaderMap::new());
        Setup { router, config, headers, peer: PEER, seed: None, real_time: false }
    }

    /// Replaces the settings. Only the limits, the maximum number of connections, the memory for
    /// bodies and the rules of admission apply here.
    pub fn config(mut self, config: impl Into<ServerConfig>) -> Self {
        self.config = config.into();
        self
    }

    /// Sends this header field with every request that does not set a field of this name itself.
    ///
    /// # Panics
    /// If `name` or `value` is not valid in a header.
    #[track_caller]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let (name, value) = field(name, value);
        self.headers.append(name, value);
        self
    }

    /// The address that connections come from, as [`PeerAddr`](crate::PeerAddr) shows it. Without this it is
    /// `127.0.0.1:49152`.
    pub fn peer(mut self, address: SocketAddr) -> Self {
        self.peer = address;
        self
    }

    /// Splits all sent bytes into pieces, at places that `seed` decides.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Makes Tokio's clock follow the machine's. For handlers that wait for something outside of the test, such as a
    /// database: an answer takes real time, at most 30 seconds. The server's own deadlines follow while the client waits
    /// for an answer. [`Client::advance`] moves only those deadlines.
    pub fn real_time(mut self) -> Self {
        self.real_time = true;
        self
    }

    /// Starts serving.
    ///
    /// # Panics
    /// If the router cannot be built; the message has all problems. If it needs a runtime and the client is made inside
    /// another one, or the system has no descriptors for it.
    #[track_caller]
    pub fn start(self) -> Client {
        let Setup { router, config, headers, peer, seed, real_time } = self;
        let mut server = Server::start(router, &config, seed, real_time);
        server.set_peer(peer);
        Client {
            server: RefCell::new(server),
            headers: RefCell::new(headers),
            cookies: RefCell::new(None),
        }
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
    headers: RefCell<HeaderMap>,
    /// `None` while it keeps none.
    cookies: RefCell<Option<Kept>>,
}

macro_rules! requests {
    ($($name:ident $method:ident)*) => {$(
        #[doc = concat!("The response to `", stringify!($method), "` of `target`.")]
        ///
        /// # Panics
        /// As [`RequestBuilder::send`].
        #[track_caller]
        pub fn $name(&self, target: &str) -> Response {
            self.request(Method::$method, target).send()
        }
    )*};
}

macro_rules! requests_with_body {
    ($($name:ident $json:ident $method:ident)*) => {$(
        #[doc = concat!("The response to `", stringify!($method), "` of `body` to `target`.")]
        ///
        #[doc = concat!("No `Content-Type` is sent, so a route that takes `Json` answers 415: use `",
            stringify!($json), "` there.")]
        ///
        /// # Panics
        /// As [`RequestBuilder::send`].
        #[track_caller]
        pub fn $name(&self, target: &str, body: impl Into<Bytes>) -> Response {
            self.request(Method::$method, target).body(body).send()
        }

        #[doc = concat!("The response to `", stringify!($method), "` of `value` as JSON to `target`.")]
        ///
        /// # Panics
        /// As [`RequestBuilder::json`] and [`RequestBuilder::send`].
        #[cfg(feature = "json")]
        #[track_caller]
        pub fn $json(&self, target: &str, value: &impl serde_core::Serialize) -> Response {
            self.request(Method::$method, target).json(value).send()
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

    /// From now on, sends this header field with every request that does not set a field of this name
    /// itself; it replaces an earlier one of this name. For example, after a login:
    /// `client.set_header("authorization", &format!("Bearer {token}"))`.
    ///
    /// # Panics
    /// If `name` or `value` is not valid in a header.
    #[track_caller]
    pub fn set_header(&self, name: &str, value: &str) {
        let (name, value) = field(name, value);
        self.headers.borrow_mut().insert(name, value);
    }

    /// From now on, keeps the cookies that answers set, and sends them with every request that does not set `Cookie` itself,
    /// until an answer removes them. `Domain`, `Path` and `Secure` are ignored.
    ///
    /// ```
    /// use highwater::testing::Client;
    /// use highwater::{Cookies, Router};
    ///
    /// let enter = || ([("set-cookie", "user=ann; HttpOnly")], "welcome");
    /// let me = |cookies: Cookies| cookies.get("user").unwrap_or("nobody").to_owned();
    /// let client = Client::new(Router::new().post("/enter", enter).get("/me", me));
    /// client.keep_cookies();
    /// client.post("/enter", "");
    /// assert_eq!(client.get("/me").text(), "ann");
    /// ```
    pub fn keep_cookies(&self) {
        self.cookies.borrow_mut().get_or_insert_default();
    }

    /// From now on, connections come from this address, as [`PeerAddr`](crate::PeerAddr) shows it. For example, for
    /// a limit per client.
    pub fn set_peer(&self, address: SocketAddr) {
        self.server.borrow_mut().set_peer(address);
    }

    requests! { get GET head HEAD delete DELETE options OPTIONS }

    requests_with_body! { post post_json POST put put_json PUT patch patch_json PATCH }

    /// The response to `POST` of a form to `target`: `client.post_form("/sign-in", [("name", "ann")])`.
    ///
    /// # Panics
    /// As [`RequestBuilder::send`].
    #[track_caller]
    pub fn post_form<'p>(
        &self,
        target: &str,
        pairs: impl IntoIterator<Item = (&'p str, &'p str)>,
    ) -> Response {
        self.request(Method::POST, target).form(pairs).send()
    }

    /// A request with further settings besides target and body.
    pub fn request(&self, method: Method, target: &str) -> RequestBuilder<'_> {
        RequestBuilder::new(self, None, method, target)
    }

    /// A connection of HTTP/2, on whose streams requests are sent concurrently.
    #[track_caller]
    pub fn http2(&self) -> Http2<'_> {
        Http2::open(self)
    }

    /// A connection on which the test sends bytes of its own.
    pub fn connect(&self) -> Connection<'_> {
        Connection::open(self, WINDOW, true)
    }

    /// A connection whose client buffers `window` bytes, and reads only on demand
    /// ([`Connection::read`]).
    pub fn connect_slow(&self, window: usize) -> Connection<'_> {
        Connection::open(self, window, false)
    }

    /// Opens a WebSocket at `target`.
    ///
    /// # Panics
    /// If the answer is not a valid 101; use [`RequestBuilder::websocket`] for a request with further fields.
    #[track_caller]
    pub fn websocket(&self, target: &str) -> WebSocket<'_> {
        self.request(Method::GET, target).websocket()
    }

    /// The server-sent events of `target`.
    ///
    /// # Panics
    /// If the answer is not 200 with `text/event-stream`.
    #[track_caller]
    pub fn events(&self, target: &str) -> Events<'_> {
        self.request(Method::GET, target).events()
    }

    /// The same for a client that reconnects after the event `last` (`Last-Event-ID`).
    ///
    /// # Panics
    /// As [`Client::events`], or if `last` is not valid in a header.
    #[track_caller]
    pub fn events_after(&self, target: &str, last: &str) -> Events<'_> {
        self.request(Method::GET, target).header("last-event-id", last).events()
    }

    /// Lets time pass; everything that becomes due meanwhile happens.
    ///
    /// # Panics
    /// Inside a runtime, if the application has one of its own.
    #[track_caller]
    pub fn advance(&self, by: Duration) {
        self.server.borrow_mut().advance(by);
    }

    /// Stops accepting, and lets every connection end with the answer it owes, like a server that was asked to stop.
    pub fn drain(&self) {
        self.server.borrow_mut().drain();
    }

    /// Holds back the pool for `blocking` handlers, as if it were busy, until this is called with
    /// `false`.
    pub fn hold_pool(&self, held: bool) {
        self.server.borrow_mut().hold_pool(held);
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.server.borrow().connections()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

/// A header field of these texts.
#[track_caller]
fn field(name: &str, value: &str) -> (HeaderName, HeaderValue) {
    match (HeaderName::try_from(name), HeaderValue::try_from(value)) {
        (Ok(name), Ok(value)) => (name, value),
        (Err(_), _) => panic!("{name:?} is not the name of a header field"),
        (_, Err(_)) => panic!("{value:?} is not the value of a header field"),
    }
}
