//! The environment of a record: the machine, the sources and the programs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::process::Command;

use highwater_core::http_date::civil_from_days;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::plan::{Cpus, Plan, show_cpus};
use super::server;

/// What must not change within a record. The memory may: hosts take some of it from virtual machines for a while.
const MACHINE: [&str; 6] = ["cpu", "cpus", "kernel", "arch", "tcp_congestion_control", "governor"];

/// Everything except the measurements. Paths of this machine are left out: records are read elsewhere.
pub(super) fn describe(plan: &Plan, cpus: &Cpus, network: &str, seed: u64) -> Value {
    let [servers, programs] = contenders(plan);
    let own = std::env::current_exe().ok();
    json!({
        "network": network,
        "started": started(),
        "seed": seed,
        "server_cpus": show_cpus(&cpus.server),
        "client_cpus": show_cpus(&cpus.client),
        "machine": machine(),
        "commit": git(&["rev-parse", "HEAD"]),
        "changed": git(&["status", "--porcelain", "--untracked-files=no"]).map(|changes| !changes.is_empty()),
        "highwater": env!("CARGO_PKG_VERSION"),
        "client_sha256": own.and_then(|path| digest(&path)),
        "servers": servers,
        "programs": programs,
    })
}

/// The digests of a plan's servers and of its programs, by name.
fn contenders(plan: &Plan) -> [Value; 2] {
    // Several servers may be one program; each file is read once.
    let mut known = BTreeMap::new();
    let mut digest_of = |path: PathBuf| {
        let path = path.canonicalize().unwrap_or(path);
        known.entry(path).or_insert_with_key(|path| digest(path)).clone()
    };
    let mut describe = |name: &String, program: &str| {
        let digest = server::find(program).ok().and_then(&mut digest_of);
        (name.clone(), json!({ "sha256": digest }))
    };
    let servers = plan.servers.iter().map(|it| describe(&it.name, it.measured_program())).collect();
    let programs =
        plan.programs.iter().map(|it| describe(&it.name, it.measured_program())).collect();
    [Value::Object(servers), Value::Object(programs)]
}

/// Why rows that are measured under `new` do not belong in a record that was begun under `old`; `None` if they do. The
/// commit may differ: the programs are measured, and the sources are not.
pub(super) fn difference(old: &Value, new: &Value) -> Option<String> {
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let differs = |name: &str, old: &Value, new: &Value| {
        let problem = || {
            format!("{name}: the record was begun with {}, now it is {}", shown(old), shown(new))
        };
        (old != new).then(problem)
    };
    let machine = |old: &Value, new: &Value| {
        let mut fields = MACHINE.iter();
        fields.find_map(|field| differs(&format!("machine: {field}"), &old[field], &new[field]))
    };
    let conditions = ["network", "server_cpus", "client_cpus"];
    let mut conditions = conditions.iter().map(|field| differs(field, &old[field], &new[field]));
    let program =
        |name: &str| format!("{name}: its program has changed since this record was begun");
    let client = || (old["client_sha256"] != new["client_sha256"]).then(|| program("highwater"));
    let measured = || {
        let mut all = [("server", "servers"), ("program", "programs")].into_iter();
        all.find_map(|(kind, field)| {
            let changed = changed(&old[field], &new[field]).into_iter().next()?;
            Some(program(&format!("{kind} {changed}")))
        })
    };
    machine(&old["machine"], &new["machine"])
        .or_else(|| conditions.find_map(|found| found))
        .or_else(client)
        .or_else(measured)
}

/// The names in `new`, servers or programs, whose file is not the one in `old`.
fn changed(old: &Value, new: &Value) -> Vec<String> {
    let new = new.as_object().into_iter().flatten();
    new.filter(|(name, it)| old[name.as_str()] != **it).map(|(name, _)| name.clone()).collect()
}

/// The names of servers and programs of `plan` whose file is not the one that `environment` describes.
pub(super) fn rebuilt(environment: &Value, plan: &Plan) -> Vec<String> {
    let [servers, programs] = contenders(plan);
    let servers = changed(&environment["servers"], &servers);
    [servers, changed(&environment["programs"], &programs)].concat()
}

/// Seconds since 1970.
pub(super) fn now() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    (since.unwrap_or_default().as_secs_f64() * 1e3).round() / 1e3
}

fn started() -> String {
    let seconds = now() as u64;
    let (year, month, day) = civil_from_days(seconds / 86_400);
    let of_day = seconds % 86_400;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

fn machine() -> Value {
    let cpu = read("/proc/cpuinfo");
    let value = |name: &str| {
        let line = cpu.lines().find(|line| line.starts_with(name));
        line.and_then(|line| Some(line.split_once(':')?.1.trim().to_owned()))
    };
    let memory = read("/proc/meminfo");
    let memory = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let memory = memory.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    json!({
        "cpu": value("model name"),
        "cpus": cpu.lines().filter(|line| line.starts_with("processor")).count(),
        "hypervisor": cpu.lines().any(|line| line.starts_with("flags") && line.contains(" hypervisor")),
        "memory_kib": memory,
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "arch": std::env::consts::ARCH,
        "tcp_congestion_control": read("/proc/sys/net/ipv4/tcp_congestion_control").trim(),
        "governor": governor(),
    })
}

/// `None` where the kernel does not set frequencies, as in virtual machines.
fn governor() -> Option<String> {
    let text = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    (!text.is_empty()).then(|| text.trim().to_owned())
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Git's state of the current folder; `None` if it is not a work tree.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// SHA-256 of a program, so that a record identifies the exact binary.
fn digest(path: &std::path::Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 256 * 1024]);
    loop {
        match file.read(&mut buffer).ok()? {
            0 => break,
            count => hash.update(&buffer[..count]),
        }
    }
    Some(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
