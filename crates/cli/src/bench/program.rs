//! One row of a program that is run to its end: the figures in its output, and its cost.
//!
//! ```text
//!  server? ─▶ answer? ─▶ probe ─▶ ┊ the program, from its start to its end ┊ ─▶ probe ─▶ answer? ─▶ stop
//! ```
//! Any failure makes the row void, with the reason; nothing ends the run.

use std::collections::BTreeMap;
use std::fs::File;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::background::Background;
use super::cell::round_trip;
use super::figures::{self, end_of};
use super::network::{Network, Side};
use super::plan::{self, Cell, Cpus, Plan, Program, Server};
use super::reader::{Reader, rounded};
use super::record::Measured;
use super::server::{Running, find, show};
use super::services::text_of;
use super::supervisor::{self, Supervisor, Used};
use super::task::{Failed, Task};

/// How often a running program is checked.
const TICK: Duration = Duration::from_millis(10);
/// Maximum bytes of its standard output, and of its standard error.
const OUTPUT_MAX: u64 = 16 * 1024 * 1024;

/// The measurement of one row of a program.
#[derive(Clone, Copy)]
pub(super) struct ProgramRun<'a> {
    pub(super) plan: &'a Plan,
    pub(super) program: &'a Program,
    /// The server that runs meanwhile.
    pub(super) server: Option<&'a Server>,
    pub(super) cell: &'a Cell,
    pub(super) network: &'a Network,
    pub(super) cpus: &'a Cpus,
    pub(super) background: &'a Background,
    /// The addresses of services, by the words that they replace.
    pub(super) services: &'a BTreeMap<String, String>,
    pub(super) is_over: &'a dyn Fn() -> bool,
}

impl ProgramRun<'_> {
    /// Measures it once.
    pub(super) fn measure(&self) -> Result<Measured, Failed> {
        let ProgramRun { plan, cell, network, cpus, background, is_over, .. } = *self;
        match self.server {
            None => self.run(None),
            Some(server) => {
                let task = Task { plan, server, cell, network, cpus, background, is_over };
                task.with_server(&|running| {
                    let measured = self.run(Some(running))?;
                    task.check("after", running.port)?;
                    Ok(measured)
                })
            }
        }
    }

    fn run(&self, running: Option<&Running>) -> Result<Measured, Failed> {
        let processes = running.map(Running::processes).unwrap_or_default();
        let reader = Reader::new(processes, self.cpus, self.background, Arc::default());
        let before = round_trip(self.cpus)?;
        reader.read();
        let (output, used) = self.output(running)?;
        reader.read();
        let after = round_trip(self.cpus)?;
        let mut measured = self.measured(running, &output, used).map_err(Failed::Void)?;
        let spent = reader.spent().map_err(Failed::Void)?;
        spent.note(&mut measured);
        measured.seconds = rounded(used.seconds, 6);
        let known = spent.server_cpu + spent.background;
        let (server, client) = match self.plan.shared_cpus {
            false => (spent.busy_server - known, spent.busy_client - spent.own - used.cpu_s),
            true => {
                let all = spent.busy_server - known - spent.own - used.cpu_s;
                // Of all CPUs: a kernel thread that writes to disk for a broker runs on any of them.
                let foreign = all / self.cpus.server.len() as f64;
                (foreign, foreign)
            }
        };
        measured.foreign_on_server_cpus = spent.share(server);
        measured.foreign_on_client_cpus = spent.share(client);
        measured.c2c_ns = before.into_iter().chain(after).collect();
        Ok(measured)
    }

    /// The values of words in braces.
    fn words(&self, running: Option<&Running>) -> BTreeMap<String, String> {
        let host = self.network.host().to_string();
        let server = running.map(|running| (host.as_str(), running.port));
        let mut words = plan::words(self.plan, self.cell, self.program, server);
        words.extend(self.services.iter().map(|(name, value)| (name.clone(), value.clone())));
        words
    }

    /// Runs it to its end; returns its output and its resource use.
    fn output(&self, running: Option<&Running>) -> Result<(String, Used), Failed> {
        let program = self.program;
        find(program.measured_program()).map_err(Failed::NotStarted)?;
        let path = find(&program.command[0]).map_err(Failed::NotStarted)?;
        let words = self.words(running);
        let mut command: Vec<String> =
            program.command.iter().map(|text| plan::put(text, &words)).collect();
        command[0] = path.to_string_lossy().into_owned();
        let started = self.start(&command, &words).map_err(Failed::NotStarted)?;
        let (mut supervisor, stdout, stderr) = started;
        let status = self.wait(&mut supervisor, &[&stdout, &stderr])?;
        let output = text_of(&stdout);
        let (output, used) = match output.trim_end().rsplit_once('\n') {
            Some((output, last)) => (output, serde_json::from_str::<Used>(last).ok()),
            None => ("", None),
        };
        let shown = || end_of(&format!("{output} {}", text_of(&stderr)));
        if !status.success() {
            return Err(Failed::Void(format!("it failed ({}): {}", show(status), shown())));
        }
        let used = used.ok_or_else(|| {
            Failed::Void(format!(
                "its resource use is not known: its supervisor was killed; {}",
                shown()
            ))
        })?;
        Ok((output.to_owned(), used))
    }

    fn start(
        &self,
        command: &[String],
        words: &BTreeMap<String, String>,
    ) -> Result<(Supervisor, File, File), String> {
        let program = self.program;
        let mut supervisor =
            supervisor::command(&self.cpus.client, &["--report".to_owned()], command)?;
        supervisor
            .env("WORKERS", program.workers.to_string())
            .envs(program.env.iter().map(|(name, value)| (name, plan::put(value, words))));
        let (stdout, stderr) = supervisor::into_files(&mut supervisor)?;
        let supervisor = Supervisor::start(&mut supervisor, (self.network, Side::Client))?;
        Ok((supervisor, stdout, stderr))
    }

    /// How it ended.
    fn wait(&self, supervisor: &mut Supervisor, outputs: &[&File]) -> Result<ExitStatus, Failed> {
        let limit = self.cell.duration(self.plan).0 + self.program.within.0;
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = supervisor.ended() {
                return Ok(status);
            }
            if (self.is_over)() {
                return Err(Failed::Interrupted);
            }
            let size = |file: &&File| file.metadata().map_or(0, |file| file.len());
            if outputs.iter().map(size).sum::<u64>() > OUTPUT_MAX {
                return Err(Failed::Void(format!("it printed more than {OUTPUT_MAX} bytes")));
            }
            if Instant::now() >= deadline {
                return Err(Failed::Void(format!("it did not end within {limit:?}")));
            }
            std::thread::sleep(TICK);
        }
    }

    /// The figures in its output, and its cost.
    fn measured(
        &self,
        running: Option<&Running>,
        output: &str,
        used: Used,
    ) -> Result<Measured, String> {
        let found = figures::read(&self.program.figures, &self.words(running), output)?;
        let of = |name: &str| found.get(name).copied().unwrap_or(0.0);
        let (requests, errors, non_2xx) = (of("requests"), of("errors"), of("non_2xx"));
        if errors + non_2xx > 0.0 {
            return Err(format!(
                "it reports {errors} errors and {non_2xx} answers other than 2xx: {}",
                end_of(output)
            ));
        }
        if requests < 1.0 {
            return Err(format!("no request succeeded: {}", end_of(output)));
        }
        let rps = found.get("rps").copied().unwrap_or(requests / used.seconds.max(1e-9));
        let rate = self.cell.rate;
        Ok(Measured {
            requests: requests as u64,
            rps: rounded(rps, 1),
            bytes_per_s: found.get("bytes_per_s").map(|bytes| rounded(*bytes, 0)),
            p50_us: rounded(of("p50_us"), 1),
            p90_us: rounded(of("p90_us"), 1),
            p99_us: rounded(of("p99_us"), 1),
            p999_us: rounded(of("p999_us"), 1),
            max_us: rounded(of("max_us"), 1),
            client_busy: rounded(used.cpu_s / used.seconds.max(1e-9), 4),
            client_cpu_us_per_request: rounded(used.cpu_s * 1e6 / requests, 4),
            rate_ratio: if rate > 0.0 { rounded(rps / rate, 4) } else { 1.0 },
            ..Measured::default()
        })
    }
}
