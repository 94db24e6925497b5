//! The gateway as a process, and a client for it that counts only what it was told.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use crate::broker::LONG;

/// A gateway at work. Killed when dropped, or when the thread that started it ends.
pub(crate) struct Gateway {
    child: Child,
    lines: Receiver<String>,
    pub(crate) address: SocketAddr,
    metrics: SocketAddr,
}

/// The command, free of what the surroundings would set.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_highwater-ingest")]);
    command.args(args).env_remove("KAFKA_BROKERS").stdin(Stdio::null());
    command
}

/// What every gateway here is told.
pub(crate) fn arguments<'a>(
    ack: &'a str,
    brokers: &'a str,
    topic: &'a str,
    data: &'a Path,
) -> Vec<&'a str> {
    let data = data.to_str().expect("temporary directories have plain names");
    vec![
        "--sink=kafka",
        "--ack",
        ack,
        "--kafka-brokers",
        brokers,
        "--topic",
        topic,
        "--data",
        data,
        "--workers=2",
    ]
}

/// Two ports for a process that is to come back to them: outside the range from which the kernel takes those of
/// clients, which would get in between.
pub(crate) fn lasting_ports() -> [u16; 2] {
    let ports = std::iter::repeat_with(|| fastrand::u16(10_000..20_000));
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let mut free = ports.take(1000).filter(|port| is_free(*port));
    let mut next = || free.next().expect("two of ten thousand");
    [next(), next()]
}

impl Gateway {
    /// Starts it on these ports (0 for any), and waits until it serves.
    pub(crate) fn start(ports: [u16; 2], args: &[&str]) -> Gateway {
        let [listen, metrics] = ports.map(|port| format!("127.0.0.1:{port}"));
        let mut all = vec!["--listen", &listen, "--metrics", &metrics];
        all.extend(args);
        let mut child = command(&all)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut gateway = Gateway { child, lines, address: any, metrics: any };
        let serving = gateway.wait_for(" serving ");
        gateway.address = address(&serving, "address").expect("it says where");
        gateway.metrics = address(&serving, "metrics").expect("it says where");
        gateway
    }

    /// The next line of its log with this in it.
    fn wait_for(&self, wanted: &str) -> String {
        let until = Instant::now() + LONG;
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) if line.contains(wanted) => return line,
                Ok(line) => seen.push(line),
                Err(end) => panic!("a line that never came ({end}), after\n{}", seen.join("\n")),
            }
        }
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is a child");
    }

    /// SIGTERM, and its exit status.
    pub(crate) fn stop(mut self) -> ExitStatus {
        let kill = format!("kill -TERM {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
        self.child.wait().expect("it is a child")
    }

    /// Its metrics of records, by what stands before the value.
    pub(crate) fn metrics(&self) -> BTreeMap<String, f64> {
        let mut client = Client::connect(self.metrics).expect("its metrics port is open");
        let answer = client.get("/metrics").expect("it answers");
        let text = String::from_utf8(answer.body).expect("it is text");
        let lines = text.lines().filter(|line| line.starts_with("highwater_ingest_"));
        let value = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        lines.filter_map(value).collect()
    }

    /// How many records are in this state.
    pub(crate) fn records(&self, state: &str) -> u64 {
        self.metric(&format!("highwater_ingest_records_total{{state=\"{state}\"}}"))
    }

    pub(crate) fn metric(&self, name: &str) -> u64 {
        let all = self.metrics();
        let value = all.get(name);
        *value.unwrap_or_else(|| panic!("{name} is not among {all:?}")) as u64
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address(line: &str, name: &str) -> Option<SocketAddr> {
    let value = line.split(&format!(" {name}=")).nth(1)?;
    value.split_whitespace().next()?.parse().ok()
}

/// A connection that is kept.
pub(crate) struct Client(BufReader<TcpStream>);

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<String>,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LONG))?;
        Ok(Client(BufReader::new(stream)))
    }

    fn get(&mut self, path: &str) -> io::Result<Answer> {
        write!(self.0.get_mut(), "GET {path} HTTP/1.1\r\nhost: t\r\n\r\n")?;
        self.answer()
    }

    pub(crate) fn post(&mut self, path: &str, body: &[u8]) -> io::Result<Answer> {
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n\r\n", body.len());
        self.0.get_mut().write_all(&[head.as_bytes(), body].concat())?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<Answer> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let mut answer =
            Answer { status: status.ok_or_else(invalid)?, retry_after: None, body: Vec::new() };
        let mut length = 0;
        loop {
            line.clear();
            self.0.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().map_err(|_| invalid())?,
                "retry-after" => answer.retry_after = Some(value.trim().to_owned()),
                _ => {}
            }
        }
        if !line.ends_with("\r\n") {
            return Err(invalid());
        }
        answer.body.resize(length, 0);
        self.0.read_exact(&mut answer.body)?;
        Ok(answer)
    }
}
