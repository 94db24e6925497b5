//! One row: a fresh server, its answer checked, load, and what that cost.
//!
//! ```text
//!  start ─▶ ready ─▶ setup ─▶ answer? ─▶ probe ─▶ warm-up ┊ measured ┊ ─▶ probe ─▶ answer? ─▶ stop
//!                                                 └── answer? (samples) ──┘
//! ```
//! Any failure makes the row void, with the reason; nothing ends the run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::ask::{Asker, Question};
use super::plan::Cpus;
use super::probe;
use super::reader::{Reader, rounded};
use super::record::Measured;
use super::sending::Sending;
use super::server::Running;
use super::soak::Soak;
use super::task::{Failed, Task};
use super::{behind, overload};
use crate::load::{OnMark, Outcome};

/// Samples of the answer in one measured span, and the minimum time between two.
const SAMPLES: u32 = 10;
const SAMPLE_PERIOD_MIN: Duration = Duration::from_millis(20);

impl Task<'_> {
    /// A fresh server that answers.
    pub(super) fn start(&self) -> Result<Running, Failed> {
        let place = (self.network, &self.cpus.server[..]);
        let running = Running::start(self.plan, self.server, &self.cell.flags, place, self.is_over);
        running.map_err(|reason| Failed::of(reason, Failed::NotStarted))
    }

    /// Prepares a server for the cell, and compares its answer.
    pub(super) fn prepare(&self, port: u16) -> Result<(), Failed> {
        let mut asker = Asker::new(self.network, port);
        for setup in &self.cell.setup {
            let done = asker.ask(&Question::of_setup(setup, port));
            done.map_err(|problem| Failed::Void(format!("setup: {problem}")))?;
        }
        self.check("before", port)
    }

    pub(super) fn check(&self, when: &str, port: u16) -> Result<(), Failed> {
        let question = Question::of_cell(self.cell, self.server, port);
        let checked = Asker::new(self.network, port).ask(&question);
        checked.map_err(|problem| Failed::Void(format!("{when}: {problem}")))
    }

    /// Measures it once.
    pub(super) fn measure(&self) -> Result<Measured, Failed> {
        // On another server: the measured one must see no load before its first step.
        let capacity =
            match self.cell.steps.iter().any(|step| step.load > 0.0) {
                true => Some(self.with_server(&|running| {
                    overload::capacity(self, running.load_port(self.cell))
                })?),
                false => None,
            };
        self.with_server(&|running| match self.cell.is_overload() {
            true => overload::measure(self, running, capacity),
            false => self.measure_cost(running),
        })
    }

    /// Lets `act` measure a fresh server that answers correctly.
    pub(super) fn with_server<T>(
        &self,
        act: &dyn Fn(&mut Running) -> Result<T, Failed>,
    ) -> Result<T, Failed> {
        let mut running = self.start()?;
        let measured = self.prepare(running.port).and_then(|()| act(&mut running));
        // A dead server explains everything else.
        match (measured, running.death()) {
            (Err(Failed::Interrupted), _) => Err(Failed::Interrupted),
            _ if (self.is_over)() => Err(Failed::Interrupted),
            (_, Some(death)) => Err(Failed::Void(death)),
            (measured, None) => measured,
        }
    }

    /// The cost of a request.
    fn measure_cost(&self, running: &mut Running) -> Result<Measured, Failed> {
        let (plan, cell, cpus, port) = (self.plan, self.cell, self.cpus, running.port);
        let question = Question::of_cell(cell, self.server, port);
        let before = round_trip(cpus)?;
        let soak = cell.whole_cpu.then(|| Soak::start(&cpus.server)).transpose();
        let soak = soak.map_err(Failed::Void)?;
        let sampler =
            Sampler::start(Asker::new(self.network, port), question, cell.duration(plan).0);
        let count = Arc::clone(&sampler.count);
        let reader = Arc::new(Reader::new(running.processes(), cpus, self.background, count));
        let marks = Arc::clone(&reader);
        let on_mark: OnMark = Box::new(move |_| marks.read());
        let sending = Sending::of_cell(plan, cell);
        let load_port = running.load_port(cell);
        let outcome = sending.send(self.network, load_port, cpus.client.len(), on_mark);
        let sampled = sampler.stop();
        let outcome = outcome.map_err(|problem| Failed::Void(format!("load: {problem}")))?;
        if outcome.interrupted {
            return Err(Failed::Interrupted);
        }
        if let Some(death) = running.death() {
            return Err(Failed::Void(death));
        }
        let lost = soak.map(Soak::stop);
        let spent = reader.spent().map_err(Failed::Void)?;
        if let Some(behind) = behind::behind(&outcome, "", &spent.others) {
            return Err(Failed::Void(behind));
        }
        let after = round_trip(cpus)?;
        sampled.map_err(|problem| Failed::Void(format!("meanwhile: {problem}")))?;
        self.check("after", port)?;
        // The messages of a WebSocket have no status: the load compares them.
        let status = cell.ws.is_none().then(|| cell.expected(self.server).0);
        succeeded(&outcome, status).map_err(Failed::Void)?;
        let mut measured = reader.measured(std::slice::from_ref(&outcome)).map_err(Failed::Void)?;
        if let Some(lost) = lost {
            reader.count_whole_cpu(&mut measured, &lost).map_err(Failed::Void)?;
        }
        measured.c2c_ns = before.into_iter().chain(after).collect();
        Ok(measured)
    }
}

/// A cache line's round trip between the sides, in ns; none if both have one CPU.
pub(super) fn round_trip(cpus: &Cpus) -> Result<Option<f64>, Failed> {
    let first = cpus.server[0];
    let Some(second) = cpus.client.iter().find(|cpu| **cpu != first) else { return Ok(None) };
    let ns = probe::round_trip_ns(first, *second);
    ns.map(|ns| Some(rounded(ns, 1))).map_err(|problem| Failed::Void(format!("probe: {problem}")))
}

/// # Errors
/// No request succeeded, or some with a status other than `status`.
fn succeeded(outcome: &Outcome, status: Option<u16>) -> Result<(), String> {
    let counts = &outcome.tally.counts;
    if counts.ok == 0 {
        let (errors, timeouts) = (counts.errors() + counts.refused, counts.timeouts);
        let non_2xx = counts.non_2xx;
        return Err(format!(
            "no request succeeded: {errors} errors, {timeouts} timeouts, {non_2xx} answers other than 2xx"
        ));
    }
    let Some(status) = status else { return Ok(()) };
    let statuses = &outcome.tally.statuses;
    let expected = statuses.get(usize::from(status) - 100).copied().unwrap_or(0);
    if counts.ok > expected {
        return Err(format!("{} answers were 2xx, but not {}", counts.ok - expected, status));
    }
    Ok(())
}

/// Compares answers to the byte while the load runs, on a connection of its own.
struct Sampler {
    over: mpsc::Sender<()>,
    /// Answers that were right.
    count: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<Result<(), String>>,
}

impl Sampler {
    fn start(mut asker: Asker, question: Question, duration: Duration) -> Sampler {
        let period = (duration / SAMPLES).max(SAMPLE_PERIOD_MIN);
        let (over, is_over) = mpsc::channel();
        let count = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&count);
        let thread = std::thread::spawn(move || {
            while is_over.recv_timeout(period) == Err(mpsc::RecvTimeoutError::Timeout) {
                asker.ask(&question)?;
                counter.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        Sampler { over, count, thread }
    }

    /// # Errors
    /// The first answer that was wrong.
    fn stop(self) -> Result<(), String> {
        // It has already ended if an answer was wrong.
        let _ = self.over.send(());
        self.thread.join().unwrap_or_else(|_| Err("the sampler panicked".to_owned()))
    }
}
