//! A router that one worker serves on a free port, and a client that asks it once.
#![allow(dead_code, reason = "no test file uses all of it")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZero;
use std::time::{Duration, Instant};

use highwater::server::{LogFormat, Shed, TransportChoice};
use highwater::{Router, Running, Server, ServerConfig};

use crate::answers::{Answer, Answers};

/// No answer takes this long unless something hangs.
pub(crate) const HANG: Duration = Duration::from_secs(20);

/// One worker on a free port, without metrics, gate in the kernel, or lines on standard error.
pub(crate) fn config(transport: TransportChoice) -> ServerConfig {
    ServerConfig {
        listen: vec![([127, 0, 0, 1], 0).into()],
        metrics: None,
        workers: NonZero::new(1),
        transport,
        shed: Some(Shed::Accept),
        log: LogFormat::Off,
        ..ServerConfig::default()
    }
}

/// Serves `router`.
pub(crate) fn start(router: Router, transport: TransportChoice) -> Running {
    start_with(router, config(transport))
}

/// The same, with these settings.
pub(crate) fn start_with(router: Router, config: ServerConfig) -> Running {
    Server::new(router).config(config).start().expect("it starts")
}

/// The answer to `request`, which asks for the connection to end.
pub(crate) fn exchange(address: SocketAddr, request: &str) -> Answer {
    let mut stream = TcpStream::connect_timeout(&address, HANG).expect("it listens");
    stream.set_read_timeout(Some(HANG)).expect("it is open");
    stream.write_all(request.as_bytes()).expect("it is open");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("it is answered");
    Answers::default().next(&mut bytes).expect("the answer is complete")
}

/// Computes for this long.
pub(crate) fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}
