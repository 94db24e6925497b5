//! Does the server give the planned answer, to the byte?

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use highwater_core::http1::client::{Asked, End, Eof, Next, Reader};

use super::network::{Network, Side};
use super::plan::{Cell, Server, Setup};

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Bytes of a wrong answer that its reason shows.
const SHOWN_MAX: usize = 60;
/// Bytes of an answer's content that are kept beyond its expected length.
const SURPLUS_MAX: usize = 64 * 1024;
/// The same where `any` stands for bytes of unknown number.
const ANY_MAX: usize = 16 * 1024 * 1024;

/// One kind of request, and the answer it must get.
#[derive(Clone, Debug)]
pub(super) struct Question {
    name: String,
    request: Vec<u8>,
    asked: Asked,
    close: bool,
    status: u16,
    /// `None`: any content will do.
    content: Option<Vec<u8>>,
    /// Stands for any bytes in `content`.
    any: Option<u8>,
}

impl Question {
    /// The request of a cell, as `server` is to answer it.
    pub(super) fn of_cell(cell: &Cell, server: &Server, port: u16) -> Question {
        // That of a WebSocket is a message.
        let body = if cell.ws.is_some() { String::new() } else { cell.request_body() };
        let (status, content) = cell.expected(server);
        let is_known = cell.expect.is_some() || server.expect.is_some();
        let headers = cell.headers.iter();
        Question {
            request: encode(&cell.method, &cell.path, headers, &body, cell.close, port),
            status,
            content: is_known.then_some(content),
            any: cell.any.and_then(|any| u8::try_from(any).ok()),
            close: cell.close,
            ..Question::new(&cell.method, &cell.path)
        }
    }

    /// A request that prepares a server.
    pub(super) fn of_setup(setup: &Setup, port: u16) -> Question {
        let headers = setup.headers.iter();
        Question {
            request: encode(&setup.method, &setup.path, headers, &setup.body, false, port),
            status: setup.status,
            ..Question::new(&setup.method, &setup.path)
        }
    }

    /// A `GET` of `path`; any 2xx will do.
    pub(super) fn get(path: &str, port: u16) -> Question {
        let request = encode("GET", path, std::iter::empty(), "", true, port);
        // Whether it closes is a question for cells.
        Question { request, ..Question::new("GET", path) }
    }

    fn new(method: &str, path: &str) -> Question {
        Question {
            name: format!("{method} {path}"),
            request: Vec::new(),
            asked: if method == "HEAD" { Asked::Head } else { Asked::Plain },
            close: false,
            status: 0,
            content: None,
            any: None,
        }
    }
}

fn encode<'a>(
    method: &str,
    path: &str,
    headers: impl Iterator<Item = (&'a String, &'a String)>,
    body: &str,
    close: bool,
    port: u16,
) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    let mut has_host = false;
    for (name, value) in headers {
        has_host |= name.eq_ignore_ascii_case("host");
        text += &format!("{name}: {value}\r\n");
    }
    if !has_host {
        text += &format!("Host: 127.0.0.1:{port}\r\n");
    }
    if close {
        text += "Connection: close\r\n";
    }
    if !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH") {
        text += &format!("Content-Length: {}\r\n", body.len());
    }
    text += "\r\n";
    text += body;
    text.into_bytes()
}

/// Sends requests to a port of the server from the client's side, over one connection as long as it lasts.
pub(super) struct Asker {
    network: Network,
    port: u16,
    stream: Option<TcpStream>,
}

impl Asker {
    pub(super) fn new(network: &Network, port: u16) -> Asker {
        Asker { network: network.clone(), port, stream: None }
    }

    /// Sends a request and compares the answer. A kept connection that breaks is replaced once: servers may close it.
    ///
    /// # Errors
    /// What is wrong with the answer, or why there is none.
    pub(super) fn ask(&mut self, question: &Question) -> Result<(), String> {
        let name = &question.name;
        let kept = self.stream.is_some();
        let (end, content) = match self.exchange(question) {
            Err(_) if kept => self.exchange(question),
            result => result,
        }
        .map_err(|problem| format!("{name}: {problem}"))?;
        let status = end.status;
        let is_fine = match question.status {
            0 => (200..300).contains(&status),
            expected => status == expected,
        };
        if !is_fine {
            let shown = show(&content);
            return Err(format!("{name} answered {status} {shown}, expected {}", question.status));
        }
        match &question.content {
            Some(expected) if !Cell::is_expected(question.any, expected, &content) => Err(format!(
                "{name} answered {} bytes {}, expected {} bytes {}",
                content.len(),
                show(&content),
                expected.len(),
                show(expected)
            )),
            _ if question.close => self.expect_close(name),
            _ => Ok(()),
        }
    }

    /// A server that does not close would be measured keeping its connections.
    fn expect_close(&mut self, name: &str) -> Result<(), String> {
        let Some(mut stream) = self.stream.take() else { return Ok(()) };
        match stream.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(format!("{name}: bytes after the end of the answer")),
            // It has closed, with something unread.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
            Err(_) => Err(format!("{name}: the server ignores Connection: close")),
        }
    }

    fn exchange(&mut self, question: &Question) -> Result<(End, Vec<u8>), String> {
        let address = SocketAddr::from((self.network.host(), self.port));
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.network.connect(Side::Client, address, ANSWER_WITHIN)?,
        };
        let deadline = Instant::now() + ANSWER_WITHIN;
        let limit = |stream: &TcpStream| {
            let left =
                deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            stream.set_read_timeout(Some(left)).and_then(|()| stream.set_write_timeout(Some(left)))
        };
        let written = limit(&stream).and_then(|()| stream.write_all(&question.request));
        written.map_err(|error| error.to_string())?;
        let mut answer = Answer::new(question);
        let mut buffer = vec![0; 64 * 1024];
        let end = loop {
            if Instant::now() >= deadline {
                return Err(format!("no whole answer within {ANSWER_WITHIN:?}"));
            }
            limit(&stream).map_err(|error| error.to_string())?;
            match stream.read(&mut buffer) {
                Ok(0) => match answer.reader.on_eof() {
                    Eof::End(end) => break end,
                    Eof::Clean | Eof::Truncated => {
                        return Err("the connection ended before the answer".into());
                    }
                },
                Ok(count) => match answer.read(&buffer[..count])? {
                    Some(end) => break end,
                    None => continue,
                },
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error.to_string()),
            }
        };
        if end.keep_alive || question.close {
            self.stream = Some(stream);
        }
        Ok((end, answer.content))
    }
}

/// An answer that is being read.
struct Answer {
    reader: Reader,
    asked: Asked,
    content: Vec<u8>,
    content_max: usize,
}

impl Answer {
    fn new(question: &Question) -> Answer {
        let expected = question.content.as_ref().map_or(0, Vec::len);
        Answer {
            reader: Reader::default(),
            asked: question.asked,
            content: Vec::new(),
            content_max: expected + if question.any.is_some() { ANY_MAX } else { SURPLUS_MAX },
        }
    }

    fn read(&mut self, mut bytes: &[u8]) -> Result<Option<End>, String> {
        loop {
            match self
                .reader
                .next(&mut bytes, self.asked)
                .map_err(|error| error.reason().to_owned())?
            {
                Next::Wait => return Ok(None),
                Next::End(..) if !bytes.is_empty() => {
                    return Err("bytes after the end of the answer".into());
                }
                Next::End(end, _) => return Ok(Some(end)),
                Next::Content(piece) => self.content.extend_from_slice(piece),
                Next::Interim(_) | Next::Head(_) => {}
                Next::Raw(_) => return Err("the answer leaves HTTP".into()),
            }
            if self.content.len() > self.content_max {
                return Err(format!("more than {} bytes of content", self.content_max));
            }
        }
    }
}

fn show(content: &[u8]) -> String {
    let cut = if content.len() > SHOWN_MAX { "…" } else { "" };
    format!("{:?}{cut}", String::from_utf8_lossy(&content[..content.len().min(SHOWN_MAX)]))
}
