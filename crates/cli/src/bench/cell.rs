//! One row: a fresh server, its answer checked, load, and what that cost.
//!
//! ```text
//!  start ─▶ ready ─▶ setup ─▶ answer? ─▶ probe ─▶ warm-up ┊ measured ┊ ─▶ probe ─▶ answer? ─▶ stop
//!                                                 └── answer? (samples) ──┘
//! ```
//! Whatever goes wrong makes the row void, with the reason; nothing ends the run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use clap::Parser;

use super::ask::{Asker, Question};
use super::plan::{Cell, Cpus, Plan, Server};
use super::probe;
use super::record::Measured;
use super::server::{INTERRUPTED, Running};
use super::tree::{self, Usage};
use crate::load::{self, Mark, OnMark, Outcome};

/// Samples of the answer in one measured span, and the least time between two.
const SAMPLES: u32 = 10;
const SAMPLE_PERIOD_MIN: Duration = Duration::from_millis(20);
/// A request that takes longer is given up.
const TIMEOUT: &str = "5s";
/// Client threads at most, as `load` has it.
const THREADS_MAX: usize = 64;

/// Why there is no measurement.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// The server never ran: it would not run the next time either.
    NotStarted(String),
    /// It ran, and then something went wrong.
    Void(String),
    /// The run is being ended.
    Interrupted,
}

impl Failed {
    fn of(reason: String, kind: fn(String) -> Failed) -> Failed {
        if reason == INTERRUPTED { Failed::Interrupted } else { kind(reason) }
    }
}

/// Measures `server` in `cell` once.
pub(super) fn measure(
    plan: &Plan,
    server: &Server,
    cell: &Cell,
    cpus: &Cpus,
    is_over: &dyn Fn() -> bool,
) -> Result<Measured, Failed> {
    let running = Running::start(plan, server, &cpus.server, is_over);
    let mut running = running.map_err(|reason| Failed::of(reason, Failed::NotStarted))?;
    let measured = with_server(plan, server, cell, cpus, &mut running);
    // A dead server explains everything else.
    match (measured, running.death()) {
        (Err(Failed::Interrupted), _) => Err(Failed::Interrupted),
        _ if is_over() => Err(Failed::Interrupted),
        (_, Some(death)) => Err(Failed::Void(death)),
        (measured, None) => measured,
    }
}

fn with_server(
    plan: &Plan,
    server: &Server,
    cell: &Cell,
    cpus: &Cpus,
    running: &mut Running,
) -> Result<Measured, Failed> {
    let port = running.port;
    let mut asker = Asker::new(port);
    for setup in &cell.setup {
        let done = asker.ask(&Question::of_setup(setup, port));
        done.map_err(|problem| Failed::Void(format!("setup: {problem}")))?;
    }
    let question = Question::of_cell(cell, server, port);
    let check = |when: &str| {
        let checked = Asker::new(port).ask(&question);
        checked.map_err(|problem| Failed::Void(format!("{when}: {problem}")))
    };
    check("before")?;
    let round_trip = || {
        let ns = probe::round_trip_ns(cpus.server[0], cpus.client[0]);
        ns.map(|ns| rounded(ns, 1)).map_err(|problem| Failed::Void(format!("probe: {problem}")))
    };
    let before = round_trip()?;
    let sampler = Sampler::start(port, question.clone(), plan.duration.0);
    let reader = Arc::new(Reader::new(running.processes(), cpus, &sampler));
    let outcome = generate(plan, cell, cpus, port, &reader);
    let sampled = sampler.stop();
    let outcome = outcome.map_err(|problem| Failed::Void(format!("load: {problem}")))?;
    if outcome.interrupted {
        return Err(Failed::Interrupted);
    }
    if let Some(death) = running.death() {
        return Err(Failed::Void(death));
    }
    let after = round_trip()?;
    sampled.map_err(|problem| Failed::Void(format!("meanwhile: {problem}")))?;
    check("after")?;
    let mut measured = reader.measured(cell.expected(server).0, &outcome).map_err(Failed::Void)?;
    measured.c2c_ns = vec![before, after];
    Ok(measured)
}

/// Runs `highwater load`'s own code, on the client's CPUs: this thread has been put there.
fn generate(
    plan: &Plan,
    cell: &Cell,
    cpus: &Cpus,
    port: u16,
    reader: &Arc<Reader>,
) -> Result<Outcome, String> {
    /// What `highwater load` takes.
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: load::Args,
    }
    let threads = cpus.client.len().min(cell.connections as usize).min(THREADS_MAX);
    let mut line = vec![
        "load".to_owned(),
        format!("http://127.0.0.1:{port}{}", cell.path),
        format!("--connections={}", cell.connections),
        format!("--threads={threads}"),
        format!("--warmup={}", String::from(plan.warm_up)),
        format!("--duration={}", String::from(plan.duration)),
        format!("--timeout={TIMEOUT}"),
        format!("--method={}", cell.method),
        "--quiet".to_owned(),
    ];
    line.extend(cell.headers.iter().map(|(name, value)| format!("--header={name}: {value}")));
    if !cell.body.is_empty() {
        line.push(format!("--body={}", cell.request_body()));
    }
    match (cell.rate > 0.0, cell.close) {
        (true, _) => {
            line.push(format!("--rate={}", cell.rate));
            line.push(format!("--burst={}", cell.burst));
        }
        (false, false) => line.push(format!("--pipeline={}", cell.pipeline)),
        (false, true) => {}
    }
    if cell.close {
        line.push("--close".to_owned());
    }
    let args = Line::try_parse_from(line).map_err(|error| error.to_string())?.args;
    let reader = Arc::clone(reader);
    let on_mark: OnMark = Box::new(move |mark| reader.read(mark));
    load::generate(&args, on_mark)
}

/// Takes what the server used at both ends of the measured span.
struct Reader {
    processes: Vec<u32>,
    cpus: Cpus,
    sampled: Arc<AtomicU64>,
    readings: Mutex<Vec<Reading>>,
}

struct Reading {
    at: Instant,
    usage: Usage,
    busy_server: f64,
    busy_client: f64,
    own: f64,
    sampled: u64,
}

impl Reader {
    fn new(processes: Vec<u32>, cpus: &Cpus, sampler: &Sampler) -> Reader {
        let sampled = Arc::clone(&sampler.count);
        Reader { processes, cpus: cpus.clone(), sampled, readings: Mutex::default() }
    }

    fn read(&self, _: Mark) {
        let mut processes = self.processes.clone();
        // Children that have come since are looked for below those that are known.
        for id in &self.processes {
            processes
                .extend(tree::descendants(*id).iter().filter(|id| !self.processes.contains(id)));
        }
        processes.sort_unstable();
        processes.dedup();
        let reading = Reading {
            at: Instant::now(),
            usage: Usage::of(&processes),
            busy_server: tree::busy(&self.cpus.server),
            busy_client: tree::busy(&self.cpus.client),
            own: tree::own_cpu(),
            sampled: self.sampled.load(Ordering::Relaxed),
        };
        self.readings.lock().unwrap_or_else(PoisonError::into_inner).push(reading);
    }

    /// # Errors
    /// Nothing was measured.
    fn measured(&self, status: u16, outcome: &Outcome) -> Result<Measured, String> {
        let readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        let [begin, end] = &readings[..] else {
            return Err("the span was not measured".to_owned());
        };
        let counts = &outcome.tally.counts;
        if counts.ok == 0 {
            let (errors, timeouts) = (counts.errors() + counts.refused, counts.timeouts);
            let non_2xx = counts.non_2xx;
            return Err(format!(
                "no request succeeded: {errors} errors, {timeouts} timeouts, {non_2xx} answers other than 2xx"
            ));
        }
        let statuses = &outcome.tally.statuses;
        let expected = statuses.get(usize::from(status) - 100).copied().unwrap_or(0);
        if counts.ok > expected {
            return Err(format!("{} answers were 2xx, but not {}", counts.ok - expected, status));
        }
        let wall = (end.at - begin.at).as_secs_f64();
        let (server_cpu, source) = end.usage.cpu_since(&begin.usage);
        let own = end.own - begin.own;
        let checked = end.sampled - begin.sampled;
        // Samples within the span are answered too, and cost as much.
        let answered = (counts.ok + counts.non_2xx + checked) as f64;
        let latency = |quantile| outcome.tally.latency.quantile(quantile).unwrap_or(0) as f64 / 1e3;
        let foreign = |busy: f64, own: f64| rounded(((busy - own) / wall).max(0.0), 4);
        Ok(Measured {
            requests: counts.ok,
            seconds: rounded(wall, 6),
            rps: rounded(
                (counts.ok + counts.non_2xx) as f64 / outcome.span.as_secs_f64().max(1e-9),
                1,
            ),
            server_cpu_us_per_request: rounded(server_cpu * 1e6 / answered, 4),
            server_cpu_source: source.to_owned(),
            server_busy: rounded(server_cpu / wall, 4),
            p50_us: rounded(latency(0.5), 1),
            p90_us: rounded(latency(0.9), 1),
            p99_us: rounded(latency(0.99), 1),
            p999_us: rounded(latency(0.999), 1),
            max_us: rounded(latency(1.0), 1),
            errors: counts.errors() + counts.refused + counts.timeouts,
            non_2xx: counts.non_2xx,
            client_busy: rounded(outcome.client_cpu, 4),
            client_cpu_us_per_request: rounded(
                outcome.cpu.as_secs_f64() * 1e6 / counts.sent.max(1) as f64,
                4,
            ),
            rate_ratio: rounded(outcome.rate_ratio(), 4),
            server_rss_kib: end.usage.rss_kib,
            context_switches_per_request: rounded(
                end.usage.switches_since(&begin.usage) as f64 / answered,
                4,
            ),
            checked,
            foreign_on_server_cpus: foreign(end.busy_server - begin.busy_server, server_cpu),
            foreign_on_client_cpus: foreign(end.busy_client - begin.busy_client, own),
            c2c_ns: Vec::new(),
        })
    }
}

/// To so many decimals: what a record needs, and no more.
fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10_f64.powi(decimals);
    (value * scale).round() / scale
}

/// Compares answers to the byte while the load runs, on a connection of its own.
struct Sampler {
    over: mpsc::Sender<()>,
    /// Answers that were right.
    count: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<Result<(), String>>,
}

impl Sampler {
    fn start(port: u16, question: Question, duration: Duration) -> Sampler {
        let period = (duration / SAMPLES).max(SAMPLE_PERIOD_MIN);
        let (over, is_over) = mpsc::channel();
        let count = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&count);
        let thread = std::thread::spawn(move || {
            let mut asker = Asker::new(port);
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
        // It has ended by itself if an answer was wrong.
        let _ = self.over.send(());
        self.thread.join().unwrap_or_else(|_| Err("the sampler panicked".to_owned()))
    }
}
