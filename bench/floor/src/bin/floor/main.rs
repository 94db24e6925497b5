//! The floor: single-threaded loops that answer every `\r\n\r\n` with the same 120 bytes. No HTTP
//! is parsed, nothing is routed: what remains is what the kernel's TCP path costs, the least any
//! server can do on this machine.
//!
//! `uring` is the floor for a server on io_uring, `epoll` for one on epoll, `tokio` for one on Tokio, and `threads` for
//! one with a blocking thread for each connection.

mod epoll;
mod protocol;
mod threads;
mod tokio;
mod uring;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::process::ExitCode;

use highwater_floor::flags::{self, Flags};
use highwater_floor::socket;

/// Bytes of one receive, and what may be asked for.
const BUFFER_SIZE: usize = 4096;
const BUFFER_SIZES: RangeInclusive<usize> = 64..=262_144;

const HELP: &str = "\
Bare server loops to compare with.

Usage: floor uring|epoll|tokio|threads [flags]

  --listen ADDR   IPv4 address and port to listen on [127.0.0.1:8090]
  --cpu N         pin to this CPU [0]
  --buffer N      bytes of one receive, 64 to 262144; not for uring [4096]
  --churn         close each connection after its first response
  --help          this text";

fn main() -> ExitCode {
    flags::main("floor", HELP, run)
}

fn run(mut arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let variant = arguments.next().unwrap_or_default();
    let flags = Flags::parse(arguments, &["listen", "cpu", "buffer"], &["churn"])?;
    let addr = flags.value("listen", SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8090))?;
    let cpu = flags.value("cpu", 0)?;
    let churn = flags.switch("churn");
    let buffer = flags.value("buffer", BUFFER_SIZE)?;
    if !BUFFER_SIZES.contains(&buffer) {
        return Err(format!("--buffer {buffer}: write 64 to 262144"));
    }

    socket::pin(cpu).map_err(|error| format!("--cpu {cpu}: {error}"))?;
    let listener = socket::listen(addr).map_err(|error| format!("--listen {addr}: {error}"))?;
    share_the_descriptor_table();
    let served: io::Result<()> = match variant.as_str() {
        "uring" => uring::serve(listener, churn),
        "epoll" => epoll::serve(listener, buffer, churn),
        "tokio" => tokio::serve(listener, buffer, churn),
        "threads" => threads::serve(listener, buffer, churn),
        other => {
            return Err(format!("unknown variant '{other}'; write uring, epoll, tokio or threads"));
        }
    };
    served.map_err(|error| error.to_string())
}

/// Starts a thread that does nothing. A process with one thread skips reference counting on its
/// descriptor table, which makes each epoll system call 1.5 % cheaper; a thread-per-core server
/// never has that luxury.
fn share_the_descriptor_table() {
    std::thread::spawn(|| {
        loop {
            std::thread::park();
        }
    });
}
