//! A whole server under Callgrind, over epoll and loopback: what its worker does in user space for one request.
//!
//! Two runs that differ in the number of requests, and the difference between them, so that starting up does not
//! count. The threads beside the worker, whose work follows the clock, are left out: the busiest thread is the worker.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::work::{FIELDS, PIPELINED};

/// How long a server under Valgrind may take to listen, to answer and to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Exchanges of the two runs.
const FEW: u32 = 300;
const MANY: u32 = 1300;

/// The file, beside the counts, with what Valgrind and the server wrote to standard error.
const STDERR: &str = "stderr";

/// What a server is asked.
const ASKED: [&str; 4] = ["plaintext", "json", "users", "post"];

/// Connections of the shapes that have more than one.
const CONNECTIONS: u32 = 32;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A build of highwater-arena.
    program: PathBuf,
    /// Only this kind of request.
    #[arg(long, value_parser = ASKED)]
    only: Option<String>,
    /// How the requests come.
    #[arg(long, value_enum, default_value_t = Shape::Pipelined)]
    shape: Shape,
}

/// How requests come. What a turn of the worker costs by itself is shared by all requests of the turn.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Shape {
    /// Sixteen at once on one connection
    Pipelined,
    /// One at a time on one connection
    Lone,
    /// One on each of 32 connections, and all at once
    Kept,
    /// The same with 32 new connections each time
    Closed,
}

impl Shape {
    /// How many requests one exchange has.
    fn requests(self) -> u32 {
        match self {
            Shape::Pipelined => PIPELINED,
            Shape::Lone => 1,
            Shape::Kept | Shape::Closed => CONNECTIONS,
        }
    }
}

pub(super) fn run(args: &Args) -> Result<(), String> {
    let is_asked = |name: &&&str| args.only.as_deref().is_none_or(|only| only == **name);
    for name in ASKED.iter().filter(is_asked) {
        let count = |times| threads(&args.program, (name, args.shape), times);
        let (few, many) = (count(FEW)?, count(MANY)?);
        let more =
            |(thread, count): (&u32, &u64)| count.saturating_sub(*few.get(thread).unwrap_or(&0));
        let worker = many.iter().map(more).max().unwrap_or(0);
        let requests = (MANY - FEW) * args.shape.requests();
        println!("{name}: {:.1} instructions per request", worker as f64 / f64::from(requests));
    }
    Ok(())
}

/// What is sent on a connection at once.
fn request(name: &str, shape: Shape) -> String {
    let end = if matches!(shape, Shape::Closed) { "Connection: close\r\n" } else { "" };
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\n{FIELDS}{end}\r\n");
    let one = match name {
        "post" => {
            format!("POST /e HTTP/1.1\r\n{FIELDS}{end}Content-Length: 8\r\n\r\n{{\"n\":42}}")
        }
        "users" => get("/users/12345"),
        _ => get(&format!("/{name}")),
    };
    match shape {
        Shape::Pipelined => one.repeat(PIPELINED as usize),
        Shape::Lone | Shape::Kept | Shape::Closed => one,
    }
}

/// Instructions by thread, for `times` exchanges one after the other.
fn threads(
    program: &Path,
    (name, shape): (&str, Shape),
    times: u32,
) -> Result<BTreeMap<u32, u64>, String> {
    let folder = super::callgrind::Folder::new()?;
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(|error| format!("a free port: {error}"))?
        .port();
    let mut server = Server::start(program, &folder.0, port)?;
    let talked = talk(&mut server, port, (request(name, shape).as_bytes(), shape), times);
    talked.map_err(|error| format!("{}: {error}", program.display()))?;
    server.write_counts()?;
    let mut threads = BTreeMap::new();
    for file in fs::read_dir(&folder.0).map_err(|error| error.to_string())?.flatten() {
        let text = fs::read_to_string(file.path()).map_err(|error| error.to_string())?;
        let number = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
        };
        if let (Some(thread), Some(total)) = (number("thread:"), number("totals:")) {
            threads.insert(thread as u32, total);
        }
    }
    match threads.is_empty() {
        true => {
            let stderr = fs::read_to_string(folder.0.join(STDERR)).unwrap_or_default();
            Err(format!("valgrind wrote no counts\n{stderr}"))
        }
        false => Ok(threads),
    }
}

fn talk(
    server: &mut Server,
    port: u16,
    (request, shape): (&[u8], Shape),
    times: u32,
) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    let connect = move || TcpStream::connect((Ipv4Addr::LOCALHOST, port));
    let first = loop {
        match connect() {
            Ok(connection) => break connection,
            Err(error) if Instant::now() > deadline => return Err(error.to_string()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
        if let Some(status) = server.0.try_wait().map_err(|error| error.to_string())? {
            return Err(format!("it ended before it listened: {status}"));
        }
    };
    let talk = move || {
        let connections = || -> std::io::Result<Vec<TcpStream>> {
            (0..CONNECTIONS).map(|_| prepare(connect()?)).collect()
        };
        let mut open = match shape {
            Shape::Pipelined | Shape::Lone => vec![prepare(first)?],
            Shape::Kept => connections()?,
            Shape::Closed => Vec::new(),
        };
        let mut answer = vec![0; 64 * 1024];
        let asked = request.windows(11).filter(|bytes| bytes == b" HTTP/1.1\r\n").count();
        let mut size = None;
        for _ in 0..times {
            if matches!(shape, Shape::Closed) {
                open = connections()?;
            }
            for connection in &mut open {
                connection.write_all(request)?;
            }
            for connection in &mut open {
                let got = read_answers(connection, &mut answer, (asked, size))?;
                size.get_or_insert(got);
            }
        }
        std::io::Result::Ok(())
    };
    talk().map_err(|error| error.to_string())
}

fn prepare(connection: TcpStream) -> std::io::Result<TcpStream> {
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    Ok(connection)
}

/// Reads `count` answers. They are as long each time; of the first ones, where no size is known, only their heads say how
/// long that is. Returns their size.
fn read_answers(
    connection: &mut TcpStream,
    answer: &mut [u8],
    (count, size): (usize, Option<usize>),
) -> std::io::Result<usize> {
    let mut got = 0;
    loop {
        let read = connection.read(&mut answer[got..])?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        got += read;
        if size.map_or_else(|| is_whole(&answer[..got], count), |size| got >= size) {
            return Ok(got);
        }
    }
}

/// Whether `bytes` are this many answers, to the end of the last.
fn is_whole(bytes: &[u8], answers: usize) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let mut rest = &*text;
    for _ in 0..answers {
        let Some((head, after)) = rest.split_once("\r\n\r\n") else { return false };
        let length = head.to_ascii_lowercase();
        let length = length
            .lines()
            .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let Some(after) = after.get(length.unwrap_or(0)..) else { return false };
        rest = after;
    }
    true
}

/// Dropping it kills it.
struct Server(Child);

impl Server {
    fn start(program: &Path, folder: &Path, port: u16) -> Result<Server, String> {
        let stderr = fs::File::create(folder.join(STDERR)).map_err(|error| error.to_string())?;
        let child = Command::new("valgrind")
            .args(["--tool=callgrind", "--separate-threads=yes"])
            .arg(format!("--callgrind-out-file={}/out", folder.display()))
            .arg(program)
            .args(["--listen", &format!("127.0.0.1:{port}"), "--metrics", "off", "--log", "off"])
            .args(["--workers", "1", "--pin", "off", "--transport", "epoll"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn();
        child
            .map(Server)
            .map_err(|error| format!("valgrind: {error}; scripts/test-deps.sh installs it"))
    }

    /// Has the counts written. Ending the server by a signal would do it, too, but Valgrind 3.19 dies of one that comes while another
    /// thread is in a system call.
    fn write_counts(&self) -> Result<(), String> {
        let dumped = Command::new("callgrind_control")
            .args(["--dump", &self.0.id().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        match dumped {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("callgrind_control: {status}")),
            Err(error) => Err(format!("callgrind_control: {error}; it comes with valgrind")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended, or is of no use.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
