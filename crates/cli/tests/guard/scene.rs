//! Other servers, the guard in front of them, and a namespace for each test.
//!
//! All processes of a test end with it, children included, even if the test is killed: its
//! namespace of processes ends with the test, which is the first process in it. No server inherits
//! the test's standard output, so that a reader of that output does not wait for a server.

use std::io::{BufRead, BufReader, PipeReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use highwater_skip::skip;
use serde_json::Value;

/// How long anything may take before it counts as never; a loaded machine is slow.
const PATIENCE: Duration = Duration::from_secs(20);

/// Says that the re-executed test is inside.
const INSIDE: &str = "GUARD_TEST_INSIDE";

/// Runs `body` in namespaces of its own, of the network and of processes, by running the test `name`
/// again inside them.
pub(crate) fn in_namespace(name: &str, body: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let can = unshare().args(["ip", "link", "set", "lo", "up"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        return skip("root", "no namespace of its own by setpriv, unshare and ip");
    }
    let status = unshare()
        .args(["/bin/sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().expect("it runs"))
        .args(["--exact", "--nocapture", name])
        .env(INSIDE, "1")
        .status();
    assert!(status.expect("it did a moment ago").success(), "inside the namespace");
}

/// Runs what follows as the first process of new namespaces, all of whose processes end with it, and
/// it with us.
fn unshare() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare", "--net", "--pid", "--fork", "--kill-child"]);
    command.args(["--mount-proc", "--"]);
    command
}

/// Whether the test cannot go on for lack of `program`; says so.
pub(crate) fn skip_without(program: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(program).exists())
    });
    if !found {
        skip(program, "it is not in the path");
    }
    !found
}

/// Waits until `condition` holds; returns whether it ever did.
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if condition() {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    false
}

/// A process that ends with the test.
pub(crate) struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Process {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Process(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Kills it, and waits until it is gone. What it has started ends with the namespace.
    pub(crate) fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A folder for files of this process.
fn folder(name: &str) -> PathBuf {
    let name = format!("guard-{name}-{}", std::process::id());
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("cargo's folder can be written");
    folder
}

fn await_port(port: u16) {
    assert!(eventually(|| TcpStream::connect(("127.0.0.1", port)).is_ok()), "port {port}");
}

/// One thread of Python that needs two milliseconds of CPU time for each request.
pub(crate) fn python(port: u16) -> Process {
    let program = "
import http.server, sys, time

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        until = time.perf_counter() + 0.002
        while time.perf_counter() < until:
            pass
        self.send_response(200)
        self.send_header('Content-Length', '2')
        self.end_headers()
        self.wfile.write(b'ok')

    def log_message(self, *arguments):
        pass

    def handle(self):
        try:
            super().handle()
        except OSError:
            pass # A client that hung up.

class Server(http.server.HTTPServer):
    request_queue_size = 4096

Server(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
";
    let process = Process::start(Command::new("python3").args(["-c", program, &port.to_string()]));
    await_port(port);
    process
}

/// One worker of nginx that compresses a text for each request of `/text`, and tells how many
/// connections it has had at `/metrics` of another port.
pub(crate) fn nginx(port: u16, metrics: u16) -> Process {
    let folder = folder("nginx");
    let words = "the peak is kept by refusing the rest at the cheapest layer of the machine ";
    let text: String = (0..400).map(|line| format!("{line} {words}\n")).collect();
    std::fs::write(folder.join("text"), text).expect("the folder can be written");
    let shown = folder.display();
    let settings = format!(
        "daemon off; worker_processes 1; pid {shown}/pid; error_log {shown}/error.log crit;
events {{ worker_connections 4096; }}
http {{
  access_log off; gzip on; gzip_comp_level 9; gzip_types *;
  client_body_temp_path {shown}; proxy_temp_path {shown}; fastcgi_temp_path {shown};
  uwsgi_temp_path {shown}; scgi_temp_path {shown};
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    root {shown};
  }}
  server {{
    listen 127.0.0.1:{metrics};
    keepalive_timeout 0; # A connection only knows how many were before it.
    location = /metrics {{
      default_type text/plain;
      gzip off;
      return 200 \"# TYPE nginx_http_requests_total counter\\nnginx_http_requests_total $connection\\n\";
    }}
  }}
}}
"
    );
    let path = folder.join("nginx.conf");
    std::fs::write(&path, settings).expect("the folder can be written");
    let process = Process::start(Command::new("nginx").arg("-c").arg(&path).arg("-p").arg(&folder));
    await_port(port);
    process
}

/// Prometheus at `port`, scraping `/metrics` of the server at `target`.
pub(crate) fn prometheus(port: u16, target: u16) -> Process {
    let folder = folder("prometheus");
    let settings = format!(
        "global: {{ scrape_interval: 500ms, scrape_timeout: 400ms }}
scrape_configs:
- job_name: guarded
  static_configs: [ {{ targets: ['127.0.0.1:{target}'] }} ]
"
    );
    let path = folder.join("prometheus.yml");
    std::fs::write(&path, settings).expect("the folder can be written");
    let process = Process::start(
        Command::new("prometheus")
            .arg(format!("--config.file={}", path.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}")),
    );
    await_port(port);
    process
}

/// An overload: new connections at a rate, whether or not they are answered.
pub(crate) struct Load {
    pub(crate) port: u16,
    pub(crate) path: &'static str,
    pub(crate) rate: u32,
    pub(crate) seconds: u32,
    pub(crate) header: Option<&'static str>,
}

impl Load {
    /// Runs it; returns what it says.
    pub(crate) fn run(&self) -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
        command.args(["load", "--json", "--close", "--deadline", "500ms"]);
        command.args([
            "--rate",
            &self.rate.to_string(),
            "--duration",
            &format!("{}s", self.seconds),
        ]);
        if let Some(header) = self.header {
            command.args(["--header", header]);
        }
        command.arg(format!("http://127.0.0.1:{}{}", self.port, self.path));
        let output = command.output().expect("it is built");
        let text = String::from_utf8_lossy(&output.stdout);
        let last = text.lines().last().unwrap_or_default();
        serde_json::from_str(last).unwrap_or_else(|error| {
            panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr))
        })
    }
}

/// Sends packets that belong to no connection, from addresses that no machine has (RFC 5737).
pub(crate) struct Strays {
    child: Child,
}

impl Strays {
    /// To `port` on loopback.
    pub(crate) fn new(port: u16) -> Strays {
        // Without a way to the sources the kernel takes no packet from them.
        let way = ["route", "add", "192.0.2.0/24", "dev", "lo"];
        assert!(Command::new("ip").args(way).status().expect("ip(8)").success());
        // The standard library has no raw sockets, and this test no unsafe code.
        let program = "
import itertools, random, socket, struct, sys

port = int(sys.argv[1])
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
target = bytes([127, 0, 0, 1])
flags = itertools.cycle([0x10, 0x11, 0x04, 0x18]) # ACK, FIN, RST, data

def segment():
    source = bytes([192, 0, 2, random.randint(1, 254)])
    tcp = bytearray(struct.pack('!HHIIBBHHH', random.randint(1024, 65535), port, 7, 7, 0x50,
                                next(flags), 65535, 0, 0))
    words = source + target + struct.pack('!HH', 6, len(tcp)) + tcp
    total = sum(struct.unpack('!%dH' % (len(words) // 2), words))
    total = (total >> 16) + (total & 0xffff)
    struct.pack_into('!H', tcp, 16, ~(total + (total >> 16)) & 0xffff)
    return struct.pack('!BBHHHBBH', 0x45, 0, 40, 0, 0, 64, 6, 0) + source + target + tcp

for line in sys.stdin:
    for _ in range(int(line)):
        raw.sendto(segment(), ('127.0.0.1', 0))
";
        let child = Command::new("python3")
            .args(["-c", program, &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the caller has asked for python3");
        Strays { child }
    }

    /// Sends `count` of them.
    pub(crate) fn send(&mut self, count: u32) {
        let stdin = self.child.stdin.as_mut().expect("it is piped");
        writeln!(stdin, "{count}").expect("it reads");
    }
}

impl Drop for Strays {
    fn drop(&mut self) {
        // It may have ended on its own.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A control group without processes.
pub(crate) struct EmptyGroup(String);

impl EmptyGroup {
    /// `None`, having said so, if none can be made here.
    pub(crate) fn new() -> Option<EmptyGroup> {
        let Some(root) = highwater_sys::bpf::cgroup_root() else {
            skip("cgroup2", "it is not mounted");
            return None;
        };
        let path = root.join(format!("highwater-guard-test-{}", std::process::id()));
        if let Err(error) = std::fs::create_dir(&path) {
            skip("root", format!("no control group can be made: {error}"));
            return None;
        }
        Some(EmptyGroup(path.display().to_string()))
    }

    pub(crate) fn path(&self) -> &str {
        &self.0
    }
}

impl Drop for EmptyGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// The guard, and what it says.
pub(crate) struct Guard {
    child: Child,
    lines: mpsc::Receiver<Value>,
    log: Arc<Mutex<String>>,
}

impl Guard {
    /// Starts it, and waits until it guards.
    pub(crate) fn start(port: u16, flags: &[&str]) -> Guard {
        Guard::try_start(port, flags, "nothing").expect("it needs nothing")
    }

    /// The same; `None`, having said so, if there is no gate to be had here for want of `need`.
    pub(crate) fn try_start(port: u16, flags: &[&str], need: &str) -> Option<Guard> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
        command.stdout(Stdio::piped());
        Guard::run(command, port, flags, need)
    }

    /// The same with no privilege but `capabilities`.
    pub(crate) fn try_start_as(capabilities: &str, port: u16, flags: &[&str]) -> Option<Guard> {
        let mut command = Guard::command_as(capabilities);
        command.stdout(Stdio::piped());
        Guard::run(command, port, flags, "root")
    }

    fn command_as(capabilities: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.arg(format!("--inh-caps=-all,{capabilities}"));
        command.arg(format!("--ambient-caps=-all,{capabilities}"));
        command.arg("--").arg(env!("CARGO_BIN_EXE_highwater"));
        command
    }

    /// The same, with a standard output that is full and that nobody reads.
    pub(crate) fn try_start_unread(
        capabilities: &str,
        port: u16,
        flags: &[&str],
    ) -> Option<(Guard, PipeReader)> {
        let (unread, full) = std::io::pipe().expect("descriptors");
        let mut filler = Command::new("yes")
            .stdout(full.try_clone().expect("descriptors"))
            .spawn()
            .expect("it is one of coreutils");
        thread::sleep(Duration::from_millis(200));
        let _ = filler.kill();
        let _ = filler.wait();
        let mut command = Guard::command_as(capabilities);
        command.stdout(full);
        Some((Guard::run(command, port, flags, "root")?, unread))
    }

    fn run(mut command: Command, port: u16, flags: &[&str], need: &str) -> Option<Guard> {
        let mut child = command
            .args(["guard", "--json", "--port", &port.to_string()])
            .args(flags)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it is built");
        // The command holds the ends of pipes that were given to the child.
        drop(command);
        let stdout = child.stdout.take().map(BufReader::new);
        let stderr = BufReader::new(child.stderr.take().expect("it was asked for"));
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in stdout.into_iter().flat_map(BufReader::lines).map_while(Result::ok) {
                let line = serde_json::from_str(&line).expect("with --json it speaks JSON");
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        let log = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&log);
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let mut log = written.lock().unwrap_or_else(PoisonError::into_inner);
                log.push_str(&line);
                log.push('\n');
            }
        });
        let mut guard = Guard { child, lines, log };
        let is_up = eventually(|| {
            guard.log().contains(" guarding ") || guard.child.try_wait().expect("ours").is_some()
        });
        assert!(is_up, "{}", guard.log());
        if guard.child.try_wait().expect("ours").is_none() {
            return Some(guard);
        }
        skip(need, format!("no gate works here: {}", guard.log()));
        None
    }

    /// What it has written to standard error.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The next line that it writes, from now on.
    pub(crate) fn next_line(&mut self) -> Value {
        while self.lines.try_recv().is_ok() {}
        self.lines.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{error}: {}", self.log()))
    }

    /// The first line from now on of which `condition` holds.
    pub(crate) fn line_until(&mut self, condition: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let line = self.next_line();
            if condition(&line) {
                return line;
            }
            assert!(Instant::now() < until, "{line}\n{}", self.log());
        }
    }

    /// Kills the process of nft that it has started.
    pub(crate) fn kill_nft(&self) {
        let status = Command::new("pkill")
            .args(["-KILL", "-x", "-P", &self.child.id().to_string(), "nft"])
            .status();
        assert!(status.expect("procps is here").success(), "it had started one");
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("/bin/sh")
            .args(["-c", &format!("kill -{name} {}", self.child.id())])
            .status();
        assert!(status.expect("there is a shell").success());
    }

    /// Waits until it has ended; its exit code, if it has one.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        assert!(eventually(|| self.child.try_wait().expect("ours").is_some()), "{}", self.log());
        self.child.wait().expect("ours").code()
    }

    /// Stops it as a service would be.
    pub(crate) fn stop(mut self) -> Option<i32> {
        self.signal("TERM");
        self.wait()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
