//! The measured span: what was answered in it, what it cost the server and what it cost us.
//!
//! The server's CPU time is the exact on-CPU time of its threads (`/proc/PID/task/*/schedstat`,
//! nanoseconds), read at both ends. A thread that exits within the span would be missed; the ticks
//! of `/proc/PID/stat` (10 ms), which are recorded next to it, would show that. Loopback's softirq
//! work is in it: it counts for the process it interrupted.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::histogram::Histogram;
use crate::plan::{Answer, Plan};

/// A server that answers nothing for so long has failed.
const STALL: Duration = Duration::from_secs(2);

/// Counts answers and takes the readings at both ends of the span.
pub(crate) struct Meter {
    epoch: Instant,
    warm_until: u64,
    over_at: u64,
    pids: Vec<u32>,
    server_cpu: usize,
    client_cpu: usize,
    latencies: Histogram,
    requests: u64,
    progress: (u64, u64),
    begin: Option<Reading>,
    end: Option<Reading>,
}

/// Everything that is read at one end of the span.
struct Reading {
    at: u64,
    requests: u64,
    server_ns: u64,
    ticks: Ticks,
    client_ns: u64,
    server_cpu: CpuTicks,
    client_cpu: CpuTicks,
}

/// CPU time of the server's processes in clock ticks.
struct Ticks {
    user: u64,
    system: u64,
}

/// What one CPU did, in clock ticks.
struct CpuTicks {
    busy: u64,
    steal: u64,
}

impl Meter {
    pub(crate) fn new(plan: &Plan) -> Meter {
        let warm_until = plan.warm.as_nanos() as u64;
        Meter {
            epoch: Instant::now(),
            warm_until,
            over_at: warm_until + plan.measured.as_nanos() as u64,
            pids: plan.pids.clone(),
            server_cpu: plan.server_cpu,
            client_cpu: plan.cpu,
            latencies: Histogram::new(),
            requests: 0,
            progress: (0, 0),
            begin: None,
            end: None,
        }
    }

    /// Nanoseconds since this meter was made.
    pub(crate) fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Takes one latency, in nanoseconds, for `requests` answered together.
    pub(crate) fn answered(&mut self, latency: u64, requests: u64) {
        self.latencies.record(latency);
        self.requests += requests;
    }

    /// To be asked once a turn: takes the readings when their time has come. True when the run is
    /// over.
    ///
    /// # Errors
    /// The server has stopped answering, or is gone.
    pub(crate) fn over(&mut self, now: u64) -> Result<bool, String> {
        if self.begin.is_none() && now >= self.warm_until {
            self.begin = Some(self.read()?);
            self.latencies = Histogram::new();
        } else if now >= self.over_at {
            self.end = Some(self.read()?);
            return Ok(true);
        }
        let (at, requests) = self.progress;
        if requests != self.requests {
            self.progress = (now, self.requests);
        } else if now - at > STALL.as_nanos() as u64 {
            return Err(format!("no answer for {} s", STALL.as_secs()));
        }
        Ok(false)
    }
}

impl Meter {
    fn read(&self) -> Result<Reading, String> {
        let mut reading = Reading {
            at: self.now(),
            requests: self.requests,
            server_ns: 0,
            ticks: Ticks { user: 0, system: 0 },
            client_ns: on_cpu_ns("self".as_ref())?,
            server_cpu: cpu_ticks(self.server_cpu)?,
            client_cpu: cpu_ticks(self.client_cpu)?,
        };
        for pid in &self.pids {
            let pid = pid.to_string();
            let ticks = process_ticks(&pid)?;
            reading.server_ns += on_cpu_ns(pid.as_ref())?;
            reading.ticks.user += ticks.user;
            reading.ticks.system += ticks.system;
        }
        Ok(reading)
    }

    /// The result as one line of JSON.
    ///
    /// # Errors
    /// Nothing was answered within the span.
    pub(crate) fn line(&self, plan: &Plan, answer: &Answer) -> Result<String, String> {
        let (Some(begin), Some(end)) = (&self.begin, &self.end) else {
            return Err("the run ended before it was measured".to_owned());
        };
        let requests = end.requests - begin.requests;
        if requests == 0 {
            return Err("no answer within the measured span".to_owned());
        }
        let span_ns = end.at - begin.at;
        let (count, wall) = (requests as f64, span_ns as f64);
        let us = |quantile| self.latencies.quantile(quantile) as f64 / 1e3;
        let mut line = Json::new();
        line.text("mode", if plan.close { "close" } else { "keep-alive" });
        line.number("connections", plan.connections as f64, 0);
        line.number("pipeline", plan.pipeline as f64, 0);
        line.number("requests", count, 0);
        line.number("seconds", wall / 1e9, 6);
        line.number("rps", count / wall * 1e9, 0);
        if !self.pids.is_empty() {
            server_fields(&mut line, begin, end, count, wall);
        }
        let client_ns = (end.client_ns - begin.client_ns) as f64;
        let foreign = foreign_share(&begin.client_cpu, &end.client_cpu, client_ns, wall);
        line.number("client_utilisation", client_ns / wall, 4);
        line.number("foreign_on_client_cpu", foreign, 3);
        line.number("p50_us", us(0.50), 1);
        line.number("p90_us", us(0.90), 1);
        line.number("p99_us", us(0.99), 1);
        line.number("status", f64::from(answer.status), 0);
        line.number("response_bytes", answer.len as f64, 0);
        line.number("errors", 0.0, 0);
        Ok(line.finish())
    }
}

/// What the span cost the server.
fn server_fields(line: &mut Json, begin: &Reading, end: &Reading, requests: f64, wall_ns: f64) {
    let tick_ns = 1e9 / ticks_per_second();
    let server_ns = (end.server_ns - begin.server_ns) as f64;
    let user = (end.ticks.user - begin.ticks.user) as f64;
    let system = (end.ticks.system - begin.ticks.system) as f64;
    let foreign = foreign_share(&begin.server_cpu, &end.server_cpu, server_ns, wall_ns);
    let steal_ns = (end.server_cpu.steal - begin.server_cpu.steal) as f64 * tick_ns;
    line.number("server_cpu_us_per_request", server_ns / requests / 1e3, 4);
    line.number(
        "server_cpu_us_per_request_ticks",
        (user + system) * tick_ns / requests / 1e3,
        4,
    );
    line.number("server_user_fraction", user / (user + system).max(1.0), 3);
    line.number("server_utilisation", server_ns / wall_ns, 4);
    line.number("requests_per_core_second", requests / server_ns * 1e9, 0);
    line.number("foreign_on_server_cpu", foreign, 3);
    line.number("steal_on_server_cpu", steal_ns / wall_ns, 3);
}

/// The share of the span in which a CPU was busy with something other than what it is for. Ticks are
/// coarse, so a few hundredths are noise.
fn foreign_share(begin: &CpuTicks, end: &CpuTicks, own_ns: f64, wall_ns: f64) -> f64 {
    let busy_ns = (end.busy - begin.busy) as f64 * 1e9 / ticks_per_second();
    ((busy_ns - own_ns) / wall_ns).max(0.0)
}

/// Checks that `bytes`, the beginning of an answer, announce success. A first segment too short to
/// tell is let through: the length is checked in any case.
pub(crate) fn check_status(bytes: &[u8]) -> Result<(), String> {
    match bytes.get(..12) {
        Some(start) if !start.starts_with(b"HTTP/1.1 2") => Err(format!(
            "an answer is not 2xx: {:?}",
            String::from_utf8_lossy(start)
        )),
        _ => Ok(()),
    }
}

/// The line for a run that failed.
pub(crate) fn error_line(message: &str) -> String {
    let mut line = Json::new();
    line.number("errors", 1.0, 0);
    line.text("error", message);
    line.finish()
}

/// On-CPU time of all threads of process `pid` ("self": ours), in nanoseconds.
fn on_cpu_ns(pid: &Path) -> Result<u64, String> {
    let tasks = Path::new("/proc").join(pid).join("task");
    let threads = fs::read_dir(&tasks).map_err(|error| format!("{}: {error}", tasks.display()))?;
    let time = |thread: fs::DirEntry| {
        first_number(&fs::read_to_string(thread.path().join("schedstat")).ok()?)
    };
    // A thread that exits between the listing and the reading counts as nothing.
    Ok(threads.flatten().filter_map(time).sum())
}

fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

/// Fields 14 and 15 of `/proc/PID/stat`, which are counted from behind the name: it may contain
/// anything.
fn process_ticks(pid: &str) -> Result<Ticks, String> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    parse_process_ticks(&text)
        .ok_or_else(|| format!("{path}: cannot be read as proc(5) describes it"))
}

fn parse_process_ticks(stat: &str) -> Option<Ticks> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut times = after_name.split_whitespace().skip(11).map(str::parse);
    Some(Ticks {
        user: times.next()?.ok()?,
        system: times.next()?.ok()?,
    })
}

fn cpu_ticks(cpu: usize) -> Result<CpuTicks, String> {
    let path = "/proc/stat";
    let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    parse_cpu_ticks(&text, cpu).ok_or_else(|| format!("{path}: no CPU {cpu}"))
}

/// `cpuN user nice system idle iowait irq softirq steal …`
fn parse_cpu_ticks(stat: &str, cpu: usize) -> Option<CpuTicks> {
    let prefix = format!("cpu{cpu} ");
    let line = stat.lines().find_map(|line| line.strip_prefix(&prefix))?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = ticks[..] else {
        return None;
    };
    let busy = user + nice + system + irq + softirq;
    Some(CpuTicks { busy, steal })
}

fn ticks_per_second() -> f64 {
    // SAFETY: takes no pointer.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    ticks as f64
}

/// A flat JSON object, written field by field.
struct Json(String);

impl Json {
    fn new() -> Json {
        Json("{".to_owned())
    }

    fn number(&mut self, name: &str, value: f64, decimals: usize) {
        self.field(name, &format!("{value:.decimals$}"));
    }

    /// Rust's debug form of a string is JSON's for printable text, which is all that comes here
    /// once control characters are replaced.
    fn text(&mut self, name: &str, value: &str) {
        let printable = value.replace(|char: char| char.is_control() || char == '\'', " ");
        self.field(name, &format!("{printable:?}"));
    }

    fn field(&mut self, name: &str, value: &str) {
        let comma = if self.0.len() > 1 { ", " } else { "" };
        self.0 += &format!("{comma}\"{name}\": {value}");
    }

    fn finish(self) -> String {
        self.0 + "}"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the two times are found whatever the process is called (proc(5): the name may hold
    /// spaces and brackets).
    #[test]
    fn reads_process_times_behind_any_name() {
        let stat = "7 (a) b) (c) S 1 2 3 4 5 6 7 8 9 10 111 222 13 14";
        let ticks = parse_process_ticks(stat).expect("well-formed");
        assert_eq!((ticks.user, ticks.system), (111, 222));
    }

    /// Purpose: idle and waiting time is not busy time, and cpu1 is not cpu10.
    #[test]
    fn reads_the_line_of_one_cpu() {
        let stat = "cpu 9 9 9 9 9 9 9 9\ncpu10 9 9 9 9 9 9 9 9 9 9\ncpu1 1 2 3 100 200 4 5 6 0 0\n";
        let ticks = parse_cpu_ticks(stat, 1).expect("present");
        assert_eq!((ticks.busy, ticks.steal), (15, 6));
        assert!(parse_cpu_ticks(stat, 2).is_none());
    }

    /// Purpose: what begins like another status than 2xx is refused, and a fragment is not judged.
    #[test]
    fn refuses_other_statuses() {
        assert!(check_status(b"HTTP/1.1 200 OK\r\n").is_ok());
        assert!(check_status(b"HTTP/1.1 503 Service Unavailable\r\n").is_err());
        assert!(check_status(b"HTTP/1").is_ok());
    }

    /// Purpose: a message cannot break the line out of JSON.
    #[test]
    fn escapes_messages() {
        let line = error_line("it's \"bad\"\r\n\\");
        assert_eq!(line, r#"{"errors": 1, "error": "it s \"bad\"  \\"}"#);
    }
}
