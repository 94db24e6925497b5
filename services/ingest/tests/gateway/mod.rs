//! The real binary as a process, a client for it that hides nothing, and what is really in its data directory.
#![allow(dead_code, reason = "no test file uses all of it")]

/// The journal's format, read in the plainest way from its documentation. It shares no line with the journal.
#[path = "../../../../crates/journal/src/simulation/parser.rs"]
mod parser;

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use highwater_core::http1::client::{Asked, Next, Reader};

pub(crate) use parser::Found;

/// Far longer than anything here takes: beyond it a test fails instead of hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A `highwater-ingest` at work. Killed when dropped, or when the thread that started it ends.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
    /// Where it serves.
    pub(crate) address: SocketAddr,
    /// Where its metrics are.
    pub(crate) metrics: SocketAddr,
}

/// The command, free of what the surroundings would set.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_highwater-ingest")]);
    command.args(args).env_remove("KAFKA_BROKERS").stdin(Stdio::null());
    command
}

/// A gateway over this directory, with these flags besides.
pub(crate) fn gateway(data: &Path, flags: &[&str]) -> Process {
    let data = data.to_str().expect("temporary directories have plain names");
    let own = ["--listen=127.0.0.1:0", "--metrics=127.0.0.1:0", "--data", data];
    let has_workers = flags.iter().any(|flag| flag.starts_with("--workers"));
    let workers: &[&str] = if has_workers { &[] } else { &["--workers=2"] };
    Process::start(&[&own, workers, flags].concat())
}

impl Process {
    /// Starts it, and waits until it serves.
    pub(crate) fn start(args: &[&str]) -> Process {
        let mut child = command(args)
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
        let mut process = Process { child, lines, address: any, metrics: any };
        let serving = process.wait_for(|line| line.contains(" serving "));
        process.address = address(&serving, "address").expect("it says where");
        process.metrics = address(&serving, "metrics").expect("it says where");
        process
    }

    /// The next line of its log that satisfies `wanted`.
    pub(crate) fn wait_for(&self, wanted: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(until - Instant::now()) {
                Ok(line) if wanted(&line) => return line,
                Ok(line) => seen.push(line),
                Err(end) => panic!("a line that never came ({end}), after\n{}", seen.join("\n")),
            }
        }
    }

    /// Sends it a signal, as `kill` names it.
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        let status = Command::new("sh").args(["-c", &kill]).status().expect("a shell");
        assert!(status.success(), "{kill}");
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("it was not waited for before")
    }

    /// One number of its metrics.
    pub(crate) fn metric(&self, sample: &str) -> f64 {
        let page = get(self.metrics, "/metrics");
        let line =
            page.text().lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {sample} in {}", page.text())).parse().expect("a number")
    }

    /// Its records in this state.
    pub(crate) fn records(&self, state: &str) -> u64 {
        self.metric(&format!("highwater_ingest_records_total{{state=\"{state}\"}}")) as u64
    }

    /// Waits until nothing is pending, and checks that all counters agree on `records`.
    pub(crate) fn settles_at(&self, records: u64) {
        let until = Instant::now() + PATIENCE;
        loop {
            let numbers = ["accepted", "durable", "delivered"].map(|state| self.records(state));
            let pending = self.metric("highwater_ingest_pending") as u64;
            if numbers == [records; 3] && pending == 0 {
                assert_eq!(self.metric("highwater_ingest_lag_seconds"), 0.0);
                return;
            }
            let told = format!("accepted, durable, delivered {numbers:?}, pending {pending}");
            assert!(Instant::now() < until, "not {records}: {told}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it as a supervisor does, and checks that it ends well.
    pub(crate) fn stop(mut self) {
        self.signal("TERM");
        assert!(self.wait().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address(line: &str, key: &str) -> Option<SocketAddr> {
    let value = line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    value?.parse().ok()
}

/// What is in the journal, read by a parser of its own, in order of offset.
pub(crate) fn journal(data: &Path) -> Vec<Found> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(data).expect("it is there") {
        let entry = entry.expect("it can be read");
        let name = entry.file_name().into_string().expect("plain names");
        files.insert(name, std::fs::read(entry.path()).expect("it can be read"));
    }
    parser::parse(&files).records
}

/// The bodies in the journal.
pub(crate) fn bodies(data: &Path) -> Vec<Vec<u8>> {
    journal(data).into_iter().map(|record| record.body).collect()
}

/// A connection, kept.
pub(crate) struct Client(BufReader<TcpStream>);

/// What came back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("it is UTF-8")
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Client(BufReader::new(stream)))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    /// Reads one answer. An error if the connection ends first.
    pub(crate) fn receive(&mut self) -> io::Result<Answer> {
        let (mut reader, mut answer) = (Reader::default(), Answer::default());
        loop {
            let bytes = self.0.fill_buf()?;
            if bytes.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut rest = bytes;
            let is_whole = read(&mut reader, &mut rest, &mut answer)?;
            let used = bytes.len() - rest.len();
            self.0.consume(used);
            if is_whole {
                return Ok(answer);
            }
        }
    }

    /// Posts a body, with these further header lines.
    pub(crate) fn post(&mut self, target: &str, fields: &str, body: &[u8]) -> io::Result<Answer> {
        self.send(&post(target, fields, body))?;
        self.receive()
    }
}

/// A request that posts a body.
pub(crate) fn post(target: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("POST {target} HTTP/1.1\r\nHost: t\r\n{fields}Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// Reads on in `rest`. Returns whether `answer` is whole.
fn read(reader: &mut Reader, rest: &mut &[u8], answer: &mut Answer) -> io::Result<bool> {
    loop {
        match reader.next(rest, Asked::Plain).map_err(io::Error::other)? {
            Next::Wait => return Ok(false),
            Next::Head(head) => {
                let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
                let field = |(name, value): (&str, &[u8])| (name.to_lowercase(), text(value));
                answer.status = head.status();
                answer.headers = head.fields().iter().map(field).collect();
            }
            Next::Content(piece) => answer.body.extend_from_slice(piece),
            Next::End(..) => return Ok(true),
            Next::Interim(_) => {}
            Next::Raw(_) => panic!("nothing of that kind was asked for"),
        }
    }
}

/// One request on a connection of its own.
pub(crate) fn get(address: SocketAddr, target: &str) -> Answer {
    request(address, format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n").as_bytes())
}

/// One request, as it is written, on a connection of its own.
pub(crate) fn request(address: SocketAddr, request: &[u8]) -> Answer {
    let mut client = Client::connect(address).expect("it listens");
    client.send(request).expect("it reads");
    client.receive().expect("a whole answer")
}

/// A small file system of its own, where root may mount one. It goes when this is dropped.
pub(crate) struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// With so many bytes, if one can be made.
    pub(crate) fn new(size: &str) -> Option<SmallDisk> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let size = format!("size={size}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(directory.path());
        let done = mount.output().is_ok_and(|output| output.status.success());
        done.then_some(SmallDisk(directory))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}
