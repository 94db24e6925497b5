//! The Tokio floor: a task for each connection on a runtime of one thread. What an asynchronous server in Rust usually
//! stands on, before it parses anything.

use std::io;
use std::net::TcpListener;

use ::tokio::io::{AsyncReadExt, AsyncWriteExt};
use ::tokio::net::{TcpListener as Listener, TcpStream};

use crate::protocol::{BATCH_MAX, Matched, Protocol};

/// Serves until the process is killed; receives up to `buffer` bytes at once.
///
/// # Errors
/// The runtime cannot be built, or accepting fails.
pub(crate) fn serve(listener: TcpListener, buffer: usize, churn: bool) -> io::Result<()> {
    let protocol: &'static Protocol = Box::leak(Box::new(Protocol::new()));
    listener.set_nonblocking(true)?;
    let runtime = ::tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = Listener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            ::tokio::spawn(talk(stream, protocol, buffer, churn));
        }
    })
}

/// Answers one connection until it ends.
async fn talk(mut stream: TcpStream, protocol: &Protocol, buffer: usize, churn: bool) {
    let (mut matched, mut buffer) = (Matched::default(), vec![0; buffer]);
    loop {
        let len = match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(len) => len,
        };
        let requests = protocol.count(&mut matched, &buffer[..len]);
        if requests > BATCH_MAX || stream.write_all(protocol.responses(requests)).await.is_err() {
            return;
        }
        if churn && requests > 0 {
            return;
        }
    }
}
