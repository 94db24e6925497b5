//! Services that run meanwhile and are not measured: started before the first row, stopped however the run ends.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use highwater_sys::process::{self, End};

use super::figures::end_of;
use super::network::{Network, Side};
use super::plan::{Contender, Plan, Service, words_in};
use super::server::{INTERRUPTED, find, show};
use super::supervisor::{self, Supervisor};

/// How often a starting service is checked.
const TICK: Duration = Duration::from_millis(20);
/// Extra time beyond the limit for starting, so that its supervisor can report the failure.
const SLACK: Duration = Duration::from_secs(5);

/// All services of a plan. Dropping it stops those that did not run before.
#[derive(Default)]
pub(super) struct Services {
    all: BTreeMap<String, Result<Kept, String>>,
}

/// A service that was started. Its supervisor stops it, and ends all remaining processes.
struct Kept {
    name: String,
    supervisor: Supervisor,
    has_started: bool,
    /// The last line that its start has printed.
    output: String,
    stderr: File,
}

impl Drop for Kept {
    fn drop(&mut self) {
        if !self.supervisor.end() && self.has_started {
            let output = end_of(&text_of(&self.stderr));
            super::complain(&format!(
                "service {}: its stop command failed, and its processes were ended: {output}",
                self.name
            ));
        }
    }
}

impl Services {
    /// Starts all of them on `cpus`, one after the other.
    ///
    /// # Errors
    /// It was interrupted. A service that does not start is not an error here: see [`Services::problem`].
    pub(super) fn start(
        plan: &Plan,
        (network, cpus): (&Network, &[usize]),
        is_over: &dyn Fn() -> bool,
    ) -> Result<Services, String> {
        let mut services = Services::default();
        for service in &plan.services {
            let started = start(service, (network, cpus), is_over);
            if is_over() {
                return Err(INTERRUPTED.to_owned());
            }
            let started = started.map_err(|problem| format!("service {}: {problem}", service.name));
            services.all.insert(service.name.clone(), started);
        }
        Ok(services)
    }

    /// The address of each service, by the word that it replaces.
    pub(super) fn words(&self) -> BTreeMap<String, String> {
        let word = |(name, kept): (&String, &Result<Kept, String>)| {
            Some((format!("service.{name}"), kept.as_ref().ok()?.output.clone()))
        };
        self.all.iter().filter_map(word).collect()
    }

    /// Why `contender` of `plan` cannot be measured: a service that it refers to failed to start, or one that is never
    /// referred to, which counts as needed by all.
    pub(super) fn problem(&self, plan: &Plan, contender: Contender<'_>) -> Option<String> {
        let is_mentioned = |name: &str, texts: &[&String]| {
            let word = format!("service.{name}");
            texts.iter().any(|text| words_in(text).contains(&word.as_str()))
        };
        let all: Vec<&String> =
            plan.contenders().flat_map(|contender| texts(plan, contender)).collect();
        self.all.iter().find_map(|(name, kept)| {
            let problem = kept.as_ref().err()?;
            let needs = is_mentioned(name, &texts(plan, contender)) || !is_mentioned(name, &all);
            needs.then(|| problem.clone())
        })
    }

    /// The root processes of all services.
    pub(super) fn supervisors(&self) -> Vec<u32> {
        self.all.values().flatten().map(|kept| kept.supervisor.0.id()).collect()
    }
}

/// The texts that may refer to a service: those of the contender, and of a server that may run meanwhile.
fn texts<'a>(plan: &'a Plan, contender: Contender<'a>) -> Vec<&'a String> {
    let of = |command: &'a [String], env: &'a BTreeMap<String, String>| {
        command.iter().chain(env.values()).collect::<Vec<_>>()
    };
    match contender {
        Contender::Server(server) => of(&server.command, &server.env),
        Contender::Program(program) => {
            let named =
                plan.servers.iter().find(|server| Some(&server.name) == program.server.as_ref());
            let background = named.map(|server| of(&server.command, &server.env));
            [of(&program.command, &program.env), background.unwrap_or_default()].concat()
        }
    }
}

fn start(
    service: &Service,
    (network, cpus): (&Network, &[usize]),
    is_over: &dyn Fn() -> bool,
) -> Result<Kept, String> {
    let program = find(&service.start[0])?;
    let mut command = service.start.clone();
    command[0] = program.to_string_lossy().into_owned();
    // A service that already runs is used, and is not stopped.
    let mut stop = if runs_already(service)? { Vec::new() } else { service.stop.clone() };
    // A service that cannot be stopped is not started.
    if let Some(program) = stop.first_mut() {
        let found = find(program).map_err(|problem| format!("stop: {problem}"))?;
        *program = found.to_string_lossy().into_owned();
    }
    let flags = [
        "--stop".to_owned(),
        serde_json::json!(stop).to_string(),
        "--within".to_owned(),
        service.within.0.as_millis().to_string(),
    ];
    let mut supervisor = supervisor::command(cpus, &flags, &command)?;
    let (stdout, stderr) = supervisor::into_files(supervisor.envs(&service.env))?;
    let supervisor = Supervisor::start(&mut supervisor, (network, Side::Server))?;
    let name = service.name.clone();
    let mut kept = Kept { name, supervisor, has_started: false, output: String::new(), stderr };
    let deadline = Instant::now() + service.within.0 + SLACK;
    loop {
        let ended = kept.supervisor.ended();
        let output = text_of(&stdout);
        if let Some((output, _)) = output.split_once(supervisor::STARTED) {
            kept.has_started = true;
            kept.output = output.trim().lines().last().unwrap_or_default().trim().to_owned();
            return Ok(kept);
        }
        // The supervisor ends a start that takes too long, and reports no status of it then.
        let is_late = Instant::now() >= deadline - SLACK;
        let problem = match ended {
            Some(status) if !is_late => format!("its start failed ({})", show(status)),
            None if Instant::now() < deadline => String::new(),
            _ => format!("it did not start within {:?}", service.within.0),
        };
        if !problem.is_empty() {
            return Err(format!("{problem}: {}", end_of(&(output + &text_of(&kept.stderr)))));
        }
        if is_over() {
            return Err(INTERRUPTED.to_owned());
        }
        std::thread::sleep(TICK);
    }
}

/// Whether it was already running.
fn runs_already(service: &Service) -> Result<bool, String> {
    let [program, arguments @ ..] = &service.running[..] else { return Ok(false) };
    let mut command = Command::new(find(program)?);
    command.args(arguments).envs(&service.env).stdin(Stdio::null());
    process::tie(&mut command, &[], End::Kill);
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    Ok(status.map_err(|error| format!("{program}: {error}"))?.success())
}

/// The content of a file.
pub(super) fn text_of(mut file: &File) -> String {
    let mut bytes = Vec::new();
    // Without it, the known reason must do.
    let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}
