//! Certificates of a server: which one a client gets, which ones keep a server from starting, and how they are replaced
//! while it runs.

mod answers;
mod secured;
mod served;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use highwater::metrics::Metrics;
use highwater::server::{Signals, TransportChoice};
use highwater::{Limits, Pem, Router, Running, Server, ServerConfig, Tls};
use rcgen::ExtendedKeyUsagePurpose;
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;

use secured::{Authority, Issued, connect};
use served::HANG;

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

/// Certificates and keys in files.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes `NAME.pem` and `NAME.key`, each at once, as programs that renew certificates do.
    fn write(&self, name: &str, issued: &Issued) {
        self.replace(&format!("{name}.pem"), &issued.certificate);
        self.replace(&format!("{name}.key"), &issued.key);
    }

    fn replace(&self, name: &str, text: &str) {
        fs::write(self.path("new"), text).expect("it can be written");
        fs::rename(self.path("new"), self.path(name)).expect("it can be replaced");
    }
}

fn config() -> ServerConfig {
    let listen = vec!["127.0.0.1:0,tls".parse().expect("it is right")];
    ServerConfig { listen, ..served::config(TransportChoice::Epoll) }
}

/// With `NAME.pem` and `NAME.key` of `folder` for each of `names`.
fn with_files(folder: &Folder, names: &[&str]) -> ServerConfig {
    let files =
        |end: &str| names.iter().map(|name| folder.path(&format!("{name}.{end}"))).collect();
    ServerConfig { tls_cert: files("pem"), tls_key: files("key"), ..config() }
}

fn start(config: ServerConfig) -> Running {
    start_counted(config, &Metrics::new())
}

fn start_counted(config: ServerConfig, metrics: &Metrics) -> Running {
    let server = Server::new(Router::new().get("/", || "OK")).metrics(metrics);
    server.config(config).start().expect("it starts")
}

/// Why a server with these settings does not start.
fn refusal(config: ServerConfig) -> String {
    let started = Server::new(Router::new().get("/", || "OK")).config(config).start();
    match started {
        Ok(_) => panic!("it is not refused"),
        Err(error) => error.to_string(),
    }
}

/// The certificate that a client which asks for `name` gets.
fn certificate(
    running: &Running,
    name: &str,
    config: &Arc<ClientConfig>,
) -> CertificateDer<'static> {
    let mut at = connect(running.address(), name, Arc::clone(config)).expect("it serves");
    assert_eq!(at.ask(GET).expect("it is open").content, "OK");
    at.tls.peer_certificates().expect("servers have one")[0].clone().into_owned()
}

/// A client that takes each certificate, and resumes no session.
fn trusting() -> Arc<ClientConfig> {
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::pki_types::{ServerName, UnixTime};
    use rustls::{DigitallySignedStruct, Error, SignatureScheme};

    #[derive(Debug)]
    struct Anything;

    impl ServerCertVerifier for Anything {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::ED25519]
        }
    }

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().expect("ring has ciphers for all");
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(Anything));
    let mut config = builder.with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}

/// Purpose: a client gets the certificate for the name it asks for, exactly or by a wildcard; with an unknown name it gets
/// the first of all.
#[test]
fn names_choose_certificates() {
    let (folder, authority) = (Folder::new(), Authority::new("our authority"));
    let all = [
        ("first", vec!["localhost"]),
        ("second", vec!["example.org", "www.example.org"]),
        ("third", vec!["*.example.net"]),
    ];
    for (file, names) in &all {
        folder.write(file, &authority.issue(names));
    }
    let running = start(with_files(&folder, &["first", "second", "third"]));
    let client = trusting();
    for (name, file) in [
        ("localhost", "first"),
        ("example.org", "second"),
        ("WWW.Example.org", "second"),
        ("a.example.net", "third"),
        ("a.b.example.net", "first"),
        ("example.net", "first"),
        ("unknown.example", "first"),
    ] {
        let text = fs::read_to_string(folder.path(&format!("{file}.pem"))).expect("it was written");
        let expected = Issued { certificate: text, key: String::new() }.der();
        assert!(
            certificate(&running, name, &client) == expected,
            "{name} gets another than the {file}"
        );
    }
}

/// Purpose: what no client would accept keeps a server from starting; the message names the file, the reason and the remedy.
#[test]
fn bad_certificates_are_refused() {
    let (folder, authority) = (Folder::new(), Authority::new("our authority"));
    let good = authority.issue(&["localhost"]);
    folder.write("good", &good);
    folder.write("other", &authority.issue(&["localhost"]));
    let path = |name: &str| folder.path(name).display().to_string();
    let put = |name: &str, text: &str| folder.replace(name, text);
    let expired = authority.issue_with(&["localhost"], |params| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 3, 4);
    });
    folder.write("expired", &expired);
    let future = authority
        .issue_with(&["localhost"], |params| params.not_before = rcgen::date_time_ymd(3001, 1, 1));
    folder.write("future", &future);
    let of_a_client = authority.issue_with(&["localhost"], |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    folder.write("client", &of_a_client);
    put("order.pem", &format!("{}{}", authority.pem(), good.certificate));
    put("strangers.pem", &format!("{}{}", good.certificate, Authority::new("another").pem()));
    put("empty.pem", "");
    put("not.pem", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n");
    put("der.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    put(
        "encrypted.key",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    put("odd.key", "-----BEGIN PRIVATE KEY-----\nMAUCAQAwAA==\n-----END PRIVATE KEY-----\n");
    fs::create_dir(folder.path("folder.pem")).expect("it is new");
    for (certificate, key, expected) in [
        ("gone.pem", "good.key", "{gone.pem} does not exist; name a file in PEM"),
        ("good.pem", "gone.key", "{gone.key} does not exist; name a file in PEM"),
        ("folder.pem", "good.key", "{folder.pem} is not a file of up to 4 MiB; name a file in PEM"),
        (
            "good.pem",
            "other.key",
            "{other.key} is the key of another certificate than {good.pem}; give the key that the certificate was made for",
        ),
        (
            "good.key",
            "good.pem",
            "{good.key} holds a private key and no certificate; are certificate and key swapped?",
        ),
        (
            "good.pem",
            "good.pem",
            "{good.pem} holds a certificate and no private key; are certificate and key swapped?",
        ),
        (
            "empty.pem",
            "good.key",
            "{empty.pem} holds no certificate; use PEM, which begins with -----BEGIN CERTIFICATE-----",
        ),
        ("not.pem", "good.key", "{not.pem} is not PEM: "),
        ("der.pem", "good.key", "certificate 1 in {der.pem} cannot be used: "),
        ("good.pem", "encrypted.key", "{encrypted.key} is encrypted; decrypt it"),
        ("good.pem", "odd.key", "{odd.key} is a key of a kind that cannot serve; use ECDSA"),
        (
            "expired.pem",
            "expired.key",
            "the certificate in {expired.pem} has expired: it was valid until Mon, 04 Mar 2002 00:00:00 GMT; renew it",
        ),
        (
            "future.pem",
            "future.key",
            "the certificate in {future.pem} is not valid before Thu, 01 Jan 3001 00:00:00 GMT; wait, or set the clock",
        ),
        (
            "client.pem",
            "client.key",
            "the certificate in {client.pem} is not for servers: its extended key usage lacks serverAuth; have it issued \
             again",
        ),
        (
            "order.pem",
            "good.key",
            "the chain in {order.pem} is out of order: certificate 2 is not the issuer of certificate 1; put the server's \
             own first, then its issuer's, and so on",
        ),
        (
            "strangers.pem",
            "good.key",
            "the chain in {strangers.pem} is out of order: certificate 2",
        ),
    ] {
        let mut expected = expected.to_owned();
        for name in [certificate, key] {
            expected = expected.replace(&format!("{{{name}}}"), &path(name));
        }
        let files = |name: &str| vec![folder.path(name)];
        let message =
            refusal(ServerConfig { tls_cert: files(certificate), tls_key: files(key), ..config() });
        assert!(message.starts_with(&expected), "{message}\nis not\n{expected}");
    }
    put("chain.pem", &format!("{}{}", good.certificate, authority.pem()));
    put("chain.key", &good.key);
    drop(start(with_files(&folder, &["chain"])));
}

/// Purpose: settings that do not fit together keep a server from starting, and the message says what to write.
#[test]
fn incomplete_settings_are_refused() {
    let (folder, authority) = (Folder::new(), Authority::new("our authority"));
    folder.write("good", &authority.issue(&["localhost"]));
    let complete = with_files(&folder, &["good"]);
    let plain = served::config(TransportChoice::Epoll);
    let ca = Some(folder.path("good.pem"));
    for (config, expected) in [
        (
            config(),
            "the listener 127.0.0.1:0,tls has no certificate; set tls-cert and tls-key, or leave out the option tls",
        ),
        (
            ServerConfig { listen: plain.listen.clone(), ..complete.clone() },
            "there are certificates, but no listener speaks TLS; give one the option tls, such as --listen 0.0.0.0:443,tls",
        ),
        (
            ServerConfig { tls_key: Vec::new(), ..complete.clone() },
            "tls-cert is given 1 time and tls-key 0 times; give one key for each certificate, in the same order",
        ),
        (
            ServerConfig { tls_client_ca: ca, ..plain },
            "tls-client-ca has no effect without tls-cert and tls-key; set them, or leave it out",
        ),
        (
            ServerConfig {
                tls_client_ca: Some(Path::new("/nowhere").to_owned()),
                ..complete.clone()
            },
            "/nowhere does not exist; name a file in PEM",
        ),
    ] {
        assert_eq!(refusal(config), expected);
    }
    folder.replace("authority.pem", &authority.pem());
    folder.replace(
        "mixed.pem",
        &format!("{}{}", authority.pem(), authority.issue(&["a"]).certificate),
    );
    let with_ca =
        |name: &str| ServerConfig { tls_client_ca: Some(folder.path(name)), ..complete.clone() };
    let message = refusal(with_ca("mixed.pem"));
    let expected = format!(
        "certificate 2 in {} is not an authority's: its basic constraints do not say CA:TRUE; name the certificate that has \
         signed those of the clients",
        folder.path("mixed.pem").display()
    );
    assert_eq!(message, expected);
    drop(start(with_ca("authority.pem")));
}

/// Purpose: files that change are read again, without dropping a connection; what cannot be served is not used, and what
/// follows it is. Sessions from before are still resumed.
#[test]
fn certificates_are_replaced() {
    let (folder, authority) = (Folder::new(), Authority::new("our authority"));
    let [first, second, third] = [(), (), ()].map(|()| authority.issue(&["localhost"]));
    folder.write("site", &first);
    let metrics = Metrics::new();
    let running = start_counted(with_files(&folder, &["site"]), &metrics);
    let (client, resuming) = (trusting(), authority.client().config());
    let mut open = connect(running.address(), "localhost", Arc::clone(&client)).expect("it serves");
    let begun = connect(running.address(), "localhost", Arc::clone(&resuming));
    assert_eq!(begun.expect("it serves").ask(GET).expect("it is open").content, "OK");
    assert!(certificate(&running, "localhost", &client) == first.der());
    folder.write("site", &second);
    until_served(&running, &client, &second);
    let count = |result| {
        let sample = format!("http_tls_certificate_reloads_total{{result=\"{result}\"}} ");
        let page = metrics.page();
        let line = page.lines().find_map(|line| line.strip_prefix(&sample));
        line.expect("it is on the page").parse::<u64>().expect("a whole number")
    };
    let read = count("ok");
    // A key without its certificate is not used.
    folder.replace("site.key", &third.key);
    let begun = Instant::now();
    while count("failed") == 0 {
        assert!(begun.elapsed() < HANG, "it is not read");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(count("ok"), read);
    assert!(certificate(&running, "localhost", &client) == second.der());
    folder.replace("site.pem", &third.certificate);
    until_served(&running, &client, &third);
    assert_eq!(open.ask(GET).expect("it was never closed").content, "OK");
    let mut again = connect(running.address(), "localhost", resuming).expect("it serves");
    assert!(again.is_resumed());
    assert_eq!(again.ask(GET).expect("it is open").content, "OK");
}

/// Purpose: Kubernetes mounts a secret as links through a folder's link, and swaps that one link when the secret changes.
/// Both files change at once, and are read again; connections that are open answer as before, and a request that has begun
/// before the switch is answered after it.
#[cfg(unix)]
#[test]
fn kubernetes_switches_a_link() {
    let (folder, authority) = (Folder::new(), Authority::new("our authority"));
    let [first, second, third] = [(), (), ()].map(|()| authority.issue(&["localhost"]));
    let mut mount = Mount { folder: &folder, versions: 0 };
    mount.switch(&first);
    for name in ["tls.crt", "tls.key"] {
        std::os::unix::fs::symlink(format!("..data/{name}"), folder.path(name)).expect("a link");
    }
    let metrics = Metrics::new();
    let files = |name: &str| vec![folder.path(name)];
    let limits = Limits { header_timeout: HANG, ..Limits::default() };
    let config =
        ServerConfig { tls_cert: files("tls.crt"), tls_key: files("tls.key"), limits, ..config() };
    let running = start_counted(config, &metrics);
    let client = trusting();
    let mut idle = connect(running.address(), "localhost", Arc::clone(&client)).expect("it serves");
    let mut begun =
        connect(running.address(), "localhost", Arc::clone(&client)).expect("it serves");
    assert_eq!(idle.ask(GET).expect("it is open").content, "OK");
    let (head, rest) = GET.split_at(GET.len() / 2);
    begun.send(head.as_bytes()).expect("it is open");
    for issued in [&second, &third] {
        mount.switch(issued);
        until_served(&running, &client, issued);
        assert_eq!(idle.ask(GET).expect("it was never closed").content, "OK");
    }
    begun.send(rest.as_bytes()).expect("it was never closed");
    assert_eq!(begun.answer().expect("it was never closed").content, "OK");
    let page = metrics.page();
    let failed = "http_tls_certificate_reloads_total{result=\"failed\"} 0";
    assert!(page.contains(failed), "certificate and key are never of two versions");
}

/// A secret as Kubernetes mounts it: a folder for each version, and the link `..data` to the one that counts.
#[cfg(unix)]
struct Mount<'a> {
    folder: &'a Folder,
    versions: u32,
}

#[cfg(unix)]
impl Mount<'_> {
    /// Writes the next version, moves the link, and removes the version before, as the kubelet does.
    fn switch(&mut self, issued: &Issued) {
        self.versions += 1;
        let version = format!("..version-{}", self.versions);
        fs::create_dir(self.folder.path(&version)).expect("it is new");
        for (name, text) in [("tls.crt", &issued.certificate), ("tls.key", &issued.key)] {
            fs::write(self.folder.path(&version).join(name), text).expect("it can be written");
        }
        std::os::unix::fs::symlink(&version, self.folder.path("..data_tmp")).expect("a link");
        fs::rename(self.folder.path("..data_tmp"), self.folder.path("..data")).expect("it moves");
        let before = self.folder.path(&format!("..version-{}", self.versions - 1));
        // There is none before the first.
        let _ = fs::remove_dir_all(before);
    }
}

/// Purpose: files that are written over in place, as a program does that must keep a mounted file, are read again once both
/// are whole.
#[test]
fn files_may_be_written_over() {
    let (folder, authority) = (Folder::new(), Authority::new("our authority"));
    let [first, second] = [(), ()].map(|()| authority.issue(&["localhost"]));
    folder.write("site", &first);
    let running = start(with_files(&folder, &["site"]));
    let client = trusting();
    let mut open = connect(running.address(), "localhost", Arc::clone(&client)).expect("it serves");
    assert_eq!(open.ask(GET).expect("it is open").content, "OK");
    fs::write(folder.path("site.pem"), &second.certificate).expect("it can be written");
    fs::write(folder.path("site.key"), &second.key).expect("it can be written");
    until_served(&running, &client, &second);
    assert_eq!(open.ask(GET).expect("it was never closed").content, "OK");
}

/// Purpose: SIGHUP has certificates read again and does not end the server; SIGTERM does.
#[test]
fn a_hang_up_reads_certificates_again() {
    let (folder, authority) = (Folder::new(), Authority::new("our authority"));
    let [first, second] = [(), ()].map(|()| authority.issue(&["localhost"]));
    folder.write("site", &first);
    let signals = Signals::catch().expect("signals can be caught");
    let running = start(with_files(&folder, &["site"]));
    let (address, client) = (running.address(), trusting());
    let thread = std::thread::spawn(move || running.until_signal(&signals));
    let served = || {
        let mut at = connect(address, "localhost", Arc::clone(&client)).expect("it serves");
        assert_eq!(at.ask(GET).expect("it is open").content, "OK");
        at.tls.peer_certificates().expect("servers have one")[0].clone().into_owned()
    };
    assert!(served() == first.der());
    folder.write("site", &second);
    let begun = Instant::now();
    while served() != second.der() {
        signal("-HUP");
        assert!(begun.elapsed() < HANG, "it is not read");
    }
    assert!(!thread.is_finished());
    signal("-TERM");
    thread.join().expect("it does not panic").expect("it ends well");
}

fn signal(name: &str) {
    let own = std::process::id().to_string();
    let done = std::process::Command::new("kill").args([name, &own]).status();
    assert!(done.expect("every system has it").success());
}

/// Purpose: a self-signed certificate serves at once.
#[test]
fn self_signed() {
    let server = Server::new(Router::new().get("/", || "OK")).tls(Tls::self_signed());
    let running = server.config(config()).start().expect("it starts");
    let mut at = connect(running.address(), "localhost", trusting()).expect("it serves");
    assert_eq!(at.ask(GET).expect("it is open").content, "OK");
}

/// Purpose: neither a key nor a certificate in PEM shows in what is logged.
#[test]
fn keys_are_not_shown() {
    let issued = Authority::new("our authority").issue(&["localhost"]);
    let shown = format!("{:?} {:?}", issued.tls(), Pem::text(issued.key.as_str()));
    assert!(!shown.contains("BEGIN"), "{shown}");
}

fn until_served(running: &Running, client: &Arc<ClientConfig>, expected: &Issued) {
    let begun = Instant::now();
    while certificate(running, "localhost", client) != expected.der() {
        assert!(begun.elapsed() < HANG, "it is not served");
        std::thread::sleep(Duration::from_millis(20));
    }
}
