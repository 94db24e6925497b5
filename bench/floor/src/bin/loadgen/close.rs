//! A new connection for every request: connect, ask with `Connection: close`, read to the end,
//! close.
//!
//! Plain epoll: each connection needs a `connect` and a `close` whatever waits for it, so batching
//! buys little here. The client is the bottleneck in this mode; compare CPU per request, never
//! requests per second.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use highwater_floor::epoll::{Epoll, Events};

use crate::measure::Meter;
use crate::plan::Plan;

/// How often the clock is looked at when nothing happens, in milliseconds.
const TICK_MS: libc::c_int = 100;

struct Exchange {
    stream: TcpStream,
    /// When the connection was asked for, in nanoseconds of the meter's clock.
    started: u64,
    received: usize,
}

struct Client<'plan> {
    plan: &'plan Plan,
    epoll: Epoll,
    /// By descriptor.
    exchanges: Vec<Option<Exchange>>,
}

/// Runs until the meter says it is over.
pub(crate) fn run(plan: &Plan, response_len: usize, meter: &mut Meter) -> Result<(), String> {
    let mut client = Client {
        plan,
        epoll: Epoll::new().map_err(|error| error.to_string())?,
        exchanges: Vec::new(),
    };
    for _ in 0..plan.connections {
        client.open(meter.now())?;
    }
    let mut events = Events::new();
    let mut buffer = vec![0; response_len + 1];
    loop {
        client
            .epoll
            .wait(&mut events, TICK_MS)
            .map_err(|error| error.to_string())?;
        if meter.over(meter.now())? {
            return Ok(());
        }
        for (fd, ready) in events.iter() {
            let ended = ready & (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) != 0;
            let exchange = client.exchanges[fd]
                .as_mut()
                .expect("a closed descriptor reports nothing");
            if exchange.advance(&mut buffer, response_len, ended)? {
                let now = meter.now();
                meter.answered(now - exchange.started, 1);
                client.exchanges[fd] = None;
                client.open(now)?;
            }
        }
    }
}

impl Client<'_> {
    fn open(&mut self, started: u64) -> Result<(), String> {
        let mut stream = self.plan.dial()?;
        stream
            .write_all(&self.plan.request)
            .map_err(|error| format!("send: {error}"))?;
        let interest = libc::EPOLLIN | libc::EPOLLRDHUP;
        self.epoll
            .add(&stream, interest)
            .map_err(|error| format!("epoll: {error}"))?;
        let fd = stream.as_raw_fd() as usize;
        if fd >= self.exchanges.len() {
            self.exchanges.resize_with(fd + 1, || None);
        }
        self.exchanges[fd] = Some(Exchange {
            stream,
            started,
            received: 0,
        });
        Ok(())
    }
}

impl Exchange {
    /// Reads once, which level-triggered readiness says will not block. True when the server has
    /// closed after a whole answer; `ended` says that its end has arrived, so no second read is
    /// needed to see it.
    fn advance(&mut self, buffer: &mut [u8], len: usize, ended: bool) -> Result<bool, String> {
        let more = self
            .stream
            .read(buffer)
            .map_err(|error| format!("receive: {error}"))?;
        if self.received == 0 {
            crate::measure::check_status(&buffer[..more])?;
        }
        self.received += more;
        match self.received {
            received if received > len => Err(format!(
                "an answer is longer than the first one's {len} bytes"
            )),
            received if received == len => Ok(more == 0 || ended),
            received if more == 0 => {
                Err(format!("an answer ended after {received} of {len} bytes"))
            }
            _ => Ok(false),
        }
    }
}
