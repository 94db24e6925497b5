//! The figures of a row: the server's resource use in the measured span, and its clients' results.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use highwater_core::histogram::Histogram;

use super::background::{Background, Seen};
use super::others::{self, Other};
use super::plan::Cpus;
use super::record::{Measured, Part};
use super::soak::Lost;
use super::tree::{self, Processes, Usage};
use crate::load::Outcome;

/// Reads the server's resource use at both ends of the measured span.
pub(super) struct Reader {
    processes: Vec<u32>,
    cpus: Cpus,
    background: Background,
    /// Answers that were compared in the measured span.
    sampled: Arc<AtomicU64>,
    readings: Mutex<Vec<Reading>>,
}

struct Reading {
    at: Instant,
    usage: Usage,
    background: Seen,
    all: Processes,
    /// The server, the processes beside it, this process, and all their descendants.
    ours: BTreeSet<u32>,
    idle_server: f64,
    idle_client: f64,
    softirq: f64,
    own: f64,
    sampled: u64,
}

impl Reader {
    pub(super) fn new(
        processes: Vec<u32>,
        cpus: &Cpus,
        background: &Background,
        sampled: Arc<AtomicU64>,
    ) -> Reader {
        let (cpus, background) = (cpus.clone(), background.clone());
        Reader { processes, cpus, background, sampled, readings: Mutex::default() }
    }

    /// Records an end of the measured span, now.
    pub(super) fn read(&self) {
        let all = Processes::scan();
        // New children are searched below the known processes.
        let families = self.processes.iter().flat_map(|id| all.family(*id));
        let processes: BTreeSet<u32> = families.collect();
        let processes: Vec<u32> = processes.into_iter().collect();
        let background = self.background.see(&processes);
        let mut ours = all.family(std::process::id());
        ours.extend(processes.iter().chain(&background.ids));
        let reading = Reading {
            at: Instant::now(),
            usage: Usage::of(&processes),
            background,
            all,
            ours,
            idle_server: tree::idle(&self.cpus.server),
            idle_client: tree::idle(&self.cpus.client),
            softirq: tree::softirq(&self.cpus.server),
            own: tree::own_cpu(),
            sampled: self.sampled.load(Ordering::Relaxed),
        };
        self.readings().push(reading);
    }

    fn readings(&self) -> MutexGuard<'_, Vec<Reading>> {
        self.readings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Both ends of the measured span.
    ///
    /// # Errors
    /// It was not measured.
    pub(super) fn span(&self) -> Result<(Instant, Instant), String> {
        match &self.readings()[..] {
            [begin, end] => Ok((begin.at, end.at)),
            _ => Err("the span was not measured".to_owned()),
        }
    }

    /// The share of the span that the server's CPUs spent in softirq, by the kernel's ticks.
    ///
    /// # Errors
    /// It was not measured.
    pub(super) fn softirq(&self) -> Result<f64, String> {
        let (from, to) = self.span()?;
        let readings = self.readings();
        let spent = readings[1].softirq - readings[0].softirq;
        Ok(rounded(spent / (to - from).as_secs_f64(), 4))
    }

    /// The resource use between both ends.
    ///
    /// # Errors
    /// The span was not measured.
    pub(super) fn spent(&self) -> Result<Spent, String> {
        let readings = self.readings();
        let [begin, end] = &readings[..] else {
            return Err("the span was not measured".to_owned());
        };
        let (server_cpu, server_cpu_source) = end.usage.cpu_since(&begin.usage);
        let wall = (end.at - begin.at).as_secs_f64();
        let busy = |cpus: &[usize], idle: f64| (wall * cpus.len() as f64 - idle).max(0.0);
        let ours = begin.ours.union(&end.ours).copied().collect();
        let others = end.all.used_since(&begin.all, &ours);
        Ok(Spent {
            wall,
            others: others::named(&others, wall),
            programs: others::programs(&others),
            server_cpu,
            server_cpu_source,
            server_rss_kib: end.usage.rss_kib,
            switches: end.usage.switches_since(&begin.usage),
            background: end.background.cpu_since(&begin.background),
            parts: end.background.parts_since(&begin.background),
            own: end.own - begin.own,
            busy_server: busy(&self.cpus.server, end.idle_server - begin.idle_server),
            busy_client: busy(&self.cpus.client, end.idle_client - begin.idle_client),
            checked: end.sampled - begin.sampled,
        })
    }

    /// The figures of one load, or of several that follow each other or run beside each other.
    ///
    /// # Errors
    /// Nothing was measured.
    pub(super) fn measured(&self, outcomes: &[Outcome]) -> Result<Measured, String> {
        let spent = self.spent()?;
        let sum = Sum::of(outcomes);
        let latency = |quantile| sum.latency.quantile(quantile).unwrap_or(0) as f64 / 1e3;
        let span = match outcomes {
            [one] => one.span.as_secs_f64(),
            _ => spent.wall,
        };
        let mut measured = Measured {
            requests: sum.ok,
            rps: rounded((sum.ok + sum.non_2xx) as f64 / span.max(1e-9), 1),
            p50_us: rounded(latency(0.5), 1),
            p90_us: rounded(latency(0.9), 1),
            p99_us: rounded(latency(0.99), 1),
            p999_us: rounded(latency(0.999), 1),
            max_us: rounded(latency(1.0), 1),
            errors: sum.errors,
            non_2xx: sum.non_2xx,
            client_busy: rounded(sum.client_busy, 4),
            client_cpu_us_per_request: rounded(sum.cpu * 1e6 / sum.sent.max(1) as f64, 4),
            rate_ratio: rounded(sum.rate_ratio, 4),
            ..Measured::default()
        };
        spent.note(&mut measured);
        let foreign = spent.busy_server - spent.server_cpu - spent.background;
        measured.foreign_on_server_cpus = spent.share(foreign);
        measured.foreign_on_client_cpus = spent.share(spent.busy_client - spent.own);
        Ok(measured)
    }

    /// Replaces the cost by that of the server's CPUs, including all other work there.
    ///
    /// # Errors
    /// The lost time is not known.
    pub(super) fn count_whole_cpu(&self, row: &mut Measured, lost: &Lost) -> Result<(), String> {
        let (begin, end) = self.span()?;
        let [quiet, loaded] = lost.shares(begin, end)?;
        let spent = self.spent()?;
        let wall = spent.wall;
        let answered = (row.requests + row.non_2xx + row.checked) as f64;
        row.server_cpu_us_per_request = rounded((loaded - quiet) * wall * 1e6 / answered, 4);
        row.server_cpu_source = "cpu".to_owned();
        // The measuring loops are ours: they used the rest of these CPUs, and none of the client's.
        row.foreign_on_server_cpus = 0.0;
        let soaked = (self.cpus.server.len() as f64 - loaded) * wall;
        row.foreign_on_client_cpus = spent.share(spent.busy_client - (spent.own - soaked));
        Ok(())
    }
}

/// The resource use in a span: by the server, by the processes beside it, by this process, and of the CPUs.
#[derive(Debug)]
pub(super) struct Spent {
    /// Seconds, as is everything below.
    pub(super) wall: f64,
    /// Other processes that used the CPUs.
    pub(super) others: Vec<Other>,
    /// The CPU time of other programs, kernel threads left out.
    programs: f64,
    pub(super) server_cpu: f64,
    server_cpu_source: &'static str,
    server_rss_kib: u64,
    switches: u64,
    pub(super) background: f64,
    parts: BTreeMap<String, f64>,
    pub(super) own: f64,
    pub(super) busy_server: f64,
    pub(super) busy_client: f64,
    checked: u64,
}

impl Spent {
    /// Adds it to a row that has its requests.
    pub(super) fn note(&self, row: &mut Measured) {
        // Samples within the span are answered too, and cost as much.
        let answered = (row.requests + row.non_2xx + self.checked) as f64;
        let each = |value: f64| if answered > 0.0 { rounded(value / answered, 4) } else { 0.0 };
        row.seconds = rounded(self.wall, 6);
        row.server_cpu_us_per_request = each(self.server_cpu * 1e6);
        row.server_cpu_source = self.server_cpu_source.to_owned();
        row.server_busy = rounded(self.server_cpu / self.wall, 4);
        row.server_rss_kib = self.server_rss_kib;
        row.context_switches_per_request = each(self.switches as f64);
        row.checked = self.checked;
        row.others = self.others.clone();
        let part = |(name, cpu): (&String, &f64)| {
            let busy = rounded(cpu / self.wall, 4);
            (name.clone(), Part { cpu_us_per_request: each(cpu * 1e6), busy })
        };
        row.parts = self.parts.iter().map(part).collect();
    }

    /// The share of the server's and of the client's CPUs that other programs used, at most: on which CPUs they ran is not
    /// known. Here the kernel's work is nobody's, as with refused connections, which belong to no process.
    pub(super) fn other_programs(&self) -> (f64, f64) {
        let on_server = self.busy_server - self.server_cpu - self.background;
        let on_client = self.busy_client - self.own;
        (self.share(self.programs.min(on_server)), self.share(self.programs.min(on_client)))
    }

    /// These seconds of CPUs as a share of the span.
    pub(super) fn share(&self, seconds: f64) -> f64 {
        rounded((seconds / self.wall).max(0.0), 4)
    }
}

/// The combined results of several loads.
#[derive(Default)]
struct Sum {
    sent: u64,
    ok: u64,
    non_2xx: u64,
    errors: u64,
    latency: Histogram,
    client_busy: f64,
    cpu: f64,
    rate_ratio: f64,
}

impl Sum {
    fn of(outcomes: &[Outcome]) -> Sum {
        let mut sum = Sum { rate_ratio: 1.0, ..Sum::default() };
        for outcome in outcomes {
            let counts = &outcome.tally.counts;
            sum.sent += counts.sent;
            sum.ok += counts.ok;
            sum.non_2xx += counts.non_2xx;
            sum.errors += counts.errors() + counts.refused + counts.timeouts;
            sum.latency.merge(&outcome.tally.latency);
            sum.client_busy = sum.client_busy.max(outcome.client_cpu);
            sum.cpu += outcome.cpu.as_secs_f64();
            sum.rate_ratio = sum.rate_ratio.min(outcome.rate_ratio());
        }
        sum
    }
}

/// Rounds to this many decimals: as many as a record needs.
pub(super) fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10_f64.powi(decimals);
    (value * scale).round() / scale
}
