//! A client that keeps its connection, and says what came back.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// No answer takes longer, whatever is away: beyond it a test fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Client {
    address: SocketAddr,
    token: String,
    stream: Option<BufReader<TcpStream>>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<String>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The `id` of an answer to a write.
    pub(crate) fn id(&self) -> String {
        self.json()["id"].as_str().unwrap_or_else(|| panic!("no id: {self:?}")).to_owned()
    }

    /// The ids of a list.
    pub(crate) fn ids(&self) -> Vec<String> {
        let list = self.json();
        let todos = list.as_array().unwrap_or_else(|| panic!("no list: {self:?}"));
        todos.iter().map(|todo| todo["id"].as_str().expect("it has one").to_owned()).collect()
    }
}

impl Client {
    pub(crate) fn new(address: SocketAddr, token: &str) -> Client {
        Client { address, token: token.to_owned(), stream: None }
    }

    /// Another one, with a connection of its own.
    pub(crate) fn again(&self) -> Client {
        Client::new(self.address, &self.token)
    }

    pub(crate) fn get(&mut self, target: &str) -> Answer {
        self.ask("GET", target, "")
    }

    pub(crate) fn create(&mut self, title: &str) -> Answer {
        self.ask("POST", "/todos", &format!(r#"{{"title":"{title}","description":""}}"#))
    }

    /// Asks, on a new connection if the last one is gone.
    pub(crate) fn ask(&mut self, method: &str, target: &str, body: &str) -> Answer {
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        );
        let kept = self.stream.take();
        let was_kept = kept.is_some();
        let mut stream = kept.unwrap_or_else(|| self.connect());
        let answer = match exchange(&mut stream, &request) {
            // The server may have closed it since.
            Err(_) if was_kept => {
                stream = self.connect();
                exchange(&mut stream, &request)
            }
            answer => answer,
        };
        let answer = answer.unwrap_or_else(|error| panic!("{method} {target}: {error}"));
        self.stream = Some(stream);
        answer
    }

    fn connect(&self) -> BufReader<TcpStream> {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket has timeouts");
        stream.set_nodelay(true).expect("it is TCP");
        BufReader::new(stream)
    }
}

fn exchange(stream: &mut BufReader<TcpStream>, request: &str) -> io::Result<Answer> {
    stream.get_mut().write_all(request.as_bytes())?;
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("no answer: {line:?}")))?;
    let (mut length, mut retry_after) = (0, None);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().map_err(io::Error::other)?,
            "retry-after" => retry_after = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Answer { status, retry_after, body })
}
