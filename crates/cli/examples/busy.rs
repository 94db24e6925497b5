//! A server whose handler can be made slower: `make bench-selftest` checks with it that the harness finds a
//! difference of the size that there is.
//!
//! `busy ADDRESS NANOSECONDS` answers `/plaintext` after so many nanoseconds of work.
#![forbid(unsafe_code)]

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use highwater::{Router, Server, ServerConfig};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, nanos] = &arguments[..] else {
        eprintln!("usage: busy ADDRESS NANOSECONDS");
        return ExitCode::from(2);
    };
    let (Ok(listen), Ok(nanos)) = (address.parse(), nanos.parse()) else {
        eprintln!("busy: write an address like 127.0.0.1:8080, and whole nanoseconds");
        return ExitCode::from(2);
    };
    let work = Duration::from_nanos(nanos);
    let plaintext = move || {
        let began = Instant::now();
        while began.elapsed() < work {
            std::hint::spin_loop();
        }
        "Hello, World!"
    };
    let config = ServerConfig {
        listen: vec![listen],
        metrics: None,
        workers: NonZeroUsize::new(1),
        ..ServerConfig::default()
    };
    match Server::new(Router::new().get("/plaintext", plaintext)).config(config).run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("busy: {error}");
            ExitCode::FAILURE
        }
    }
}
