//! nginx and HAProxy in front of a server, with what `docs/http2.md` says about gRPC.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use highwater_testkit::{eventually, lasting_ports, program, recipe};
use tempfile::TempDir;

use crate::Certificates;

/// A proxy that ends when it is dropped.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    child: Child,
    _folder: TempDir,
}

impl Proxy {
    /// Starts it in front of `upstream`, and waits until it listens. Says so if it is not installed.
    pub(crate) fn start(
        name: &str,
        upstream: SocketAddr,
        certificates: &Certificates,
    ) -> Option<Proxy> {
        let binary = name.to_lowercase();
        let found = Command::new(&binary).arg("-v").output();
        found.inspect_err(|error| highwater_skip::skip(&binary, error)).ok()?;
        let folder = tempfile::tempdir().expect("a temporary directory");
        let address = SocketAddr::from(([127, 0, 0, 1], lasting_ports(1)));
        write(
            folder.path(),
            "both.pem",
            &[certificates.chain.as_str(), &certificates.key].concat(),
        );
        let config = recipe("http2.md", &["\n## gRPC\n", &format!("\n{name} ")])
            .replace("listen 443 ", &format!("listen {address} "))
            .replace("bind :443 ", &format!("bind {address} "))
            .replace("127.0.0.1:8080", &upstream.to_string())
            .replace("/etc/ssl/example.org.pem", &at(folder.path(), "both.pem"))
            .replace("/etc/ssl/example.org.key", &at(folder.path(), "both.pem"));
        let child = command(&binary, folder.path(), &config).stderr(Stdio::null()).spawn();
        let mut proxy = Proxy { address, child: child.expect("it is installed"), _folder: folder };
        eventually("the proxy listens", || {
            let ended = proxy.child.try_wait().expect("it is ours");
            assert!(ended.is_none(), "{name} refuses this: {config}");
            TcpStream::connect(address).is_ok()
        });
        Some(proxy)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What runs the proxy in the foreground.
fn command(binary: &str, folder: &Path, config: &str) -> Command {
    let mut command = program(binary);
    let file = at(folder, "config");
    if binary == "haproxy" {
        write(folder, "config", config);
        command.args(["-db", "-f", &file]);
        return command;
    }
    // One process, which ends at once with the test; the folders that it makes are in ours.
    let place = folder.display();
    let config = format!(
        "daemon off; master_process off; pid {place}/pid; events {{}}\nhttp {{\naccess_log off;\n\
         client_body_temp_path {place}/body; proxy_temp_path {place}/proxy;\n\
         fastcgi_temp_path {place}/fastcgi; uwsgi_temp_path {place}/uwsgi;\n\
         scgi_temp_path {place}/scgi;\n{config}}}\n"
    );
    write(folder, "config", &config);
    command.args(["-p", &at(folder, ""), "-c", &file, "-e", &at(folder, "error.log")]);
    command
}

fn at(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

fn write(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(name), text).expect("the folder is ours");
}
