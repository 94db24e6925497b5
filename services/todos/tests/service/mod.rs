//! The real binary as a process, and a client for it that hides nothing.
#![allow(dead_code, reason = "no test file uses all of it")]

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use highwater_core::http1::client::{Asked, Malformed, Next, Reader};

/// Far longer than anything here takes: beyond it a test fails instead of hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A `highwater-todos` at work. Killed when dropped, or when the thread that started it ends.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
    /// Where it serves.
    pub(crate) address: SocketAddr,
    /// Where its metrics are, if it has any.
    pub(crate) metrics: Option<SocketAddr>,
}

/// What tokens are signed with in tests.
pub(crate) const SECRET: &str = "a secret of the tests, as long as one should be";

/// What would set something, or switch an engine.
const VARIABLES: [&str; 7] = [
    "DATABASE_URL",
    "REDIS_URL",
    "KAFKA_BROKERS",
    "KAFKA_TODO_TOPIC",
    "CACHE_TTL_SEC",
    "JWT_SECRET",
    "HIGHWATER_DATA",
];

/// The command, free of what the surroundings would set.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_highwater-todos")]);
    VARIABLES.iter().for_each(|name| {
        command.env_remove(name);
    });
    command.args(args).stdin(Stdio::null());
    command
}

/// The service on this data. Whoever waits for a write to be applied waits long: the machine may be busy.
pub(crate) fn todos(data: &Path, more: &[&str]) -> Process {
    let data = data.to_str().expect("temporary directories have plain names");
    let mut args = vec![
        "--listen=127.0.0.1:0",
        "--metrics=127.0.0.1:0",
        "--workers=2",
        "--jwt-secret",
        SECRET,
    ];
    args.extend(["--data", data]);
    if !more.iter().any(|flag| flag.starts_with("--wait-max")) {
        args.push("--wait-max=40s");
    }
    args.extend(more);
    Process::start(&args)
}

/// A token for `user`, valid for an hour.
pub(crate) fn token(user: &str) -> String {
    highwater_todos::auth::issue(SECRET, user, now(), 3600.0)
}

/// Now, in seconds since 1970.
pub(crate) fn now() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("after 1970").as_secs_f64()
}

/// Waits until `condition` gives something.
pub(crate) fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < until, "{what}: it never came");
        thread::sleep(Duration::from_millis(5));
    }
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
        let mut process = Process { child, lines, address: any, metrics: None };
        let serving = process.wait_for(|line| line.contains(" serving "));
        process.address = address(&serving, "address").expect("it says where");
        process.metrics = address(&serving, "metrics");
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

    /// Ends it as a crash does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("SIGKILL");
        self.child.wait().expect("reaped");
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("it was not waited for before")
    }

    /// One number of its metrics.
    pub(crate) fn metric(&self, sample: &str) -> f64 {
        let page = get(self.metrics.expect("it has metrics"), "/metrics");
        let page = String::from_utf8(page.body).expect("text");
        let line = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {sample} in {page}")).parse().expect("a number")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address(line: &str, key: &str) -> Option<SocketAddr> {
    field(line, key)?.parse().ok()
}

/// The value of `key=value` in a line of the log, if it is a word.
pub(crate) fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
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
        std::str::from_utf8(&self.body).expect("JSON is UTF-8")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The member `id` of its JSON.
    pub(crate) fn id(&self) -> String {
        self.json()["id"].as_str().unwrap_or_else(|| panic!("no id: {}", self.text())).to_owned()
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Client(BufReader::new(stream)))
    }

    pub(crate) fn send(&mut self, request: &str) -> io::Result<()> {
        self.0.get_mut().write_all(request.as_bytes())
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    /// Reads one answer. `Ok(None)`: the connection ended before its first byte. An error after the
    /// first byte is [`io::ErrorKind::InvalidData`], whatever it was: an answer was cut off.
    pub(crate) fn receive(&mut self, to_head: bool) -> io::Result<Option<Answer>> {
        match self.0.fill_buf() {
            Ok([]) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error),
        }
        let answer = self.receive_begun(if to_head { Asked::Head } else { Asked::Plain });
        answer.map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    fn receive_begun(&mut self, asked: Asked) -> io::Result<Answer> {
        let (mut reader, mut answer) = (Reader::default(), Answer::default());
        loop {
            let bytes = self.0.fill_buf()?;
            if bytes.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut rest = bytes;
            let is_whole = read(&mut reader, &mut rest, asked, &mut answer);
            let used = bytes.len() - rest.len();
            self.0.consume(used);
            if is_whole.map_err(io::Error::other)? {
                return Ok(answer);
            }
        }
    }

    /// Asks, and expects a whole answer.
    pub(crate) fn call(&mut self, method: &str, target: &str, token: &str, body: &str) -> Answer {
        let answer = self.try_call(method, target, token, body);
        answer.expect("a whole answer").expect("an answer")
    }

    /// Asks. What comes back as for [`Client::receive`].
    pub(crate) fn try_call(
        &mut self,
        method: &str,
        target: &str,
        token: &str,
        body: &str,
    ) -> io::Result<Option<Answer>> {
        self.send(&written(method, target, token, body))?;
        self.receive(false)
    }
}

/// A request, as it is written. Without a token there is no `Authorization`.
pub(crate) fn written(method: &str, target: &str, token: &str, body: &str) -> String {
    let authorization = match token {
        "" => String::new(),
        token => format!("Authorization: Bearer {token}\r\n"),
    };
    let length = body.len();
    format!(
        "{method} {target} HTTP/1.1\r\nHost: test\r\n{authorization}Content-Length: {length}\r\n\r\n{body}"
    )
}

/// Reads on in `rest`. Returns whether `answer` is whole.
fn read(
    reader: &mut Reader,
    rest: &mut &[u8],
    asked: Asked,
    answer: &mut Answer,
) -> Result<bool, Malformed> {
    loop {
        match reader.next(rest, asked)? {
            Next::Wait => return Ok(false),
            Next::Head(head) => {
                let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
                let field = |(name, value): (&str, &[u8])| (name.to_lowercase(), text(value));
                answer.status = head.status();
                answer.headers = head.fields().iter().map(field).collect();
            }
            Next::Content(piece) => answer.body.extend_from_slice(piece),
            Next::End(..) => return Ok(true),
            Next::Interim(_) | Next::Raw(_) => panic!("nothing of that kind was asked for"),
        }
    }
}

/// One request on a connection of its own.
pub(crate) fn get(address: SocketAddr, target: &str) -> Answer {
    request(address, &format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n"))
}

/// One request, as it is written, on a connection of its own.
pub(crate) fn request(address: SocketAddr, request: &str) -> Answer {
    let mut client = Client::connect(address).expect("it listens");
    client.send(request).expect("it reads");
    let answer = client.receive(request.starts_with("HEAD "));
    answer.expect("a whole answer").expect("an answer")
}
