//! One client among many, over real sockets: who asks for too much is refused, and others are served.
//!
//! A crowd of connections from one address asks again and again, for several times what the only worker can do. Beside it
//! a few other clients ask now and then, for a third of the capacity together.

mod answers;
mod served;
mod transports;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use answers::Answers;
use highwater::server::{Fair, TransportChoice};
use highwater::{Request, Router, Server, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};
use transports::on_each_transport;

/// No step takes this long unless something hangs.
const HANG: Duration = Duration::from_secs(20);

const PATIENCE: Duration = Duration::from_millis(50);
const WORK: Duration = Duration::from_millis(3);

/// Connections of the crowd, and requests of it that are refused before the others begin: an overload by then.
const CROWD: usize = 100;
const REFUSED_BEFORE: u64 = 500;

/// The other clients, how often each asks, and when.
const OTHERS: u8 = 5;
const REQUESTS: u64 = 60;
const PAUSE: Duration = Duration::from_millis(45);

/// What was answered to whom: 200, 503 and 500.
#[derive(Default)]
struct Counts {
    served: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    fn count(&self, status: u16) {
        match status {
            200 => self.served.fetch_add(1, SeqCst),
            503 => self.refused.fetch_add(1, SeqCst),
            500 => self.failed.fetch_add(1, SeqCst),
            other => panic!("status {other}"),
        };
    }
}

struct Client(TcpStream, Vec<u8>, Answers);

impl Client {
    async fn connect(source: [u8; 4], address: SocketAddr) -> Client {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((IpAddr::from(source), 0).into()).expect("all of 127/8 is ours");
        let connected = timeout(HANG, socket.connect(address)).await;
        Client(connected.expect("in time").expect("it listens"), Vec::new(), Answers::default())
    }

    async fn status(&mut self, fields: &str) -> u16 {
        let request = format!("GET /work HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        self.0.write_all(request.as_bytes()).await.expect("it takes a request");
        loop {
            if let Some(answer) = self.2.next(&mut self.1) {
                return answer.status;
            }
            let mut bytes = [0; 4096];
            let read = timeout(HANG, self.0.read(&mut bytes)).await.expect("an answer in time");
            let len = read.expect("a connection that is kept");
            assert!(len > 0, "the connection ended");
            self.1.extend_from_slice(&bytes[..len]);
        }
    }
}

/// Who a client is, for the server.
#[derive(Clone, Copy)]
enum Named {
    /// By its address.
    Address,
    /// By a field that a proxy at 127.0.0.1 adds.
    Field,
    /// By the application, which looks at a field of its own.
    Application,
}

impl Named {
    /// The address that client `number` connects from, and the fields of its requests.
    fn who(self, number: u8) -> ([u8; 4], String) {
        match self {
            Named::Address => ([127, 0, 1, number], String::new()),
            Named::Field => ([127, 0, 0, 1], format!("X-Forwarded-For: 192.0.2.{number}\r\n")),
            Named::Application => ([127, 0, 0, 1], format!("X-Client: {number}\r\n")),
        }
    }
}

/// The client that the application names; it panics for client 0.
fn client(request: &Request<'_>) -> Option<u8> {
    let number = request.header("x-client")?.parse().ok()?;
    assert_ne!(number, 0, "a client that the application does not expect");
    Some(number)
}

/// Requests of the crowd, and of the others beside it: clients 1 to 5.
fn beside_a_crowd(
    transport: TransportChoice,
    named: Named,
    config: ServerConfig,
) -> (Counts, Counts) {
    let [crowd, others, _] = beside_a_crowd_and(transport, named, config, 0);
    (crowd, others)
}

/// The same, and those of so many clients with the number 0.
fn beside_a_crowd_and(
    transport: TransportChoice,
    named: Named,
    config: ServerConfig,
    zeros: usize,
) -> [Counts; 3] {
    let config = ServerConfig {
        connection_limit: Some(100_000),
        patience: PATIENCE,
        fair: config.fair,
        trusted_proxies: config.trusted_proxies,
        ..served::config(transport)
    };
    let work = || {
        served::spin(WORK);
        "done"
    };
    let mut router = Router::new().get("/work", work);
    if matches!(named, Named::Application) {
        router = router.fair_by(client);
    }
    let server = Server::new(router).config(config).start();
    let mut server = server.expect("it starts");
    let address = server.address();
    let [crowd, others, zero] = [(); 3].map(|()| Arc::new(Counts::default()));
    let is_over = Arc::new(AtomicBool::new(false));
    let clients = Builder::new_current_thread().enable_all().build().expect("a runtime");
    clients.block_on(async {
        for _ in 0..CROWD {
            let (crowd, is_over) = (Arc::clone(&crowd), Arc::clone(&is_over));
            let (source, fields) = named.who(99);
            tokio::spawn(async move {
                let mut client = Client::connect(source, address).await;
                while !is_over.load(SeqCst) {
                    crowd.count(client.status(&fields).await);
                    sleep(Duration::from_millis(5)).await;
                }
            });
        }
        let begun = Instant::now();
        while crowd.refused.load(SeqCst) < REFUSED_BEFORE {
            assert!(begun.elapsed() < HANG, "an overload that is never seen");
            sleep(Duration::from_millis(5)).await;
        }
        let mut asking = Vec::new();
        let numbers = (1..=OTHERS).map(|number| (number, &others));
        for (number, counts) in numbers.chain(std::iter::repeat_n((0, &zero), zeros)) {
            let counts = Arc::clone(counts);
            let (source, fields) = named.who(number);
            asking.push(tokio::spawn(async move {
                let mut client = Client::connect(source, address).await;
                for _ in 0..REQUESTS {
                    counts.count(client.status(&fields).await);
                    sleep(PAUSE).await;
                }
            }));
        }
        for client in asking {
            client.await.expect("no client fails");
        }
        is_over.store(true, SeqCst);
    });
    drop(clients);
    server.stop().expect("it ends");
    [crowd, others, zero].map(|counts| Arc::into_inner(counts).expect("all clients have ended"))
}

/// At most this share of the others' requests may be refused: the machine may stop for a while, and then all of them
/// are late.
const LOST_PERCENT: u64 = 5;

fn assert_served(others: &Counts) {
    let (served, refused) = (others.served.load(SeqCst), others.refused.load(SeqCst));
    assert_eq!(served + refused, u64::from(OTHERS) * REQUESTS);
    assert!(
        refused * 100 <= LOST_PERCENT * (served + refused),
        "{refused} refused of {}",
        served + refused
    );
}

on_each_transport! {
    /// Purpose: clients that ask for less than their share are served, however much a client at another address asks for;
    /// that one gets what they leave.
    fn each_address_gets_its_share(transport) {
        let (crowd, others) = beside_a_crowd(transport, Named::Address, ServerConfig::default());
        assert_served(&others);
        assert!(crowd.served.load(SeqCst) > 100 && crowd.refused.load(SeqCst) > 500);
    }

    /// Purpose: behind a trusted proxy, the clients that it names get shares.
    fn each_client_of_a_trusted_proxy_gets_its_share(transport) {
        let config = ServerConfig {
            trusted_proxies: "127.0.0.0/8".parse().expect("a network"),
            ..ServerConfig::default()
        };
        let (_, others) = beside_a_crowd(transport, Named::Field, config);
        assert_served(&others);
    }

    /// Purpose: where the application names clients these get shares, though all have one address. A panic in its
    /// function is answered 500 and is the end of one request: the clients that cause none do not notice.
    fn each_client_of_the_application_gets_its_share(transport) {
        let config = ServerConfig::default();
        let [crowd, others, zero] = beside_a_crowd_and(transport, Named::Application, config, 1);
        assert_served(&others);
        assert_eq!((crowd.failed.load(SeqCst), others.failed.load(SeqCst)), (0, 0));
        assert!(crowd.served.load(SeqCst) > 100);
        // While nothing waits the application is not asked.
        let (failed, all) = (zero.failed.load(SeqCst), REQUESTS);
        assert!(failed > all / 2, "{failed} of {all}");
    }
}

/// Purpose: the same without shares, and with fields of a proxy that is not trusted: the client that asks most is served most, and
/// the others are refused like everybody. So the tests above can fail.
#[test]
fn without_shares_all_are_refused_alike() {
    let off = ServerConfig { fair: Fair::Off, ..ServerConfig::default() };
    for (named, config) in [(Named::Address, off), (Named::Field, ServerConfig::default())] {
        let (_, others) = beside_a_crowd(TransportChoice::Epoll, named, config);
        let (served, refused) = (others.served.load(SeqCst), others.refused.load(SeqCst));
        assert!(
            refused * 100 > 20 * (served + refused),
            "{refused} refused of {}",
            served + refused
        );
    }
}
