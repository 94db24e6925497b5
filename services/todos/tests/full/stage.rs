//! The whole service: real servers, two instances, and workers, each a process that ends with the test.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Instant;

use crate::client::Client;
use crate::servers::{PATIENCE, Postgres, Redis, Server, eventually, lasting_port, repository};

const SECRET: &str = "a secret of thirty-two characters";

/// How long Kafka has to acknowledge, so that a test need not wait for the default.
const ACK_TIMEOUT: &str = "2s";

pub(crate) struct Stage {
    pub(crate) postgres: Postgres,
    pub(crate) redis: Redis,
    pub(crate) kafka: Server,
    pub(crate) topic: String,
    token: String,
}

/// A process of the service.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
    pub(crate) address: SocketAddr,
}

impl Stage {
    /// Starts the servers; `None` where one cannot be had, which is said.
    pub(crate) fn start() -> Option<Stage> {
        if let Err(error) = Command::new("java").arg("-version").output() {
            highwater_skip::skip("kafka", error);
            return None;
        }
        let redis = Redis::start()?;
        let port = lasting_port();
        let script = repository("scripts/services/kafka.sh").display().to_string();
        let program =
            ["env".to_owned(), format!("HW_KAFKA_PORT={port}"), script.clone(), "run".to_owned()];
        let mut kafka = Server::new(port, program.to_vec());
        kafka.begin();
        let postgres = Postgres::start();
        kafka.await_port();
        let topic = "todo-commands".to_owned();
        let token = Command::new(env!("CARGO_BIN_EXE_highwater-todos"))
            .args(["token", "--subject=somebody", "--jwt-secret", SECRET])
            .output()
            .expect("it runs");
        let token = String::from_utf8(token.stdout).expect("it is text").trim().to_owned();
        Some(Stage { postgres, redis, kafka, topic, token })
    }

    pub(crate) fn brokers(&self) -> String {
        format!("127.0.0.1:{}", self.kafka.port)
    }

    /// Starts an instance, and waits until it is ready.
    pub(crate) fn instance(&self) -> Process {
        let flags =
            ["--listen=127.0.0.1:0", "--metrics=off", "--workers=1", "--jwt-secret", SECRET];
        let instance = Process::start(self.command().args(flags), " serving ");
        let mut client = self.client(&instance);
        eventually("the instance is ready", || client.get("/ready").status == 200);
        instance
    }

    /// Starts a worker.
    pub(crate) fn worker(&self) -> Process {
        Process::start(self.command().args(["worker", "--metrics=127.0.0.1:0"]), " working ")
    }

    pub(crate) fn client(&self, instance: &Process) -> Client {
        self.client_of(instance.address)
    }

    pub(crate) fn client_of(&self, address: SocketAddr) -> Client {
        Client::new(address, &self.token)
    }

    /// The service's program, with the settings that lead it here. TODOS_BIN is another build of it, to be measured.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new("setpriv");
        let program = std::env::var("TODOS_BIN");
        let program = program.unwrap_or_else(|_| env!("CARGO_BIN_EXE_highwater-todos").to_owned());
        command.args(["--pdeathsig", "KILL", &program]);
        command
            .env("DATABASE_URL", self.postgres.url())
            .env("REDIS_URL", self.redis.url())
            .env("KAFKA_BROKERS", self.brokers())
            .env("KAFKA_TODO_TOPIC", &self.topic)
            .env("KAFKA_PARTITIONS", "4")
            .env("HIGHWATER_ACK_TIMEOUT", ACK_TIMEOUT);
        command
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // The broker's data is in the repository's own folder.
        let script = repository("scripts/services/kafka.sh");
        let mut clean = Command::new(script);
        clean.arg("clean").env("HW_KAFKA_PORT", self.kafka.port.to_string());
        // If it fails, files stay behind, and harm nobody.
        let _ = clean.output();
    }
}

impl Process {
    fn start(command: &mut Command, begun: &str) -> Process {
        let mut child = command
            .stdin(Stdio::null())
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
        let mut process = Process { child, lines, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let line = process.wait_for(begun);
        let address = ["address=", "metrics="]
            .iter()
            .find_map(|key| line.split(' ').find_map(|word| word.strip_prefix(key)?.parse().ok()));
        process.address = address.unwrap_or_else(|| panic!("no address: {line}"));
        process
    }

    /// The next line of its log that has `part` in it.
    pub(crate) fn wait_for(&self, part: &str) -> String {
        let until = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) if line.contains(part) => return line,
                Ok(line) => seen.push(line),
                Err(end) => panic!("no line with {part:?} ({end}), after\n{}", seen.join("\n")),
            }
        }
    }

    /// Everything that it has logged since it was last looked at.
    pub(crate) fn said(&self) -> String {
        self.lines.try_iter().collect::<Vec<_>>().join("\n")
    }

    /// Sends it a signal, as `kill` names it, and waits for its end.
    pub(crate) fn end(&mut self, signal: &str) -> ExitStatus {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &pid]).status();
        assert!(sent.expect("there is kill").success());
        let mut status = None;
        eventually("it ends", || {
            status = self.child.try_wait().expect("it is our child");
            status.is_some()
        });
        status.expect("it was waited for")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
