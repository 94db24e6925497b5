//! Overload over real sockets: which requests are served, which are refused, and which are never
//! begun.
//!
//! To give a server much to do at once, a handler holds its only worker until everything has been
//! sent. To overload it, more clients than it can answer within the patience send requests again
//! and again.

mod answers;
mod served;
mod transports;

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use answers::{Answer, Answers};
use highwater::server::{Shed, TransportChoice};
use highwater::testing::Setup;
use highwater::{Error, Handler, Path, Priority, Router, ServerConfig, blocking};
use highwater_testkit::read_some;
use served::{HANG, spin, start_with as start};
use transports::on_each_transport;

/// What clients are said to wait for.
const PATIENCE: Duration = Duration::from_millis(50);

/// What one request of `/work` costs, and how many clients ask for it: five times the patience.
const WORK: Duration = Duration::from_millis(3);
const CROWD: usize = 80;

fn config(transport: TransportChoice) -> ServerConfig {
    ServerConfig { connection_limit: Some(100_000), ..served::config(transport) }
}

/// A handler that holds its worker until it is let go.
#[derive(Clone, Default)]
struct Hold {
    entered: Arc<AtomicBool>,
    released: Arc<AtomicBool>,
}

impl Hold {
    fn handler(&self) -> impl Fn() -> &'static str + Send + Sync + 'static {
        let hold = self.clone();
        move || {
            hold.entered.store(true, SeqCst);
            while !hold.released.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            "held"
        }
    }

    fn until_entered(&self) {
        let begun = Instant::now();
        while !self.entered.load(SeqCst) {
            assert!(begun.elapsed() < HANG);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn release(&self) {
        self.released.store(true, SeqCst);
    }
}

struct Client(TcpStream, Vec<u8>, Answers);

impl Client {
    /// Connected, and known to the server.
    fn known(address: SocketAddr) -> Client {
        let mut client = Client::connect(address);
        client.ask("/health", "");
        assert_eq!(client.status(), 200);
        client
    }

    fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_nodelay(true).expect("a socket has options");
        stream.set_read_timeout(Some(HANG)).expect("a socket has options");
        Client(stream, Vec::new(), Answers::default())
    }

    fn ask(&mut self, path: &str, fields: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        self.0.write_all(request.as_bytes()).expect("it takes a request");
    }

    /// The next answer.
    fn answer(&mut self) -> Option<Answer> {
        loop {
            if let Some(answer) = self.2.next(&mut self.1) {
                return Some(answer);
            }
            let mut bytes = [0; 4096];
            match read_some(&mut self.0, &mut bytes) {
                Ok(len) if len > 0 => self.1.extend_from_slice(&bytes[..len]),
                _ => return None,
            }
        }
    }

    fn status(&mut self) -> u16 {
        self.answer().expect("an answer").status
    }
}

/// An application that counts what it begins, in an error shape of its own.
fn router(hold: &Hold, begun: &Arc<AtomicUsize>) -> Router {
    let begun = Arc::clone(begun);
    Router::new()
        .errors(|error: &Error| format!("<{}>", error.code()))
        .get("/hold", hold.handler())
        .get("/health", (|| "healthy").never_shed())
        .get("/work", || {
            spin(WORK);
            "done"
        })
        .get("/counted", move || {
            begun.fetch_add(1, SeqCst);
            spin(WORK);
            "done"
        })
}

on_each_transport! {
    /// Purpose: a burst is not an overload: all of it is served, in the time it takes, even if that is
    /// many times the patience.
    fn a_crowd_is_served(transport) {
        let (hold, begun) = (Hold::default(), Arc::default());
        let config = ServerConfig { patience: PATIENCE, ..config(transport) };
        let mut server = start(router(&hold, &begun), config);
        let address = server.address();
        let mut holder = Client::known(address);
        let mut crowd: Vec<_> = (0..CROWD).map(|_| Client::known(address)).collect();
        holder.ask("/hold", "");
        hold.until_entered();
        crowd.iter_mut().for_each(|client| client.ask("/counted", ""));
        hold.release();
        for client in &mut crowd {
            assert_eq!(client.status(), 200);
        }
        assert_eq!(begun.load(SeqCst), CROWD);
        server.stop().expect("it stops");
    }

    /// Purpose: a server that cannot keep up answers some requests in time and refuses the others,
    /// in the application's own words and with a time to come back. The health check is answered,
    /// no request is forgotten, and when the load has ended, all is as before.
    fn a_standing_crowd_is_thinned(transport) {
        let (hold, begun) = (Hold::default(), Arc::default());
        let config = ServerConfig { patience: PATIENCE, ..config(transport) };
        let mut server = start(router(&hold, &begun), config);
        let address = server.address();
        // Each asks again as soon as it is answered, until enough have been refused.
        let (refused, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let begin = Instant::now();
        let mut retry_after: Vec<String> = std::thread::scope(|scope| {
            let ask = || {
                let (mut client, mut waits) = (Client::known(address), Vec::new());
                while refused.load(SeqCst) < CROWD && begin.elapsed() < HANG {
                    client.ask("/counted", "");
                    let answer = client.answer().expect("every client is answered");
                    if answer.status == 503 {
                        assert_eq!(answer.content, "<overloaded>");
                        assert_eq!(answer.field("connection"), None, "connections are not scarce");
                        waits.push(answer.field("retry-after").expect("a time").to_owned());
                        refused.fetch_add(1, SeqCst);
                    } else {
                        assert_eq!((answer.status, answer.content.as_str()), (200, "done"));
                        answered.fetch_add(1, SeqCst);
                    }
                }
                waits
            };
            let crowd: Vec<_> = (0..CROWD).map(|_| scope.spawn(ask)).collect();
            let mut health = Client::known(address);
            health.ask("/health", "");
            assert_eq!(health.status(), 200);
            crowd.into_iter().flat_map(|client| client.join().expect("no client panics")).collect()
        });
        assert!(refused.load(SeqCst) >= CROWD, "{refused:?} were refused");
        assert_eq!(begun.load(SeqCst), answered.load(SeqCst), "what was refused was not begun");
        retry_after.sort_unstable();
        retry_after.dedup();
        assert_eq!(retry_after, ["1", "2", "3", "4"]);
        let mut later = Client::known(address);
        later.ask("/counted", "");
        assert_eq!(later.status(), 200);
        server.stop().expect("it stops");
    }

    /// Purpose: a request whose deadline has passed is not begun, even if nothing is refused
    /// because of load.
    fn no_work_past_a_deadline(transport) {
        let (hold, begun) = (Hold::default(), Arc::default());
        let mut server = start(router(&hold, &begun), config(transport));
        let address = server.address();
        let mut holder = Client::known(address);
        let mut crowd: Vec<_> = (0..CROWD).map(|_| Client::known(address)).collect();
        let mut late = Client::known(address);
        holder.ask("/hold", "");
        hold.until_entered();
        crowd.iter_mut().for_each(|client| client.ask("/work", ""));
        late.ask("/counted", "Request-Timeout: 0.02\r\n");
        hold.release();
        assert_eq!(late.status(), 503);
        for client in &mut crowd {
            assert_eq!(client.status(), 200);
        }
        assert_eq!(begun.load(SeqCst), 0);
        server.stop().expect("it stops");
    }

    /// Purpose: pipelined requests are answered in order though others are served between them.
    fn pipelines_stay_in_order(transport) {
        let work = |Path(n): Path<u32>| {
            spin(Duration::from_micros(300));
            n.to_string()
        };
        let router = Router::new().get("/health", || "healthy").get("/n/{n}", work);
        let mut server = start(router, ServerConfig { shed: Some(Shed::None), ..config(transport) });
        let mut clients: Vec<_> = (0..8).map(|_| Client::known(server.address())).collect();
        let requests: String =
            (0..40).map(|n| format!("GET /n/{n} HTTP/1.1\r\nHost: h\r\n\r\n")).collect();
        for client in &mut clients {
            client.0.write_all(requests.as_bytes()).expect("it takes requests");
        }
        for client in &mut clients {
            for n in 0..40 {
                let answer = client.answer().expect("an answer to each");
                assert_eq!(answer.content, n.to_string());
            }
        }
        server.stop().expect("it stops");
    }

    /// Purpose: a drain answers or refuses every request that waits for its turn.
    fn a_drain_forgets_no_request(transport) {
        for shed in [Shed::None, Shed::Accept] {
            let (hold, begun) = (Hold::default(), Arc::default());
            let config = ServerConfig { shed: Some(shed), ..config(transport) };
            let mut server = start(router(&hold, &begun), config);
            let address = server.address();
            let mut holder = Client::known(address);
            let mut crowd: Vec<_> = (0..CROWD).map(|_| Client::known(address)).collect();
            holder.ask("/hold", "");
            hold.until_entered();
            crowd.iter_mut().for_each(|client| client.ask("/work", ""));
            let stopping = std::thread::spawn(move || server.stop());
            hold.release();
            for client in &mut crowd {
                let status = client.status();
                assert!(status == 200 || (status == 503 && shed == Shed::Accept), "{status}");
            }
            stopping.join().expect("it does not panic").expect("it stops");
        }
    }

    /// Purpose: a closed gate admits one connection with every answer: thousands of clients get
    /// through one at a time.
    fn a_shut_gate_opens(transport) {
        let config = ServerConfig { connection_limit: Some(1), ..config(transport) };
        let mut server = start(Router::new().get("/", || "ok"), config);
        let address = server.address();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(move || {
                    for _ in 0..500 {
                        let mut client = Client::connect(address);
                        client.ask("/", "Connection: close\r\n");
                        assert_eq!(client.status(), 200);
                    }
                });
            }
        });
        server.stop().expect("it stops");
    }

    /// Purpose: clients that connect and send nothing do not close the gate for others.
    fn silence_is_no_work(transport) {
        let config = ServerConfig { connection_limit: Some(2), ..config(transport) };
        let mut server = start(Router::new().get("/", || "ok"), config);
        let silent: Vec<_> = (0..6).map(|_| Client::connect(server.address())).collect();
        // Long before any of them is closed for its silence.
        let mut client = Client::connect(server.address());
        client.0.set_read_timeout(Some(Duration::from_secs(8))).expect("a socket has options");
        client.ask("/", "");
        assert_eq!(client.status(), 200);
        drop(silent);
        server.stop().expect("it stops");
    }

    /// Purpose: a route's limit is never exceeded by one, over all workers, and a finished request
    /// frees its place.
    fn a_routes_limit_is_exact(transport) {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counters = (Arc::clone(&now), Arc::clone(&most));
        let limited = move || {
            let (now, most) = &counters;
            most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            std::thread::sleep(Duration::from_millis(2));
            now.fetch_sub(1, SeqCst);
            "done"
        };
        let router = Router::new().get("/limited", blocking(limited).concurrency_limit(3));
        let workers = std::num::NonZero::new(2);
        let mut server = start(router, ServerConfig { workers, ..config(transport) });
        let address = server.address();
        let answers: Vec<u16> = std::thread::scope(|scope| {
            let ask = move || {
                let mut client = Client::connect(address);
                (0..50).map(move |_| {
                    client.ask("/limited", "");
                    client.status()
                }).collect::<Vec<_>>()
            };
            let clients: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect()
        });
        assert_eq!(most.load(SeqCst), 3);
        assert!(answers.iter().all(|status| [200, 503].contains(status)));
        assert!(answers.contains(&503));
        // All places are free again.
        let mut client = Client::connect(address);
        client.ask("/limited", "");
        assert_eq!(client.status(), 200);
        server.stop().expect("it stops");
    }

    /// Purpose: while requests wait, those with a higher priority go first, by their route or by
    /// the client's field.
    fn the_important_go_first(transport) {
        let order: Arc<Mutex<Vec<String>>> = Arc::default();
        let note = |name: &'static str| {
            let order = Arc::clone(&order);
            move || {
                order.lock().expect("no holder panics").push(name.into());
                spin(WORK);
                "done"
            }
        };
        let hold = Hold::default();
        let router = Router::new()
            .priority_field("priority")
            .get("/health", || "healthy")
            .get("/hold", hold.handler())
            .get("/low", note("low").priority(Priority::Low))
            .get("/normal", note("normal"))
            .get("/high", note("high").priority(Priority::High));
        // However slow the machine is, nothing is refused here.
        let config = ServerConfig { queue_target: HANG, ..config(transport) };
        let mut server = start(router, config);
        let mut holder = Client::known(server.address());
        let mut clients: Vec<_> = (0..9).map(|_| Client::known(server.address())).collect();
        holder.ask("/hold", "");
        hold.until_entered();
        let kinds = [
            ("/normal", ""), // Served as soon as it comes: no request waits yet.
            ("/low", ""),
            ("/low", "Priority: high\r\n"),
            ("/normal", ""),
            ("/high", ""),
            ("/low", ""),
            ("/normal", ""),
            ("/high", ""),
            ("/high", "Priority: u=7\r\n"),
        ];
        for (client, (path, requested)) in clients.iter_mut().zip(kinds) {
            client.ask(path, requested);
        }
        hold.release();
        assert!(clients.iter_mut().all(|client| client.status() == 200));
        let order = order.lock().expect("no holder panics");
        let expected = ["low", "high", "high", "normal", "normal", "low", "low", "high"];
        assert_eq!(order[1..], expected);
        server.stop().expect("it stops");
    }
}

/// Purpose: no request waits for longer than its client's deadline, nor for longer than the server
/// allows a client to ask for; invalid deadlines are ignored.
#[test]
fn clients_bound_async_handlers() {
    let never = || async { std::future::pending::<&'static str>().await };
    let router = || Router::new().get("/", never.timeout(Duration::from_secs(30)));
    let settings = ServerConfig { deadline_max: Duration::from_secs(5), ..ServerConfig::default() };
    let client = Setup::new(router()).config(settings).start();
    for (requested, seconds) in [("0.25", 0.25), ("7", 5.0), ("soon", 30.0)] {
        let mut connection = client.connect();
        let request = format!("GET / HTTP/1.1\r\nHost: h\r\nRequest-Timeout: {requested}\r\n\r\n");
        connection.send(request);
        client.advance(Duration::from_secs_f64(seconds - 0.1));
        assert!(connection.received().is_empty(), "{requested}");
        client.advance(Duration::from_secs_f64(0.2));
        let received = String::from_utf8_lossy(connection.received()).into_owned();
        assert!(
            received.starts_with("HTTP/1.1 503") && received.contains("\"timeout\""),
            "{received}"
        );
    }
}
