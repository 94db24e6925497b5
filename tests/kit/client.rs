//! A client that sends exactly the bytes it is given, and takes nothing for granted about what comes back. It blocks;
//! nothing in here waits longer than [`PATIENCE`].

use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use highwater_core::http1::client::{Asked, Content, Eof, Head, Next, Reader};
use socket2::{Domain, SockRef, Socket, Type};

use crate::log::Log;
use crate::read::read_some;
use crate::wait::PATIENCE;

/// A complete `GET` of `target`, on a connection that is to persist.
pub fn get(target: &str) -> Vec<u8> {
    request("GET", target, "", "")
}

/// A complete request. `fields` are further header lines, each with its line's end. Without a body, only methods that
/// could have one say that there is none.
pub fn request(method: &str, target: &str, fields: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = match (method, body.len()) {
        ("GET" | "HEAD", 0) => String::new(),
        (_, length) => format!("Content-Length: {length}\r\n"),
    };
    let head = format!("{method} {target} HTTP/1.1\r\nHost: test\r\n{fields}{length}\r\n");
    [head.as_bytes(), body].concat()
}

/// A connection, kept.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    received: Vec<u8>,
    /// What the server says elsewhere, to be shown when a test fails.
    log: Option<Log>,
}

/// What came back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The fields, their names in lower case.
    pub headers: Vec<(String, String)>,
    /// The content, its framing undone.
    pub body: Vec<u8>,
}

impl Answer {
    /// The beginning of the answer that has this head.
    fn of(head: &Head<'_>) -> Answer {
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let field = |(name, value): (&str, &[u8])| (name.to_lowercase(), text(value));
        let headers = head.fields().iter().map(field).collect();
        Answer { status: head.status(), headers, body: Vec::new() }
    }

    /// The value of a field, whose name is given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The content as text.
    ///
    /// # Panics
    /// If it is none.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("it is UTF-8")
    }

    /// The content as JSON.
    ///
    /// # Panics
    /// If it is none.
    pub fn json(&self) -> serde_json::Value {
        let parsed = serde_json::from_slice(&self.body);
        parsed.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// The text that its JSON has under `name`.
    ///
    /// # Panics
    /// If it has none.
    pub fn member(&self, name: &str) -> String {
        let json = self.json();
        let text = json[name].as_str();
        text.unwrap_or_else(|| panic!("no {name}: {self:?}")).to_owned()
    }
}

impl Client {
    /// Connects to what may have been started just now: as long as the connection is refused, it is tried again.
    /// [`Process::connect`](crate::Process::connect) is for a server that says that it serves.
    ///
    /// # Panics
    /// If that is not possible within [`PATIENCE`].
    pub fn connect(address: SocketAddr) -> Client {
        crate::eventually_some(&format!("a connection to {address}"), || match Client::try_connect(
            address,
        ) {
            Ok(client) => Some(client),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => None,
            Err(error) => panic!("{address}: {error}"),
        })
    }

    /// Connects, or does not.
    ///
    /// # Errors
    /// The connection is refused, or not accepted in time.
    pub fn try_connect(address: SocketAddr) -> io::Result<Client> {
        Client::from_stream(TcpStream::connect_timeout(&address, PATIENCE)?)
    }

    /// Connects with a receive buffer of about `size` bytes, so that what is not read soon fills it.
    ///
    /// # Panics
    /// If that is not possible.
    pub fn connect_small(address: SocketAddr, size: usize) -> Client {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket can be had");
        socket.set_recv_buffer_size(size).expect("a small buffer is granted");
        socket.connect(&address.into()).expect("the server accepts");
        Client::from_stream(socket.into()).expect("options can be set")
    }

    fn from_stream(stream: TcpStream) -> io::Result<Client> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Client { stream, received: Vec::new(), log: None })
    }

    /// The same, connected to the program that has this log.
    pub(crate) fn of(self, log: Log) -> Client {
        Client { log: Some(log), ..self }
    }

    fn fail(&self, problem: impl std::fmt::Display) -> ! {
        match &self.log {
            Some(log) => panic!("{problem}, after\n{}", log.log()),
            None => panic!("{problem}"),
        }
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Waits at most so long for a byte from now on.
    ///
    /// # Panics
    /// If `patience` is zero.
    pub fn set_patience(&self, patience: Duration) {
        self.stream.set_read_timeout(Some(patience)).expect("a timeout that is not zero");
    }

    /// Sends `bytes`.
    ///
    /// # Errors
    /// The server has closed the connection.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Finishes sending.
    pub fn finish(&self) {
        // If the server has reset the connection meanwhile, reading will tell.
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    /// Resets the connection.
    ///
    /// # Panics
    /// If the socket has no such option.
    pub fn reset(self) {
        SockRef::from(&self.stream)
            .set_linger(Some(Duration::ZERO))
            .expect("every stream can be told to linger");
    }

    /// `GET`s `target`.
    ///
    /// # Panics
    /// If there is no whole answer.
    pub fn get(&mut self, target: &str) -> Answer {
        self.ask(get(target))
    }

    /// Sends a [`request`], and waits for the answer.
    ///
    /// # Panics
    /// If there is no whole answer.
    pub fn call(
        &mut self,
        method: &str,
        target: &str,
        fields: &str,
        body: impl AsRef<[u8]>,
    ) -> Answer {
        self.ask(request(method, target, fields, body))
    }

    /// Sends one request, as it is written, and waits for the answer.
    ///
    /// # Panics
    /// If there is no whole answer.
    pub fn ask(&mut self, request: impl AsRef<[u8]>) -> Answer {
        self.try_ask(request).unwrap_or_else(|error| self.fail(error))
    }

    /// Sends one request, as it is written, and waits for the answer.
    ///
    /// # Errors
    /// There is no whole answer, for whatever reason.
    pub fn try_ask(&mut self, request: impl AsRef<[u8]>) -> io::Result<Answer> {
        let request = request.as_ref();
        self.send(request)?;
        let is_head = request.starts_with(b"HEAD ");
        let answer = self.receive(if is_head { Asked::Head } else { Asked::Upgrade })?;
        answer.ok_or_else(|| ErrorKind::UnexpectedEof.into())
    }

    /// The next answer.
    ///
    /// # Panics
    /// If there is none.
    pub fn answer(&mut self) -> Answer {
        match self.try_answer() {
            Ok(Some(answer)) => answer,
            Ok(None) => self.fail("the server closed instead of answering"),
            Err(error) => self.fail(error),
        }
    }

    /// The next answer to anything but `HEAD`, interim ones included; `None` if the server closed without a further
    /// word. What comes behind a 101 is left to be heard.
    ///
    /// # Errors
    /// The connection was reset, or nothing came in time. [`ErrorKind::InvalidData`], whatever it was, if the answer had
    /// begun: it was cut off, or is no HTTP.
    pub fn try_answer(&mut self) -> io::Result<Option<Answer>> {
        self.receive(Asked::Upgrade)
    }

    fn receive(&mut self, asked: Asked) -> io::Result<Option<Answer>> {
        if self.received.is_empty() && !self.read_more()? {
            return Ok(None);
        }
        let answer = self.receive_begun(asked);
        answer.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }

    fn receive_begun(&mut self, asked: Asked) -> io::Result<Option<Answer>> {
        let (mut reader, mut answer) = (Reader::default(), None);
        loop {
            let mut rest = self.received.as_slice();
            let is_complete = read(&mut reader, &mut rest, asked, &mut answer)?;
            let used = self.received.len() - rest.len();
            self.received.drain(..used);
            if is_complete {
                return Ok(answer);
            }
            if !self.read_more()? {
                return match reader.on_eof() {
                    Eof::Clean | Eof::End(_) => Ok(answer),
                    Eof::Truncated => Err(ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }

    /// Everything until the server closes.
    ///
    /// # Errors
    /// The connection was reset, or nothing came in time.
    pub fn rest(&mut self) -> io::Result<Vec<u8>> {
        while self.read_more()? {}
        Ok(std::mem::take(&mut self.received))
    }

    /// Whether the server closes without a further word.
    pub fn is_closed_in_silence(&mut self) -> bool {
        matches!(self.rest(), Ok(rest) if rest.is_empty())
    }

    /// Waits for some bytes. Returns whether there were any; if not, the server has closed.
    ///
    /// # Errors
    /// The connection was reset, or nothing came in time.
    pub fn read_more(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 16 * 1024];
        let count = read_some(&mut self.stream, &mut buffer)?;
        self.received.extend_from_slice(&buffer[..count]);
        Ok(count > 0)
    }

    /// What was received and not yet taken.
    pub fn received(&self) -> &[u8] {
        &self.received
    }
}

/// Reads on in `rest`. Returns whether `answer` is complete.
fn read(
    reader: &mut Reader,
    rest: &mut &[u8],
    asked: Asked,
    answer: &mut Option<Answer>,
) -> io::Result<bool> {
    loop {
        match reader.next(rest, asked).map_err(io::Error::other)? {
            Next::Wait => return Ok(false),
            Next::Interim(head) => {
                *answer = Some(Answer::of(&head));
                return Ok(true);
            }
            Next::Head(head) => {
                *answer = Some(Answer::of(&head));
                if head.content() == Content::Raw {
                    return Ok(true);
                }
            }
            Next::Content(piece) | Next::Raw(piece) => {
                answer.as_mut().expect("a head comes first").body.extend_from_slice(piece);
            }
            Next::End(..) => return Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    /// A client of a server that says this and closes.
    fn served(bytes: &'static [u8]) -> Client {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = Client::connect(listener.local_addr().expect("it is bound"));
        let mut stream = listener.accept().expect("it connects").0;
        std::thread::spawn(move || {
            stream.write_all(bytes).expect("it listens");
            stream.shutdown(std::net::Shutdown::Write).expect("it is open");
            // What is not read would reset the connection.
            stream.read_to_end(&mut Vec::new())
        });
        client
    }

    /// Purpose: tests of stops and crashes count on it: an answer that was cut off is told from one that never began,
    /// wherever it was cut.
    #[test]
    fn cut_off_is_not_closed() {
        const WHOLE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello";
        assert_eq!(served(b"").try_answer().expect("an orderly end"), None);
        for cut in 1..WHOLE.len() {
            let error = served(&WHOLE[..cut]).try_answer().expect_err("it is cut off");
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{cut}");
        }
        let answer = served(WHOLE).answer();
        assert_eq!((answer.text(), answer.header("x")), ("hello", Some("y")));
    }

    /// Purpose: pipelined answers come one by one, and one to `HEAD` has no content whatever it announces.
    #[test]
    fn one_answer_at_a_time() {
        let mut client = served(
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\n\r\nend",
        );
        assert_eq!(client.ask("HEAD / HTTP/1.1\r\n\r\n").header("content-length"), Some("9"));
        assert_eq!(client.answer().status, 204);
        assert_eq!(client.answer().text(), "end");
        assert_eq!(client.try_answer().expect("an orderly end"), None);
    }
}
