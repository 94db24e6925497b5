//! The whole worker in a world without a kernel: one seed decides everything that may vary.
//!
//! [`run`] builds an application and a handful of clients from a seed, lets the unchanged worker
//! serve them over a simulated driver, and checks what comes of it:
//!
//! ```text
//!  script ──▶ client ──▶ ┌─────────┐ ──▶ the worker ──▶ app      (what is tested)
//!               │        │ network │          │
//!               │        └─────────┘ ◀────────┘
//!               ▼             ▼
//!            oracle        witness, due       world: totals, ledger, rest      (what tests it)
//! ```
//!
//! * `kinds` names what can take part beyond that: panics, other threads, clients that go at any byte,
//!   stops of the process; `elsewhere` is what happens on other threads.
//! * `script` draws what clients say together with the answers they must hear; `client` acts that
//!   out, fast, slowly, or not at all; `network` splits, delays, reorders and breaks.
//! * `reader` reads answers by RFC 9112 alone; `oracle` compares what each client heard to the byte.
//! * `witness` and `due` watch every connection from outside and know what has to happen by when:
//!   no close without a reason, no deadline early or late, nobody forgotten, memory bounded.
//! * `world` adds up: what the worker counted is what happened, and at rest nothing is left behind.
//!
//! None of these asks the code under test what is right. Where a check excuses something, the excuse
//! is a fact the network has seen, and stands beside it in writing.
//!
//! Time, order, sizes, pauses, resets, failures to accept and jumps of the clock come from the seed,
//! so a failure is a number: `highwater sim --seed N --trace` shows what led to it.

mod app;
mod client;
mod clock;
mod due;
mod elsewhere;
mod kinds;
mod link;
mod network;
mod oracle;
mod reader;
mod script;
#[cfg(test)]
mod tests;
mod trace;
mod weather;
mod witness;
mod world;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use world::World;

pub use kinds::{Kind, Kinds};
pub(crate) use link::Stage;
pub(crate) use network::{Network, SimDriver};
pub(crate) use reader::{Heard, Reader};
pub(crate) use trace::Trace;
pub(crate) use weather::Weather;

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Clients that took part.
    pub clients: usize,
    /// Answers heard to their last byte.
    pub answers: usize,
    /// Connections that a client or the network broke.
    pub resets: usize,
    /// Connections that the server ended for a reason of its own: a deadline, or the drain's.
    pub expiries: usize,
    /// Turns of the worker.
    pub turns: u32,
    /// A hash of everything heard: equal seeds give equal fingerprints.
    pub fingerprint: u64,
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed that shows it.
    pub seed: u64,
    /// What was wrong.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}", self.seed, self.what)
    }
}

impl std::error::Error for Failure {}

/// Runs the simulation of `seed`, with every kind of behaviour that the server is known to stand.
///
/// # Errors
/// A check failed, or the worker panicked.
pub fn run(seed: u64) -> Result<Report, Failure> {
    run_with(seed, Kinds::proven())
}

/// Runs the simulation of `seed` with these kinds of behaviour.
///
/// # Errors
/// As [`run`].
pub fn run_with(seed: u64, kinds: Kinds) -> Result<Report, Failure> {
    run_noted(seed, kinds, Trace::default())
}

/// Runs the simulation of `seed` and tells it: a line for everything that happened, in order.
pub fn trace(seed: u64, kinds: Kinds) -> (Vec<String>, Result<Report, Failure>) {
    let trace = Trace::kept();
    let outcome = run_noted(seed, kinds, trace.clone());
    (trace.take(), outcome)
}

fn run_noted(seed: u64, kinds: Kinds, trace: Trace) -> Result<Report, Failure> {
    let outcome = catch_unwind(AssertUnwindSafe(|| World::new(seed, kinds, trace).run()));
    let failed = |what: String| Failure { seed, what };
    match outcome {
        Ok(result) => result.map_err(failed),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            // What an application panics with may panic when it is dropped.
            std::mem::forget(panic);
            Err(failed(format!("panicked: {}", text.unwrap_or_default())))
        }
    }
}
