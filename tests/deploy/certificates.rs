//! Certificates where they are deployed: do the secrets of Compose, the credentials of systemd and the secrets of
//! Kubernetes reach the server, and does each file name what it mounts?

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use highwater_testkit::{Client, Process, get, program};
use serde_json::Value;

use crate::containers::{folder, text_of};
use crate::{documents, path, read, write_certificate};

/// How a way of deploying hands a certificate to the server.
struct Handed {
    /// The settings of the server, by the names of their variables.
    variables: BTreeMap<String, String>,
    /// The folder that its variables name, with the `/` behind it.
    folder: &'static str,
}

impl Handed {
    fn value(&self, name: &str) -> &str {
        self.variables.get(name).unwrap_or_else(|| panic!("{name} is not set"))
    }

    /// The names of certificate and key in the folder.
    fn names(&self) -> [&str; 2] {
        ["HIGHWATER_TLS_CERT", "HIGHWATER_TLS_KEY"].map(|name| {
            let value = self.value(name);
            value.strip_prefix(self.folder).unwrap_or_else(|| panic!("{value} is elsewhere"))
        })
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is not text")).to_owned()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// What `compose.tls.yaml` says. Each file is a secret that the service has.
fn of_compose() -> Handed {
    let compose = documents(&read("compose.tls.yaml")).remove(0);
    let service = &compose["services"]["search"];
    let variables = service["environment"].as_object().expect("variables").iter();
    let variables = variables.map(|(name, value)| (name.clone(), text(value))).collect();
    let handed = Handed { variables, folder: "/run/secrets/" };
    for name in handed.names() {
        assert!(list(&service["secrets"]).any(|secret| secret == name), "{name} is not mounted");
        assert!(compose["secrets"][name]["file"].is_string(), "{name} is not a secret");
    }
    handed
}

/// What `systemd/tls.conf` says. Each file is a credential.
fn of_systemd() -> Handed {
    let text = read("systemd/tls.conf");
    let settings = |name: &'static str| {
        text.lines().filter_map(move |line| line.strip_prefix(name)?.split_once(['=', ':']))
    };
    let variables = settings("Environment=").map(|(name, value)| (name.into(), value.into()));
    let handed = Handed { variables: variables.collect(), folder: "%d/" };
    for name in handed.names() {
        assert!(
            settings("LoadCredential=").any(|(it, _)| it == name),
            "{name} is not a credential"
        );
    }
    handed
}

/// What `k8s/search-tls.yaml` says. The files are those of a secret that is mounted whole, and that `k8s/certificate.yaml`
/// has issued.
fn of_kubernetes() -> Handed {
    let all = documents(&read("k8s/search-tls.yaml"));
    let workload = all.iter().find(|document| document["kind"] == "Deployment").expect("pods");
    let pod = &workload["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    // What comes from a secret has no value here.
    let given = list(&container["env"]).filter(|given| given["value"].is_string());
    let given = given.map(|given| (text(&given["name"]), text(&given["value"])));
    let mut variables: BTreeMap<String, String> = given.collect();
    for flag in list(&container["args"]).map(text) {
        let (name, value) = flag.split_once('=').expect("a flag with a value");
        let name = name.trim_start_matches('-').replace('-', "_").to_uppercase();
        variables.insert(format!("HIGHWATER_{name}"), value.to_owned());
    }
    let handed = Handed { variables, folder: "/tls/" };
    // These are the names in each secret of the type `kubernetes.io/tls`.
    assert_eq!(handed.names(), ["tls.crt", "tls.key"]);
    let mount = list(&container["volumeMounts"]).find(|mount| mount["mountPath"] == "/tls");
    let mount = mount.expect("the secret is mounted");
    assert!(mount["subPath"].is_null(), "it would never be brought up to date");
    let volume = list(&pod["volumes"]).find(|volume| volume["name"] == mount["name"]);
    let secret = &volume.expect("what is mounted is there")["secret"];
    // Readable for the group of the pod, which is `fsGroup`, and for nobody else.
    assert_eq!(
        (&secret["defaultMode"], pod["securityContext"]["fsGroup"].is_u64()),
        (&0o440.into(), true)
    );
    let certificate = documents(&read("k8s/certificate.yaml")).remove(0);
    assert_eq!(certificate["spec"]["secretName"], secret["secretName"]);
    handed
}

/// What settings say how to listen, moved to a port of this test's own.
fn listen(handed: &Handed) -> String {
    let value = handed.value("HIGHWATER_LISTEN");
    let options = value.strip_prefix("0.0.0.0:8443").unwrap_or_else(|| panic!("{value}"));
    format!("127.0.0.1:0{options}")
}

/// Whether the server speaks TLS, and has the certificate: it says so itself.
fn speaks_tls(command: &mut Command, what: &str) {
    let server = Process::start(command);
    let page = server.metrics_page();
    assert!(page.contains("\nhttp_tls_certificate_expiry_timestamp_seconds{"), "{what}");
    let answer = Client::connect(server.address).ask(get("/"));
    assert!(answer.status == 400 && answer.text().contains("TLS"), "{what}: {}", answer.text());
}

/// Purpose: a server gets its certificate from where each way of deploying puts it, by the variables in our files; and the
/// same settings as flags, and as a file, do the same.
#[test]
fn certificates_reach_the_server() {
    let server = || {
        let mut command = program(env!("CARGO_BIN_EXE_strained"));
        command.args(["--metrics", "127.0.0.1:0", "--workers", "1"]);
        command
    };
    for (what, handed) in
        [("Compose", of_compose()), ("systemd", of_systemd()), ("Kubernetes", of_kubernetes())]
    {
        let place = folder("certificates");
        let files = handed.names().map(|name| place.join(name));
        write_certificate(&files);
        let [certificate, key] = files;
        let listen = listen(&handed);
        let mut by_variables = server();
        by_variables.env("HIGHWATER_LISTEN", &listen);
        by_variables.env("HIGHWATER_TLS_CERT", &certificate).env("HIGHWATER_TLS_KEY", &key);
        speaks_tls(&mut by_variables, &format!("{what}, variables"));
        let mut by_flags = server();
        by_flags.args(["--listen", &listen]);
        by_flags.arg("--tls-cert").arg(&certificate).arg("--tls-key").arg(&key);
        speaks_tls(&mut by_flags, &format!("{what}, flags"));
        let file = place.join("settings.toml");
        let settings =
            format!("listen = {listen:?}\ntls-cert = [{certificate:?}]\ntls-key = [{key:?}]\n");
        fs::write(&file, settings).expect("it is ours");
        speaks_tls(server().arg("--config").arg(&file), &format!("{what}, a file"));
        fs::remove_dir_all(place).expect("it was made");
    }
}

/// Purpose: Compose understands the file with secrets, says which of its variables is missing, and refuses a slip.
#[test]
fn compose_reads_the_secrets() {
    if let Err(error) = Command::new("docker-compose").arg("version").output() {
        highwater_skip::skip("docker-compose", error);
        return;
    }
    let config = |file: &Path, missing: &str| -> Output {
        let mut compose = Command::new("docker-compose");
        compose.arg("-f").arg(file).arg("config");
        compose.envs(["TLS_CERT", "TLS_KEY", "PROVIDER_URL"].map(|name| (name, "./some")));
        compose.env_remove(missing).output().expect("it is here")
    };
    let output = config(&path("compose.tls.yaml"), "NOTHING");
    assert!(output.status.success(), "{}", text_of(&output));
    for missing in ["TLS_CERT", "TLS_KEY", "PROVIDER_URL"] {
        let output = config(&path("compose.tls.yaml"), missing);
        assert!(
            !output.status.success() && text_of(&output).contains(missing),
            "{}",
            text_of(&output)
        );
    }
    let place = folder("compose-tls");
    let file = place.join("compose.yaml");
    let slip = read("compose.tls.yaml").replace("    secrets: [", "    secret: [");
    fs::write(&file, slip).expect("it is ours");
    let output = config(&file, "NOTHING");
    assert!(
        !output.status.success() && text_of(&output).contains("'secret'"),
        "{}",
        text_of(&output)
    );
    fs::remove_dir_all(place).expect("it was made");
}

/// Purpose: systemd understands what adds TLS to service and socket, warns of nothing, and does read it: a slip in either is
/// seen. The socket has the address by which the service knows it.
#[test]
fn systemd_reads_the_credentials() {
    let service = read("systemd/tls.conf");
    let socket = read("systemd/tls-socket.conf");
    let address = socket.lines().rev().find_map(|line| line.strip_prefix("ListenStream="));
    let expected = format!("{},tls", address.expect("it listens"));
    assert_eq!(of_systemd().value("HIGHWATER_LISTEN"), expected);
    if let Err(error) = Command::new("systemd-analyze").arg("--version").output() {
        highwater_skip::skip("systemd-analyze", error);
        return;
    }
    let place = folder("systemd-tls");
    let unit =
        read("systemd/highwater@.service").replace("/usr/local/bin/highwater-%i", "/bin/true");
    fs::write(place.join("highwater@.service"), unit).expect("it is ours");
    fs::write(place.join("highwater@.socket"), read("systemd/highwater@.socket")).expect("ours");
    let verify = |service: &str, socket: &str| {
        let units = ["service", "socket"].map(|kind| place.join(format!("highwater@todos.{kind}")));
        for (unit, text) in units.iter().zip([service, socket]) {
            let beside = unit.with_added_extension("d");
            fs::create_dir_all(&beside).expect("it is ours");
            fs::write(beside.join("tls.conf"), text).expect("it is ours");
        }
        Command::new("systemd-analyze").arg("verify").args(units).output().expect("it is here")
    };
    let output = verify(&service, &socket);
    let of_ours = text_of(&output).lines().filter(|line| line.contains("highwater@")).count();
    assert!(output.status.success() && of_ours == 0, "{}", text_of(&output));
    let with_slip = |text: &str, right: &str, wrong: &str| {
        assert!(text.contains(right), "{right}");
        text.replace(right, wrong)
    };
    let wrong_name = with_slip(&service, "LoadCredential=", "LoadCredentials=");
    let wrong_port = with_slip(&socket, ":8443", ":84430");
    for (service, socket) in [(&wrong_name, &socket), (&service, &wrong_port)] {
        let output = verify(service, socket);
        assert!(text_of(&output).contains("tls.conf"), "it is not seen: {}", text_of(&output));
    }
    fs::remove_dir_all(place).expect("it was made");
}
