//! A server in separate processes, for one row.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::ask::{Asker, Question};
use super::certificate::Certificate;
use super::metrics::Metrics;
use super::network::{Network, Side};
use super::plan::{self, Cell, Plan, Server};
use super::supervisor::{self, Supervisor};
use super::tree;

/// How often a starting server is polled.
const TICK: Duration = Duration::from_millis(10);
/// Bytes of a server's last output that a reason shows.
const SAID_MAX: i64 = 300;

/// A server that answers. Dropping it ends its processes: its supervisor does.
pub(super) struct Running {
    supervisor: Supervisor,
    stderr: File,
    pub(super) port: u16,
    /// Its port for TLS, if its command has one.
    tls_port: Option<u16>,
    pub(super) network: Network,
    /// Its metrics port, if its command has one.
    pub(super) metrics: Option<Metrics>,
    /// Of that port; its files live as long as the server.
    _certificate: Option<Certificate>,
}

impl Running {
    /// Starts `server`, with `flags` after its command, on `cpus`, and waits until it is ready or `is_over`.
    ///
    /// # Errors
    /// Why it does not run.
    pub(super) fn start(
        plan: &Plan,
        server: &Server,
        flags: &[String],
        (network, cpus): (&Network, &[usize]),
        is_over: &dyn Fn() -> bool,
    ) -> Result<Running, String> {
        let program = find(&server.command[0])?;
        find(server.measured_program())?;
        let port = port_for(network, network.host(), server.port)?;
        let words = || server.command.iter().chain(flags).chain(server.env.values());
        let names = |name: &str| words().any(|word| word.contains(name));
        let metrics = match names("{metrics}") {
            true => Some(port_for(network, Ipv4Addr::LOCALHOST, 0)?),
            false => None,
        };
        let (tls_port, certificate) = match names(plan::TLS_PORT) {
            true => (Some(port_for(network, network.host(), 0)?), Some(Certificate::make()?)),
            false => (None, None),
        };
        let metrics = metrics.map(|port| Metrics { network: network.clone(), port });
        let words = BTreeMap::from([
            ("host".to_owned(), network.host().to_string()),
            ("port".to_owned(), port.to_string()),
            ("metrics".to_owned(), metrics.as_ref().map_or(0, |metrics| metrics.port).to_string()),
            ("tls_port".to_owned(), tls_port.unwrap_or_default().to_string()),
            (
                "tls_cert".to_owned(),
                certificate.as_ref().map(Certificate::chain).unwrap_or_default(),
            ),
            ("tls_key".to_owned(), certificate.as_ref().map(Certificate::key).unwrap_or_default()),
        ]);
        let put = |text: &String| plan::put(text, &words);
        let mut command: Vec<String> = server.command.iter().chain(flags).map(put).collect();
        command[0] = program.to_string_lossy().into_owned();
        let stderr = supervisor::unnamed_file()
            .map_err(|error| format!("a file for its output: {error}"))?;
        let mut supervisor = supervisor::command(cpus, &[], &command)?;
        supervisor
            .env("PORT", port.to_string())
            .env("WORKERS", server.workers.to_string())
            .envs(server.env.iter().map(|(name, value)| (name, put(value))))
            .stdout(Stdio::null())
            .stderr(stderr.try_clone().map_err(|error| error.to_string())?);
        let supervisor = Supervisor::start(&mut supervisor, (network, Side::Server))?;
        let network = network.clone();
        let mut running = Running {
            supervisor,
            stderr,
            port,
            tls_port,
            network,
            metrics,
            _certificate: certificate,
        };
        running.wait_ready(plan, server, is_over)?;
        Ok(running)
    }

    fn wait_ready(
        &mut self,
        plan: &Plan,
        server: &Server,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let question = Question::get(&server.ready, self.port);
        let deadline = Instant::now() + plan.ready_within.0;
        loop {
            if let Some(status) = self.ended() {
                let output = self.output();
                return Err(format!("it ended before it was ready ({}): {output}", show(status)));
            }
            let problem = match Asker::new(&self.network, self.port).ask(&question) {
                Err(problem) => problem,
                // On a fixed port, another process may answer.
                Ok(()) if self.ended().is_none() => return Ok(()),
                Ok(()) => continue,
            };
            if Instant::now() >= deadline {
                return Err(format!(
                    "not ready within {:?}: {problem}; {}",
                    plan.ready_within.0,
                    self.output()
                ));
            }
            if is_over() {
                return Err(INTERRUPTED.to_owned());
            }
            std::thread::sleep(TICK);
        }
    }

    /// Where the load of `cell` goes.
    pub(super) fn load_port(&self, cell: &Cell) -> u16 {
        // Plans are refused if a server has no port for it.
        self.tls_port.filter(|_| cell.tls).unwrap_or(self.port)
    }

    /// Its processes: the server and its children.
    pub(super) fn processes(&self) -> Vec<u32> {
        tree::descendants(self.supervisor.0.id())
    }

    /// How it ended, if it did.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.supervisor.ended()
    }

    /// Its end as a reason, if it ended.
    pub(super) fn death(&mut self) -> Option<String> {
        let status = self.ended()?;
        Some(format!(
            "the server ended while it was measured ({}): {}",
            show(status),
            self.output()
        ))
    }

    /// The end of its output.
    fn output(&mut self) -> String {
        let mut text = Vec::new();
        let end = self.stderr.seek(SeekFrom::End(0)).unwrap_or(0);
        let from = SeekFrom::Start(end.saturating_sub(SAID_MAX.unsigned_abs()));
        // Without a reason from the server, the one we have must do.
        let _ = self.stderr.seek(from).and_then(|_| self.stderr.read_to_end(&mut text));
        let text = String::from_utf8_lossy(&text);
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.is_empty() {
            "it said nothing".to_owned()
        } else {
            format!("it said: {}", words.join(" "))
        }
    }
}

/// The reason why a row has no result after a signal.
pub(super) const INTERRUPTED: &str = "interrupted";

pub(super) fn show(status: ExitStatus) -> String {
    match status.code() {
        Some(code @ 129..=192) => format!("killed by signal {}", code - 128),
        Some(code) => format!("exit status {code}"),
        None => status.to_string(),
    }
}

/// The program: its name if that is a path, else beside this program, else in PATH.
///
/// # Errors
/// There is none.
pub(super) fn find(name: &str) -> Result<PathBuf, String> {
    let missing = || format!("there is no program {name}; build or install it");
    if name.contains('/') {
        return is_program(Path::new(name)).then(|| PathBuf::from(name)).ok_or_else(missing);
    }
    let own = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(name)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps nginx where only administrators look.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    let found = own.into_iter().chain(folders.map(|folder| folder.join(name)));
    found.into_iter().find(|path| is_program(path)).ok_or_else(missing)
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// The fixed port, or a free one. Bound without SO_REUSEPORT, so that a stray server, which would share the port and
/// take half of the load, is noticed.
fn port_for(network: &Network, host: Ipv4Addr, port: u16) -> Result<u16, String> {
    let listener = network.on(Side::Server, || TcpListener::bind((host, port)))?;
    let listener = listener.map_err(|error| {
        format!("port {port} is in use ({error}): stop what listens there, or give another port")
    })?;
    Ok(listener.local_addr().map_err(|error| error.to_string())?.port())
}
