//! `highwater guard`: how does a server that is not Highwater keep its peak?
//!
//! The guard is a sidecar. It attaches a gate in the kernel in front of a port (`gate.rs`), finds
//! the limit from the kernel's counts and the server's metrics (`policy/`), and reports what it
//! does (`line.rs`, `page.rs`). The server is not changed and not restarted, and does not know of
//! the guard.
//!
//! ```text
//!  args ─▶ source ─(thread)─▶ reading ─┐
//!          gate.counted() ─▶ window ───┼─▶ policy ─▶ gate.set_limit()
//!                                      └─▶ report ─▶ line, page
//! ```
//!
//! Invariants: one turn of the loop every [`TURN`], whatever the source does; the gate ends with
//! the process, however the process ends; nothing else in the system is changed.

mod args;
mod drift;
mod gate;
mod line;
mod meter;
mod page;
mod policy;
mod queue;
mod reading;
mod report;
mod service;
mod source;
mod turnover;
mod window;

use std::process::ExitCode;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use highwater::logging::{self, LogFormat, rate_limited};
use highwater::server::{Running, Signals};
use highwater_core::limit::{Aimd, Fixed, HillClimb, Knee, Limit};
use highwater_sys::clock;

pub(crate) use self::args::Args;
use self::args::{LimiterChoice, Limits};
use self::gate::Gate;
use self::line::Line;
use self::policy::{Policy, State};
use self::report::Reporter;
use self::source::Answer;

/// How often the guard counts, and moves the limit if necessary. Ten times as often as the limiters
/// need, for an accurate mean of the number in flight.
const TURN: Duration = Duration::from_millis(25);

/// Guards until a signal says to stop.
pub(crate) fn run(args: &Args) -> ExitCode {
    let checked = args.limits().and_then(|limits| Ok((limits, args.source()?)));
    let (limits, source) = checked.unwrap_or_else(|error| error.exit());
    // Before starting anything that must be stopped cleanly.
    let signals = match Signals::catch() {
        Ok(signals) => signals,
        Err(error) => return fail(&format!("signals cannot be blocked: {error}")),
    };
    logging::install(LogFormat::Text);
    let guard = match Guard::start(args, limits, source) {
        Ok(guard) => guard,
        Err(error) => return fail(&error),
    };
    let ended = guard.until_signal(&signals);
    logging::flush();
    ended.map_or_else(|error| fail(&error), |()| ExitCode::SUCCESS)
}

#[expect(clippy::print_stderr, reason = "this is how a command says why it ends")]
fn fail(error: &str) -> ExitCode {
    logging::flush();
    eprintln!("highwater guard: {error}");
    ExitCode::FAILURE
}

/// A running guard.
struct Guard {
    args: Args,
    gate: Gate,
    /// Whether a server listened at the last turn.
    is_listening: bool,
    policy: Policy,
    answers: Option<Receiver<Answer>>,
    reporter: Reporter,
    line: Line,
    page: Option<(page::Shared, Running)>,
}

impl Guard {
    fn start(args: &Args, limits: Limits, source: Option<source::Source>) -> Result<Guard, String> {
        let now = clock::monotonic();
        let mut gate = Gate::open(args, limits.start())?;
        let limits = gate.grant(limits);
        let interval = source.is_some().then_some(args.interval());
        let policy = Policy::new(limiter(limits, args.queue_target), bounds(limits), interval, now);
        let (mechanism, reason) = gate.chosen();
        let reporter =
            Reporter::new((mechanism, reason.to_owned()), &policy, args.queue_target, now);
        let page = match args.listen {
            Some(listen) => {
                let shared = Arc::new(Mutex::new(reporter.report().clone()));
                let running = page::serve(listen, &shared).map_err(|error| error.to_string())?;
                Some((shared, running))
            }
            None => None,
        };
        tracing::info!(
            port = args.port,
            mechanism = mechanism,
            reason = reason,
            limit = policy.limit(),
            limiter = policy.limiter(),
            metrics = page.as_ref().map(|(_, running)| tracing::field::display(running.address())),
            "guarding",
        );
        if source.as_ref().is_some_and(|source| source.port() == Some(args.port)) {
            tracing::warn!(
                port = args.port,
                remedy = "serve metrics on a port of their own",
                "the source is behind the gate, and will be refused when it matters",
            );
        }
        let answers = source.map(|source| source::watch(source, args.interval()));
        let answers = answers.transpose().map_err(|error| format!("no further thread: {error}"))?;
        let line = Line::new(args.json, now);
        let line = line.map_err(|error| format!("no further thread: {error}"))?;
        // Assumed, so that the first turn logs it if none does.
        let (args, is_listening) = (args.clone(), true);
        Ok(Guard { args, gate, is_listening, policy, answers, reporter, line, page })
    }

    fn until_signal(mut self, signals: &Signals) -> Result<(), String> {
        loop {
            let signal = signals.wait_timeout(TURN).map_err(|error| error.to_string())?;
            self.turn()?;
            if let Some(signal) = signal {
                self.line.make_room();
                tracing::info!(signal = %signal, "the gate is removed");
                return Ok(());
            }
        }
    }

    fn turn(&mut self) -> Result<(), String> {
        let now = clock::monotonic();
        let counted = self.gate.counted(now);
        if self.gate.open_again_if_broken(&self.args)? {
            self.line.make_room();
            let (_, reason) = self.gate.chosen();
            tracing::warn!(reason, "the gate was opened again");
            self.reporter.set_reason(reason);
        }
        self.log_listening(counted.listeners > 0);
        let answers = self.answers.iter().flat_map(Receiver::try_iter);
        if self.policy.on_turn(now, counted, answers) {
            self.line.make_room();
            log_source(self.policy.state(), self.policy.limit());
        }
        self.gate.set_limit(self.policy.limit());
        let report = self.reporter.on_turn(now, counted, &self.policy);
        self.line.show(now, report);
        if let Some((shared, _)) = &self.page {
            shared.lock().unwrap_or_else(PoisonError::into_inner).clone_from(report);
        }
        Ok(())
    }

    /// Logs that the port has lost its server, or has one again.
    fn log_listening(&mut self, is_listening: bool) {
        if is_listening == self.is_listening {
            return;
        }
        self.is_listening = is_listening;
        self.line.make_room();
        let port = self.args.port;
        if is_listening {
            tracing::info!(port, "a server listens on the port");
        } else {
            let remedy = "start the server, or name its port and address; \
                          the guard must run in the server's network namespace";
            tracing::warn!(port, remedy, "nothing listens on the port");
        }
    }
}

/// Logs a change of the source's state, once.
fn log_source(state: &State, limit: u32) {
    if let State::Bad(error) = state {
        rate_limited!(WARN, error = %error, limit, "the source is in trouble, the limit stays");
    } else {
        tracing::info!(state = %state, limit, "the source answers");
    }
}

/// Start, minimum and maximum of a limit.
fn bounds(limits: Limits) -> (u32, u32, u32) {
    match limits {
        Limits::Fixed(limit) => (limit, limit, limit),
        Limits::Found { start, min, max, .. } => (start, min, max),
    }
}

fn limiter(limits: Limits, target: Duration) -> Box<dyn Limit> {
    let Limits::Found { by, start, min, max } = limits else {
        return Box::new(Fixed::new(limits.start()));
    };
    match by {
        LimiterChoice::Fixed => Box::new(Fixed::new(start)),
        LimiterChoice::HillClimb => Box::new(HillClimb::new(max)),
        LimiterChoice::Aimd => Box::new(Aimd::new(max, target).starting_at(start, min)),
        LimiterChoice::Knee => Box::new(Knee::new(start, max, target).at_least(min)),
    }
}
