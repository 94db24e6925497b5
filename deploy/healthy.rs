//! healthy ADDRESS: is the service with this metrics port alive? Exit status 0 if it is, else 1.
//!
//! For the health check of an image that has neither a shell nor curl (deploy/Dockerfile).
#![forbid(unsafe_code)]

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;

/// Shorter than the health check's own limit.
const WAIT: Duration = Duration::from_millis(1500);

fn main() -> ExitCode {
    let address = std::env::args().nth(1).unwrap_or_default();
    match ask(&address) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("healthy: {address}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether `/livez` is answered with 200.
fn ask(address: &str) -> io::Result<bool> {
    let address = address.parse().map_err(io::Error::other)?;
    let mut stream = TcpStream::connect_timeout(&address, WAIT)?;
    stream.set_read_timeout(Some(WAIT))?;
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: healthy\r\nConnection: close\r\n\r\n")?;
    let mut status = [0; 12];
    stream.read_exact(&mut status)?;
    Ok(&status == b"HTTP/1.1 200")
}
