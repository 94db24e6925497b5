//! The whole service: real servers, two instances, and workers, each a process that ends with the test.

use std::net::SocketAddr;
use std::process::Command;

use highwater_testkit::{Answer, Process, eventually, lasting_ports, program, request};

use crate::servers::{Postgres, Redis, Server, repository};

pub(crate) const SECRET: &str = "a secret of thirty-two characters";

/// How long Kafka has to acknowledge, so that a test need not wait for the default.
const ACK_TIMEOUT: &str = "2s";

pub(crate) struct Stage {
    pub(crate) postgres: Postgres,
    pub(crate) redis: Redis,
    pub(crate) kafka: Server,
    pub(crate) topic: String,
    token: String,
}

/// A client of somebody, which keeps its connection as long as it lasts.
pub(crate) struct Client {
    address: SocketAddr,
    authorization: String,
    kept: Option<highwater_testkit::Client>,
}

impl Stage {
    /// Starts the servers; `None` where one is missing, which is printed.
    pub(crate) fn start() -> Option<Stage> {
        if let Err(error) = Command::new("java").arg("-version").output() {
            highwater_skip::skip("kafka", error);
            return None;
        }
        let redis = Redis::start()?;
        let port = lasting_ports(2);
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
        let instance = Process::start(self.command().args(flags));
        let mut client = self.client(&instance);
        eventually("the instance is ready", || client.get("/ready").status == 200);
        instance
    }

    /// Starts a worker.
    pub(crate) fn worker(&self) -> Process {
        Process::start_until(self.command().args(["worker", "--metrics=127.0.0.1:0"]), " working ")
    }

    pub(crate) fn client(&self, instance: &Process) -> Client {
        self.client_of(instance.address)
    }

    pub(crate) fn client_of(&self, address: SocketAddr) -> Client {
        let authorization = format!("Authorization: Bearer {}\r\n", self.token);
        Client { address, authorization, kept: None }
    }

    /// The service's program, with the settings that lead it here. TODOS_BIN is another build of it, to be measured.
    pub(crate) fn command(&self) -> Command {
        let built = std::env::var("TODOS_BIN");
        let built = built.unwrap_or_else(|_| env!("CARGO_BIN_EXE_highwater-todos").to_owned());
        let mut command = program(&built);
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

impl Client {
    /// Another one, with a connection of its own.
    pub(crate) fn again(&self) -> Client {
        Client { address: self.address, authorization: self.authorization.clone(), kept: None }
    }

    pub(crate) fn get(&mut self, target: &str) -> Answer {
        self.ask("GET", target, "")
    }

    pub(crate) fn create(&mut self, title: &str) -> Answer {
        self.ask("POST", "/todos", &format!(r#"{{"title":"{title}","description":""}}"#))
    }

    /// Asks, on a new connection if the last one is gone.
    pub(crate) fn ask(&mut self, method: &str, target: &str, body: &str) -> Answer {
        let request = request(method, target, &self.authorization, body);
        // The server may have closed it since it was used.
        let kept = self.kept.as_mut().and_then(|client| client.try_ask(&request).ok());
        kept.unwrap_or_else(|| {
            let client = self.kept.insert(highwater_testkit::Client::connect(self.address));
            client.ask(&request)
        })
    }
}

/// The ids of a list.
pub(crate) fn ids(list: &Answer) -> Vec<String> {
    let parsed = list.json();
    let todos = parsed.as_array().unwrap_or_else(|| panic!("no list: {list:?}"));
    todos.iter().map(|todo| todo["id"].as_str().expect("it has one").to_owned()).collect()
}
