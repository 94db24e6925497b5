//! The worker under a protocol with streams, of which no user sees one: up to fifty exchanges at once on a connection,
//! windows in both directions, resets, and a GOAWAY that names the last stream served. The other is HTTP/2.
//!
//! ```text
//!  client (own codec, own windows) ──▶ network ──▶ the worker over `Toy`, or HTTP/2 ──▶ app
//!     └── oracle: what each stream must receive, and may not
//! ```
//!
//! It is there to show that nothing in the worker depends on one request at a time. `protocol` and `stream`
//! implement the interface of `core::protocol` over `connection`; `client` knows nothing of them but the frames, checks every byte
//! as it comes, and `world` what is left at the end:
//!
//! * each stream gets its own answer, whole, whatever happens to the streams beside it; over HTTP/2 some are tunnels, in which a
//!   WebSocket gets its own echoes (RFC 8441);
//! * no content comes beyond a window that the client has granted;
//! * a handler learns that its client has gone only if it has;
//! * no task is polled that was not woken;
//! * what GOAWAY refuses was never begun; and nothing is left over.

mod app;
mod client;
mod connection;
mod frame;
mod protocol;
mod sockets;
mod state;
mod stream;
mod wire;
mod world;

use highwater_core::versions::Connection;

use super::Report;
use super::trace::Trace;
use connection::Toy;
use wire::Wire;
use world::World;

/// Runs the simulation of `seed`, over sealed connections if `is_sealed`.
pub(super) fn run(seed: u64, is_sealed: bool, trace: Trace) -> Result<Report, String> {
    World::<Toy>::new(seed, is_sealed, || Wire::Toy, trace).run()
}

/// The same with clients that speak HTTP/2, over the connections that servers have.
pub(super) fn run_http2(seed: u64, is_sealed: bool, trace: Trace) -> Result<Report, String> {
    World::<Connection>::new(seed, is_sealed, Wire::http2, trace).run()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs as many seeds as `variable` says, every second one sealed. They must not be idle ones.
    fn run_seeds(variable: &str, run: fn(u64, bool, Trace) -> Result<Report, String>) {
        let seeds = std::env::var(variable);
        let seeds = seeds.map_or(60, |seeds| seeds.parse().expect("a number of seeds"));
        let (mut failed, mut answers) = (Vec::new(), 0);
        for seed in 0..seeds {
            let run = || run(seed, seed % 2 == 1, Trace::default());
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            match ran.unwrap_or_else(|_| Err("panicked".into())) {
                Ok(report) => answers += report.answers,
                Err(what) => failed.push(format!("seed {seed}: {what}")),
            }
        }
        assert!(failed.is_empty(), "{}", failed.join("\n"));
        assert!(answers as u64 > 10 * seeds, "{answers}");
    }

    /// Purpose: the worker keeps every promise to each of many streams under `STREAMS_SEEDS` seeds.
    #[test]
    fn seeds() {
        run_seeds("STREAMS_SEEDS", run);
    }

    /// Purpose: the same over HTTP/2, under `HTTP2_SEEDS` seeds.
    #[test]
    fn http2_seeds() {
        run_seeds("HTTP2_SEEDS", run_http2);
    }

    /// Purpose: a seed replays exactly.
    #[test]
    fn deterministic() {
        for seed in [1, 5, 9] {
            for run in [run, run_http2] {
                let run = || run(seed, false, Trace::default());
                assert_eq!(run(), run());
            }
        }
    }
}
