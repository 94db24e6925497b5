//! Servers of a test's own: on ports of their own, with their data in a folder that goes with them. They end with the
//! test's thread, whatever ends that.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use highwater_testkit::{eventually, lasting_ports};
use tempfile::TempDir;

/// A file of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A process that is started, stopped and started again.
pub(crate) struct Server {
    program: Vec<String>,
    child: Option<Child>,
    pub(crate) port: u16,
}

impl Server {
    /// Runs `program` on command; it will listen on `port`.
    pub(crate) fn new(port: u16, program: Vec<String>) -> Server {
        Server { program, child: None, port }
    }

    /// Starts it; does not wait until it listens.
    pub(crate) fn begin(&mut self) {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).args(&self.program);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("setpriv is part of Debian's base"));
    }

    /// Waits until it listens.
    pub(crate) fn await_port(&mut self) {
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let child = self.child.as_mut().expect("it was started");
        eventually(&format!("{} on port {}", self.program[0], self.port), || {
            let ended = child.try_wait().expect("it is our child");
            assert!(ended.is_none(), "{:?} ended: {ended:?}", self.program);
            TcpStream::connect(address).is_ok()
        });
    }

    /// Sends it a signal, as `kill` names it.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.as_ref().expect("it was started").id();
        let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
        assert!(sent.expect("there is kill").success());
    }

    /// Sends it a signal that ends it, and waits for its end.
    pub(crate) fn end(&mut self, name: &str) {
        self.signal(name);
        self.child.take().expect("it was started").wait().expect("it is our child");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A Redis that keeps nothing.
pub(crate) struct Redis {
    pub(crate) server: Server,
    _folder: TempDir,
}

impl Redis {
    /// One that answers; `None` where there is none, which is printed.
    pub(crate) fn start() -> Option<Redis> {
        if let Err(error) = Command::new("redis-server").arg("--version").output() {
            highwater_skip::skip("redis-server", error);
            return None;
        }
        let (port, folder) = (lasting_ports(1), folder());
        let dir = folder.path().display().to_string();
        let flags = [
            "redis-server",
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            &dir,
        ];
        let mut program: Vec<String> = flags.iter().map(ToString::to_string).collect();
        program.extend(["--port".to_owned(), port.to_string()]);
        let mut redis = Redis { server: Server::new(port, program), _folder: folder };
        redis.restart();
        Some(redis)
    }

    /// Starts it again, empty.
    pub(crate) fn restart(&mut self) {
        self.server.begin();
        self.server.await_port();
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.server.port)
    }

    /// What an operator asks it.
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let client = redis::Client::open(self.url()).expect("a URL");
        let mut connection = client.get_connection().expect("it listens");
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| {
            command.arg(*word);
        });
        command.query(&mut connection).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }
}

/// A Postgres of a test's own, to be stopped.
pub(crate) struct Postgres {
    pub(crate) server: Server,
    _folder: TempDir,
}

impl Postgres {
    pub(crate) fn start() -> Postgres {
        let (port, folder) = (lasting_ports(1), folder());
        let bin = postgres_bin();
        let data = folder.path().join("data").display().to_string();
        // initdb and postgres refuse to run as root, so root becomes postgres.
        let is_root = folder.path().join("..").exists()
            && Command::new("id").arg("-u").output().expect("there is id").stdout == b"0\n";
        let mut prefix: Vec<String> = Vec::new();
        if is_root {
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777))
                .expect("it is ours");
            let words = [
                "setpriv",
                "--reuid=postgres",
                "--regid=postgres",
                "--init-groups",
                "--pdeathsig",
                "KILL",
            ];
            prefix.extend(words.map(str::to_owned));
        }
        let words = |rest: &[&str]| -> Vec<String> {
            prefix.iter().cloned().chain(rest.iter().map(ToString::to_string)).collect()
        };
        let initdb = bin.join("initdb").display().to_string();
        let initdb = words(&[
            &initdb,
            "-D",
            &data,
            "-U",
            "highwater",
            "-A",
            "trust",
            "--no-sync",
            "--locale=C",
            "--encoding=UTF8",
        ]);
        let made =
            Command::new(&initdb[0]).args(&initdb[1..]).current_dir("/").output().expect("it runs");
        assert!(made.status.success(), "{}", text_of(&made));
        let port_flag = port.to_string();
        let server = bin.join("postgres").display().to_string();
        let program = words(&[
            &server,
            "-D",
            &data,
            "-p",
            &port_flag,
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "unix_socket_directories=",
            "-c",
            "shared_buffers=32MB",
            "-c",
            "fsync=off",
            // So that it can be asked when something was applied.
            "-c",
            "track_commit_timestamp=on",
        ]);
        let mut postgres = Postgres { server: Server::new(port, program), _folder: folder };
        postgres.restart();
        postgres
    }

    /// Starts it again with what it had.
    pub(crate) fn restart(&mut self) {
        self.server.begin();
        self.server.await_port();
    }

    /// Ends it, and its clients' connections.
    pub(crate) fn stop(&mut self) {
        self.server.end("INT");
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://highwater@127.0.0.1:{}/postgres", self.server.port)
    }
}

fn postgres_bin() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql");
    let versions = versions.expect("Postgres is missing: run scripts/test-deps.sh");
    let bin = versions.flatten().map(|version| version.path().join("bin"));
    bin.filter(|bin| bin.join("initdb").exists()).max().expect("a version with a server")
}

/// Where servers that run as other users can write too.
fn folder() -> TempDir {
    tempfile::Builder::new().prefix("highwater-").tempdir_in("/var/tmp").expect("a folder")
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// What a script of the repository prints, which must end well.
pub(crate) fn script(path: &str, arguments: &[&str]) -> String {
    let output =
        Command::new(repository(path)).args(arguments).output().expect("the script starts");
    assert!(output.status.success(), "{path} {arguments:?}: {}", text_of(&output));
    String::from_utf8(output.stdout).expect("it is text").trim().to_owned()
}

/// The Postgres that all tests share, for those that do not stop it.
pub(crate) fn shared_postgres() -> &'static str {
    static URL: OnceLock<String> = OnceLock::new();
    URL.get_or_init(|| script("scripts/services/postgres.sh", &["start"]))
}

/// Runs SQL as an operator would.
pub(crate) fn sql(url: &str, statements: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let connected = tokio_postgres::connect(url, tokio_postgres::NoTls).await;
        let (client, connection) = connected.expect("connected");
        tokio::spawn(connection);
        client.batch_execute(statements).await.expect("executed");
    });
}

/// What a query answers.
fn query(url: &str, query: &str) -> Vec<tokio_postgres::Row> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let connected = tokio_postgres::connect(url, tokio_postgres::NoTls).await;
        let (client, connection) = connected.expect("connected");
        tokio::spawn(connection);
        client.query(query, &[]).await.expect("a query")
    })
}

/// What a query for one number answers.
pub(crate) fn number(url: &str, sql: &str) -> i64 {
    query(url, sql)[0].get(0)
}

/// What a query for two texts answers.
pub(crate) fn rows(url: &str, sql: &str) -> Vec<(String, String)> {
    query(url, sql).iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// The URL of an empty schema of this name in the shared server.
pub(crate) fn schema(name: &str) -> String {
    let url = shared_postgres();
    sql(url, &format!("DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}"));
    format!("{url}?options=-csearch_path%3D{name}&application_name={name}")
}
