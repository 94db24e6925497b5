//! Which work is admitted when there is more than can be done?
//!
//! ```text
//!  worker       requests: Serve, Wait or Refuse(reason)    one per worker; asked once per request
//!   ├─ verdict      what is asked about a request, and the answer
//!   ├─ budget       how many may be started before the driver is polled again
//!   ├─ queue        which waiting request is next, and which has waited too long
//!   ├─ route_limit  how many of one route may be answered at once; scarcity: how fast uploads must be there
//!   ├─ priority     how important a request is
//!   ├─ handshakes   how much of the time they have for certain
//!   ├─ demand       what connections and exchanges want of the worker
//!   └─ gate         connections: how many are admitted    bound by one limit that all workers share
//!  kernel/      connections, before they exist             one per server, if permitted
//!  controller   the limit                                  a thread: samples → core's Limit → the gates
//!  client       who has a share; sources: where connections come from, for a gate that counts none
//!  backlog      connections that the kernel dropped because a backlog was full
//!  cost         the cost of one refusal
//!  strain       whether the server reports that it is not ready
//!  signal       demand as a multiple of capacity: should it scale out?
//!  settings     what can be set; setup: builds all of it
//! ```
//!
//! Invariants: with the default settings nothing is refused without a standing queue; if the machine does
//! not permit one mechanism, another one works, and an event names it and the reason.

mod backlog;
mod budget;
pub(crate) mod client;
mod controller;
mod cost;
mod demand;
pub(crate) mod gate;
mod handshakes;
pub(crate) mod kernel;
pub(crate) mod per_client;
pub(crate) mod priority;
pub(crate) mod queue;
pub(crate) mod route_limit;
mod scarcity;
mod settings;
mod setup;
mod signal;
mod sources;
mod strain;
mod verdict;
pub(crate) mod worker;

pub(crate) use self::budget::TURN_MAX;
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
pub use self::kernel::Ceiling;
pub(crate) use self::kernel::Entry;
pub use self::kernel::gate_here;
pub use self::priority::Priority;
pub use self::route_limit::Concurrency;
pub(crate) use self::settings::AdmissionSettings;
#[cfg(feature = "cli")]
pub(crate) use self::settings::check_limiter;
pub use self::settings::{Fair, GateChoice, GateRefusal, Limiter, Refuse, Shed};
pub(crate) use self::setup::{PreparedAdmission, RunningAdmission};
pub use self::signal::Signal;
