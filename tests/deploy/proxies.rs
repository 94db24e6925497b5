//! nginx and HAProxy: their own checkers, and each at work in front of two servers.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use highwater_testkit::{Client, PATIENCE, Process, get, lasting_ports, recipe, within};
use highwater_tests::source;

use crate::{path, server, write_certificate};

/// Whether the program is here; says so if it is not.
pub(crate) fn is_here(program: &str) -> bool {
    let found = Command::new(program).arg("-v").output();
    found.inspect_err(|error| highwater_skip::skip(program, error)).is_ok()
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A proxy that a script starts with the configuration that is deployed; stopped when dropped.
pub(crate) struct Proxy {
    pub(crate) name: &'static str,
    pub(crate) port: u16,
}

impl Proxy {
    pub(crate) fn start(name: &'static str, upstreams: &[String]) -> Proxy {
        let proxy = Proxy { name, port: lasting_ports(1) };
        let arguments: Vec<&str> =
            ["start"].into_iter().chain(upstreams.iter().map(String::as_str)).collect();
        proxy.script(&arguments);
        proxy
    }

    fn script(&self, arguments: &[&str]) {
        let script = source::root().join(format!("scripts/services/{}.sh", self.name));
        let variable = format!("HW_{}_PORT", self.name.to_uppercase());
        let output = Command::new(script)
            .args(arguments)
            .env(variable, self.port.to_string())
            .output()
            .expect("there is bash");
        assert!(output.status.success(), "{}: {}", self.name, text_of(&output));
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(SocketAddr::from(([127, 0, 0, 1], self.port)))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.script(&["stop"]);
        let services = source::root().join("target/services");
        // What it wrote is of no use any more, and harmless.
        let _ = fs::remove_dir_all(services.join(format!("{}-{}", self.name, self.port)));
        let _ = fs::remove_file(services.join(format!("{}-{}.lock", self.name, self.port)));
    }
}

/// A proxy in front of two servers, if it is installed.
pub(crate) fn before_two(name: &'static str) -> Option<(Proxy, [Process; 2])> {
    is_here(name).then(|| {
        let servers = [server(), server()];
        let upstreams = servers.each_ref().map(|server| match name {
            "nginx" => server.address.to_string(),
            // The other one asks the metrics port whether a server is healthy.
            _ => format!("{},{}", server.address, server.metrics()),
        });
        (Proxy::start(name, &upstreams), servers)
    })
}

/// How many requests a server has had.
fn requests(server: &Process) -> f64 {
    server.metric("http_requests_total")
}

/// How many connections a server has had.
fn connections(server: &Process) -> f64 {
    server.metric("http_connections_total")
}

/// Asks the proxy so often, on one connection; every answer must be 200.
fn ask(proxy: &Proxy, times: usize) {
    let mut client = proxy.connect();
    for _ in 0..times {
        let answer = client.get("/");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

/// What every proxy must do: spread requests over the servers, keep its connections to them, and lose no request when
/// one of them ends.
fn serves_through(proxy: &Proxy, servers: [Process; 2]) {
    let [mut leaving, staying] = servers;
    // A health check may have to find them first.
    let reached = within(PATIENCE, || {
        proxy.connect().try_ask(get("/")).is_ok_and(|answer| answer.status == 200)
    });
    assert!(reached, "no answer through {}", proxy.name);
    let spread = within(PATIENCE, || {
        ask(proxy, 4);
        requests(&leaving) > 0.0 && requests(&staying) > 0.0
    });
    assert!(spread, "one server gets everything");
    // Old health checks name no host.
    let nameless = proxy.connect().ask("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(nameless.status, 200, "{}", nameless.text());
    let before = connections(&leaving) + connections(&staying);
    let asked = requests(&leaving) + requests(&staying);
    ask(proxy, 200);
    let more = connections(&leaving) + connections(&staying) - before;
    let asked = requests(&leaving) + requests(&staying) - asked;
    assert!(asked >= 200.0, "{asked}");
    assert!(more <= 40.0, "{more} new connections to the servers for {asked} requests");
    // Clients that come for one request each find the proxy's connections open. (With `http-reuse safe`, HAProxy opened
    // another one for each, and got resets when a server was overloaded.)
    let before = connections(&leaving) + connections(&staying);
    for _ in 0..100 {
        ask(proxy, 1);
    }
    let more = connections(&leaving) + connections(&staying) - before;
    assert!(more <= 40.0, "{more} new connections to the servers for 100 clients");
    leaving.signal("TERM");
    for _ in 0..50 {
        ask(proxy, 2);
    }
    assert!(leaving.ends_within(PATIENCE).is_some_and(|status| status.success()));
    ask(proxy, 20);
}

/// Purpose: a configuration that nginx refuses would be found by whoever deploys it.
#[test]
fn nginx_takes_its_configuration() {
    if !is_here("nginx") {
        return;
    }
    let upstreams = fs::read_to_string(path("nginx/upstreams.conf")).expect("it is there");
    let upstreams = upstreams.replace("todos:8080", "127.0.0.1:8080");
    assert!(upstreams.contains("127.0.0.1"), "names are for the network of the containers");
    // An instance that refuses the excess must not be left out.
    assert!(upstreams.contains(" max_fails=0;"), "{upstreams}");
    let folder = source::root().join(format!("target/deploy-tests/nginx-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the build's own folder");
    let place = folder.display().to_string();
    let config = fs::read_to_string(path("nginx/nginx.conf")).expect("it is there");
    // The check binds the ports and makes the folders.
    let config =
        config.replace("/tmp/nginx", &place).replace("/dev/stderr", &format!("{place}/error.log"));
    let check = |config: &str| {
        fs::write(folder.join("nginx.conf"), config).expect("the build's own folder");
        fs::write(folder.join("upstreams.conf"), &upstreams).expect("the build's own folder");
        let config = format!("{place}/nginx.conf");
        Command::new("nginx")
            .args(["-t", "-p", &place, "-c", &config])
            .output()
            .expect("it is here")
    };
    // The ports that it is deployed with may be taken here.
    let clients = lasting_ports(2);
    let status = clients + 1;
    assert!(config.contains("listen 8080 ") && config.contains("listen 8081;"));
    let config = config.replace("listen 8080 ", &format!("listen 127.0.0.1:{clients} "));
    let config = config.replace("listen 8081;", &format!("listen 127.0.0.1:{status};"));
    let output = check(&config);
    assert!(output.status.success(), "{}", text_of(&output));
    let broken = check(&config.replace("least_conn;", "least_con;"));
    assert!(text_of(&broken).contains("least_con"), "{}", text_of(&broken));
    assert!(!broken.status.success(), "a slip is seen");
    for habit in [
        "worker_processes auto;",
        "keepalive 1024;",
        "least_conn;",
        "proxy_http_version 1.1;",
        // `$host` has no port, and an Origin has: same-origin requests would get 403.
        "default $http_host;",
        "proxy_set_header Host $host_and_port;",
        // A WebSocket's client may be silent for 30 s until it is pinged.
        "proxy_read_timeout 45s;",
        "proxy_max_temp_file_size 0;",
    ] {
        assert!(config.contains(habit), "{habit} is missing");
    }
    // It is of no use any more, and harmless.
    let _ = fs::remove_dir_all(folder);
}

/// Purpose: the configuration that is deployed does what it is for, in a running nginx.
#[test]
fn nginx_spreads_keeps_and_drains() {
    if let Some((proxy, servers)) = before_two("nginx") {
        serves_through(&proxy, servers);
    }
}

/// Purpose: a request whose attempt to connect fails while instances restart in turn does not wait a second. HAProxy waits for
/// `timeout connect`, a second at most, before the next attempt: always with one server left, and by its algorithm for
/// `leastconn` also before it turns to another server.
#[test]
fn haproxy_does_not_wait_long_to_connect_again() {
    let config = fs::read_to_string(path("haproxy/haproxy.cfg")).expect("it is there");
    let lines: Vec<&str> = config.lines().map(str::trim).collect();
    assert!(lines.contains(&"balance leastconn") && lines.contains(&"option redispatch 1"));
    let waits = lines.iter().filter_map(|line| line.strip_prefix("timeout connect "));
    let waits: Vec<&str> = waits.collect();
    assert_eq!(waits, ["250ms"]);
}

/// Purpose: a configuration that HAProxy refuses, or warns about, would be found by whoever deploys it.
#[test]
fn haproxy_takes_its_configuration() {
    if !is_here("haproxy") {
        return;
    }
    let check = |file: &std::path::Path| {
        Command::new("haproxy").args(["-c", "-f"]).arg(file).output().expect("it is here")
    };
    let file = path("haproxy/haproxy.cfg");
    let output = check(&file);
    assert!(output.status.success(), "{}", text_of(&output));
    assert!(!text_of(&output).to_lowercase().contains("warning"), "{}", text_of(&output));
    let config = fs::read_to_string(&file).expect("it is there");
    let folder = source::root().join("target/deploy-tests");
    fs::create_dir_all(&folder).expect("the build's own folder");
    let slip = folder.join(format!("{}-haproxy.cfg", std::process::id()));
    fs::write(&slip, config.replace("balance leastconn", "balance leastcon")).expect("it is ours");
    let output = check(&slip);
    assert!(
        !output.status.success() && text_of(&output).contains("leastcon"),
        "{}",
        text_of(&output)
    );
    fs::remove_file(slip).expect("it was written");
}

/// Purpose: the configuration that is deployed does what it is for, in a running HAProxy; it asks the metrics port.
#[test]
fn haproxy_spreads_keeps_and_drains() {
    if let Some((proxy, servers)) = before_two("haproxy") {
        serves_through(&proxy, servers);
    }
}

/// A metrics port that says alive, and not ready, and how often it was asked for the latter.
fn never_ready() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (address, asked) = (listener.local_addr().expect("it is bound"), Arc::default());
    let counted = Arc::<AtomicUsize>::clone(&asked);
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.expect("it was accepted");
            let mut line = String::new();
            let read = BufReader::new(&connection).read_line(&mut line);
            let is_ready = line.contains("/readyz");
            counted.fetch_add(usize::from(read.is_ok() && is_ready), Ordering::Relaxed);
            let status = if is_ready { "503 Service Unavailable" } else { "200 OK" };
            // HAProxy may have gone.
            let _ = write!(connection, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        }
    });
    (address, asked)
}

/// Purpose: while no instance is ready, as when a dependency of all is down, HAProxy passes requests to those that live. It refused
/// all of them, also those that the instances still serve without the dependency.
#[test]
fn haproxy_serves_while_nobody_is_ready() {
    if !is_here("haproxy") {
        return;
    }
    let (servers, ports) = ([server(), server()], [never_ready(), never_ready()]);
    let upstreams: Vec<String> = servers
        .iter()
        .zip(&ports)
        .map(|(server, (metrics, _))| format!("{},{metrics}", server.address))
        .collect();
    let proxy = Proxy::start("haproxy", &upstreams);
    // Two failed checks take a server out.
    let is_out =
        within(PATIENCE, || ports.iter().all(|(_, asked)| asked.load(Ordering::Relaxed) >= 4));
    assert!(is_out, "HAProxy does not ask");
    ask(&proxy, 50);
    assert!(servers.iter().all(|server| requests(server) > 0.0), "both live");
}

/// A server that reads requests and closes their connections, as one that is killed, and how many it has read.
fn never_answers() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (address, read) = (listener.local_addr().expect("it is bound"), Arc::default());
    let counted = Arc::<AtomicUsize>::clone(&read);
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let lines = BufReader::new(connection.expect("it was accepted")).lines();
            let is_end = |line: &io::Result<String>| line.as_ref().is_ok_and(String::is_empty);
            counted.fetch_add(
                usize::from(lines.take(100).any(|line| is_end(&line))),
                Ordering::Relaxed,
            );
        }
    });
    (address, read)
}

/// Purpose: a GET that an instance did not answer goes to another one, so that clients notice nothing of an instance that is killed;
/// a POST does not, because it may have been done.
#[test]
fn haproxy_repeats_reads_only() {
    if !is_here("haproxy") {
        return;
    }
    let ((silent, read), server) = (never_answers(), server());
    let proxy = Proxy::start("haproxy", &[silent.to_string(), server.address.to_string()]);
    ask(&proxy, 20);
    let reads = read.load(Ordering::Relaxed);
    assert!(reads > 0, "all went to the other one");
    let post = "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n";
    let broken = (0..20)
        .filter(|_| proxy.connect().try_ask(post).map_or(true, |answer| answer.status == 502))
        .count();
    assert!(broken > 0, "all went to the other one");
    assert_eq!(read.load(Ordering::Relaxed) - reads, broken, "none is repeated");
    assert_eq!(requests(&server), (20 + 20 - broken) as f64);
}

/// Purpose: what users copy out of the documentation is taken as it stands, by the versions that distributions have.
#[test]
fn the_recipes_are_taken() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    write_certificate(&[certificate.clone(), key.clone()]);
    let port = lasting_ports(1);
    let local = |recipe: String, certificate: &str| {
        assert!(recipe.contains("443 ssl") && recipe.contains("/etc/ssl/example.org.pem"));
        let recipe = recipe.replace("listen 443 ", &format!("listen 127.0.0.1:{port} "));
        let recipe = recipe.replace("/etc/ssl/example.org.pem", certificate);
        recipe.replace("/etc/ssl/example.org.key", &file("key.pem"))
    };
    if is_here("nginx") {
        let servers = local(recipe("tls.md", &["\n### nginx\n"]), &file("cert.pem"));
        let config = format!("pid {};\nevents {{}}\nhttp {{\n{servers}}}\n", file("pid"));
        fs::write(file("nginx.conf"), config).expect("it is ours");
        let mut nginx = Command::new("nginx");
        nginx.args(["-t", "-p", &file(""), "-c", &file("nginx.conf"), "-e", &file("error.log")]);
        let output = nginx.output().expect("it is here");
        assert!(output.status.success(), "{}", text_of(&output));
    }
    if is_here("haproxy") {
        let both = [certificate, key].map(|half| fs::read_to_string(half).expect("it is ours"));
        fs::write(file("both.pem"), both.concat()).expect("it is ours");
        let config = local(recipe("tls.md", &["\n### HAProxy\n"]), &file("both.pem"));
        fs::write(file("haproxy.cfg"), config).expect("it is ours");
        let mut haproxy = Command::new("haproxy");
        let output = haproxy.args(["-c", "-f", &file("haproxy.cfg")]).output().expect("it is here");
        assert!(output.status.success(), "{}", text_of(&output));
        assert!(!text_of(&output).to_lowercase().contains("warning"), "{}", text_of(&output));
    }
}
