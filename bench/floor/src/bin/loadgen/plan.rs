//! What to send, to whom and for how long; and the one request that learns what the answer weighs.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::str::FromStr;
use std::time::Duration;

use highwater_floor::flags::Flags;

/// Two operations a connection must fit into one submission queue.
pub(crate) const CONNECTIONS_MAX: usize = 1024;
/// A batch of requests must fit into the server's first receive, or it costs a second one.
const PIPELINE_MAX: usize = 64;
/// Bytes of one answer. Larger ones measure `memcpy`.
const RESPONSE_MAX: usize = 64 * 1024;
/// Silence after which the answer to the first request counts as whole: over loopback it arrives at
/// once.
const SILENCE: Duration = Duration::from_millis(100);

const OPTIONS: [&str; 11] = [
    "port",
    "pid",
    "method",
    "path",
    "body",
    "connections",
    "pipeline",
    "warm",
    "ms",
    "cpu",
    "server-cpu",
];

/// A comma-separated list of numbers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct List(pub(crate) Vec<u32>);

impl FromStr for List {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<List, Self::Err> {
        text.split(',')
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map(List)
    }
}

/// One run.
pub(crate) struct Plan {
    pub(crate) addr: SocketAddrV4,
    pub(crate) pids: Vec<u32>,
    /// The bytes of one request.
    pub(crate) request: Vec<u8>,
    pub(crate) connections: usize,
    pub(crate) pipeline: usize,
    pub(crate) close: bool,
    pub(crate) warm: Duration,
    pub(crate) measured: Duration,
    pub(crate) cpu: usize,
    pub(crate) server_cpu: usize,
}

/// The answer every later one must resemble.
pub(crate) struct Answer {
    /// Head and body, in bytes.
    pub(crate) len: usize,
    pub(crate) status: u16,
}

impl Plan {
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Plan, String> {
        let flags = Flags::parse(arguments, &OPTIONS, &["close"])?;
        let port = flags.value("port", 0)?;
        let plan = Plan {
            addr: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port),
            pids: flags.value("pid", List(Vec::new()))?.0,
            request: request(&flags)?,
            connections: flags.value("connections", 64)?,
            pipeline: flags.value("pipeline", 1)?,
            close: flags.switch("close"),
            warm: Duration::from_millis(flags.value("warm", 300)?),
            measured: Duration::from_millis(flags.value("ms", 600)?),
            cpu: flags.value("cpu", 1)?,
            server_cpu: flags.value("server-cpu", 0)?,
        };
        match () {
            () if port == 0 => Err("--port is required".to_owned()),
            () if !(1..=CONNECTIONS_MAX).contains(&plan.connections) => Err(format!(
                "--connections {}: 1 to {CONNECTIONS_MAX}",
                plan.connections
            )),
            () if !(1..=PIPELINE_MAX).contains(&plan.pipeline) => {
                Err(format!("--pipeline {}: 1 to {PIPELINE_MAX}", plan.pipeline))
            }
            () if plan.close && plan.pipeline > 1 => {
                Err("--close sends one request a connection; leave --pipeline out".to_owned())
            }
            () if plan.measured.is_zero() => Err("--ms 0: measure at least 1 ms".to_owned()),
            () => Ok(plan),
        }
    }

    /// Opens a connection. Over loopback the handshake is over when `connect` returns, whatever the
    /// server is doing.
    pub(crate) fn dial(&self) -> Result<TcpStream, String> {
        TcpStream::connect(self.addr).map_err(|error| format!("connect to {}: {error}", self.addr))
    }

    /// Sends one request and learns the length of the answer, by waiting until the server is silent
    /// or closes.
    pub(crate) fn ask_once(&self) -> Result<Answer, String> {
        let failed = |error| format!("the first request: {error}");
        let mut stream = self.dial()?;
        stream.set_read_timeout(Some(SILENCE)).map_err(failed)?;
        stream.write_all(&self.request).map_err(failed)?;
        let (mut answer, mut len) = (vec![0; RESPONSE_MAX + 1], 0);
        loop {
            match stream.read(&mut answer[len..]) {
                Ok(0) if len <= RESPONSE_MAX => break,
                Ok(0) => return Err(format!("the answer is longer than {RESPONSE_MAX} bytes")),
                Ok(more) => len += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock && self.close => {
                    return Err("the server ignores Connection: close".to_owned());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(failed(error)),
            }
        }
        let head = String::from_utf8_lossy(&answer[..len.min(64)]);
        let status = head
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3)?.parse().ok());
        match status {
            Some(status @ 200..=299) => Ok(Answer { len, status }),
            _ => Err(format!(
                "the first answer is not 2xx: {:?}",
                head.lines().next().unwrap_or("")
            )),
        }
    }
}

/// The bytes of one request.
fn request(flags: &Flags) -> Result<Vec<u8>, String> {
    let method = flags.value("method", "GET".to_owned())?;
    let path = flags.value("path", "/".to_owned())?;
    let body = flags.value("body", String::new())?;
    // A fixed host name, so that the request weighs the same whatever port a server got.
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n");
    if flags.switch("close") {
        request += "Connection: close\r\n";
    }
    if !body.is_empty() {
        request += &format!("Content-Length: {}\r\n", body.len());
    }
    Ok((request + "\r\n" + &body).into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Plan, String> {
        Plan::parse(line.split_whitespace().map(str::to_owned))
    }

    /// Purpose: the bytes sent are a whole HTTP/1.1 request (RFC 9112 §2.1), with and without a
    /// body.
    #[test]
    fn writes_whole_requests() {
        let get = parse("--port 1 --path /json").expect("valid");
        assert_eq!(
            get.request,
            b"GET /json HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n"
        );
        let post =
            parse("--port 1 --method POST --path /e --body 12345678 --close").expect("valid");
        let expected = "POST /e HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\
                        Connection: close\r\nContent-Length: 8\r\n\r\n12345678";
        assert_eq!(post.request, expected.as_bytes());
    }

    /// Purpose: each bound holds at n−1, n and n+1.
    #[test]
    fn refuses_what_is_out_of_bounds() {
        assert!(parse("").is_err_and(|message| message.contains("--port")));
        for (flag, max) in [("connections", CONNECTIONS_MAX), ("pipeline", PIPELINE_MAX)] {
            for (value, valid) in [
                (0, false),
                (1, true),
                (max - 1, true),
                (max, true),
                (max + 1, false),
            ] {
                let plan = parse(&format!("--port 1 --{flag} {value}"));
                assert_eq!(plan.is_ok(), valid, "--{flag} {value}");
            }
        }
        assert!(parse("--port 1 --close --pipeline 2").is_err());
    }
}
