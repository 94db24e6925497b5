//! The whole worker in a simulated world: one seed decides everything that may vary.
//!
//! [`run`] builds an application and a handful of clients from a seed, lets the unchanged worker
//! serve them over a simulated driver, and checks the result:
//!
//! ```text
//!  script ──▶ client ──▶ ┌─────────┐ ──▶ the worker ──▶ app      (under test)
//!               │        │ network │          │
//!               │        └─────────┘ ◀────────┘
//!               ▼             ▼
//!            oracle        witness, due       world: totals, leftovers   (the checks)
//! ```
//!
//! * `kinds` names additional behaviour: panics, other threads, clients that disconnect at any
//!   byte, stops of the process. `threads` simulates other threads.
//! * `script` draws what clients send together with the answers they must receive. `client` acts it
//!   out: fast, slowly, or not at all. `network` splits, delays, reorders and breaks.
//! * `reader` parses answers by RFC 9112 alone. `oracle` compares what each client received, byte
//!   for byte.
//! * `witness` and `due` watch every connection from outside and know what must happen by when: no
//!   close without a reason, no deadline early or late, no client forgotten, memory bounded.
//! * `sealed` is the other side of connections whose bytes are sealed.
//! * `runner` is what all worlds do: clients act, and the worker takes a turn.
//! * `streams` is a world of its own: the worker under a protocol with streams.
//! * `world` adds up: the worker's counters match what happened, and nothing is left over at the
//!   end.
//!
//! No check asks the code under test what is right. Where a check excuses something, the excuse is
//! a fact that the network has seen, and is written beside the check.
//!
//! Time, order, sizes, pauses, resets, failures to accept and clock jumps come from the seed. So a
//! failure is a number: `highwater sim --seed N --trace` shows what led to it.
//! All of it needs the feature `sim`; the tests of an application use `highwater::testing` instead.

mod app;
mod client;
mod clock;
mod due;
mod faults;
mod kinds;
mod last;
mod link;
mod listener;
mod network;
mod oracle;
mod reader;
mod runner;
mod script;
mod sealed;
mod streams;
#[cfg(test)]
mod tests;
mod threads;
mod trace;
mod witness;
mod world;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use world::World;

#[cfg(test)]
pub(crate) use clock::SimClock;
pub use kinds::{Kind, Kinds};
pub(crate) use trace::Trace;

/// The parts that the test client is built from.
#[cfg(feature = "testing")]
pub(crate) use {
    faults::Faults,
    link::Stage,
    network::{Network, SimDriver},
    reader::{Reader, ReceivedAnswer},
};

/// The results of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Clients that took part.
    pub clients: usize,
    /// Answers received to their last byte.
    pub answers: usize,
    /// Connections that a client or the network broke.
    pub resets: usize,
    /// Connections that the server ended for its own reasons: a deadline, or the drain's end.
    pub expiries: usize,
    /// Turns of the worker.
    pub turns: u32,
    /// A hash of all bytes received by clients: equal seeds give equal fingerprints.
    pub fingerprint: u64,
}

impl Report {
    /// The results of two runs under one seed.
    fn and(self, other: &Report) -> Self {
        Report {
            clients: self.clients + other.clients,
            answers: self.answers + other.answers,
            resets: self.resets + other.resets,
            expiries: self.expiries + other.expiries,
            turns: self.turns + other.turns,
            fingerprint: self.fingerprint.rotate_left(7) ^ other.fingerprint,
        }
    }
}

/// A failed run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed that reproduces it.
    pub seed: u64,
    /// The reason for the failure.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}", self.seed, self.what)
    }
}

impl std::error::Error for Failure {}

/// Runs the simulation of `seed`, with every kind of behaviour that the server is known to handle.
///
/// # Errors
/// A check failed, or the worker panicked.
pub fn run(seed: u64) -> Result<Report, Failure> {
    run_with(seed, Kinds::proven())
}

/// Runs the simulation of `seed` with these kinds of behaviour.
///
/// # Errors
/// Those of [`run`].
pub fn run_with(seed: u64, kinds: Kinds) -> Result<Report, Failure> {
    run_noted(seed, kinds, Trace::default())
}

/// Runs the simulation of `seed` and records it: a line for everything that happened, in order.
pub fn trace(seed: u64, kinds: Kinds) -> (Vec<String>, Result<Report, Failure>) {
    let trace = Trace::kept();
    let outcome = run_noted(seed, kinds, trace.clone());
    (trace.take(), outcome)
}

fn run_noted(seed: u64, kinds: Kinds, trace: Trace) -> Result<Report, Failure> {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut report = World::new(seed, kinds, trace.clone()).run()?;
        if kinds.has(Kind::Multiplexed) {
            report = report.and(&streams::run(seed, kinds.seals(seed >> 1), trace.clone())?);
        }
        if kinds.has(Kind::Http2) {
            report = report.and(&streams::run_http2(seed, kinds.seals(seed >> 2), trace)?);
        }
        Ok(report)
    }));
    let failed = |what: String| Failure { seed, what };
    match outcome {
        Ok(result) => result.map_err(failed),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            // A panic payload of the application may panic when it is dropped.
            std::mem::forget(panic);
            Err(failed(format!("panicked: {}", text.unwrap_or_default())))
        }
    }
}
