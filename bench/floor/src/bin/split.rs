//! Where does the time of one request go? A client with one connection that sends one request after the other, and divides
//! each at the client's system calls:
//!
//! ```text
//!  ├─ write ─┤├──────────── server ────────────┤├─ read ─┤
//!  send(2)     from its return until poll(2)     recv(2)
//!              says that the response is here
//! ```
//! Over loopback `write` contains the kernel's path to the server's socket, and `server` the wake-up on both sides. It prints
//! a line of JSON: requests, their rate, and percentiles of the part that `--part` names.

use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use highwater_floor::epoll::{Epoll, Events};
use highwater_floor::flags::{self, Flags};

const HELP: &str = "\
The time of a request, split at the client's system calls.

Usage: split --connect ADDR [flags]

  --connect ADDR    IPv4 address and port of the server
  --path PATH       [/plaintext]
  --part PART       write, server, read or whole [whole]
  --seconds N       [1]
  --pause-us N      between two requests [0]
  --help            this text";

/// A response has to fit: it is read with one call.
const RESPONSE_SIZE_MAX: usize = 65_536;
/// Requests before the first one that counts.
const WARM_UP: usize = 200;

fn main() -> ExitCode {
    flags::main("split", HELP, run)
}

/// The parts of one request, in nanoseconds.
struct Times {
    write: u64,
    server: u64,
    read: u64,
}

fn run(arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let flags = Flags::parse(arguments, &["connect", "path", "part", "seconds", "pause-us"], &[])?;
    let address = flags.value("connect", SocketAddrV4::new([127, 0, 0, 1].into(), 8080))?;
    let path = flags.value("path", "/plaintext".to_owned())?;
    let part = flags.value("part", "whole".to_owned())?;
    let of: fn(&Times) -> u64 = match part.as_str() {
        "write" => |times| times.write,
        "server" => |times| times.server,
        "read" => |times| times.read,
        "whole" => |times| times.write + times.server + times.read,
        other => return Err(format!("--part {other}: write write, server, read or whole")),
    };
    let lasting = Duration::from_secs_f64(flags.value("seconds", 1.0_f64)?);
    let pause = Duration::from_micros(flags.value("pause-us", 0)?);
    let times =
        measure(address, &path, lasting, pause).map_err(|error| format!("{address}: {error}"))?;
    let mut parts: Vec<u64> = times.iter().map(of).collect();
    parts.sort_unstable();
    let percentile = |share: f64| parts[((parts.len() - 1) as f64 * share) as usize] as f64 / 1e3;
    let line = format!(
        "{{\"requests\":{},\"rps\":{:.1},\"p50_us\":{},\"p90_us\":{},\"p99_us\":{},\"p999_us\":{},\"max_us\":{}}}\n",
        parts.len(),
        parts.len() as f64 / lasting.as_secs_f64(),
        percentile(0.5),
        percentile(0.9),
        percentile(0.99),
        percentile(0.999),
        percentile(1.0)
    );
    io::stdout().write_all(line.as_bytes()).map_err(|error| error.to_string())
}

fn measure(
    address: SocketAddrV4,
    path: &str,
    lasting: Duration,
    pause: Duration,
) -> io::Result<Vec<Times>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let epoll = Epoll::new()?;
    epoll.add(&stream, libc::EPOLLIN)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let mut buffer = vec![0; RESPONSE_SIZE_MAX];
    let mut events = Events::new();
    let mut times = Vec::with_capacity(1 << 20);
    for _ in 0..WARM_UP {
        one(&mut stream, &epoll, &mut events, request.as_bytes(), &mut buffer)?;
    }
    let end = Instant::now() + lasting;
    while Instant::now() < end {
        times.push(one(&mut stream, &epoll, &mut events, request.as_bytes(), &mut buffer)?);
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
    Ok(times)
}

/// One request and its response, which comes in one piece.
fn one(
    stream: &mut TcpStream,
    epoll: &Epoll,
    events: &mut Events,
    request: &[u8],
    buffer: &mut [u8],
) -> io::Result<Times> {
    let begun = Instant::now();
    stream.write_all(request)?;
    let written = Instant::now();
    // `wait` takes out the events of the request before.
    epoll.wait(events, -1)?;
    while events.iter().next().is_none() {
        epoll.wait(events, -1)?;
    }
    let ready = Instant::now();
    let size = stream.read(buffer)?;
    let read = Instant::now();
    let response = &buffer[..size];
    if !(response.starts_with(b"HTTP/1.1 200 ")
        && response.windows(4).any(|end| end == b"\r\n\r\n"))
    {
        let start = String::from_utf8_lossy(&response[..size.min(80)]).into_owned();
        return Err(io::Error::other(format!("not a response of 200 in one piece: {start:?}")));
    }
    let nanos = |from: Instant, to: Instant| to.duration_since(from).as_nanos() as u64;
    Ok(Times {
        write: nanos(begun, written),
        server: nanos(written, ready),
        read: nanos(ready, read),
    })
}
