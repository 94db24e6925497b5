//! What does an overloaded server do? One row of a cell about overload.
//!
//! ```text
//!  load:     peak (closed loop) ─▶ load × that ─▶ peak            goodput as a share of the peak of the same minutes
//!  refusal:  the only place is taken ─▶ everything is refused     CPU time of a refusal, by `soak`
//!  steps:    loads that follow each other, or run beside each other, while metrics are read
//! ```
//! `law` is pure, and so is `derive`, which combines the rows of a record. `table` prints the result.

mod derive;
mod law;
mod steps;
mod table;
#[cfg(test)]
mod tests;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub(super) use derive::{goodputs, note_law, refusals, signals, steps as judged};
pub(super) use table::text;

use super::behind;
use super::metrics::Metrics;
use super::network::Side;
use super::reader::{Reader, rounded};
use super::record::{Measured, Overload};
use super::sending::Sending;
use super::server::Running;
use super::soak::Soak;
use super::task::{Failed, Task};
use crate::load::{OnMark, Outcome};

/// Clients of the closed loop that finds the peak: fewer than any limit that an overload may have left behind, and enough
/// to keep the server busy.
const PEAK_CONNECTIONS: u32 = 4;
/// Duration of a peak measurement before or after a load.
const PEAK: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];
/// Duration of the measurement of the capacity, which all steps of a row are multiples of.
const CAPACITY: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];
/// A server without protection answers abandoned requests long after its load. So a second peak below this share of the
/// first is not a peak.
const AFTER_MIN: f64 = 0.8;
/// The time limit for establishing the connection that takes the place.
const HELD_WITHIN: Duration = Duration::from_secs(5);

/// Measures `task` on a server that answers.
pub(super) fn measure(
    task: &Task<'_>,
    running: &mut Running,
    capacity: Option<f64>,
) -> Result<Measured, Failed> {
    match () {
        () if task.cell.refusal.is_some() => refusal(task, running),
        () if !task.cell.steps.is_empty() => steps::measure(task, running, capacity),
        () => beside_peak(task, running),
    }
}

/// # Errors
/// Nothing may be refused, but `lost` of `sent` requests were not answered with 2xx, or the server refused as many as
/// `counted` returns, or does not say how many.
fn nothing_refused(
    task: &Task<'_>,
    sent: u64,
    lost: u64,
    counted: impl FnOnce() -> Result<u64, String>,
) -> Result<(), Failed> {
    if !task.cell.refuses_nothing {
        return Ok(());
    }
    let counted = counted().map_err(|problem| {
        Failed::Void(format!("how many requests were refused is not known: {problem}"))
    })?;
    let refused = lost.max(counted);
    if refused == 0 {
        return Ok(());
    }
    Err(Failed::Void(format!(
        "{refused} of {sent} requests were not answered with 2xx, and nothing was to be refused"
    )))
}

/// The server's own count of refusals since its start; zero if it has no metrics port, or none such metric.
///
/// # Errors
/// Its metrics cannot be read.
fn refusals_counted(metrics: Option<&Metrics>) -> Result<u64, String> {
    let Some(metrics) = metrics else { return Ok(0) };
    let samples = metrics.read().map_err(|problem| format!("the metrics port: {problem}"))?;
    Ok(samples.get("http_scaling_total_rejections").copied().unwrap_or(0.0) as u64)
}

/// Answers in time per second, in a closed loop.
pub(super) fn capacity(task: &Task<'_>, port: u16) -> Result<f64, Failed> {
    peak(task, port, CAPACITY)
}

fn peak(task: &Task<'_>, port: u16, [warm_up, duration]: [Duration; 2]) -> Result<f64, Failed> {
    let sending = Sending {
        connections: PEAK_CONNECTIONS,
        rate: 0.0,
        burst: 1,
        warm_up,
        duration,
        ..Sending::of_cell(task.plan, task.cell)
    };
    let outcome = send(task, &sending, port, Box::new(|_| ()))?;
    Ok(goodput(&outcome))
}

fn goodput(outcome: &Outcome) -> f64 {
    rounded(outcome.tally.counts.good as f64 / outcome.span.as_secs_f64().max(1e-9), 1)
}

fn send(task: &Task<'_>, sending: &Sending, port: u16, on_mark: OnMark) -> Result<Outcome, Failed> {
    let outcome = sending.send(task.network, port, task.cpus.client.len(), on_mark);
    let outcome = outcome.map_err(|problem| Failed::Void(format!("load: {problem}")))?;
    if outcome.interrupted { Err(Failed::Interrupted) } else { Ok(outcome) }
}

/// A load between two measurements of the same server's capacity: speeds drift by a few per cent between processes and
/// minutes. The rate is a multiple of the first capacity.
fn beside_peak(task: &Task<'_>, running: &mut Running) -> Result<Measured, Failed> {
    let mut sending = Sending::of_cell(task.plan, task.cell);
    let has_load = task.cell.load > 0.0;
    let all = Reader::new(running.processes(), task.cpus, task.background, Arc::default());
    all.read();
    let mut peaks = Vec::new();
    if has_load {
        peaks.push(peak(task, running.load_port(task.cell), PEAK)?);
        if peaks[0] == 0.0 {
            return Err(Failed::Void(
                "no answer came in time without overload: no peak".to_owned(),
            ));
        }
        sending.rate = task.cell.load * peaks[0];
    }
    let (reader, outcome) = load_read(task, running, &sending)?;
    let mut row = overload_of(&outcome);
    add_server_metrics(running, &mut row);
    let lost = row.sent - outcome.tally.counts.ok.min(row.sent);
    nothing_refused(task, row.sent, lost, || refusals_counted(running.metrics.as_ref()))?;
    if has_load {
        peaks.push(peak(task, running.load_port(task.cell), PEAK)?);
        let own = own_peak(&peaks);
        row.load = Some(rounded(sending.rate / own, 4));
        row.goodput_of_peak = Some(rounded(row.goodput_per_s / own, 4));
        row.peaks_per_s = peaks;
    }
    all.read();
    let mut measured = whole(&reader, vec![outcome], row)?;
    // A peak that something else lowered would make the load small, and its share of the peak great.
    let spent = all.spent().map_err(Failed::Void)?;
    let (on_server, on_client) = spent.other_programs();
    measured.foreign_on_server_cpus = measured.foreign_on_server_cpus.max(on_server);
    measured.foreign_on_client_cpus = measured.foreign_on_client_cpus.max(on_client);
    Ok(measured)
}

/// Sends the load, and reads the server's resource use meanwhile.
fn load_read(
    task: &Task<'_>,
    running: &Running,
    sending: &Sending,
) -> Result<(Arc<Reader>, Outcome), Failed> {
    let reader =
        Arc::new(Reader::new(running.processes(), task.cpus, task.background, Arc::default()));
    let marks = Arc::clone(&reader);
    let port = running.load_port(task.cell);
    let outcome = send(task, sending, port, Box::new(move |_| marks.read()))?;
    in_time(&[("", &outcome)], &reader)?;
    Ok((reader, outcome))
}

/// The peak that a row is compared with.
fn own_peak(peaks: &[f64]) -> f64 {
    match peaks {
        [before, after] if *after > AFTER_MIN * before => f64::midpoint(*before, *after),
        [before, ..] => *before,
        [] => 0.0,
    }
}

fn overload_of(outcome: &Outcome) -> Overload {
    let counts = &outcome.tally.counts;
    Overload {
        goodput_per_s: goodput(outcome),
        sent: counts.sent,
        refused: counts.refused + counts.resets,
        timeouts: counts.timeouts,
        bottlenecks: client_problems(outcome, "").into_iter().collect(),
        ..Overload::default()
    }
}

/// # Errors
/// The client did not keep its rate.
fn in_time(outcomes: &[(&str, &Outcome)], reader: &Reader) -> Result<(), Failed> {
    let spent = reader.spent().map_err(Failed::Void)?;
    let mut behind =
        outcomes.iter().filter_map(|(of, outcome)| behind::behind(outcome, of, &spent.others));
    behind.next().map_or(Ok(()), |behind| Err(Failed::Void(behind)))
}

/// Reasons why the figures may describe the client.
fn client_problems(outcome: &Outcome, of: &str) -> Option<String> {
    let busy = outcome.client_cpu * 100.0;
    (busy >= 90.0).then(|| format!("{of}it used {busy:.0} % of a CPU"))
}

/// Adds the server's metrics at the end.
fn add_server_metrics(running: &Running, row: &mut Overload) {
    let Some(Ok(samples)) = running.metrics.as_ref().map(|metrics| metrics.read()) else { return };
    row.limit = samples.get("http_scaling_connection_limit").copied();
    let gate = samples.keys().find_map(|name| name.strip_prefix("highwater_gate_info"));
    row.gate = gate.map(str::to_owned);
}

/// The row, from the readings and the client's results.
fn whole(reader: &Reader, outcomes: Vec<Outcome>, mut row: Overload) -> Result<Measured, Failed> {
    let mut measured = reader.measured(&outcomes).map_err(Failed::Void)?;
    row.softirq = reader.softirq().map_err(Failed::Void)?;
    // Here these are not failures of the client, but the subject of the measurement.
    measured.errors = measured.errors.saturating_sub(row.refused + row.timeouts);
    // Refusing happens on these CPUs outside any process, so only the work of other programs can be told from it.
    let spent = reader.spent().map_err(Failed::Void)?;
    (measured.foreign_on_server_cpus, measured.foreign_on_client_cpus) = spent.other_programs();
    measured.overload = Some(row);
    Ok(measured)
}

/// Measures the CPU time of refusals: the only place is taken, so every connection is refused.
fn refusal(task: &Task<'_>, running: &mut Running) -> Result<Measured, Failed> {
    let held =
        hold(task, running).map_err(|problem| Failed::Void(format!("refusal: {problem}")))?;
    let soak = Soak::start(&task.cpus.server).map_err(Failed::Void)?;
    let sending = Sending::of_cell(task.plan, task.cell);
    let (reader, outcome) = load_read(task, running, &sending)?;
    let lost = soak.stop();
    drop(held);
    let (begin, end) = reader.span().map_err(Failed::Void)?;
    let [quiet, loaded] = lost.shares(begin, end).map_err(Failed::Void)?;
    let counts = &outcome.tally.counts;
    let per_s = (counts.sent - counts.ok) as f64 / outcome.span.as_secs_f64().max(1e-9);
    if counts.ok * 10 > counts.sent {
        return Err(Failed::Void(format!(
            "refusal: {} of {} requests were answered; the server must have one place only, which {:?} takes",
            counts.ok,
            counts.sent,
            task.cell.refusal.as_deref().unwrap_or_default()
        )));
    }
    let mut row = overload_of(&outcome);
    add_server_metrics(running, &mut row);
    row.cpu_us_per_refusal = law::cost_us(quiet, loaded, per_s).map(|cost| rounded(cost, 3));
    whole(&reader, vec![outcome], row)
}

/// A request that takes the only place, for as long as the connection lives.
fn hold(task: &Task<'_>, running: &Running) -> Result<std::net::TcpStream, String> {
    let address = SocketAddr::from((task.network.host(), running.port));
    let path = task.cell.refusal.as_deref().unwrap_or_default();
    let mut stream = task.network.connect(Side::Client, address, HELD_WITHIN)?;
    let asked = stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: server\r\n\r\n").as_bytes())
        .and_then(|()| stream.set_read_timeout(Some(Duration::from_millis(300))));
    asked.map_err(|error| error.to_string())?;
    match stream.read(&mut [0]) {
        // It waits, as it should.
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
            ) =>
        {
            Ok(stream)
        }
        Err(error) => Err(error.to_string()),
        Ok(_) => Err(format!(
            "{path} was answered at once; give a path that waits longer than the cell lasts"
        )),
    }
}
