//! What does a request cost the heap? Counted over the whole path: socket, worker, router, handler,
//! encoder, socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use allocation_counter::measure;
use highwater_core::driver::Wait;
use highwater_sys::epoll::Epoll;
use highwater_sys::uring::Uring;
use highwater_sys::{DriverConfig, External, Listener};

use super::{Inbox, Pool, ServerConfig, Worker, WorkerConfig};
use crate::app::{Path, Router};

/// Requests before counting begins: buffers grow to their size, tables to theirs.
const WARM_UP: usize = 200;
const COUNTED: usize = 1000;

/// How many allocations `COUNTED` requests made, one after the other on one connection.
fn count<D: External>(listener: Listener, driver: D, request: &[u8], answer_ends: &[u8]) -> u64 {
    let address: SocketAddr = listener.local_addr().expect("it is bound");
    drop(listener);
    let router = Router::new()
        .get("/plaintext", || "Hello, World!")
        .get("/users/{id}", |Path(id): Path<u64>| if id == 7 { "seven" } else { "another" });
    let app = router.build().expect("the routes do not conflict");
    let mut config = WorkerConfig::new(app, &ServerConfig::default());
    // A machine that pauses this thread must not cause a request to be queued.
    config.terms.turn_max = Duration::MAX;
    let inbox = Inbox::new(Box::new(|| {}));
    let mut worker: Worker<_> = Worker::new(driver, config, inbox, Pool::deferred(1));
    let mut client = TcpStream::connect(address).expect("it listens");
    client.set_nonblocking(true).expect("a socket can be nonblocking");
    let mut exchange = || {
        client.write_all(request).expect("a request fits the socket's buffer");
        let mut answer = [0; 512];
        loop {
            worker.turn(Wait::No).expect("the driver works");
            match client.read(&mut answer) {
                Ok(len) if answer[..len].ends_with(answer_ends) => return,
                Ok(len) => panic!("{}", answer[..len].escape_ascii()),
                Err(_) => {} // Not yet.
            }
        }
    };
    (0..WARM_UP).for_each(|_| exchange());
    measure(|| (0..COUNTED).for_each(|_| exchange())).count_total
}

fn listener() -> (Listener, Listener) {
    // Nobody else's address: a client of another test that retries on 127.0.0.1 might meet us, and to accept it allocates.
    let listener = Listener::bind(([127, 83, 0, 1], 0).into(), 16).expect("a free port");
    let another = listener.another().expect("the same port again");
    (listener, another)
}

/// Purpose: a request that is answered at once allocates nothing, on either driver, with or without
/// a path parameter.
#[test]
fn none_per_request() {
    let plain: (&[u8], &[u8]) = (b"GET /plaintext HTTP/1.1\r\nHost: h\r\n\r\n", b"Hello, World!");
    let param: (&[u8], &[u8]) = (b"GET /users/7 HTTP/1.1\r\nHost: h\r\n\r\n", b"seven");
    for (request, answer) in [plain, param] {
        let (held, own) = listener();
        let driver =
            Epoll::new(vec![own], &DriverConfig::default()).expect("epoll works everywhere");
        assert_eq!(count(held, driver, request, answer), 0, "epoll");
        if let Err(reason) = highwater_sys::probe().uring {
            highwater_skip::skip("io_uring", reason);
            continue;
        }
        let (held, own) = listener();
        let driver = Uring::new(vec![own], &DriverConfig::default()).expect("io_uring works here");
        assert_eq!(count(held, driver, request, answer), 0, "io_uring");
    }
}
