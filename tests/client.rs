//! A client that sends exactly the bytes it is given, and takes nothing for granted about what
//! comes back. It blocks; nothing in here waits longer than [`PATIENCE`].

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use highwater_core::http1::client::{Asked, Content, Eof, Head, Next, Reader};
use socket2::{Domain, SockRef, Socket, Type};

/// How long a client waits for a byte before it gives up, unless it is told otherwise.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A complete `GET` of `path`, on a connection that is to persist.
pub fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes()
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    heard: Vec<u8>,
}

/// A response, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// Status line and fields, without the empty line.
    pub head: String,
    /// The content, its framing undone.
    pub content: Vec<u8>,
}

impl Reply {
    /// The beginning of the response that has this head.
    fn of(head: &Head<'_>) -> io::Result<Self> {
        let bytes = head.bytes().strip_suffix(b"\r\n\r\n").unwrap_or_default();
        let text = String::from_utf8(bytes.to_vec()).map_err(io::Error::other)?;
        Ok(Reply { status: head.status(), head: text, content: Vec::new() })
    }

    /// The value of a field, whose name is given in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.find(|(field, _)| *field == name).map(|(_, value)| value)
    }

    /// The content as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.content).into_owned()
    }
}

impl Client {
    /// Connects.
    ///
    /// # Panics
    /// If that is not possible.
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).expect("the server accepts")
    }

    /// Connects.
    ///
    /// # Errors
    /// The connection is refused.
    pub fn try_connect(address: SocketAddr) -> io::Result<Self> {
        Self::from_stream(TcpStream::connect_timeout(&address, PATIENCE)?)
    }

    /// Connects with a receive buffer of about `size` bytes, so that what is not read soon fills it.
    ///
    /// # Panics
    /// If that is not possible.
    pub fn connect_small(address: SocketAddr, size: usize) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket can be had");
        socket.set_recv_buffer_size(size).expect("a small buffer is granted");
        socket.connect(&address.into()).expect("the server accepts");
        Self::from_stream(socket.into()).expect("options can be set")
    }

    fn from_stream(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Client { stream, heard: Vec::new() })
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Waits at most so long for a byte from now on.
    pub fn set_patience(&self, patience: Duration) {
        self.stream.set_read_timeout(Some(patience)).expect("a timeout that is not zero");
    }

    /// Sends `bytes`.
    ///
    /// # Errors
    /// The server has closed the connection.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Finishes sending.
    pub fn finish(&self) {
        // If the server has reset the connection meanwhile, reading will tell.
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    /// Resets the connection.
    pub fn reset(self) {
        SockRef::from(&self.stream)
            .set_linger(Some(Duration::ZERO))
            .expect("every stream can be told to linger");
    }

    /// Asks for `path` and waits for the answer.
    ///
    /// # Panics
    /// If there is none.
    pub fn get(&mut self, path: &str) -> Reply {
        self.send(&get(path)).expect("the connection is open");
        self.reply()
    }

    /// The next response.
    ///
    /// # Panics
    /// If there is none.
    pub fn reply(&mut self) -> Reply {
        self.try_reply().expect("a response comes in time").expect("a response comes")
    }

    /// The next response, interim ones included; `None` if the server closed without a further word. What
    /// comes behind a 101 is left to be heard.
    ///
    /// # Errors
    /// The connection was reset, ended within a response, or nothing came in time; or it is no HTTP.
    pub fn try_reply(&mut self) -> io::Result<Option<Reply>> {
        let (mut reader, mut reply) = (Reader::default(), None);
        loop {
            let mut rest = self.heard.as_slice();
            let is_complete = read(&mut reader, &mut rest, &mut reply)?;
            let used = self.heard.len() - rest.len();
            self.heard.drain(..used);
            if is_complete {
                return Ok(reply);
            }
            if !self.hear()? {
                return match reader.on_eof() {
                    Eof::Clean | Eof::End(_) => Ok(reply),
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
        while self.hear()? {}
        Ok(std::mem::take(&mut self.heard))
    }

    /// Whether the server closes without a further word.
    pub fn is_closed_in_silence(&mut self) -> bool {
        matches!(self.rest(), Ok(rest) if rest.is_empty())
    }

    /// Waits for some bytes. Returns whether there were any; if not, the server has closed.
    ///
    /// # Errors
    /// The connection was reset, or nothing came in time.
    pub fn hear(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 16 * 1024];
        let count = loop {
            match self.stream.read(&mut buffer) {
                // Not restarted by itself where there is a timeout.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        self.heard.extend_from_slice(&buffer[..count]);
        Ok(count > 0)
    }

    /// What has been heard and not been taken.
    pub fn heard(&self) -> &[u8] {
        &self.heard
    }
}

/// Reads on in `rest`. Returns whether `reply` is complete.
fn read(reader: &mut Reader, rest: &mut &[u8], reply: &mut Option<Reply>) -> io::Result<bool> {
    loop {
        match reader.next(rest, Asked::Upgrade).map_err(io::Error::other)? {
            Next::Wait => return Ok(false),
            Next::Interim(head) => {
                *reply = Some(Reply::of(&head)?);
                return Ok(true);
            }
            Next::Head(head) => {
                *reply = Some(Reply::of(&head)?);
                if head.content() == Content::Raw {
                    return Ok(true);
                }
            }
            Next::Content(piece) | Next::Raw(piece) => {
                reply.as_mut().expect("a head comes first").content.extend_from_slice(piece);
            }
            Next::End(..) => return Ok(true),
        }
    }
}
