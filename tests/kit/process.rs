//! A program in a process of its own, so that what it costs (descriptors, memory, CPU) is its own, and how it ends can
//! be watched.

use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::client::{Answer, Client, get};
use crate::log::Log;
use crate::{PATIENCE, within};

/// A command that runs `program` until its test ends: it is killed when the thread that starts it ends, whatever ends
/// that.
pub fn program(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]).stdin(Stdio::null());
    command
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: Log,
    /// Where it serves; its metrics, if that is all it serves.
    pub address: SocketAddr,
    metrics: Option<SocketAddr>,
}

impl Process {
    /// Starts a server, see [`program`], and waits until it says `serving`, with its addresses.
    ///
    /// # Panics
    /// If it does not within [`PATIENCE`], or ends before; with what it said.
    pub fn start(command: &mut Command) -> Process {
        Process::start_until(command, " serving ")
    }

    /// The same for one that says `begun` instead.
    ///
    /// # Panics
    /// As [`Process::start`].
    pub fn start_until(command: &mut Command, begun: &str) -> Process {
        let mut process = Process::start_unready(command);
        process.begins(begun);
        process
    }

    /// The same for a program that runs already; its standard error is piped.
    ///
    /// # Panics
    /// As [`Process::start`].
    pub fn of(child: Child, begun: &str) -> Process {
        // From here on it is killed if anything fails.
        let mut process = Process::unready(child);
        process.begins(begun);
        process
    }

    /// Starts one that has to wait before it serves; [`Process::begins`] waits for that.
    ///
    /// # Panics
    /// If there is no such program.
    pub fn start_unready(command: &mut Command) -> Process {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Process::unready(child)
    }

    fn unready(mut child: Child) -> Process {
        let log = Log::of(child.stderr.take().expect("it is piped"));
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Process { child, log, address: any, metrics: None }
    }

    /// Waits until it says `begun`, with its addresses.
    ///
    /// # Panics
    /// As [`Process::start`].
    pub fn begins(&mut self, begun: &str) {
        let line = self.wait_for(|line| line.contains(begun));
        self.metrics = field(&line, "metrics");
        let address = field(&line, "address").or(self.metrics);
        self.address = address.unwrap_or_else(|| panic!("it says no address: {line}"));
    }

    /// The next line of its log that satisfies `wanted`.
    ///
    /// # Panics
    /// If there is none within [`PATIENCE`], or it has ended.
    pub fn wait_for(&self, wanted: impl Fn(&str) -> bool) -> String {
        let line = self.log.wait_for(wanted);
        line.unwrap_or_else(|| panic!("a line that never came, after\n{}", self.log()))
    }

    /// Takes what it has logged so far for seen: [`Process::wait_for`] begins behind it.
    pub fn skip_lines(&self) {
        self.log.skip();
    }

    /// Everything that it has written to standard error.
    pub fn log(&self) -> String {
        self.log.log()
    }

    /// The id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// A new connection to it. It says that it serves, so one that is refused is a finding, and tried only once.
    ///
    /// # Panics
    /// If it is refused, with what the server said. The same holds for answers that do not come on it.
    pub fn connect(&self) -> Client {
        self.connect_to(self.address)
    }

    fn connect_to(&self, address: SocketAddr) -> Client {
        let client = Client::try_connect(address);
        let client = client.unwrap_or_else(|error| {
            let life = if self.has_ended() { "it has ended" } else { "it still runs" };
            panic!("{address}: {error}; {life}, after\n{}", self.log())
        });
        client.of(self.log.clone())
    }

    /// Whether it has ended, although nobody has waited for it.
    fn has_ended(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()));
        stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')))
    }

    /// One `GET`, on a connection of its own.
    ///
    /// # Panics
    /// If there is no whole answer.
    pub fn get(&self, target: &str) -> Answer {
        self.connect().get(target)
    }

    /// One request, as it is written, on a connection of its own.
    ///
    /// # Panics
    /// If there is no whole answer.
    pub fn ask(&self, request: impl AsRef<[u8]>) -> Answer {
        self.connect().ask(request)
    }

    /// Where its metrics are.
    ///
    /// # Panics
    /// If it has none.
    pub fn metrics(&self) -> SocketAddr {
        self.metrics.expect("it has metrics")
    }

    /// One `GET` at its port for metrics.
    ///
    /// # Panics
    /// If there is no whole answer.
    pub fn get_metrics(&self, target: &str) -> Answer {
        self.connect_to(self.metrics()).ask(get(target))
    }

    /// Its metrics.
    ///
    /// # Panics
    /// If there is no whole answer.
    pub fn metrics_page(&self) -> String {
        self.get_metrics("/metrics").text().to_owned()
    }

    /// The value of a sample of its metrics, if it has that; labels are part of the name.
    ///
    /// # Panics
    /// If the page cannot be had.
    pub fn find_metric(&self, sample: &str) -> Option<f64> {
        let page = self.metrics_page();
        let mut lines = page.lines();
        let value = lines.find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))?;
        Some(value.parse().expect("samples are numbers"))
    }

    /// The value of a sample of its metrics; labels are part of the name.
    ///
    /// # Panics
    /// If there is no such sample.
    pub fn metric(&self, sample: &str) -> f64 {
        let value = self.find_metric(sample);
        value.unwrap_or_else(|| panic!("no {sample} in {}", self.metrics_page()))
    }

    /// The descriptors it has open.
    ///
    /// # Panics
    /// If it has ended.
    pub fn descriptors(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.id());
        std::fs::read_dir(folder).expect("the process lives").count()
    }

    /// The memory it has resident, in KiB.
    ///
    /// # Panics
    /// If it has ended.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()));
        let status = status.expect("the process lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.and_then(|number| number.parse().ok()).expect("VmRSS is a number of kB")
    }

    /// The CPU time it has used.
    ///
    /// # Panics
    /// If it has ended.
    pub fn cpu(&self) -> Duration {
        cpu_of(self.id()).expect("the process lives")
    }

    /// Sends it a signal, as `kill` names it.
    ///
    /// # Panics
    /// If it has ended and was waited for.
    pub fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.id());
        let status = Command::new("/bin/sh").args(["-c", &kill]).status().expect("a shell");
        assert!(status.success(), "{kill}");
    }

    /// Waits for its end, at most so long.
    pub fn ends_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let mut status = None;
        within(limit, || {
            status = self.child.try_wait().expect("it is our child");
            status.is_some()
        });
        if status.is_some() {
            self.log.wait_for_end();
        }
        status
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it does not end within [`PATIENCE`].
    pub fn wait(&mut self) -> ExitStatus {
        let status = self.ends_within(PATIENCE);
        status.unwrap_or_else(|| panic!("it does not end, after\n{}", self.log()))
    }

    /// Ends it as a crash does: `kill -9`, and it is gone.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Ends it as a supervisor does: SIGTERM.
    ///
    /// # Panics
    /// If it does not end within [`PATIENCE`], with success.
    pub fn stop(mut self) {
        self.signal("TERM");
        let status = self.wait();
        assert!(status.success(), "{status}, after\n{}", self.log());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The address that a line of the log has under `key`.
fn field(line: &str, key: &str) -> Option<SocketAddr> {
    let mut words = line.split_whitespace();
    words.find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse().ok())
}

/// The CPU time that a process has used; `None` if there is none of this id.
pub fn cpu_of(id: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // Behind the name in parentheses: state, …, and as the 12th and 13th utime and stime.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
    let ticks: u64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Some(Duration::from_millis(ticks * 10)) // USER_HZ is 100 on every Linux there is.
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = program("/bin/sh");
        command.args(["-c", script]);
        command
    }

    /// What a test that does this would fail with.
    fn failure(test: impl FnOnce() + std::panic::UnwindSafe) -> String {
        let caught = std::panic::catch_unwind(test).expect_err("it fails");
        *caught.downcast::<String>().expect("a message")
    }

    /// Purpose: whoever reads a failed test sees what the program said: when it does not start, when it refuses a
    /// connection, and when it closes one instead of answering.
    #[test]
    fn failures_show_the_log() {
        let silent = failure(|| drop(Process::start(&mut shell("echo out of luck >&2"))));
        assert!(silent.contains("out of luck"), "{silent}");
        let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = closed.local_addr().expect("it is bound");
        let script =
            format!("echo ' serving address={address}' >&2; echo alas >&2; exec sleep 600");
        let process = Process::start(&mut shell(&script));
        process.wait_for(|line| line == "alas");
        let client = process.connect();
        drop(closed);
        let process = std::panic::AssertUnwindSafe(process);
        let refused = failure(move || drop(process.connect()));
        let wanted = ["refused", "it still runs", "alas"];
        assert!(wanted.iter().all(|word| refused.contains(word)), "{refused}");
        let mut client = std::panic::AssertUnwindSafe(client);
        let unanswered = failure(move || drop(client.get("/")));
        assert!(unanswered.contains("alas"), "{unanswered}");
    }

    /// Purpose: a line that was waited for is not found again, and the exit status is the program's own.
    #[test]
    fn lines_and_ends() {
        let script = "echo ' serving metrics=127.0.0.1:9' >&2; echo x 1 >&2; echo x 2 >&2; exit 3";
        let mut process = Process::start(&mut shell(script));
        assert_eq!(process.address, process.metrics());
        let lines = [0; 2].map(|_| process.wait_for(|line| line.starts_with("x ")));
        assert_eq!(lines, ["x 1", "x 2"]);
        assert_eq!(process.wait().code(), Some(3));
    }
}
