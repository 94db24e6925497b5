//! `highwater load` over TLS and other protocols than HTTP/1.1, against nginx and against servers that misbehave.

mod http2;
mod nginx;
mod tls;
mod tunnels;
mod ws;

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// A server of one thread per connection, until the process ends.
fn serve(on_connection: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let on_connection = on_connection.clone();
            std::thread::spawn(move || on_connection(stream));
        }
    });
    address
}

fn highwater(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
    command.arg("load").args(arguments).env_remove("SSL_CERT_FILE");
    command.output().expect("the binary under test was built")
}

/// The JSON of a short run, what it says on standard error, and its exit status.
fn load(arguments: &[&str]) -> (Value, String, i32) {
    let fixed = ["--json", "--warmup=0s", "--duration=300ms"];
    let output = highwater(&[&fixed[..], arguments].concat());
    let (text, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let json =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{stderr}"));
    (json, stderr.into_owned(), output.status.code().expect("not killed"))
}

/// The JSON of a run that must succeed, with `ok` only.
fn well(arguments: &[&str]) -> Value {
    let (json, stderr, status) = load(arguments);
    assert_eq!(status, 0, "{stderr}{json}");
    for end in ["non_2xx", "errors", "refused", "timeouts", "bad_responses"] {
        assert_eq!(count(&json, end), 0, "{end} of {json}");
    }
    assert!(count(&json, "ok") > 0, "{json}");
    json
}

fn count(json: &Value, field: &str) -> u64 {
    json[field].as_u64().unwrap_or_else(|| panic!("{field} in {json}"))
}

/// A file of this test run with `content`.
fn file(name: &str, content: &[u8]) -> PathBuf {
    let path =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
    let mut file = std::fs::File::create(&path).expect("the build's own folder");
    file.write_all(content).expect("there is room");
    path
}
