//! A client that sends exactly the bytes it is given, and takes nothing for granted about what
//! comes back. It blocks; nothing in here waits longer than [`PATIENCE`].

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

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

    /// The next response; `None` if the server closed without a further word.
    ///
    /// # Errors
    /// The connection was reset, ended within a response, or nothing came in time.
    pub fn try_reply(&mut self) -> io::Result<Option<Reply>> {
        let end = loop {
            if let Some(end) = find(&self.heard, b"\r\n\r\n") {
                break end;
            }
            if !self.hear()? {
                return match self.heard.is_empty() {
                    true => Ok(None),
                    false => Err(ErrorKind::UnexpectedEof.into()),
                };
            }
        };
        let head = String::from_utf8(self.heard[..end].to_vec()).map_err(io::Error::other)?;
        self.heard.drain(..end + 4);
        let status = head.get(9..12).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status in {head}")))?;
        let mut reply = Reply { status, head, content: Vec::new() };
        reply.content = match (reply.field("content-length"), reply.field("transfer-encoding")) {
            (Some(length), _) => self.take(length.parse().map_err(io::Error::other)?)?,
            (None, Some(_)) => self.take_chunks()?,
            (None, None) if matches!(status, 100..200 | 204 | 304) => Vec::new(),
            (None, None) => self.rest()?,
        };
        Ok(Some(reply))
    }

    fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.heard.len() < length {
            if !self.hear()? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let rest = self.heard.split_off(length);
        Ok(std::mem::replace(&mut self.heard, rest))
    }

    fn take_chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        loop {
            while find(&self.heard, b"\r\n").is_none() {
                if !self.hear()? {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            }
            let line = find(&self.heard, b"\r\n").expect("it was found above");
            let size = String::from_utf8_lossy(&self.heard[..line]).into_owned();
            let size = usize::from_str_radix(&size, 16).map_err(io::Error::other)?;
            self.heard.drain(..line + 2);
            let mut chunk = self.take(size + 2)?;
            chunk.truncate(size);
            content.append(&mut chunk);
            if size == 0 {
                return Ok(content);
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

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
