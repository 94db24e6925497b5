//! nginx with a certificate, HTTP/2 and without.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use highwater_testkit::{eventually, lasting_ports, program};

use super::file;

/// A running nginx; it ends with its test.
pub(super) struct Nginx {
    child: std::process::Child,
    /// TLS, with ALPN for both protocols.
    pub(super) tls: SocketAddr,
    /// TLS, HTTP/1.1 only.
    pub(super) tls_http1: SocketAddr,
    /// HTTP/2 without TLS.
    pub(super) http2: SocketAddr,
    /// The certificate for localhost and 127.0.0.1, which signs itself.
    pub(super) ca: String,
}

impl Nginx {
    /// `None`: it is not installed, and the test is skipped.
    pub(super) fn start() -> Option<Nginx> {
        if let Err(error) = Command::new("nginx").arg("-v").output() {
            highwater_skip::skip("nginx", format!("cannot run nginx: {error}"));
            return None;
        }
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("names are right");
        let (ca, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let first = lasting_ports(3);
        let at = |offset: u16| SocketAddr::from(([127, 0, 0, 1], first + offset));
        let name = |name: &str| format!("nginx-{first}-{name}");
        let certificate = file(&name("ca.pem"), ca.as_bytes());
        let key = file(&name("key.pem"), key.as_bytes());
        let config = config(&certificate, &key, [at(0), at(1), at(2)]);
        let config = file(&name("conf"), config.as_bytes());
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let mut command = program("nginx");
        command.arg("-p").arg(folder).arg("-c").arg(config);
        let child = command.spawn().expect("setpriv is here");
        let ca = certificate.display().to_string();
        let nginx = Nginx { child, tls: at(0), tls_http1: at(1), http2: at(2), ca };
        eventually("nginx listens", || TcpStream::connect(at(2)).is_ok());
        Some(nginx)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It has one process, which needs no farewell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn config(certificate: &std::path::Path, key: &std::path::Path, ports: [SocketAddr; 3]) -> String {
    let [tls, tls_http1, http2] = ports;
    let folder = env!("CARGO_TARGET_TMPDIR");
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path {folder}/nginx-{kind};\n"))
        .collect();
    let places = "location / { return 200 'Hello, World!'; }\nlocation /busy { return 503; }\n";
    // It is passed on when nginx has all of it; `return` does not wait for that.
    let upload = format!("location /upload {{ proxy_pass https://{tls_http1}/; }}\n");
    let secret = format!(
        "ssl_certificate {};\nssl_certificate_key {};\nssl_protocols TLSv1.2 TLSv1.3;\n",
        certificate.display(),
        key.display()
    );
    format!(
        "daemon off;\nmaster_process off;\nerror_log stderr crit;\npid {folder}/nginx-{tls}.pid;\n\
         events {{ worker_connections 2048; }}\n\
         http {{\naccess_log off;\n{temporary}keepalive_requests 1000000;\nclient_max_body_size 64m;\n\
         server {{ listen {tls} ssl http2;\n{secret}{places}{upload} }}\n\
         server {{ listen {tls_http1} ssl;\n{secret}{places} }}\n\
         server {{ listen {http2} http2;\n{places}{upload} }}\n}}\n"
    )
}
