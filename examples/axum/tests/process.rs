//! Does the example, as a process of its own, take its settings from the environment and end when told?
#![forbid(unsafe_code)]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(10);

/// A process that does not outlive its test.
struct Example(Child);

impl Example {
    fn start(listen: SocketAddr, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_highwater-example-axum"));
        command.env("LISTEN", listen.to_string()).envs(variables.iter().copied());
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Example(command.spawn().expect("the example starts"))
    }

    fn end(&mut self) -> ExitStatus {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Some(status) = self.0.try_wait().expect("it is our child") {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it does not end");
    }

    fn output(&mut self) -> String {
        let mut output = String::new();
        let (out, err) = (self.0.stdout.take(), self.0.stderr.take());
        out.expect("it is piped").read_to_string(&mut output).expect("it is text");
        err.expect("it is piped").read_to_string(&mut output).expect("it is text");
        output
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An address that is free, for a moment at least.
fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    listener.local_addr().expect("it is bound")
}

fn get(address: SocketAddr, path: &str) -> String {
    let begin = Instant::now();
    let mut stream = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket has timeouts");
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers text");
    answer
}

/// Purpose: without a line of code the application has metrics, as many workers as the environment says,
/// and a drain at SIGTERM that ends well, whatever threads its own runtime has.
#[test]
fn environment_and_signals() {
    let (listen, metrics) = (free(), free());
    let observed = metrics.to_string();
    let variables = [("HIGHWATER_WORKERS", "3"), ("HIGHWATER_METRICS", observed.as_str())];
    let mut example = Example::start(listen, &variables);
    assert!(get(listen, "/").ends_with("Hello, World!"));
    assert!(get(metrics, "/readyz").starts_with("HTTP/1.1 200 "));
    assert!(get(metrics, "/metrics").contains("http_requests_total"));
    let killed = Command::new("kill").arg(example.0.id().to_string()).status();
    assert!(killed.expect("`kill` is there").success());
    assert!(example.end().success());
    let output = example.output();
    assert!(output.contains("workers=3"), "{output}");
    assert!(output.contains("stopping"), "{output}");
}

/// Purpose: a further signal ends a drain that would wait for an endless answer.
#[test]
fn second_signal() {
    let listen = free();
    let variables = [("HIGHWATER_METRICS", "off"), ("HIGHWATER_DRAIN_TIMEOUT", "10m")];
    let mut example = Example::start(listen, &variables);
    assert!(get(listen, "/").ends_with("Hello, World!"));
    let mut endless = TcpStream::connect(listen).expect("it listens");
    endless.set_read_timeout(Some(PATIENCE)).expect("a socket has timeouts");
    endless.write_all(b"GET /endless HTTP/1.1\r\nhost: a\r\n\r\n").expect("it reads");
    endless.read_exact(&mut [0; 15]).expect("it answers");
    for signal in ["-TERM", "-INT"] {
        let sent = Command::new("kill").args([signal, &example.0.id().to_string()]).status();
        assert!(sent.expect("`kill` is there").success());
    }
    assert!(example.end().success());
}

/// Purpose: a mistake in the environment ends the program with words that name it.
#[test]
fn mistakes_in_the_environment() {
    let mut example = Example::start(free(), &[("HIGHWATER_WORKERS", "many")]);
    assert!(!example.end().success());
    let output = example.output();
    assert!(output.contains("HIGHWATER_WORKERS") && output.contains("many"), "{output}");
}

/// Purpose: a second application on one machine starts although the first has the metrics' usual port.
#[test]
fn metrics_port_is_taken() {
    // This test may hold it, or another process.
    let _taken = TcpListener::bind("127.0.0.1:9090");
    let listen = free();
    let _example = Example::start(listen, &[]);
    assert!(get(listen, "/").ends_with("Hello, World!"));
}
