//! The record of a run, and its file.
//!
//! After every row a new file is written beside the old one and then replaces it: a run that is killed loses the row
//! that was being measured, and nothing else.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::others::Other;
use super::plan::Plan;

/// Maximum bytes of a record that is read: a thousand rounds of everything have less.
const RECORD_SIZE_MAX: u64 = 512 * 1024 * 1024;

/// One run of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) plan: Plan,
    #[serde(default)]
    pub(crate) environment: Value,
    pub(crate) cells: Vec<Row>,
    #[serde(default)]
    pub(crate) aa: Option<Noise>,
}

/// One server or program in one cell of one round: measured, or void with the reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) server: String,
    pub(crate) cell: String,
    pub(crate) round: u32,
    /// `ok` or `void`.
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) reason: Option<String>,
    /// Seconds since 1970 when it began.
    #[serde(default)]
    pub(crate) at: f64,
    #[serde(flatten)]
    pub(crate) measured: Option<Measured>,
}

impl Row {
    /// Whether it was measured.
    pub(crate) fn is_ok(&self) -> bool {
        self.status == "ok"
    }
}

/// The figures of one row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Requests of the measured span that were answered with 2xx.
    pub(crate) requests: u64,
    #[serde(default)]
    pub(crate) seconds: f64,
    #[serde(default)]
    pub(crate) rps: f64,
    /// Bytes that a program received, heads included, if it reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes_per_s: Option<f64>,
    /// CPU time of all threads of the server and its children, per request. In a program's row: of the server that ran
    /// meanwhile, 0 without one.
    pub(crate) server_cpu_us_per_request: f64,
    /// Where that comes from: `schedstat`, to the nanosecond, or `stat`, in ticks, where threads came and went.
    #[serde(default)]
    pub(crate) server_cpu_source: String,
    /// The server's CPU time over the span, in cores.
    #[serde(default)]
    pub(crate) server_busy: f64,
    #[serde(default)]
    pub(crate) p50_us: f64,
    #[serde(default)]
    pub(crate) p90_us: f64,
    #[serde(default)]
    pub(crate) p99_us: f64,
    #[serde(default)]
    pub(crate) p999_us: f64,
    #[serde(default)]
    pub(crate) max_us: f64,
    /// Connections refused, reset, cut off, timed out or malformed.
    #[serde(default)]
    pub(crate) errors: u64,
    #[serde(default)]
    pub(crate) non_2xx: u64,
    /// CPU time over wall time of the busiest client thread, 0 to 1. For a program: of all its processes, in cores.
    #[serde(default)]
    pub(crate) client_busy: f64,
    /// For a program: the CPU time of all its processes from its start to its end, which is its cost.
    #[serde(default)]
    pub(crate) client_cpu_us_per_request: f64,
    /// Sent over requested, with a rate; else 1.
    #[serde(default = "whole")]
    pub(crate) rate_ratio: f64,
    #[serde(default)]
    pub(crate) server_rss_kib: u64,
    #[serde(default)]
    pub(crate) context_switches_per_request: f64,
    /// Answers that were compared to the byte while it was measured.
    #[serde(default)]
    pub(crate) checked: u64,
    /// The share of the CPUs' time that neither server nor client used.
    #[serde(default)]
    pub(crate) foreign_on_server_cpus: f64,
    #[serde(default)]
    pub(crate) foreign_on_client_cpus: f64,
    /// Other processes that used a CPU meanwhile, the busiest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) others: Vec<Other>,
    /// A cache line's round trip between the server's and the client's CPU, before and after, in ns.
    #[serde(default)]
    pub(crate) c2c_ns: Vec<f64>,
    /// The resource use of the processes that the plan names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) parts: BTreeMap<String, Part>,
    /// In a cell about overload.
    #[serde(flatten)]
    pub(crate) overload: Option<Overload>,
}

/// The resource use of some processes during a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) cpu_us_per_request: f64,
    /// In cores.
    pub(crate) busy: f64,
}

/// The results of an overload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Overload {
    /// 2xx within the deadline, from the instant at which the request was meant to be sent.
    pub(crate) goodput_per_s: f64,
    pub(crate) sent: u64,
    /// Connections that were refused or reset.
    #[serde(default)]
    pub(crate) refused: u64,
    /// Requests without an answer within the deadline, including silent drops, which a client cannot tell apart.
    #[serde(default)]
    pub(crate) timeouts: u64,
    /// Goodput of the same server in a closed loop: before, and after if it was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) peaks_per_s: Vec<f64>,
    /// The rate over the mean of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) load: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) goodput_of_peak: Option<f64>,
    /// The law's value at that load, with the server's median cost of a refusal in this record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) law: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_us_per_refusal: Option<f64>,
    /// Of the server's CPUs, by the kernel's ticks.
    #[serde(default)]
    pub(crate) softirq: f64,
    /// The server's limit at the end, and the mechanism that enforces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gate: Option<String>,
    /// Reasons why the figures may describe the client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) bottlenecks: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) steps: Vec<StepRow>,
    /// By name: (seconds since the cell began, value).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) series: BTreeMap<String, Vec<[f64; 2]>>,
}

/// The results of one step of a cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StepRow {
    pub(crate) name: String,
    /// Seconds since the cell began.
    pub(crate) begin_s: f64,
    pub(crate) end_s: f64,
    /// Requests per second; 0 in a closed loop.
    pub(crate) rate: f64,
    pub(crate) sent: u64,
    pub(crate) ok: u64,
    pub(crate) goodput_per_s: f64,
    pub(crate) refused: u64,
    pub(crate) timeouts: u64,
    pub(crate) non_2xx: u64,
    pub(crate) errors: u64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
    /// Its own answers in time per second, at moments, if another step runs beside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) points: Vec<[f64; 2]>,
}

fn whole() -> f64 {
    1.0
}

/// A confidence interval; its coverage follows from the number of values (`bench::interval`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// The A/A run: the same server twice, as if it were two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Noise {
    pub(crate) server: String,
    pub(crate) pairs: usize,
    /// The interval of the ratio of all pairs; 1 is in it unless something is wrong. `None`: too few pairs.
    #[serde(flatten)]
    pub(crate) interval: Option<Interval>,
    /// The same for each cell.
    #[serde(default)]
    pub(crate) cells: Vec<NoiseOfCell>,
    /// Two rows for each cell and round.
    #[serde(default)]
    pub(crate) rows: Vec<Row>,
}

/// The noise in one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NoiseOfCell {
    pub(crate) cell: String,
    pub(crate) pairs: usize,
    #[serde(flatten)]
    pub(crate) interval: Option<Interval>,
}

impl Record {
    /// All rows, including those of the A/A run.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.aa.iter().flat_map(|aa| &aa.rows).chain(&self.cells)
    }

    /// Reads the record in `path`; `None` if there is none, or an empty file.
    ///
    /// # Errors
    /// It cannot be read, or is not a record; with the remedy.
    pub(crate) fn find(path: &Path) -> Result<Option<Record>, String> {
        let shown = path.display();
        match path.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{shown}: {error}")),
            Ok(metadata) if metadata.len() == 0 => return Ok(None),
            Ok(metadata) if metadata.len() > RECORD_SIZE_MAX => {
                return Err(format!(
                    "{shown}: {} bytes; a record has at most 512 MiB",
                    metadata.len()
                ));
            }
            Ok(_) => {}
        }
        let text = std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
        let record: Record = serde_json::from_str(&text).map_err(|error| {
            format!(
                "{shown}:{}: {error}; give a record that `highwater bench run` wrote",
                error.line()
            )
        })?;
        // Neither void nor measured: such a row would be left out, and a claim made of the others.
        let hollow = record.rows().find(|row| row.is_ok() && row.measured.is_none());
        if let Some(Row { server, cell, round, .. }) = hollow {
            return Err(format!(
                "{shown}: the row of {server} in {cell}, round {round}, is ok, but lacks a figure, or has one that is not a \
                 number; give a record that `highwater bench run` wrote"
            ));
        }
        Ok(Some(record))
    }

    /// Reads the record in `path`.
    ///
    /// # Errors
    /// There is none, it cannot be read, or is not a record; with the remedy.
    pub(crate) fn read(path: &Path) -> Result<Record, String> {
        let missing =
            || format!("{}: there is no record; `highwater bench run` writes one", path.display());
        Record::find(path)?.ok_or_else(missing)
    }

    /// Replaces the file at `path` by the record, atomically.
    ///
    /// # Errors
    /// The file cannot be written; with the path.
    pub(crate) fn save(&self, path: &Path) -> Result<(), String> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let write = || {
            let mut file = File::create(&beside)?;
            file.write_all(self.text().as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&beside, path)
        };
        let written = write();
        if written.is_err() {
            // It is not whole, and may be what fills the disk.
            let _ = std::fs::remove_file(&beside);
        }
        written.map_err(|error| match path.parent() {
            Some(folder) if error.kind() == ErrorKind::NotFound => {
                format!(
                    "{}: {error}; `mkdir -p {}` makes its folder",
                    path.display(),
                    folder.display()
                )
            }
            _ => format!("{}: {error}", path.display()),
        })
    }

    /// The file's content: indented for readers and diffs, but each row on one line, since there are hundreds.
    fn text(&self) -> String {
        let rows = |rows: &[Row]| {
            let rows: Vec<String> = rows.iter().map(|row| format!("\n  {}", json(row))).collect();
            if rows.is_empty() { "[]".to_owned() } else { format!("[{}\n ]", rows.join(",")) }
        };
        let mut out = format!(
            "{{\n \"plan\": {},\n \"environment\": {},\n \"cells\": {},\n \"aa\": ",
            json(&self.plan),
            json(&self.environment),
            rows(&self.cells)
        );
        match &self.aa {
            None => out += "null",
            Some(aa) => {
                let head = json(&Noise { rows: Vec::new(), ..aa.clone() });
                let head = head.strip_suffix("\"rows\":[]}").expect("rows are the last field");
                out += &format!("{head}\"rows\": {}}}", rows(&aa.rows));
            }
        }
        out + "\n}\n"
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("keys are text, and nothing in it can fail")
}
