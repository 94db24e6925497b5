//! A command of the user's as the load: the instrumented server runs, the command is run to its end, and the server is
//! ended so that it writes its profile.
//!
//! ```text
//!  server (HIGHWATER_LISTEN, PORT) ─▶ accepts ─▶ command (URL, {url}) ─▶ it ends, or Ctrl-C ─▶ SIGTERM ─▶ profile
//! ```

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use highwater_sys::process::{self, End};
use highwater_sys::signal::Signals;

use super::say;

/// How long the server may take to accept connections. Instrumented ones are slow.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long it may take to end after SIGTERM, and to write its profile.
const STOPPED_WITHIN: Duration = Duration::from_secs(60);
/// How long one try to connect may take, and how often a process is looked at.
const TICK: Duration = Duration::from_millis(20);

/// What is run against the server, and how the server is started.
pub(super) struct OwnLoad<'a> {
    /// The command and its arguments.
    pub(super) command: &'a [String],
    /// The server's arguments.
    pub(super) arguments: &'a [String],
    /// `None`: a free one.
    pub(super) port: Option<u16>,
}

impl OwnLoad<'_> {
    /// Runs the command to its end against `program`, and ends the server.
    ///
    /// # Errors
    /// The server does not start, accept or end, or the command fails.
    pub(super) fn run(&self, program: &Path) -> Result<(), String> {
        let address = self.address()?;
        // Ctrl-C is for the command: afterwards the profile is still merged.
        let signals = Signals::catch().map_err(|error| format!("catching signals: {error}"))?;
        let mut server = Server::start(program, self.arguments, address)?;
        server.wait_until_it_accepts(address)?;
        say(&format!("the instrumented server listens on http://{address}; Ctrl-C ends the load"));
        let status = self.load(address)?;
        let was_interrupted = matches!(signals.wait_timeout(Duration::ZERO), Ok(Some(_)));
        if !status.success() && !was_interrupted {
            return Err(format!(
                "{}: {}, so this profile is not of the load that was meant",
                self.command[0],
                shown(status)
            ));
        }
        server.stop()
    }

    fn address(&self) -> Result<SocketAddr, String> {
        let port = self.port.unwrap_or(0);
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).and_then(|it| it.local_addr());
        bound.map_err(|error| format!("--port {port}: {error}"))
    }

    /// The command's end. It has this terminal: its load may be one that a person makes.
    fn load(&self, address: SocketAddr) -> Result<ExitStatus, String> {
        let mut load = Command::new(&self.command[0]);
        load.args(self.command[1..].iter().map(|word| put(word, address)))
            .env("URL", format!("http://{address}"));
        process::tie(&mut load, &[], End::Ask);
        load.status().map_err(|error| format!("{}: {error}", self.command[0]))
    }
}

/// `word` with the server's address in it.
fn put(word: &str, address: SocketAddr) -> String {
    word.replace("{url}", &format!("http://{address}"))
        .replace("{host}", &address.ip().to_string())
        .replace("{port}", &address.port().to_string())
}

fn shown(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// The instrumented server. It ends with this process, however that ends.
struct Server(Child);

impl Server {
    fn start(program: &Path, arguments: &[String], address: SocketAddr) -> Result<Server, String> {
        let mut server = Command::new(program);
        server
            .args(arguments.iter().map(|word| put(word, address)))
            .env("HIGHWATER_LISTEN", address.to_string())
            .env("PORT", address.port().to_string())
            // Ctrl-C is for the load: a server that it ended at once might not write its profile.
            .process_group(0)
            .stdin(Stdio::null());
        process::tie(&mut server, &[], End::Ask);
        let started = server.spawn();
        Ok(Server(started.map_err(|error| format!("{}: {error}", program.display()))?))
    }

    fn wait_until_it_accepts(&mut self, address: SocketAddr) -> Result<(), String> {
        let deadline = Instant::now() + READY_WITHIN;
        while TcpStream::connect_timeout(&address, TICK).is_err() {
            if let Some(status) = self.ended() {
                return Err(format!("the server ended before it listened ({})", shown(status)));
            }
            if Instant::now() >= deadline {
                return Err(format!(
                    "the server does not listen on {address}: it gets HIGHWATER_LISTEN and PORT; tell it with --arg, in \
                     which {{port}} stands for the port, or name its own with --port"
                ));
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }

    /// Lets it finish, for its profile.
    fn stop(mut self) -> Result<(), String> {
        // It may have ended on its own.
        let _ = process::end(self.0.id(), End::Ask);
        let deadline = Instant::now() + STOPPED_WITHIN;
        while Instant::now() < deadline {
            match self.ended() {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(format!(
                        "the server must end with status 0 on SIGTERM to write its profile ({})",
                        shown(status)
                    ));
                }
                None => std::thread::sleep(TICK),
            }
        }
        Err(format!(
            "the server did not end within {STOPPED_WITHIN:?} of SIGTERM, so it wrote no profile"
        ))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.ended().is_none() {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: commands and servers get the address wherever they name it, and nothing else is changed.
    #[test]
    fn addresses_are_put_into_words() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
        for (word, expected) in [
            ("{url}/a?b={port}", "http://127.0.0.1:8080/a?b=8080"),
            ("{host}:{port}", "127.0.0.1:8080"),
            ("{user} {}", "{user} {}"),
        ] {
            assert_eq!(put(word, address), expected);
        }
    }
}
